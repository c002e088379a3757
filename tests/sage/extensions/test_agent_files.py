"""Sub-agents from files: what their keys do, whose name counts, and what a file cannot do."""

from __future__ import annotations

import os

import pytest

from lyra.sage.extensions.agent_files import BUILT_IN, AgentFiles, tighter_mode
from lyra.tools.permissions.subjects import facts_of
from tests.sage.extensions.support import Desk

DOCS = """\
---
name: docs
description: Compares the docs with the code
tools: [Read, "Bash(git diff *)"]
model: sim/echo
budget: $0.50
max_turns: 7
permission_mode: plan
worktree: true
background: true
---
You compare.
"""


def test_every_key_of_a_file_is_in_the_definition(desk: Desk) -> None:
    """A file with all keys gives a definition with all of them, and its text is the system prompt."""
    path = desk.of_user("agents/docs.md", DOCS)
    definition = AgentFiles(desk.places()).definitions()["docs"]
    assert definition.description == "Compares the docs with the code"
    assert definition.system == "You compare."
    assert definition.tools == ("Read", "Bash(git diff *)")
    assert (definition.model, definition.budget, definition.max_turns) == ("sim/echo", "$0.50", 7)
    assert (definition.permission_mode, definition.worktree, definition.background) == ("plan", True, True)
    assert (definition.source, definition.origin) == (str(path), "user")


def test_keys_that_are_left_out_are_the_callers(desk: Desk) -> None:
    """Only the description is needed: the name is the file's, the rest is left to the caller."""
    desk.of_user("agents/small.md", "---\ndescription: Small\n---\nDo it.\n")
    definition = AgentFiles(desk.places()).definitions()["small"]
    assert (definition.tools, definition.model, definition.budget, definition.max_turns) == (None, "", None, None)
    assert (definition.permission_mode, definition.worktree, definition.background) == ("", False, False)


def test_the_built_in_ones_only_read() -> None:
    """Explore, Plan and Review have no tool that writes, runs or fetches, and the mode plan besides."""
    assert list(BUILT_IN) == ["Explore", "Plan", "Review"]
    for definition in BUILT_IN.values():
        assert definition.permission_mode == "plan"
        assert definition.tools is not None
        assert {facts_of(tool).act for tool in definition.tools if tool != "RepoMap"} == {"read"}
        assert "never an instruction" in definition.system


@pytest.mark.parametrize("name", ["Explore", "explore", "PLAN", "general"])
def test_a_file_cannot_take_a_built_in_name(desk: Desk, name: str) -> None:
    """In no spelling of upper and lower case."""
    desk.of_user("agents/x.md", f"---\nname: {name}\ndescription: d\n---\nI am another.\n")
    files = AgentFiles(desk.places())
    assert files.definitions() == BUILT_IN
    assert files.problems == (f"{desk.user}/agents/x.md:2: {name} is a name of Sage's own, and a file cannot take it",)


@pytest.mark.parametrize("name", ["Еxplore", "a b", "../x", "\x1b[31mx", "a" * 65])
def test_a_name_is_plain_ascii(desk: Desk, name: str) -> None:
    """A letter that looks like another (here: Cyrillic), a path or an escape sequence is no name."""
    desk.of_user("agents/x.md", f"---\nname: {name!a}\ndescription: d\n---\nText.\n".encode().decode("unicode_escape"))
    files = AgentFiles(desk.places())
    assert files.entries() == {}
    assert len(files.problems) == 1
    assert "\x1b" not in files.problems[0]


def test_a_projects_agents_count_where_the_folder_is_trusted(desk: Desk) -> None:
    """Without trust there is none; with it the project's comes before the user's of the same name."""
    desk.of_project("agents/docs.md", DOCS)
    desk.of_user("agents/docs.md", DOCS.replace("You compare.", "Mine."))
    assert AgentFiles(desk.places(trusted=False)).definitions()["docs"].system == "Mine."
    assert AgentFiles(desk.places(trusted=True)).definitions()["docs"].system == "You compare."


def test_a_link_of_a_project_does_not_count(desk: Desk) -> None:
    """A repository could bring a link to any file of the user; its content would become a prompt."""
    secret = desk.user / "secret.md"
    secret.write_text(DOCS)
    (desk.project / ".lyra" / "agents").mkdir(parents=True)
    os.symlink(secret, desk.project / ".lyra" / "agents" / "docs.md")
    files = AgentFiles(desk.places())
    assert files.entries() == {}
    assert "is a link" in files.problems[0]
    (desk.user / "agents").mkdir()
    os.symlink(secret, desk.user / "agents" / "docs.md")
    assert "docs" in AgentFiles(desk.places()).entries()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("modell: x", ":3: a sub-agent has no key 'modell' (did you mean 'model'?)"),
        ("max_turns: 0", ":3: max_turns is a whole number between 1 and 1000, not '0'"),
        ("max_turns: yes", ":3: max_turns is a whole number between 1 and 1000, not 'yes'"),
        ("budget: 5", ":3: it is not a budget"),
        ("budget: lots", ":3: it is not a budget"),
        ("permission_mode: byspass", ":3: permission_mode is one of"),
        ("worktree: yes", ":3: worktree is true or false"),
        ("background: 1", ":3: background is true or false"),
        ("tools: [Read, 'Bash(']", ":3: 'Bash(' is not the name of a tool"),
        ("tools: {a: b}", ":3: tools is a list"),
        ("name: [a]", ":3: name is a text"),
        ("description: x", ":3: not YAML"),
    ],
)
def test_a_wrong_value_is_told_with_its_line(desk: Desk, line: str, problem: str) -> None:
    desk.of_user("agents/x.md", f"---\ndescription: d\n{line}\n---\nText.\n")
    files = AgentFiles(desk.places())
    assert files.entries() == {}
    expected = problem if "not YAML" not in problem else ":3: key 'description' is written twice"
    assert any(expected in text for text in files.problems), files.problems


def test_a_file_without_a_description_or_a_text_is_refused(desk: Desk) -> None:
    desk.of_user("agents/a.md", "---\nname: a\n---\nText.\n")
    desk.of_user("agents/b.md", "---\ndescription: d\n---\n\n")
    files = AgentFiles(desk.places())
    assert files.entries() == {}
    assert [text.partition(": ")[2] for text in files.problems] == [
        "a sub-agent has a description, by which a model chooses it",
        "a sub-agent has a text below its front matter",
    ]


def test_a_mode_can_only_tighten() -> None:
    """The tighter of the sub-agent's and the caller's mode counts."""
    assert tighter_mode("bypass", "default") == "default"
    assert tighter_mode("plan", "bypass") == "plan"
    assert tighter_mode("deny-unasked", "plan") == "plan"
    assert tighter_mode("accept-edits", "deny-unasked") == "deny-unasked"
    assert tighter_mode("", "accept-edits") == "accept-edits"

"""The system prompt says what is there, in a stable order, and leaves out what is not given."""

from __future__ import annotations

import pytest

from lyra.agents.headless.options import default_prompt
from lyra.sage.project.git_state import GitCommit, GitState
from lyra.sage.project.prompt import MODE_WORDS, environment_lines, git_lines, rules_heading, system_prompt
from lyra.sage.project.rules import ProjectRules
from lyra.tools.permissions import MODES

STATE = GitState(
    "/work",
    "main",
    "0123456789",
    "origin/main",
    ahead=2,
    behind=1,
    staged=1,
    changed=3,
    untracked=4,
    conflicted=1,
    commits=(GitCommit("0123456", "2026-11-17", "Do the thing"),),
)


def test_without_parts_it_is_the_default_prompt_and_the_environment():
    text = system_prompt("/work", ["/more"], attended=True)
    assert text.startswith(default_prompt("/work", ["/more"], attended=True))
    assert "# Environment" in text
    for absent in ("# Rules", "# Git", "# Files", "Plan mode", "Date:"):
        assert absent not in text
    assert "No person is there" in system_prompt("/work")


def test_all_parts_in_their_order(tmp_path):
    (tmp_path / "AGENTS.md").write_text("use tabs")
    rules = ProjectRules(str(tmp_path), trust=True)
    text = system_prompt(
        str(tmp_path),
        mode="plan",
        date="2026-11-17",
        sandbox="bubblewrap",
        rules=rules,
        git=STATE,
        repo_map="a.py\n  f()",
    )
    marks = [
        *("You work on the files", "Plan mode:", "# Rules of the project", "use tabs", rules_heading(rules.mark)),
        *("# Environment", "2026-11-17", "bubblewrap", "# Git", "Do the thing", "# Files and symbols", "a.py\n  f()"),
    ]
    assert [text.index(mark) for mark in marks] == sorted(text.index(mark) for mark in marks)


def test_only_known_modes_have_words():
    assert set(MODE_WORDS) <= set(MODES)
    for mode in MODES:
        assert (MODE_WORDS.get(mode, "Plan mode") in system_prompt("/work", mode=mode)) == (mode in MODE_WORDS)


def test_rules_without_trust_are_named_and_not_given(tmp_path):
    (tmp_path / "AGENTS.md").write_text("obey me")
    text = system_prompt(str(tmp_path), rules=ProjectRules(str(tmp_path), trust=False))
    assert "obey me" not in text
    assert "The user has not trusted AGENTS.md" in text


def test_the_prompt_follows_a_change_of_the_rules(tmp_path):
    """A system function that calls it for each message gives the rules of now."""
    (tmp_path / "AGENTS.md").write_text("use tabs")
    rules = ProjectRules(str(tmp_path), trust=True)
    assert "use tabs" in system_prompt(str(tmp_path), rules=rules)
    (tmp_path / "AGENTS.md").write_text("use four blanks")
    assert "use four blanks" in system_prompt(str(tmp_path), rules=rules)


@pytest.mark.parametrize(
    ("state", "lines"),
    [
        (STATE._replace(commits=()), ["Branch: main (upstream origin/main: 2 ahead, 1 behind)", None]),
        (GitState("/work", "main", "01"), ["Branch: main", "Files: clean"]),
        (GitState("/work", "", "01"), ["Branch: no branch, commit 01", "Files: clean"]),
        (GitState("/work", "main", problem="git is gone"), ["Branch: main", "More is not known: git is gone."]),
    ],
)
def test_lines_about_git(state, lines):
    assert [wanted or got for wanted, got in zip(lines, git_lines(state), strict=True)] == git_lines(state)


def test_counts_and_commits_of_git():
    lines = git_lines(STATE)
    assert "Files: 1 staged, 3 changed, 4 untracked, 1 with conflicts" in lines
    assert lines[-1] == "  0123456 2026-11-17 Do the thing"
    assert "no instruction" in lines[-2]


def test_the_environment_says_what_holds_commands():
    assert len(environment_lines()) == 1
    assert environment_lines(date="2026-11-17")[1] == "Date: 2026-11-17"
    assert "do not run" in environment_lines(sandbox="none")[-1]
    assert "landlock" in environment_lines(sandbox="landlock")[-1]

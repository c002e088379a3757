"""Skills from files: keys, names, files beside them, and which of them a person or a model may use."""

from __future__ import annotations

import os

import pytest

from lyra.errors import ToolError
from lyra.sage.extensions.skills.skills import BUILT_IN_SKILLS, Skill, Skills, files_beside
from tests.sage.extensions.support import Desk, put

RELEASE = """\
---
name: release
description: Makes a release
when_to_use: a version is to be published
allowed_tools: Read, Bash(git tag *)
user_invocable: true
disable_model_invocation: false
argument_hint: "[version]"
priority: 5
triggers: {keywords: [release], patterns: ['v[0-9]+'], extensions: [.toml]}
---
Release $ARGUMENTS.
"""


def skill_of(desk: Desk, head: str, body: str = "Text.") -> Skill:
    desk.of_user("skills/x.md", f"---\ndescription: d\n{head}\n---\n{body}\n")
    skills = Skills(desk.places())
    assert skills.problems == ()
    return skills.entries()["x"]


def test_every_key_of_a_file_is_in_the_skill(desk: Desk) -> None:
    """A file of an earlier version, with a priority and triggers, is read as well."""
    path = desk.of_user("skills/rel/SKILL.md", RELEASE)
    skill = Skills(desk.places()).entries()["release"]
    assert (skill.description, skill.when_to_use) == ("Makes a release", "a version is to be published")
    assert skill.allowed_tools == ("Read", "Bash(git tag *)")
    assert (skill.argument_hint, skill.body) == ("[version]", "Release $ARGUMENTS.")
    assert (skill.source, skill.folder, skill.origin) == (str(path), str(path.parent), "user")


def test_a_skill_is_a_file_or_a_folder_with_one(desk: Desk) -> None:
    """A Markdown file beside SKILL.md, or deeper, is no skill."""
    text = "---\ndescription: d\n---\nT."
    for name in ("a.md", "b/SKILL.md", "b/notes.md", "c/d/SKILL.md", "e/skill.md"):
        desk.of_user(f"skills/{name}", text)
    skills = Skills(desk.places())
    assert (set(skills.entries()), skills.problems) == ({"a", "b"}, ())


def test_the_built_in_ones_are_there_and_cannot_be_taken(desk: Desk) -> None:
    names = [skill.name for skill in BUILT_IN_SKILLS]
    assert names == ["testing", "debugging", "review", "git-commit", "security"]
    desk.of_user("skills/Testing.md", "---\ndescription: d\n---\nOther.")
    skills = Skills(desk.places())
    assert set(skills.all()) == set(names)
    assert "of Sage's own" in skills.problems[0]
    assert all(len(skill.body) < 3_000 for skill in skills.all().values())


def test_a_person_starts_a_skill_as_a_command_unless_it_says_no(desk: Desk) -> None:
    desk.of_user("skills/release/SKILL.md", RELEASE)
    command = Skills(desk.places()).commands()["release"]
    assert command.expand("1.2") == "Release 1.2."
    assert (command.allowed_tools, command.argument_hint) == (("Read", "Bash(git tag *)"), "[version]")
    desk.of_user("skills/release/SKILL.md", RELEASE.replace("user_invocable: true", "user_invocable: false"))
    assert "release" not in Skills(desk.places()).commands()


def test_a_skill_is_no_command_of_sages_own(desk: Desk) -> None:
    """`/help` stays Sage's, also where a skill is called help; the built-in skill review is no command either."""
    desk.of_user("skills/help.md", "---\ndescription: d\n---\nOther.")
    skills = Skills(desk.places())
    assert "help" in skills.all()
    assert {"help", "review"} & set(skills.commands()) == set()


def test_a_model_may_not_use_what_only_a_person_may(desk: Desk) -> None:
    assert skill_of(desk, "disable_model_invocation: true").model_invocable is False
    assert "x" not in Skills(desk.places()).for_model()
    assert skill_of(desk, "disable_model_invocation: false").model_invocable is True
    assert "x" in Skills(desk.places()).for_model()


@pytest.mark.parametrize(
    "head",
    [
        "version: 1",
        "model: x",
        "user_invocable: 1",
        "name: a b",
    ],
)
def test_a_wrong_value_is_told_with_its_line(desk: Desk, head: str) -> None:
    """Keys that do nothing here, such as version, are refused like any other unknown key."""
    desk.of_user("skills/x.md", f"---\ndescription: d\n{head}\n---\nText.\n")
    skills = Skills(desk.places())
    assert skills.entries() == {}
    assert f"{desk.user}/skills/x.md:3: " in skills.problems[0]


def test_files_beside_a_skill_are_listed_and_read(desk: Desk) -> None:
    desk.of_user("skills/x/SKILL.md", "---\ndescription: d\n---\nText.")
    put(desk.user / "skills/x/notes.md", "Notes.")
    put(desk.user / "skills/x/data/a.txt", "A")
    put(desk.user / "skills/x/.hidden", "h")
    os.symlink("/etc/passwd", desk.user / "skills/x/link")
    os.symlink("/etc", desk.user / "skills/x/folder")
    skills = Skills(desk.places())
    skill = skills.entries()["x"]
    assert files_beside(skill.folder) == ["notes.md", "data/a.txt"]
    assert skills.read_beside(skill, "notes.md") == "Notes."
    for name in ("link", "folder/passwd", "../x/notes.md", "/etc/passwd", ".hidden", "SKILL.md", "data/../notes.md"):
        with pytest.raises(ToolError):
            skills.read_beside(skill, name)


def test_files_beside_a_skill_are_bounded_texts(desk: Desk) -> None:
    desk.of_user("skills/x/SKILL.md", "---\ndescription: d\n---\nText.")
    put(desk.user / "skills/x/large.txt", "x" * 65_537)
    put(desk.user / "skills/x/binary", b"\xff\x00")
    for number in range(60):
        put(desk.user / f"skills/x/z{number}.txt", "z")
    skills = Skills(desk.places())
    skill = skills.entries()["x"]
    assert len(files_beside(skill.folder)) == 50
    for name in ("large.txt", "binary"):
        with pytest.raises(ToolError):
            skills.read_beside(skill, name)


def test_a_file_beside_a_projects_skill_counts_where_its_content_is_trusted(desk: Desk) -> None:
    """The trust of SKILL.md does not cover a file that came later, or that has changed."""
    desk.of_project("skills/x/SKILL.md", "---\ndescription: d\n---\nText.")
    notes = desk.of_project("skills/x/notes.md", "Notes.")
    desk.trust()
    skills = Skills(desk.places(trusted=None))
    skill = skills.entries()["x"]
    assert skills.read_beside(skill, "notes.md") == "Notes."
    put(notes, "Other notes.")
    with pytest.raises(ToolError, match="not trusted"):
        skills.read_beside(skill, "notes.md")

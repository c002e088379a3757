"""Slash commands from files: names, arguments, whose name counts, and what a hostile file cannot do."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.errors import ConfigError
from lyra.sage.extensions.custom_commands import BUILT_IN_COMMANDS, CustomCommand, CustomCommands, expand
from tests.sage.extensions.support import Desk

COMMIT = """\
---
description: Write a commit message
argument_hint: "[scope]"
arguments: [scope, why]
allowed_tools: Read, Bash(git diff *)
model: sim/echo
---
Commit $scope because $why.
"""


def load(desk: Desk, **options: Any) -> dict[str, CustomCommand]:
    return CustomCommands.load(desk.places(**options)).entries()


def test_every_key_of_a_file_is_in_the_command(desk: Desk) -> None:
    path = desk.of_user("commands/commit.md", COMMIT)
    command = load(desk)["commit"]
    assert (command.description, command.argument_hint) == ("Write a commit message", "[scope]")
    assert command.allowed_tools == ("Read", "Bash(git diff *)")
    assert (command.model, command.source, command.origin) == ("sim/echo", str(path), "user")
    assert command.expand("ui 'it is late'") == "Commit ui because it is late."


def test_a_file_without_front_matter_is_a_command(desk: Desk) -> None:
    """Its description is its first line, and it has no limit."""
    desk.of_user("commands/go.md", "# Look around\n\nAnd say what you see.\n")
    command = load(desk)["go"]
    assert (command.description, command.allowed_tools, command.model) == ("Look around", None, "")


def test_folders_are_parts_of_the_name(desk: Desk) -> None:
    desk.of_project("commands/git/commit.md", "Commit.")
    desk.of_user("commands/a/b/c.md", "Deep.")
    assert set(load(desk)) == {"git:commit", "a:b:c"}


@pytest.mark.parametrize(
    ("body", "args", "expected"),
    [
        ("say $ARGUMENTS", "a 'b c'", "say a 'b c'"),
        ("say $ARG1 and $ARG2", "a 'b c'", "say a and b c"),
        ("say $ARG3.", "a b", "say ."),
        ("take $ARGUMENTS_JSON", "a 'b \"c'", 'take ["a", "b \\"c"]'),
        ("no variables", "", "no variables"),
        ("no variables", "but this", "no variables\n\nbut this"),
        ("echo $HOME $path", "x", "echo $HOME $path\n\nx"),
        ("see @src/app.py", "", "see @src/app.py"),
        ("$ARG1", "'$ARGUMENTS'", "$ARGUMENTS"),
        ("$ARG12", "a b c d e f g h i j k l", "l"),
    ],
)
def test_arguments_are_put_in_once(body: str, args: str, expected: str) -> None:
    """A value is text: it is not looked through for variables again."""
    assert expand(body, args) == expected


@given(st.text(max_size=200))
def test_arguments_never_break_the_expansion(args: str) -> None:
    """The text around stays, and what is put in is what was typed, or the error says why it cannot be split."""
    assert expand("<$ARGUMENTS>", args) == f"<{args.strip()}>"
    try:
        words = shlex.split(args.strip())
    except ValueError:
        with pytest.raises(ConfigError, match="split"):
            expand("$ARGUMENTS_JSON", args)
    else:
        assert json.loads(expand("$ARGUMENTS_JSON", args)) == words
        assert expand("$ARG1", args) == (words[0] if words else "")


def test_arguments_that_cannot_be_split_are_an_error_with_a_hint() -> None:
    with pytest.raises(ConfigError) as error:
        expand("$ARG1", "it's")
    assert error.value.hint
    assert expand("$ARGUMENTS", "it's") == "it's"


def test_arguments_are_bounded() -> None:
    with pytest.raises(ConfigError):
        expand("$ARGUMENTS", "x" * 100_001)


@pytest.mark.parametrize("name", ["help", "Help", "undo", "permissions", "exit"])
def test_a_file_cannot_take_a_name_of_sages_own(desk: Desk, name: str) -> None:
    """In no spelling, and no folder either: `/help:x` would read like a part of `/help`."""
    assert name.lower() in BUILT_IN_COMMANDS
    desk.of_user(f"commands/{name}.md", "Other.")
    desk.of_user(f"commands/{name}/x.md", "Other.")
    commands = CustomCommands.load(desk.places())
    assert commands.entries() == {}
    assert all("of Sage's own" in problem for problem in commands.problems)
    assert len(commands.problems) == 2


def test_further_names_can_be_reserved(desk: Desk) -> None:
    desk.of_user("commands/mine.md", "Mine.")
    assert "mine" in CustomCommands.load(desk.places()).entries()
    assert CustomCommands.load(desk.places(), reserved=["Mine"]).entries() == {}


def test_a_projects_command_comes_before_the_users(desk: Desk) -> None:
    """Where the folder is trusted; without trust the user's own counts."""
    desk.of_project("commands/go.md", "Project.")
    desk.of_user("commands/GO.md", "User.")
    assert [command.body for command in load(desk).values()] == ["Project."]
    assert [command.body for command in load(desk, trusted=False).values()] == ["User."]


@pytest.mark.parametrize("name", ["a b", "a.b", "ä", "x\u202ey", "\x1b[2Jz"])
def test_a_file_with_an_odd_name_is_no_command(desk: Desk, name: str) -> None:
    desk.of_user(f"commands/{name}.md", "Text.")
    commands = CustomCommands.load(desk.places())
    assert commands.entries() == {}
    assert len(commands.problems) == 1
    assert commands.problems[0].isprintable()


def test_hidden_files_and_other_endings_do_not_count(desk: Desk) -> None:
    for name in (".go.md", ".git/go.md", "go.txt", "README"):
        desk.of_user(f"commands/{name}", "Text.")
    commands = CustomCommands.load(desk.places())
    assert (commands.entries(), commands.problems) == ({}, ())


def test_an_unknown_key_is_told_with_the_key_that_was_meant(desk: Desk) -> None:
    desk.of_user("commands/x.md", "---\ndescription: d\nalowed_tools: Read\n---\nText.\n")
    commands = CustomCommands.load(desk.places())
    path = f"{desk.user}/commands/x.md"
    assert commands.problems == (f"{path}:3: a command has no key 'alowed_tools' (did you mean 'allowed_tools'?)",)


def test_a_description_cannot_act_on_the_terminal(desk: Desk) -> None:
    """Escape sequences, line ends and marks that turn text around are taken out of what a person is shown."""
    desk.of_user(
        "commands/x.md", '---\ndescription: "a\\e[31mb\\nc\\u202ed\\u200be"\nargument_hint: "\\a[x]"\n---\nT.\n'
    )
    command = load(desk)["x"]
    assert command.description == "a[31mb cde"
    assert command.argument_hint == "[x]"

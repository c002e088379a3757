"""The extension files of a project in `lyra trust`: every file that would count is shown, in one line each."""

from __future__ import annotations

import os

from lyra.cli.commands.trust import asking_files
from lyra.config.asks import folder_asks
from lyra.sage.extensions.extensions import extension_asks
from tests.sage.extensions.support import Desk


def sentences(desk: Desk) -> dict[str, str]:
    folder = str(desk.project)
    files = folder_asks(folder, desk.env, more=extension_asks(folder))
    return {file.name: "; ".join(ask.sentence for ask in file.asks) or file.problem for file in files}


def test_every_kind_of_file_is_told(desk: Desk) -> None:
    desk.of_project("commands/git/commit.md", "---\ndescription: Commits\nmodel: sim/echo\n---\nCommit.")
    desk.of_project("skills/rel/SKILL.md", "---\nname: release\ndescription: Releases\n---\nRelease.")
    desk.of_project("skills/rel/notes.md", "12345")
    desk.of_project("skills/one.md", "---\ndescription: d\n---\nOne.")
    desk.of_project("agents/docs.md", "---\ndescription: Docs\ntools: [Read, Bash]\n---\nDocs.")
    assert sentences(desk) == {
        ".lyra/commands/git/commit.md": "adds the command /git:commit: Commits; it asks the model sim/echo",
        ".lyra/skills/rel/SKILL.md": "adds the skill release, which gives the model instructions: Releases",
        ".lyra/skills/rel/notes.md": "adds a file of 5 bytes to the skill rel",
        ".lyra/skills/one.md": "adds the skill one, which gives the model instructions: d",
        ".lyra/agents/docs.md": "adds the sub-agent docs with the tools ['Read', 'Bash']: Docs",
    }


def test_what_a_file_says_cannot_act_on_the_terminal(desk: Desk) -> None:
    desk.of_project("commands/x.md", '---\ndescription: "a\\e[2Jb\\nc"\n---\nX.')
    told = sentences(desk)[".lyra/commands/x.md"]
    assert told.isprintable()
    assert "\x1b" not in told


def test_a_file_that_cannot_be_read_is_told_and_cannot_be_trusted(desk: Desk) -> None:
    desk.of_project("commands/x.md", "---\na: *b\n---\nX.")
    assert "cannot be read" in sentences(desk)[".lyra/commands/x.md"]


def test_links_are_not_asked_for(desk: Desk) -> None:
    """They do not count, trusted or not."""
    desk.of_user("commands/x.md", "X.")
    os.symlink(desk.user, desk.project / ".lyra")
    assert sentences(desk) == {}


def test_the_command_line_shows_them(desk: Desk) -> None:
    """`lyra trust` asks with the rules of the folder, and with its extensions."""
    desk.of_project("commands/go.md", "Go.")
    assert [file.name for file in asking_files(str(desk.project), rules=True)] == [".lyra/commands/go.md"]
    assert asking_files(str(desk.project)) == []


def test_an_answer_is_for_the_content_that_was_shown(desk: Desk) -> None:
    desk.of_project("commands/go.md", "Go.")
    desk.trust()
    (place, *_) = desk.places(trusted=None)
    assert place.accept is not None
    path = str(desk.project / ".lyra/commands/go.md")
    assert place.accept(path, b"Go.")
    assert not place.accept(path, b"Go!")

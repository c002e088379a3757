"""What a prompt names goes with it: files, ranges of lines, folders, pages and images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra import Image
from lyra.sage.agent.attachments import attach, find_images
from lyra.sage.commands.registry import run_command
from lyra.sage.terminal.prompt_box import Pastes
from tests.sage.open_session import Project, call, say

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = Project(tmp_path, monkeypatch)
    project.write("a.py", "".join(f"line {number}\n" for number in range(1, 101)))
    project.write("docs/guide.md", "# Guide\n")
    project.write("docs/two words.md", "both\n")
    project.write(".env", "KEY=secret\n")
    return project


async def test_a_file_goes_with_the_prompt(project: Project) -> None:
    """Its text with line numbers stands beside the prompt; its size is told; what stays in the prompt is what was
    typed."""
    async with project.open({"text": "Read."}) as session:
        attached = await attach(session, "explain @a.py, please")
        assert attached.notes == ("attached a.py, 100 lines, 792 bytes",)
        assert "     7\tline 7" in attached.own
        await say(session, "explain @a.py, please", **attached.send_with)
        content = str(session.messages[0].content)
    assert content.startswith("explain @a.py, please")
    assert "line 100" in content
    assert session.facts.turns[0].prompt == "explain @a.py, please"


async def test_a_range_of_lines(project: Project) -> None:
    """`@a.py:10-12` and `@a.py:40` are these lines alone, with their own numbers."""
    async with project.open() as session:
        attached = await attach(session, "compare @a.py:10-12 with @a.py:40.")
    assert [note.rpartition(",")[0] for note in attached.notes] == [
        "attached a.py:10-12, 3 lines",
        "attached a.py:40-40, 1 line",
    ]
    numbers = [line.split("\t")[0].strip() for line in attached.own.split("\n") if "\t" in line]
    assert numbers == ["10", "11", "12", "40"]


async def test_a_folder_is_listed(project: Project) -> None:
    async with project.open() as session:
        attached = await attach(session, "what is in @docs/?")
    assert attached.notes == ("attached docs/, 2 files",)
    assert "guide.md  8 bytes" in attached.own


async def test_a_name_with_blanks_stands_in_quotes(project: Project) -> None:
    async with project.open() as session:
        attached = await attach(session, 'see @"docs/two words.md" and me@docs and @nothing.py')
    assert attached.notes[0] == "attached docs/two words.md, 1 line, 5 bytes"


async def test_a_name_that_is_no_file_is_told_with_one_like_it(project: Project) -> None:
    """Where it looks like a file; a word of code or an address is none. Only of what the user has typed."""
    prompt = "see @giude.md:3 and @nothing.py, me@docs.md and @property"
    async with project.open() as session:
        attached = await attach(session, prompt)
        assert attached.notes == (
            "giude.md is not attached: there is no such file; did you mean @docs/guide.md?",
            "nothing.py is not attached: there is no such file",
        )
        assert (await attach(session, prompt, is_typed=False)).notes == ()


async def test_keys_and_what_lies_outside_are_not_attached(project: Project) -> None:
    """A file of keys, and one that no rule allows to be read, are told of and not sent."""
    outside = project.folder.parent / "outside.txt"
    outside.write_text("outside words")
    async with project.open() as session:
        attached = await attach(session, f"@.env @{outside}")
    assert (attached.beside, attached.own) == ("", "")
    assert [note.split(":")[0] for note in attached.notes] == [
        ".env is not attached",
        f"{outside} is not attached",
    ]


async def test_a_denied_file_is_not_attached(project: Project) -> None:
    async with project.open(options={"deny": ("Read(docs/**)",)}) as session:
        attached = await attach(session, "@docs/guide.md @docs/")
    assert (attached.beside, attached.own) == ("", "")


async def test_only_what_is_not_of_the_users_project_is_text_from_outside(project: Project) -> None:
    """A file of the own project leaves rules with patterns in force; one of a package, or of a project whose files ask
    for something that was not trusted, does not."""
    project.write(".venv/lib/python3.12/site-packages/tool/a.py", "theirs\n")
    async with project.open() as session:
        await say(session, "a", **(await attach(session, "@a.py @docs/")).send_with)
        assert session.kernel.taint.is_tainted("sage")
        assert not session.kernel.taint.is_from_outside("sage")
        attached = await attach(session, "@.venv/lib/python3.12/site-packages/tool/a.py")
        assert (attached.own, "theirs" in attached.beside) == ("", True)
        await say(session, "b", **attached.send_with)
        assert session.kernel.taint.is_from_outside("sage")
    project.write("lyra.toml", '[permissions]\nallow = ["Bash(*)"]\n')
    async with project.open() as session:
        attached = await attach(session, "@a.py")
    assert (attached.own, "line 7" in attached.beside) == ("", True)


async def test_an_attached_file_counts_as_read(project: Project) -> None:
    """The model edits it without reading it again; without the attachment the edit is refused."""
    edit = call("Edit", file_path="a.py", old_string="line 7\n", new_string="line seven\n")
    options = {"mode": "accept-edits"}
    async with project.open(edit, {"text": "Done."}, options=options) as session:
        attached = await attach(session, "change line 7 of @a.py")
        await say(session, "change line 7 of @a.py", **attached.send_with)
    assert "line seven" in (project.folder / "a.py").read_text()
    project.write("a.py", "line 7\n")
    async with project.open(edit, {"text": "Done."}, options=options) as session:
        await say(session, "change line 7")
    assert "seven" not in (project.folder / "a.py").read_text()


async def test_a_page_is_fetched_only_where_a_rule_allows_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(_session: Any, tool: Any, **arguments: Any) -> str:
        return f"page by {tool.name} of {arguments['url']}"

    monkeypatch.setattr("lyra.sage.agent.attachments._call", fetch)
    async with project.open() as session:
        refused = await attach(session, "read @https://example.org/a.")
    assert refused.notes == (
        "https://example.org/a is not attached: no rule allows it without a question; the model can ask for it",
    )
    async with project.open(options={"allow": ("WebFetch(https://example.org/*)",)}) as session:
        allowed = await attach(session, "read @https://example.org/a.")
    assert "page by WebFetch of https://example.org/a" in allowed.beside


async def test_a_custom_command_attaches_what_it_names(project: Project) -> None:
    """`@` in the file of a command, and in its arguments, is read like that of a prompt."""
    commands = project.home / ".config/lyra/commands"
    commands.mkdir(parents=True)
    (commands / "look.md").write_text("Look at @docs/guide.md and $ARGUMENTS")
    async with project.open() as session:
        result = await run_command(session, "/look @a.py:1-2")
    assert result.prompt == "Look at @docs/guide.md and @a.py:1-2"
    assert "# Guide" in result.send_with["own"]
    assert "line 2" in result.send_with["own"]
    assert result.blocks[0]["lines"][1:] == [
        "attached docs/guide.md, 1 line, 8 bytes",
        "attached a.py:1-2, 2 lines, 27 bytes",
    ]


@pytest.mark.parametrize(
    "written",
    [
        "look at shot.png",
        "look at @shot.png, please",
        "'my shot.png' here",
        '"my shot.png"',
        "my\\ shot.png",
        "{folder}/shot.png",
        "file://{folder}/my%20shot.png",
        "is shot.png?",
    ],
)
def test_a_path_to_an_image_is_sent_as_an_image(tmp_path: Path, written: str) -> None:
    """Typed, quoted, escaped, dragged into the terminal, or as an address."""
    (tmp_path / "shot.png").write_bytes(PNG)
    (tmp_path / "my shot.png").write_bytes(PNG)
    (image,), (note,) = find_images(written.format(folder=tmp_path), str(tmp_path))
    assert isinstance(image, Image)
    assert image.media_type == "image/png"
    assert "shot.png" in note


async def test_an_attached_image_is_sent_once(project: Project) -> None:
    """With an `@` it is a picture, not a text file."""
    (project.folder / "shot.png").write_bytes(PNG)
    async with project.open({"text": "A dot."}) as session:
        attached = await attach(session, "see @shot.png")
        assert (attached.own, len(attached.images)) == ("", 1)
        await say(session, "see @shot.png", **attached.send_with)
        parts: Any = session.messages[0].content
    assert [part["type"] for part in parts] == ["text", "image"]


async def test_a_custom_command_attaches_the_image_that_it_names(project: Project) -> None:
    """As well as its files, and also one that comes with the arguments."""
    for name in ("shot.png", "other.png"):
        (project.folder / name).write_bytes(PNG)
    folder = project.home / ".config/lyra/commands"
    folder.mkdir(parents=True)
    (folder / "look.md").write_text("Compare @shot.png with $ARGUMENTS and @a.py:1-2.")
    async with project.open({"text": "Two dots."}) as session:
        result = await run_command(session, "/look @other.png")
        told = str(result.blocks)
        assert "image shot.png, 48 bytes" in told
        assert "image other.png, 48 bytes" in told
        assert result.prompt is not None
        await say(session, result.prompt, **result.send_with)
        parts: Any = session.messages[0].content
    assert [part["type"] for part in parts].count("image") == 2
    assert "line 2" in str([part for part in parts if part["type"] == "text"])


async def test_an_image_that_may_not_be_read_is_not_sent(project: Project) -> None:
    """By a rule, wherever it is named; a command's text opens nothing outside the project, what a person types does."""
    outside = project.home / "private.png"
    outside.write_bytes(PNG)
    (project.folder / "secret.png").write_bytes(PNG)
    folder = project.home / ".config/lyra/commands"
    folder.mkdir(parents=True)
    (folder / "look.md").write_text(f"See {outside} and secret.png")
    async with project.open(options={"deny": ("Read(secret.png)",)}) as session:
        typed = await attach(session, f"see {outside} and @secret.png")
        named = await run_command(session, "/look")
    assert ([note.partition(":")[0] for note in typed.notes], len(typed.images)) == (
        ["image private.png, 48 bytes", "secret.png is not sent"],
        1,
    )
    told = str(named.blocks)
    assert ("private.png is not sent" in told, "secret.png is not sent" in told) == (True, True)
    assert "images" not in named.send_with


def test_what_is_no_image_is_not_sent(tmp_path: Path) -> None:
    """A file that only has the name of an image is told; one that does not exist is text."""
    (tmp_path / "no.png").write_text("secret")
    images, notes = find_images("no.png and missing.png and x.py", str(tmp_path))
    assert images == ()
    assert len(notes) == 1
    assert "no.png is not sent" in notes[0]


def test_a_paste_of_many_lines_is_a_mark_and_unfolds() -> None:
    """The prompt stays short; the message has the whole text. Paths are looked for in the short one."""
    pastes = Pastes()
    text = "\n".join("abcdef")
    mark = pastes.fold(text)
    assert mark == "[paste 1: 6 lines]"
    assert pastes.unfold(f"see {mark} and [paste 9: 1 lines]") == f"see {text} and [paste 9: 1 lines]"
    assert pastes.fold("one\ntwo") == "one\ntwo"


async def test_a_picture_that_the_model_reads_reaches_it(project: Project) -> None:
    (project.folder / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    async with project.open(call("Read", file_path="shot.png"), {"text": "Seen."}) as session:
        await say(session, "look at the screenshot")
        (result,) = [result for message in session.messages for result in message.tool_results]
    assert [part["type"] for part in result.output] == ["text", "image"]

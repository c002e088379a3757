"""Two sessions at once in one project: each knows its own changes, and nothing of the other is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from lyra.errors import Conflict
from lyra.sage.agent.live import LiveSession
from lyra.sage.session.index import SessionIndex
from tests.sage.open_session import Project, call, say

ALLOWED: dict[str, Any] = {"allow": ("Write", "Edit", "Bash")}


def edit(name: str, old: str, new: str) -> dict[str, Any]:
    return call("Edit", file_path=name, old_string=old, new_string=new)


async def read_and_edit(session: LiveSession) -> None:
    assert (await say(session, "go"))[-1]["status"] == "success"


def script(name: str, old: str, new: str, command: str) -> list[dict[str, Any]]:
    look = call("Read", file_path=name)
    return [look, edit(name, old, new), call("Bash", command=command), {"text": "Done."}]


def look(project: Project) -> dict[str, str]:
    return {path.name: path.read_text() for path in project.folder.iterdir() if path.is_file()}


async def test_an_undo_takes_back_what_its_own_session_has_changed(project: Project) -> None:
    """Also where the other edits a file while a command runs, which could have changed any."""
    project.write("a.txt", "one\n")
    command = "until grep two a.txt; do sleep 0.05; done; echo y > b.txt"
    edits = [call("Read", file_path="a.txt"), edit("a.txt", "one", "two"), {"text": "Done."}]
    first = project.open(*edits, options=ALLOWED)
    second = project.open(call("Bash", command=command), {"text": "."}, options=ALLOWED)
    async with first, second:
        running = asyncio.ensure_future(read_and_edit(second))
        await read_and_edit(first)
        await running
        assert look(project) == {"a.txt": "two\n", "b.txt": "y\n"}
        await second.undo()
        assert look(project) == {"a.txt": "two\n"}
        await second.redo()
        await first.undo()
        assert look(project) == {"a.txt": "one\n", "b.txt": "y\n"}
        await first.redo()
        await second.undo()
        assert look(project) == {"a.txt": "two\n"}


async def test_what_two_commands_at_once_have_changed_is_asked_about(project: Project) -> None:
    """It is not known which of them it was: the undo shows it first, and by force takes it back."""
    commands = (
        "echo x > a.txt; until test -e b.txt; do sleep 0.05; done",
        "until test -e a.txt; do sleep 0.05; done; echo y > b.txt; sleep 0.3",
    )
    calls = [[call("Bash", command=command), {"text": "."}] for command in commands]
    first, second = (project.open(*replies, options=ALLOWED) for replies in calls)
    async with first, second:
        await asyncio.gather(read_and_edit(first), read_and_edit(second))
        for session in (first, second):
            with suppress(Conflict):
                await session.undo()
        assert look(project) == {"a.txt": "x\n", "b.txt": "y\n"}
        await first.undo(force=True)
        assert look(project) == {}


async def test_a_file_that_both_have_changed_is_not_overwritten(project: Project) -> None:
    """The undo of the first says so and shows the difference; that of the last one is free."""
    project.write("a.txt", "one\n")
    first = project.open(*script("a.txt", "one", "two", "true"), options=ALLOWED)
    second = project.open(*script("a.txt", "two", "three", "true"), options=ALLOWED)
    async with first, second:
        await read_and_edit(first)
        await read_and_edit(second)
        with pytest.raises(Conflict, match=r"a\.txt was changed by another hand since") as conflict:
            await first.undo()
        assert "+three" in str(conflict.value.fields["diff"])
        assert (project.folder / "a.txt").read_text() == "three\n"
        await second.undo()
        assert (project.folder / "a.txt").read_text() == "two\n"
        await first.undo()
        assert (project.folder / "a.txt").read_text() == "one\n"


async def test_both_are_listed_and_opened_again(project: Project) -> None:
    first, second = (project.open({"text": "Done."}, {"text": "Again."}) for _ in range(2))
    async with first, second:
        await asyncio.gather(say(first, "a word of the first"), say(second, "a word of the second"))
        with SessionIndex(project.data) as index:
            assert {record.id for record in index.list(str(project.folder))} == {first.id, second.id}
    for session, words in ((first, "a word of the first"), (second, "a word of the second")):
        async with project.open(resume=session.id) as again:
            assert [message.text for message in again.messages] == [words, "Done."]

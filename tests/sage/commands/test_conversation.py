"""Commands that move in the conversation: clear, compact, undo, checkpoints, other sessions, titles, exports."""

from __future__ import annotations

import json
import stat

import pytest

from lyra.errors import ConfigError, NoSuchSession
from tests.sage.commands.shown import rows, run, words
from tests.sage.open_session import Project, call, say

EDITS = {"mode": "accept-edits"}


def writes(name: str, content: str) -> dict[str, object]:
    return call("Write", file_path=name, content=content)


async def test_clear_begins_a_new_conversation(project: Project) -> None:
    async with project.open() as session:
        await say(session, "hello")
        await run(session, "/clear")
        assert session.messages == ()
        await run(session, "/undo")
        assert session.messages == (), "before the first turn there was nothing"


async def test_compact_says_what_it_saved(project: Project) -> None:
    """With what the summary must keep; a session without turns, or with one, is told so."""
    replies = [{"text": "long answer " * 500}, {"text": "b"}, {"text": "a summary"}]
    async with project.open(*replies) as session:
        assert "nothing to compact" in words(await run(session, "/compact"))
        await say(session, "one")
        assert "one turn only" in words(await run(session, "/compact"))
        await say(session, "two")
        assert "tokens before" in words(await run(session, "/compact the names of files"))


async def test_undo_restores_files_and_conversation(project: Project) -> None:
    async with project.open(writes("a.txt", "new"), {"text": "done"}, options=EDITS) as session:
        await say(session, "write it")
        result = await run(session, "/undo")
        assert words(result) == "turn 1 is undone\nrestored files\n  a.txt"
        assert not (project.folder / "a.txt").exists()
        assert session.messages == ()
        with pytest.raises(ConfigError, match="no turn to undo"):
            await run(session, "/undo")


async def test_undo_names_a_turn(project: Project) -> None:
    async with project.open() as session:
        for text in ("one", "two", "three"):
            await say(session, text)
        assert words(await run(session, "/undo 2")) == "turns 2 to 3 are undone"
        assert [message.text for message in session.messages] == ["one", "one"]
        with pytest.raises(ConfigError, match="there is no turn 9"):
            await run(session, "/undo 9")


async def test_undo_shows_what_it_would_overwrite(project: Project) -> None:
    """A file that the user has changed since is not overwritten: the difference is shown, and --force does it."""
    file = project.write("a.txt", "old\n")
    replies = (call("Read", file_path="a.txt"), writes("a.txt", "agent\n"), {"text": "done"})
    async with project.open(*replies, options=EDITS) as session:
        await say(session, "write it")
        assert file.read_text() == "agent\n"
        file.write_text("mine\n")
        result = await run(session, "/undo")
        assert [block["type"] for block in result.blocks] == ["diff", "lines"]
        assert "mine" in result.blocks[0]["diff"]
        assert "/undo --force" in words(result)
        assert file.read_text() == "mine\n"
        assert session.messages
        await run(session, "/undo --force")
        assert file.read_text() == "old\n"
        assert not session.messages


async def test_a_checkpoint_is_named_listed_and_restored(project: Project) -> None:
    file = project.write("a.txt", "old\n")
    replies = ({"text": "hi"}, call("Read", file_path="a.txt"), writes("a.txt", "agent\n"), {"text": "done"})
    async with project.open(*replies, options=EDITS) as session:
        assert "no checkpoint yet" in words(await run(session, "/checkpoint"))
        await say(session, "hello")
        assert "/restore before it" in words(await run(session, "/checkpoint before it"))
        await say(session, "write it")
        assert rows(await run(session, "/checkpoint"))[0][:2] == ["before it", "1"]
        assert words(await run(session, "/restore")) == words(await run(session, "/checkpoint"))
        file.write_text("mine\n")
        assert "/restore before it --force" in words(await run(session, "/restore before it"))
        assert "turn 2 is undone" in words(await run(session, "/restore before it --force"))
        assert file.read_text() == "old\n"
        assert [message.text for message in session.messages] == ["hello", "hi"]


async def test_other_sessions_are_listed_and_opened(project: Project) -> None:
    """By the beginning of an id, or by words that were said; the one that is open is not listed."""
    async with project.open(title="the parser") as session:
        first = session.id
        await say(session, "dates are wrong")
    async with project.open() as session:
        await say(session, "hello")
        listed = await run(session, "/resume")
        assert [row[0] for row in rows(listed)] == [first]
        assert rows(listed)[0][4] == "the parser"
        assert [row[0] for row in rows(await run(session, "/resume dates wrong"))] == [first]
        assert (await run(session, f"/resume {first}")).open_session == first
        assert (await run(session, f"/resume {session.id}")).open_session == ""
        with pytest.raises(NoSuchSession):
            await run(session, "/resume nothing-like-this")


async def test_a_cache_in_a_folder_of_the_agent_is_no_trouble_to_undo(project: Project) -> None:
    """The folder stays with what is not kept, and nothing is told of it."""
    tag = "Signature: 8a477f597d28d172789f06886806bc55"
    made = call("Bash", command=f"mkdir -p made/c && touch made/a.txt && echo '{tag}' > made/c/CACHEDIR.TAG")
    async with project.open(made, {"text": "done"}, options={"allow": ("Bash",)}) as session:
        await say(session, "make it")
        assert words(await run(session, "/undo")) == "turn 1 is undone\nrestored files\n  made/a.txt"
    assert not (project.folder / "made/a.txt").exists()


async def test_a_session_is_switched_in_place(project: Project) -> None:
    """The other one goes on where it was; an empty one is not kept; a session that is not there changes nothing."""
    async with project.open() as session:
        first = session.id
        await say(session, "one")
    async with project.open() as session:
        empty = session.id
        await session.switch(first)
        assert (session.id, session.turns[-1].prompt) == (first, "one")
        assert [record.id for record in session.index.list()] == [first]
        await say(session, "two")
        with pytest.raises(NoSuchSession):
            await session.switch(empty)
        assert session.id == first
        assert len(session.messages) == 4


async def test_a_session_that_is_switched_to_keeps_what_was_chosen_in_it(project: Project) -> None:
    """Its model, mode, effort and folders are its own, not those of the session before it. A copy has them all, and
    a model that this run was told to ask is asked."""
    (folder := project.folder.parent / "beside").mkdir()
    other = project.script({"text": "."}, {"text": "."})
    async with project.open(model=other) as session:
        first = session.id
        await session.set_mode("plan")
        await say(session, "one")
    async with project.open() as session:
        await say(session, "two")
        await session.set_mode("accept-edits")
        session.set_effort("high")
        await session.add_folder(str(folder))
        await session.switch(session.id, fork=True)
        assert (session.model, session.mode, session.effort) == ("sim/echo", "accept-edits", "high")
        await session.switch(first)
        assert (session.model, session.mode, session.effort) == (other, "plan", "")
        assert session.options.also == ()
    async with project.open(chosen="sim/echo") as session:
        await session.switch(first)
        assert session.model == "sim/echo"


async def test_a_fork_leaves_the_session_as_it_is(project: Project) -> None:
    async with project.open() as session:
        with pytest.raises(ConfigError, match="nothing to copy"):
            await run(session, "/fork")
        await say(session, "one")
        await say(session, "two")
        result = await run(session, "/fork 2")
        assert (result.open_session, result.fork, result.before_turn) == (session.id, True, 2)
        with pytest.raises(ConfigError, match="no turn 3"):
            await run(session, "/fork 3")
        first = session.id
        await session.switch(result.open_session, fork=result.fork, before_turn=result.before_turn)
        assert session.id != first
        assert session.record.parent == first
        assert [message.text for message in session.messages] == ["one", "one"]
        await say(session, "three")
    async with project.open(resume=first) as session:
        assert [turn.prompt for turn in session.turns] == ["one", "two"]


async def test_the_title(project: Project) -> None:
    async with project.open() as session:
        assert "no title" in words(await run(session, "/title"))
        assert words(await run(session, "/title the 'parser' of dates")) == "title: the 'parser' of dates"
        assert session.record.title == "the 'parser' of dates"


async def test_an_export_is_written_once(project: Project) -> None:
    """As Markdown or JSON, by the file's name or the format; into a folder; nothing is overwritten unasked."""
    async with project.open() as session:
        await say(session, "hello")
        await run(session, "/export talk.md")
        written = project.folder / "talk.md"
        assert "hello" in written.read_text()
        assert stat.S_IMODE(written.stat().st_mode) == 0o600
        with pytest.raises(ConfigError, match="exists"):
            await run(session, "/export talk.md")
        await run(session, "/export talk.md json --force")
        assert json.loads(written.read_text())["session"]["id"] == session.id
        await run(session, "/export talk.json")
        assert json.loads((project.folder / "talk.json").read_text())
        assert f"session-{session.id}.md" in words(await run(session, "/export ."))
        with pytest.raises(ConfigError, match="cannot be written"):
            await run(session, "/export nowhere/talk.md")

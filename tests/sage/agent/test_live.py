"""A session that is open: turns, interrupts, undo, clear, forks, and what is left of it after a crash."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.turn.unfinished import IN_DOUBT
from lyra.core.providers import USUAL
from lyra.errors import AgentFailed, ConfigError, Conflict, StoreFull
from lyra.sage.agent.live import LiveSession, SessionStart, read_session
from lyra.sage.agent.session_core import SessionWriter
from lyra.sage.session.index import SessionIndex


class Place:
    """A project, a home and a data folder of their own, and a scripted model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.data = folder / "sessions"
        self.scripts = 0
        for path in (self.folder, folder / "home"):
            path.mkdir()

    def script(self, *replies: dict[str, Any], **settings: Any) -> str:
        self.scripts += 1
        path = self.folder.parent / f"script{self.scripts}.json"
        path.write_text(json.dumps({"sequence": replies, **settings}))
        return f"sim/script:{path}"

    def options(self, model: str, **more: Any) -> HeadlessOptions:
        return HeadlessOptions(model=model, folder=str(self.folder), **more)

    def open(self, *replies: dict[str, Any], options: dict[str, Any] | None = None, **start: Any) -> LiveSession:
        model = self.script(*replies) if replies else "sim/echo"
        return LiveSession(self.options(model, **(options or {})), start=SessionStart(root=str(self.data), **start))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made_place = Place(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(made_place.folder)
    return made_place


def full_disk(*_: Any) -> None:
    raise StoreFull("no space left on device")


async def say(session: LiveSession, text: Any, **more: Any) -> list[Any]:
    return [line async for line in session.send(text, **more)]


def texts(session: LiveSession) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in session.messages if message.role != "tool"]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


async def test_a_session_goes_on_where_it_was(place: Place) -> None:
    """The conversation of a session that is opened again is whole, and its next turn has the next number."""
    async with place.open() as session:
        first = session.id
        lines = await say(session, "hello")
    assert lines[-1]["type"] == "result"
    assert lines[-1]["session_id"] == first
    async with place.open(resume="") as session:
        assert session.id == first
        assert session.resumed
        lines = await say(session, "again")
        assert texts(session) == [("user", "hello"), ("assistant", "hello"), ("user", "again"), ("assistant", "again")]
        assert [turn.number for turn in session.turns] == [1, 2]
        assert lines[-1]["turns"] == 1, "the result counts the turn alone"


async def test_an_empty_session_is_not_kept(place: Place) -> None:
    async with place.open():
        pass
    with SessionIndex(place.data) as index:
        assert index.list() == []


async def test_a_session_without_a_model_takes_the_default_of_the_key_that_is_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configured model comes first; without either the session does not begin."""
    for usual in USUAL.values():
        for variable in usual.key:
            monkeypatch.delenv(variable, raising=False)
    session = LiveSession(place.options(""), start=SessionStart(root=str(place.data)))
    with pytest.raises(ConfigError, match="no model is named"):
        async with session:
            pass
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    async with LiveSession(place.options(""), start=SessionStart(root=str(place.data))) as session:
        assert session.model == f"openai/{USUAL['openai'].example}"
    monkeypatch.setenv("LYRA_AGENT_MODEL", "sim/echo")
    async with LiveSession(place.options(""), start=SessionStart(root=str(place.data))) as session:
        assert session.model == "sim/echo"


async def test_continuing_without_a_session_says_so(place: Place) -> None:
    with pytest.raises(ConfigError, match="no session"):
        async with place.open(resume=""):
            pass


async def test_an_interrupt_keeps_what_was_said_and_done(place: Place) -> None:
    """The whole answers, the results of finished calls and the text that had come stay in the conversation."""
    (place.folder / "a.txt").write_text("some text")
    script = place.script(
        {"text": "I look.", **call("Read", file_path="a.txt")},
        {"text": "It says one thing and another", "chunks": 4, "chunk_s": 0.1},
    )
    async with LiveSession(place.options(script), start=SessionStart(root=str(place.data))) as session:
        lines: list[Any] = []
        async for line in session.send("read it"):
            lines.append(line)
            if line["type"] == "tool_end":
                await asyncio.sleep(0)
                asyncio.get_running_loop().call_later(0.2, lambda: asyncio.ensure_future(session.interrupt()))
        assert lines[-1]["status"] == "interrupted"
        roles = [message.role for message in session.messages]
        assert roles == ["user", "assistant", "tool", "assistant"]
        assert "some text" in str(session.messages[2].tool_results[0].output)
        assert session.messages[3].text.endswith("[stopped by the user]")
        assert session.turns[-1].status == "interrupted"
        assert not session.is_busy
    async with place.open(resume="") as session:
        assert [message.role for message in session.messages] == roles
        assert (await say(session, "go on"))[-1]["status"] == "success"


async def test_undo_takes_back_turns_and_clear_can_be_undone(place: Place) -> None:
    async with place.open() as session:
        for text in ("one", "two", "three"):
            await say(session, text)
        undone = await session.undo(2)
        assert undone.turns == [2, 3]
        assert texts(session) == [("user", "one"), ("assistant", "one")]
        await say(session, "four")
        assert [turn.number for turn in session.turns] == [1, 4]
        await session.clear()
        assert session.messages == ()
        await say(session, "five")
        await session.undo(4)
        assert texts(session) == [("user", "one"), ("assistant", "one")]
        with pytest.raises(ConfigError, match="no turn 9"):
            await session.undo(9)
    async with place.open(resume="") as session:
        assert texts(session) == [("user", "one"), ("assistant", "one")]
        assert [turn.number for turn in session.turns] == [1]


async def test_undo_restores_files_and_asks_before_it_overwrites(place: Place) -> None:
    """Files that tools and commands changed are as before; what another hand changed since is shown, not lost."""
    (place.folder / "a.txt").write_text("old")
    replies = (
        {"text": "", "tool_calls": [{"name": "Read", "arguments": {"file_path": "a.txt"}}]},
        call("Edit", file_path="a.txt", old_string="old", new_string="new"),
        call("Bash", command="echo made > b.txt; rm -f c.txt"),
        {"text": "done"},
    )
    (place.folder / "c.txt").write_text("c")
    async with place.open(*replies, options={"mode": "bypass"}) as session:
        await say(session, "change them")
        assert session.turns[0].files == ["a.txt", "b.txt", "c.txt"]
        assert {change.name: change.kind for change in session.changes(1)} == {
            "a.txt": "modified",
            "b.txt": "created",
            "c.txt": "deleted",
        }
        (place.folder / "a.txt").write_text("mine")
        with pytest.raises(Conflict) as refused:
            await session.undo()
        assert "+mine" in refused.value.fields["diff"]
        assert (place.folder / "b.txt").exists(), "nothing is half undone"
        assert len(session.turns) == 1
        undone = await session.undo(force=True)
        assert undone.turns == [1]
        assert (place.folder / "a.txt").read_text() == "old"
        assert not (place.folder / "b.txt").exists()
        assert (place.folder / "c.txt").read_text() == "c"
        assert session.messages == ()


async def test_a_checkpoint_is_gone_back_to(place: Place) -> None:
    write = call("Write", file_path="a.txt", content="one")
    async with place.open(write, {"text": "1"}, {"text": "2"}, options={"mode": "accept-edits"}) as session:
        await session.checkpoint("clean")
        await say(session, "write")
        await say(session, "talk")
        undone = await session.restore("clean")
        assert undone.turns == [1, 2]
        assert not (place.folder / "a.txt").exists()
        assert session.messages == ()


async def test_an_undo_can_be_undone(place: Place) -> None:
    """Files and conversation come back together, also across two undos and to a checkpoint of the user's own."""
    write = [call("Write", file_path=f"{name}.txt", content=name) for name in ("a", "b")]
    replies = (write[0], {"text": "1"}, write[1], {"text": "2"}, {"text": "3"})
    async with place.open(*replies, options={"mode": "accept-edits"}) as session:
        await say(session, "one")
        await say(session, "two")
        whole = texts(session)
        await session.checkpoint("mine")
        await session.undo(1)
        assert texts(session) == []
        marks = [mark.name for mark in session.snapshots.checkpoints() if mark.automatic]
        await session.restore(marks[-1])
        assert texts(session) == whole
        assert [turn.number for turn in session.turns] == [1, 2]
        assert (place.folder / "b.txt").read_text() == "b"
        await session.undo(2)
        await say(session, "three")
        await session.restore("mine")
        assert texts(session) == whole
        assert [turn.number for turn in session.turns] == [1, 2]
    async with place.open(resume="") as session:
        assert texts(session) == whole
        assert (place.folder / "b.txt").read_text() == "b"


async def test_undo_reaches_behind_a_summary(place: Place) -> None:
    """After a compaction the model gets a summary; undo to before it brings the messages back themselves."""
    async with place.open() as session:
        for text in ("one", "two", "three"):
            await say(session, text)
        before, after = await session.compact()
        assert session.agent_session.window.summary
        await session.set_model(place.script({"text": "other"}))  # the session is opened anew with another model
        assert session.agent_session.window.summary
        await session.set_model("sim/echo")
        assert before
        assert after
        await say(session, "four")
        await session.undo(2)
        assert texts(session) == [("user", "one"), ("assistant", "one")]
        assert not session.agent_session.window.summary


async def test_a_compaction_can_be_interrupted(place: Place) -> None:
    """The conversation is as before, and the session goes on."""
    slow = {"text": "a long summary of it all", "chunks": 4, "chunk_s": 1.0}
    async with place.open({"text": "1"}, {"text": "2"}, slow, {"text": "3"}) as session:
        await say(session, "one")
        await say(session, "two")
        before = session.messages
        asyncio.get_running_loop().call_later(0.3, lambda: asyncio.ensure_future(session.interrupt()))
        with pytest.raises(AgentFailed, match="interrupted"):
            await session.compact()
        assert session.messages == before
        assert not session.agent_session.window.summary
        assert (await say(session, "three"))[-1]["text"] == "3"
    async with place.open(resume="") as session:
        assert [text for role, text in texts(session) if role == "assistant"] == ["1", "2", "3"]


async def test_a_session_that_is_open_elsewhere_is_told_as_such(place: Place) -> None:
    async with place.open() as session:
        await say(session, "one")
        with pytest.raises(Conflict, match="open in another program"):
            async with place.open(resume=session.id):
                pass


async def test_a_fork_leaves_the_first_as_it_is(place: Place) -> None:
    async with place.open() as session:
        first = session.id
        for text in ("one", "two"):
            await say(session, text)
    async with place.open(resume=first, fork=True, before_turn=2) as session:
        assert session.id != first
        assert session.record.parent == first
        assert texts(session) == [("user", "one"), ("assistant", "one")]
        await say(session, "other")
    messages, facts = read_session(place.data / first)
    assert [message.text for message in messages] == ["one", "one", "two", "two"]
    assert len(facts.turns) == 2


async def test_one_turn_at_a_time(place: Place) -> None:
    async with place.open() as session:
        lines = session.send("one")
        await anext(lines)
        with pytest.raises(Conflict, match="middle of a turn"):
            await anext(session.send("two"))
        with pytest.raises(Conflict):
            await session.undo()
        await lines.aclose()
        assert (await say(session, "three"))[-1]["status"] == "success"


async def test_a_turn_that_cannot_be_written_down_is_no_turn(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as on a full disk: the error is raised, and the session takes the next message and can be left."""
    async with place.open() as session:
        await say(session, "one")
        with monkeypatch.context() as broken:
            broken.setattr(SessionWriter, "fact", full_disk)
            with pytest.raises(StoreFull):
                await say(session, "two")
        assert not session.is_busy
        assert (await say(session, "three"))[-1]["turn"] == 2
        assert [text for _, text in texts(session)] == ["one", "one", "three", "three"]


async def test_a_turn_that_fails_stays_in_the_conversation(place: Place) -> None:
    """A loop guard ends the turn with a status of its own and a summary; what was read before is not lost."""
    (place.folder / "a.txt").write_text("some text")
    again = call("Read", file_path="a.txt")
    async with place.open(*[again] * 6) as session:
        result = (await say(session, "read"))[-1]
        assert result["status"] == "repetition"
        assert "same tool calls" in result["text"]
        assert "Read 6×" in result["text"]
        assert [message.role for message in session.messages][:3] == ["user", "assistant", "tool"]


async def test_another_model_answers_the_next_turn(place: Place) -> None:
    async with place.open({"text": "first"}) as session:
        await say(session, "one")
        await session.set_model(place.script({"text": "second"}))
        await say(session, "two")
        assert [text for role, text in texts(session) if role == "assistant"] == ["first", "second"]
        assert session.turns[0].model != session.turns[1].model


async def test_the_mode_changes_at_once(place: Place) -> None:
    """In the mode `plan` a write is refused; in `accept-edits` it is not."""
    write = call("Write", file_path="b.txt", content="new")
    async with place.open(write, {"text": "no"}, write, {"text": "yes"}) as session:
        await session.set_mode("plan")
        lines = await say(session, "write it")
        assert next(line for line in lines if line["type"] == "tool_end")["is_error"]
        assert not (place.folder / "b.txt").exists()
        await session.set_mode("accept-edits")
        await say(session, "write it now")
        assert (place.folder / "b.txt").read_text() == "new"


CRASH = """
import asyncio, os, signal, sys
from lyra.agents.headless.options import HeadlessOptions
from lyra.sage.agent.live import LiveSession, SessionStart

async def main():
    options = HeadlessOptions(model=sys.argv[1], folder=sys.argv[2], mode="bypass")
    async with LiveSession(options, start=SessionStart(root=sys.argv[3])) as session:
        async for line in session.send("run it"):
            print(line["type"], line.get("name", ""), flush=True)

asyncio.run(main())
"""


def started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
async def test_after_kill_9_the_turn_is_repaired_and_the_doubt_told(place: Place) -> None:
    """Finished calls keep their results, the running one says that it is in doubt, and nothing is run again."""
    (place.folder / "a.txt").write_text("some text")
    script = place.script(
        call("Read", file_path="a.txt"),
        call("Bash", command="echo started > marker; sleep 60"),
    )
    command = [sys.executable, "-c", CRASH, script, str(place.folder), str(place.data)]
    with started(command) as running:
        for _ in range(600):
            if (place.folder / "marker").exists():
                break
            await asyncio.sleep(0.05)
        running.send_signal(signal.SIGKILL)
    (place.folder / "marker").unlink()
    async with place.open(resume="") as session:
        assert len(session.doubts) == 1
        assert "Bash" in session.doubts[0]
        assert [message.role for message in session.messages] == ["user", "assistant", "tool", "assistant", "tool"]
        assert "some text" in str(session.messages[2].tool_results[0].output)
        assert session.messages[4].tool_results[0].output == IN_DOUBT
        assert session.turns[-1].status == "interrupted"
        assert (await say(session, "go on"))[-1]["text"] == "go on"
    assert not (place.folder / "marker").exists()


async def test_what_happens_in_a_session_is_told_as_events(place: Place) -> None:
    """Turns, moves and settings of a session are Events like everything else."""
    kinds: list[str] = []
    async with place.open() as session:
        wanted = ("session.turn_began", "session.turn_ended", "session.moved", "session.set")
        session.kernel.on_event(lambda event: kinds.append(event.kind), kinds=wanted)
        await say(session, "one")
        session.keep(output="verbose")
        await session.clear()
        await asyncio.sleep(0.05)
    assert set(kinds) == {"session.turn_began", "session.turn_ended", "session.moved", "session.set"}


async def test_a_summary_keeps_what_it_is_told_to(place: Place) -> None:
    """`focus` reaches the model that writes the summary."""
    path = place.folder.parent / "focus.json"
    replies = [{"system": "Keep above all: the names", "text": "All names."}, {"text": "ok"}]
    path.write_text(json.dumps({"replies": replies}))
    options = place.options(f"sim/script:{path}")
    async with LiveSession(options, start=SessionStart(root=str(place.data))) as session:
        for text in ("one", "two"):
            await say(session, text)
        await session.process.compact(focus="the names")
        assert session.agent_session.window.summary == "All names."

"""Turns that an earlier program left: what they ask later is asked in the editor, and they can be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import helpers

from lyra import Agent, Kernel, tool
from lyra.agents.acp.agent_sessions import AgentEditorSession, AgentSessions
from lyra.agents.acp.editor_agent import EditorAgent
from lyra.core.rights.capability import Grant
from lyra.models.sim import SimProvider
from tests.cli.commands.test_acp import Editor

pytestmark = pytest.mark.anyio
done: list[str] = []


@tool
async def paint(colour: str) -> str:
    """Paint the wall."""
    done.append(colour)
    return f"it is {colour}"


@tool
async def choose(ctx: Any) -> str:
    """Ask twice."""
    first, second = await ctx.ask("First?"), await ctx.ask("Second?")
    return f"{first.text} and {second.text}"


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


def call(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"id": call_id, "name": name, "arguments": arguments}]}


def painter(*replies: Any, **settings: Any) -> Agent[Any]:
    rows = [{"text": reply} if isinstance(reply, str) else reply for reply in replies]
    settings = {"tools": [paint, choose], "permissions": {"ask": ["paint"], "allow": ["choose", "helper"]}, **settings}
    return Agent("painter", model=SimProvider(script={"sequence": rows}), **settings)


@asynccontextmanager
async def editing(store: Path, agent: Agent[Any], **settings: Any) -> AsyncIterator[tuple[Editor, EditorAgent]]:
    """An EditorAgent on a store, and its editor."""
    editor = Editor()
    async with Kernel(store, programs=[agent]) as kernel:
        face = EditorAgent(AgentSessions(kernel, agent, **settings))
        face.on_connect(editor)
        try:
            yield editor, face
        finally:
            await face.close()
            await kernel.close(drain_s=0.1)


def process_of(face: EditorAgent, session_id: str) -> Any:
    session = face._open_sessions[session_id]
    assert isinstance(session, AgentEditorSession)
    return session._process


async def left(store: Path, agent: Agent[Any]) -> str:
    """The id of a session whose turn waits for an answer when the program ends."""
    async with editing(store, agent) as (editor, face):
        session = await face.new_session(cwd=str(store.parent))
        editor.hold = asyncio.Event()
        prompt = asyncio.ensure_future(face.prompt(session.session_id, [helpers.text_block("go")]))
        await editor.was_asked.wait()
        prompt.cancel()
        await asyncio.wait([prompt])
    return session.session_id


async def test_what_a_left_turn_asks_later_is_asked_too(tmp_path: Path) -> None:
    """A turn that is taken up asks a second question, and then needs a permission: each is put to the editor."""
    store = tmp_path / "store.db"
    session_id = await left(store, painter(call("choose")))
    rest = painter(call("paint", "c2", colour="red"), "Painted.")
    async with editing(store, rest) as (editor, face):
        editor.answer = "yes"
        real_ask = editor.request_permission

        async def ask(session_id: str, tool_call: Any, options: Any, **more: Any) -> Any:
            editor.answer = "allow" if any(option.option_id == "allow" for option in options) else "yes"
            return await real_ask(session_id, tool_call, options, **more)

        editor.request_permission = ask  # type: ignore[method-assign]
        await face.load_session(cwd=str(tmp_path), session_id=session_id)
        await editor.until("Painted.")
        titles = [tool_call.title for tool_call, _ in editor.asked]
        assert titles[:2] == ["First?", "Second?"]
        assert len(titles) == 3
        assert done == ["red"]


async def test_the_question_of_a_helper_of_a_left_turn_is_asked(tmp_path: Path) -> None:
    """An agent below the one that the editor talks to asks: that is the session's question, too."""
    store = tmp_path / "store.db"

    def lead(*replies: Any, helper: Any) -> Agent[Any]:
        model = SimProvider(script={"sequence": helper})
        below = Agent("helper", model=model, tools=[choose], permissions={"allow": ["choose"]})
        return painter(*replies, tools=[below])

    session_id = await left(store, lead(call("helper", task="x"), helper=[call("choose")]))
    async with editing(store, lead("Done.", helper=[{"text": "chosen"}])) as (editor, face):
        editor.answer = "yes"
        await face.load_session(cwd=str(tmp_path), session_id=session_id)
        await editor.until("Done.")
        assert [tool_call.title for tool_call, _ in editor.asked] == ["First?", "Second?"]


async def test_a_left_turn_is_cancelled(tmp_path: Path) -> None:
    """session/cancel stops it, also while its question is open: nothing of it is done or kept, and the next prompt is
    answered."""
    store = tmp_path / "store.db"
    session_id = await left(store, painter(call("paint", colour="red")))
    async with editing(store, painter("Hello.")) as (editor, face):
        editor.hold = asyncio.Event()
        await face.load_session(cwd=str(tmp_path), session_id=session_id)
        await editor.was_asked.wait()
        with pytest.raises(acp.RequestError, match="under way"):
            await face.prompt(session_id, [helpers.text_block("me first")])
        await face.cancel(session_id)
        editor.answer = "allow"
        editor.hold.set()
        process = process_of(face, session_id)
        async with asyncio.timeout(30):
            while process.current is not None:
                await asyncio.sleep(0.01)
        answer = await face.prompt(session_id, [helpers.text_block("hello?")])
        assert (answer.stop_reason, editor.text()) == ("end_turn", "Hello.")
        assert done == []
        assert [row.text for row in process.messages] == ["hello?", "Hello."]


async def test_a_prompt_that_is_cancelled_at_once_is_cancelled(tmp_path: Path) -> None:
    """Also where the cancel comes before the message is in the store."""
    slow = {"text": "word " * 50, "chunk_s": 0.2}
    async with editing(tmp_path / "store.db", painter(slow)) as (editor, face):
        session_id = (await face.new_session(cwd=str(tmp_path))).session_id
        prompt = asyncio.ensure_future(face.prompt(session_id, [helpers.text_block("go")]))
        while not face._open_sessions[session_id]._is_prompting:
            await asyncio.sleep(0)
        await face.cancel(session_id)
        async with asyncio.timeout(30):
            assert (await prompt).stop_reason == "cancelled"
        assert "word word word" not in editor.text()


async def test_a_session_that_is_opened_again_has_the_rights_of_today(tmp_path: Path) -> None:
    """What the user has taken back since counts for it, and what was given since, too."""
    store, agent = tmp_path / "store.db", painter("Hello.")
    async with editing(store, agent, grant=lambda: Grant.of(["model.use:**", "tool.use:paint"])) as (_, face):
        session = await face.new_session(cwd=str(tmp_path))
        assert process_of(face, session.session_id).grant.allows("tool.use:paint")
    async with editing(store, agent, grant=lambda: Grant.of(["model.use:**", "tool.use:choose"])) as (_, face):
        await face.load_session(cwd=str(tmp_path), session_id=session.session_id)
        grant = process_of(face, session.session_id).grant
        assert not grant.allows("tool.use:paint")
        assert grant.allows("tool.use:choose")

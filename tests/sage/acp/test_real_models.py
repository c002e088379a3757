"""`sage acp` on real models: the figures, thoughts, pictures and calls that an editor sees, over the protocol's SDK."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import acp
from acp import helpers, schema

from lyra.agents.acp.editor_agent import EditorAgent
from lyra.agents.headless.options import HeadlessOptions
from lyra.sage.acp.sage_sessions import SageSessions
from tests.real_models import PIXEL, Answer, Call, FakeVendor, Vendor
from tests.sage.acp.test_client import Editor, text


@asynccontextmanager
async def editing(folder: Path, model: str, **options: Any) -> AsyncIterator[tuple[Editor, Any, str]]:
    """An editor, its connection to Sage in this process, and a session in `folder`."""
    editor = Editor()
    ours, theirs = socket.socketpair()
    sage = EditorAgent(SageSessions(HeadlessOptions(model=model, **options)))
    agent_reader, agent_writer = await asyncio.open_connection(sock=ours)
    reader, writer = await asyncio.open_connection(sock=theirs)
    serving = asyncio.ensure_future(acp.run_agent(cast("Any", sage), agent_writer, agent_reader))
    connection = acp.connect_to_agent(cast("Any", editor), writer, reader)
    try:
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = await connection.new_session(cwd=str(folder), mcp_servers=[])
        yield editor, connection, session.session_id
    finally:
        await connection.close()
        writer.close()
        await asyncio.wait([serving], timeout=10)
        await sage.close()
        agent_writer.close()


async def test_an_editor_gets_the_answer_and_its_figures(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """The text, the thought, the tokens that fill the published window, and the dollars of the published price."""
    provider.say(answer := Answer("It is 4.", thinking="Two and two."))
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        ended = await agent.prompt(session_id=session, prompt=text("What is 2 + 2?"))
        assert ended.stop_reason == "end_turn"
        await editor.until(lambda: editor.of("usage_update"))
        assert editor.text() == "It is 4."
        thoughts = [update.content.text for update in editor.of("agent_thought_chunk")]
        assert thoughts == (["Two and two."] if vendor.thinks_aloud else [])
        (figures,) = editor.of("usage_update")
        assert figures.size == vendor.window
        assert figures.used == answer.input_tokens + answer.output_tokens
        assert (figures.cost.amount, figures.cost.currency) == (vendor.cost_usd(answer), "USD")


async def test_a_picture_and_a_call_reach_the_model(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """The picture arrives as it was; the call is made with its arguments, and its result goes back with the signature
    of the thought before it. The figures of both calls add up."""
    (tmp_path / "a.txt").write_text("secret word: heron\n")
    call = Call("Read", {"file_path": str(tmp_path / "a.txt")})
    answers = (Answer(thinking="Look.", calls=(call,)), Answer("A heron.", written_tokens=100))
    provider.say(*answers)
    picture: Any = helpers.image_block(PIXEL, "image/png")
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        await agent.prompt(session_id=session, prompt=[*text("Which bird?"), picture])
        await editor.until(lambda: editor.of("usage_update"))
        first, second = provider.requests
        assert first.images == second.images == [("image/png", PIXEL)]
        assert "Which bird?" in first.texts[-1]
        assert second.calls == [call]
        assert "heron" in second.results[0]
        assert second.signatures == ([answers[0].signature] if vendor.thinks_aloud else [])
        assert [update.status for update in editor.of("tool_call_update")][-1] == "completed"
        assert editor.of("usage_update")[-1].cost.amount == vendor.cost_usd(*answers)


async def test_commands_show_the_window_and_the_cost(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """/context, /cost and /status are answered too."""
    provider.say(answer := Answer("Hello."))
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        await agent.prompt(session_id=session, prompt=text("Hi"))
        shown = {}
        for command in ("/context", "/cost", "/status"):
            editor.take()
            ended: schema.PromptResponse = await agent.prompt(session_id=session, prompt=text(command))
            assert ended.stop_reason == "end_turn"
            await editor.until(lambda: editor.of("usage_update"))
            shown[command] = editor.text()
        window = f"{vendor.window:,}".replace(",", " ")
        assert f"1 200 of {window} tokens" in shown["/context"]
        assert f"${vendor.cost_usd(answer):.4f}" in shown["/cost"]
        assert f"of {window}" in shown["/status"]
        assert "60 %" in shown["/cost"], "the share of the input that came from the cache"


async def test_a_cut_answer_is_told(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """By the protocol's own stop reason, where it went on and was cut each time; it stays in the conversation, once."""
    provider.say(*[Answer("Once upon", is_cut=True)] * 9, Answer("a time."))
    async with editing(tmp_path, vendor.model) as (_, agent, session):
        ended = await agent.prompt(session_id=session, prompt=text("A story"))
        assert ended.stop_reason == "max_tokens"
        ended = await agent.prompt(session_id=session, prompt=text("Go on"))
        assert ended.stop_reason == "end_turn"
    assert provider.requests[-1].said == ["Once upon"] * 9

"""`lyra acp --agent` on real models: what an editor is told of the answer, its thought, its pictures and its calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acp import helpers

from lyra import Agent, tool
from tests.agents.acp.test_left_turns import editing
from tests.real_models import PIXEL, Answer, Call, FakeVendor, Vendor

pytestmark = pytest.mark.anyio
CALL = Call("add", {"a": 2, "b": 3})


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_an_editor_talks_to_an_agent(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """The picture reaches the model, the call is made and shown, thoughts are told as thoughts; a second prompt sends
    the signature back."""
    provider.say(Answer(thinking="Sum.", calls=(CALL,)), Answer("It is 5.", thinking="So."), Answer("Yes."))
    agent: Agent[Any] = Agent("adder", model=vendor.model, tools=[add], thinking_tokens=2_000)
    picture: Any = helpers.image_block(PIXEL, "image/png")
    async with editing(tmp_path / "store.db", agent) as (editor, face):
        session = (await face.new_session(cwd=str(tmp_path))).session_id
        ended = await face.prompt(session, [helpers.text_block("2 + 3?"), picture])
        assert ended.stop_reason == "end_turn"
        assert editor.text() == "It is 5."
        thoughts = [update.content.text for update in editor.of("agent_thought_chunk")]
        assert thoughts == (["Sum.", "So."] if vendor.thinks_aloud else [])
        (shown,) = editor.of("tool_call")
        assert shown.raw_input == CALL.arguments
        assert editor.of("tool_call_update")[-1].status == "completed"
        await face.prompt(session, [helpers.text_block("Sure?")])
    signatures = [answer.signature for answer in provider.answered[:2]] if vendor.thinks_aloud else []
    assert [request.signatures for request in provider.requests] == [[], signatures[:1], signatures]
    assert [request.images for request in provider.requests] == [[("image/png", PIXEL)]] * 3
    assert provider.requests[-1].results == ["5"]


async def test_a_cut_answer_is_told(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """By the protocol's own stop reason."""
    provider.say(Answer("Once upon", is_cut=True))
    async with editing(tmp_path / "store.db", Agent("teller", model=vendor.model)) as (editor, face):
        session = (await face.new_session(cwd=str(tmp_path))).session_id
        ended = await face.prompt(session, [helpers.text_block("A story")])
        assert (editor.text(), ended.stop_reason) == ("Once upon", "max_tokens")

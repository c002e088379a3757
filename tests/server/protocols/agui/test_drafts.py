"""Arguments of tool calls as the model writes them, and what comes of a draft that does not hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lyra import Agent, tool
from lyra.models.sim import SimProvider
from tests.server.http.support import in_loop, serving
from tests.server.protocols.agui.support import kinds_of, last_messages, run, run_input, sequence, text_of
from tests.server.protocols.agui.test_runs import call

WORDS = "a long letter in many words"


@tool
async def write(text: str) -> str:
    """Write a letter."""
    return f"{len(text)} characters"


def arguments_of(events: list[Any], call_id: str) -> list[str]:
    return [event.delta for event in events if event.type == "TOOL_CALL_ARGS" and event.tool_call_id == call_id]


def test_arguments_come_in_the_pieces_that_the_model_writes() -> None:
    """Each call has its own pieces, which are the whole arguments; the front end sees them before the tool runs, and
    they belong to the message that the snapshot has them in."""
    two = {
        "text": "I write.",
        "tool_calls": [
            {"id": "c1", "name": "write", "arguments": {"text": WORDS}},
            {"id": "c2", "name": "write", "arguments": {"text": f"{WORDS} more"}},
        ],
    }

    async def main() -> None:
        agent = sequence("helper", two, "done", tools=[write], permissions={"allow": ["write"]})
        async with serving(agent) as served:
            events = await run(served.ada, run_input("t", "r", "go"), "helper")
            for call_id, words in (("c1", WORDS), ("c2", f"{WORDS} more")):
                pieces = arguments_of(events, call_id)
                assert len(pieces) > 3
                assert json.loads("".join(pieces)) == {"text": words}
            kinds = kinds_of(events)
            assert kinds.index("TOOL_CALL_ARGS") < kinds.index("TOOL_CALL_END") < kinds.index("TOOL_CALL_RESULT")
            assert kinds.count("TOOL_CALL_START") == kinds.count("TOOL_CALL_END") == 2
            starts = [event for event in events if event.type == "TOOL_CALL_START"]
            snapshot = last_messages(events)
            assert {event.parent_message_id for event in starts} == {snapshot[1]["id"]}
            assert text_of(events) == "I write.done"

    in_loop(main())


def test_a_call_of_a_try_that_broke_off_is_told_whole() -> None:
    """The model breaks off in the middle of a call and is asked again: the draft is closed, the call of the second try
    is told as a whole, and its result follows."""
    broken = {**call("write", text=WORDS), "error": {"kind": "overloaded", "after_chunks": 4, "attempts": 1}}

    async def main() -> None:
        quick = {"max_attempts": 2, "backoff": {"initial_s": 0.01}}
        agent = sequence("helper", broken, "done", tools=[write], permissions={"allow": ["write"]}, retry=quick)
        async with serving(agent) as served:
            events = await run(served.ada, run_input("t", "r", "go"), "helper")
            ends = [number for number, event in enumerate(events) if event.type == "TOOL_CALL_END"]
            last_start = max(number for number, event in enumerate(events) if event.type == "TOOL_CALL_START")
            rest = "".join(arguments_of(events[last_start : ends[-1]], "c1"))
            assert json.loads(rest) == {"text": WORDS}
            assert [event.content for event in events if event.type == "TOOL_CALL_RESULT"] == [
                f"{len(WORDS)} characters"
            ]
            assert text_of(events) == "done"

    in_loop(main())


def test_a_key_in_the_arguments_is_masked_while_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece, and not the pieces together, have a key that this process knows."""
    key = "sk-ant-REDACTED"
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)

    async def main() -> None:
        script = {"sequence": [call("write", text=f"the key is {key} keep it"), {"text": "done"}], "chunks": 3}
        agent = Agent("helper", model=SimProvider(script=script), tools=[write], permissions={"allow": ["write"]})
        async with serving(agent) as served:
            events = await run(served.ada, run_input("t", "r", "go"), "helper")
            told = "".join(arguments_of(events, "c1"))
            assert key not in told
            assert "keep it" in told

    in_loop(main())


def test_no_other_reader_is_told_drafts() -> None:
    """The stream of a chat has the events that it had: a call begins with its whole arguments."""

    async def main() -> None:
        agent = sequence("helper", call("write", text=WORDS), "done", tools=[write], permissions={"allow": ["write"]})
        async with serving(agent) as served:
            process = await served.kernel.spawn(agent)
            kinds = [event.type async for event in process.stream("go", events=True)]
            assert kinds.count("tool_start") == 1
            assert "tool_draft" not in kinds

    in_loop(main())

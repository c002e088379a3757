"""A front end for tests: it speaks AG-UI over real sockets, and checks every event by the official package's types."""

from __future__ import annotations

import json
from typing import Any

import httpx
from ag_ui.core import Event, RunAgentInput
from pydantic import TypeAdapter

from lyra import Agent
from lyra.models.sim import SimProvider
from tests.server.http.support import Served

EVENT: TypeAdapter[Any] = TypeAdapter(Event)


def sequence(name: str, *replies: Any, **settings: Any) -> Agent[Any]:
    """An agent whose model gives each reply once, in order."""
    rows = [{"text": reply} if isinstance(reply, str) else reply for reply in replies]
    return Agent(name, model=SimProvider(script={"sequence": rows}), **settings)


def run_input(thread: str = "t1", run: str = "r1", *messages: Any, **fields: Any) -> dict[str, Any]:
    """A RunAgentInput as a front end writes it; a message that is text is the user's."""
    rows = [
        {"id": f"u{place}", "role": "user", "content": message} if isinstance(message, str) else message
        for place, message in enumerate(messages)
    ]
    given = {"threadId": thread, "runId": run, "state": {}, "messages": rows, "tools": [], "context": [], **fields}
    RunAgentInput.model_validate({**given, "forwardedProps": given.get("forwardedProps", {})})
    return given


def events_of(text: str) -> list[Any]:
    """The events of a stream, each checked by the official types and for fields that the types do not have."""
    events = []
    for block in text.split("\n\n"):
        if block and not block.startswith(":"):
            assert block.startswith("data: "), block
            event = EVENT.validate_python(json.loads(block[6:]))
            assert not event.model_extra, event
            events.append(event)
    check_order(events)
    return events


def check_order(events: list[Any]) -> None:
    """The order that the protocol wants: a run begins and ends once; messages, calls and steps are opened before they
    are closed, and none is left open."""
    kinds = [event.type.value for event in events]
    assert kinds[0] == "RUN_STARTED", kinds
    assert kinds[-1] in ("RUN_FINISHED", "RUN_ERROR"), kinds
    assert sum(kind in ("RUN_FINISHED", "RUN_ERROR") for kind in kinds) == 1
    is_open: set[tuple[str, str]] = set()
    for event in events:
        what, _, phase = event.type.value.rpartition("_")
        name = (
            getattr(event, "message_id", None)
            or getattr(event, "tool_call_id", None)
            or getattr(event, "step_name", "")
            or ""
        )
        if what not in ("TEXT_MESSAGE", "TOOL_CALL", "STEP", "REASONING", "REASONING_MESSAGE"):
            continue
        if phase in ("START", "STARTED"):
            assert (what, name) not in is_open
            is_open.add((what, name))
        elif phase in ("END", "FINISHED"):
            is_open.remove((what, name))
        elif phase in ("CONTENT", "ARGS"):
            assert (what, name) in is_open
    assert kinds[-1] == "RUN_ERROR" or not is_open, is_open


async def run(client: httpx.AsyncClient, given: dict[str, Any], agent: str = "echo") -> list[Any]:
    answer = await client.post(f"/agui/{agent}", json=given)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events_of(answer.text)


def kinds_of(events: list[Any]) -> list[str]:
    return [event.type.value for event in events]


def text_of(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "TEXT_MESSAGE_CONTENT")


def last_messages(events: list[Any]) -> list[Any]:
    """The messages of the last snapshot, as the front end would send them back."""
    snapshot = next(event for event in reversed(events) if event.type == "MESSAGES_SNAPSHOT")
    return [message.model_dump(by_alias=True, mode="json") for message in snapshot.messages]


__all__ = ["Served", "events_of", "kinds_of", "last_messages", "run", "run_input", "sequence", "text_of"]

"""What the agents' tests share: scripted models, and ways to run a piece of async work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import msgspec

from lyra.core.event import ModelCalled
from lyra.models.pricing import Price
from lyra.models.provider import Request
from lyra.models.script import Script
from lyra.models.sim import SimProvider
from lyra.models.stream import StreamEvent
from lyra.testing.loop import SimLoop
from lyra.testing.loop import run as run_in_virtual_time

# What an agent does besides its tools' acts: a list of rights names it, too.
OWN = ["model.use", "tool.use", "human.ask", "process.spawn"]


class Recorded(SimProvider):
    """A scripted model that remembers what it was asked, under whatever name."""

    def __init__(self, script: Any) -> None:
        super().__init__(script)
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        async for event in super().stream(msgspec.structs.replace(request, model="")):
            yield event

    def price(self, model: str) -> Price | None:
        return super().price("")


def says(*replies: Any, **settings: Any) -> Recorded:
    """A model that gives these replies in order; the last one again and again."""
    last = replies[-1]
    sequence = [*({**_mapping(reply), "times": 1} for reply in replies[:-1]), _mapping(last)]
    return Recorded(Script.from_data({"replies": sequence, **settings}))


def calls(name: str, /, **arguments: Any) -> dict[str, Any]:
    """A reply that calls one tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def _mapping(reply: Any) -> dict[str, Any]:
    return {"text": reply} if isinstance(reply, str) else dict(reply)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 10))


def clock_here() -> Any:
    """The clock of the virtual loop that is running: for a kernel that lives in it."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop.clock


def virtual(work: Coroutine[Any, Any, Any]) -> Any:
    """The same where a second passes in no time."""
    return run_in_virtual_time(work)


def model_called(**changes: Any) -> ModelCalled:
    """Return the record of a model call, with these fields changed."""
    plain = ModelCalled("a" * 32, "b" * 16, "Coder", "sim/x", 3, 4, 0.5, 1_500, "ok", 0, None)
    return msgspec.structs.replace(plain, **changes)

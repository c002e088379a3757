"""What the tests of running programs share: a model that keeps what it was asked, and a run in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from lyra import Kernel, vega
from lyra.models.client import LLMClient
from lyra.models.provider import Request
from lyra.models.script import Reply
from lyra.models.sim import SimProvider
from lyra.testing.clock import SimClock
from lyra.testing.loop import run as run_in_virtual_time

FAILING = Reply.from_data({"error": {"kind": "bad_request", "message": "refused"}})


class Seen:
    """A model that keeps the requests it gets, and answers as it is told."""

    def __init__(self, answer: Callable[[Request], Any] = lambda request: request.messages[-1].text) -> None:
        self.requests: list[Request] = []
        self._answer = answer

    def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        return self._answer(request)


class Never(Seen):
    """A model that leaves some questions without an answer; `reached` is set when one of them is asked that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        asked = request.messages[-1].text
        if asked == "fail":
            return FAILING
        if asked == "never to the end":
            self.reached.set()
        return Reply.from_data({"text": asked, "first_s": 60.0 if asked.startswith("never") else 0.0})


def play(source: str, model: Any = None, *, events: list[Any] | None = None, **options: Any) -> list[str]:
    """Run on a kernel in virtual time, with `sim/script` answered by `model`."""
    lines: list[str] = []
    clock = SimClock()

    async def main() -> None:
        async with Kernel(clock=clock) as kernel:
            client = LLMClient()
            client.register("sim", SimProvider(script=model if model is not None else Seen()))
            kernel.parts["models"] = client
            if events is not None:
                kernel.on_event(events.append)
            await vega.run(source, kernel=kernel, stdout=lines.append, stderr=lambda _: None, **options)
            for _ in range(50):
                await asyncio.sleep(0)
            assert kernel.live == 0, "processes are left"

    run_in_virtual_time(main(), clock=clock)
    return lines

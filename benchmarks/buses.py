"""One event to a thousand subscribers, against calling the thousand functions in a loop; a figure is one publication.

Plain subscribers are called where they stand; async ones run side by side, each in a task, as the baseline's do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.measure import Figure, Row, Size, Stopwatch, Timing, interleave
from lyra.kernel import Kernel

PAYLOAD = {"number": 1, "text": "an event of ordinary length"}


def plain(_message: Any) -> None:
    return None


async def later(_message: Any) -> None:
    return None


async def published(listener: Callable[[Any], Any], subscribers: int, count: int) -> Timing:
    async with Kernel("memory") as kernel:
        for _ in range(subscribers):
            kernel.bus.subscribe("bench", listener)
        with Stopwatch(count) as watch:
            for _ in range(count):
                assert await kernel.bus.publish("bench", PAYLOAD) == subscribers
    return watch.timing


async def called(listeners: int, count: int) -> Timing:
    functions = [plain] * listeners
    with Stopwatch(count) as watch:
        for _ in range(count):
            for function in functions:
                function(PAYLOAD)
    return watch.timing


async def gathered(listeners: int, count: int) -> Timing:
    functions = [later] * listeners
    with Stopwatch(count) as watch:
        for _ in range(count):
            await asyncio.gather(*(asyncio.create_task(function(PAYLOAD)) for function in functions))
    return watch.timing


def run(size: Size) -> list[Row]:
    subscribers, often, seldom = size.of(1_000, 20), size.of(500, 5), size.of(50, 2)

    def contender(work: Callable[..., Awaitable[Timing]], *args: Any) -> Callable[[], Timing]:
        async def measured() -> Timing:
            return await work(*args)

        return lambda: asyncio.run(measured())

    best = interleave(
        {
            "plain": contender(published, plain, subscribers, often),
            "called": contender(called, subscribers, often),
            "async": contender(published, later, subscribers, seldom),
            "gathered": contender(gathered, subscribers, seldom),
        },
        size.repeats,
    )

    def row(title: str, ours: Figure, baseline: str, theirs: Figure) -> Row:
        ns_per_delivery = ours.value / subscribers * 1e3
        return Row(
            f"publish to {subscribers} {title}", ours, baseline, theirs, note=f"{ns_per_delivery:.0f} ns a subscriber"
        )

    return [
        row("plain subscribers", best["plain"], f"calling {subscribers} functions", best["called"]),
        row("async subscribers", best["async"], f"gather of {subscribers} tasks", best["gathered"]),
    ]

"""Round trips: a message there and a message back between two processes, against two tasks with two Queues."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.measure import Row, Size, Stopwatch, Timing, interleave
from lyra.kernel import Kernel


async def pong(ctx: Any, count: int) -> None:
    for _ in range(count):
        sender, number = await ctx.receive()
        ctx.send(sender, number)


async def ping(ctx: Any, count: int) -> Any:
    other = ctx.spawn(pong, count)
    with Stopwatch(count) as watch:
        for number in range(count):
            ctx.send(other, (ctx.pid, number))
            assert await ctx.receive() == number
    return tuple(watch.timing)


async def processes(count: int) -> Timing:
    async with Kernel("memory") as kernel:
        return Timing(*await kernel.run(ping, count))


async def tasks(count: int) -> Timing:
    there: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    back: asyncio.Queue[int] = asyncio.Queue()

    async def answer() -> None:
        for _ in range(count):
            _, number = await there.get()
            back.put_nowait(number)

    other = asyncio.create_task(answer())
    with Stopwatch(count) as watch:
        for number in range(count):
            there.put_nowait(("me", number))
            assert await back.get() == number
    await other
    return watch.timing


def run(size: Size) -> list[Row]:
    count = size.of(20_000, 100)
    best = interleave(
        {"ours": lambda: asyncio.run(processes(count)), "tasks": lambda: asyncio.run(tasks(count))}, size.repeats
    )
    return [Row("a round trip, in memory", best["ours"], "two tasks, two asyncio.Queues", best["tasks"])]

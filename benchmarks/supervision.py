"""A crash and a restart: a supervised process that always fails, against a task that its done callback makes again.

A cycle of ours is a process that ends with an error, a supervisor that is told, counts the restart, decides, and starts
and links the next one; on SQLite each of these is a row, and the clock stops when all rows are durable. The baseline
remembers nothing and counts nothing: it reads the exception and calls `create_task`.

Stopping is measured for ten thousand children, in reverse order, each one's end awaited before the next is told; the
baseline cancels tasks and awaits them one by one.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, Row, Size, Stopwatch, Timing, interleave
from lyra.kernel import Child, Kernel

TREE = 100


class Lives:
    """How many failures are left to come; the first child that lives after the last of them sets `over`."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.over = asyncio.Event()

    def live(self) -> None:
        if not self.left:
            self.over.set()
            return
        self.left -= 1
        raise ValueError("as it should")


async def healthy(ctx: Any) -> None:
    await ctx.receive()


async def supervised(target: str, count: int, siblings: int = 0) -> Timing:
    """`count` cycles of one child; its siblings are left alone."""
    lives = Lives(count)

    async def failing(ctx: Any) -> None:
        lives.live()
        await ctx.receive()

    async with Kernel(target, snapshot_every_events=10**9) as kernel:
        supervisor = await kernel.supervise(
            [Child(f"s{number}", healthy) for number in range(siblings)], max_restarts=-1
        )
        with Stopwatch(count) as watch:
            await supervisor.start_child(Child("failing", failing))
            await lives.over.wait()
            await kernel.durable()
    return watch.timing


async def tasks(count: int) -> Timing:
    lives = Lives(count)
    now: set[asyncio.Task[None]] = set()

    async def failing() -> None:
        lives.live()

    def start() -> None:
        task = asyncio.create_task(failing())
        now.add(task)
        task.add_done_callback(again)

    def again(task: asyncio.Task[None]) -> None:
        now.discard(task)
        if task.exception() is not None:
            start()

    with Stopwatch(count) as watch:
        start()
        await lives.over.wait()
    return watch.timing


async def stopped(target: str, count: int) -> Timing:
    """`count` children of one supervisor, stopped in order."""
    async with Kernel(target, snapshot_every_events=10**9) as kernel:
        supervisor = await kernel.supervise([Child(f"s{number}", healthy) for number in range(count)])
        await kernel.durable()
        with Stopwatch(count) as watch:
            await supervisor.stop()
    return watch.timing


async def cancelled(count: int) -> Timing:
    waiting = [asyncio.create_task(asyncio.Event().wait()) for _ in range(count)]
    await asyncio.sleep(0)
    with Stopwatch(count) as watch:
        for task in reversed(waiting):
            task.cancel()
            await asyncio.wait([task])
    return watch.timing


def run(size: Size) -> list[Row]:
    count = size.of(5_000, 50)
    children = size.of(10_000, 50)
    with tempfile.TemporaryDirectory(prefix="lyra-bench-") as folder:
        numbers = iter(range(10**6))

        def on_sqlite() -> Timing:
            return asyncio.run(supervised(str(Path(folder) / f"{next(numbers)}.db"), count))

        def stopped_on_sqlite() -> Timing:
            return asyncio.run(stopped(str(Path(folder) / f"{next(numbers)}.db"), children))

        best = interleave(
            {
                "tasks": lambda: asyncio.run(tasks(count)),
                "memory": lambda: asyncio.run(supervised("memory", count)),
                "siblings": lambda: asyncio.run(supervised("memory", count, TREE)),
                "sqlite": on_sqlite,
                "cancelled": lambda: asyncio.run(cancelled(children)),
                "stopped": lambda: asyncio.run(stopped("memory", children)),
                "stopped on SQLite": stopped_on_sqlite,
            },
            size.repeats,
        )
    baseline, theirs = "a task made again by its done callback", best["tasks"]
    ended = ("a task cancelled and awaited", best["cancelled"])
    return [
        Row("crash and restart, in memory", best["memory"], baseline, theirs, note=_rate(best["memory"])),
        Row(f"… one of {TREE + 1} children", best["siblings"], baseline, theirs, note=_rate(best["siblings"])),
        Row("crash and restart, on SQLite", best["sqlite"], baseline, theirs, note=_rate(best["sqlite"])),
        Row(f"stop one of {children} children in order, in memory", best["stopped"], *ended),
        Row(f"stop one of {children} children in order, on SQLite", best["stopped on SQLite"], *ended),
    ]


def _rate(figure: Figure) -> str:
    """Cycles a second by the wall clock."""
    assert figure.wall is not None
    return f"{1e6 / figure.wall:.0f} a second"

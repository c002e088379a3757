"""What watching costs: the same work with the health monitor and without.

The baseline is our own kernel, unwatched. An effect is two lines in the monitor's books, a message one, a step a note
of the time; on SQLite the rows are read as they are committed.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, Size, Stopwatch, Timing, interleave, ratio_at_most
from lyra.kernel import Kernel

PROCESSES = 10
SENT_TOGETHER = 50


async def constant() -> int:
    return 1


async def acts(ctx: Any, count: int) -> None:
    for _ in range(count):
        await ctx.do(constant, idempotent=True)


async def steps(_ctx: Any, count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def reads(ctx: Any, count: int) -> None:
    for _ in range(count):
        await ctx.receive()


async def effects(kernel: Kernel, count: int) -> None:
    for handle in [kernel.spawn(acts, count // PROCESSES) for _ in range(PROCESSES)]:
        await handle.wait()


async def many_steps(kernel: Kernel, count: int) -> None:
    for handle in [kernel.spawn(steps, count // PROCESSES) for _ in range(PROCESSES)]:
        await handle.wait()


async def messages(kernel: Kernel, count: int) -> None:
    reader = kernel.spawn(reads, count)
    for number in range(count):
        sent = kernel.send(reader, number)
        if number % SENT_TOGETHER == 0:
            await sent
    await reader.wait()


WORK: dict[str, Callable[[Kernel, int], Any]] = {
    "an effect": effects,
    "a message": messages,
    "a step": many_steps,
}


async def timed(target: str, work: Callable[[Kernel, int], Any], count: int, *, watched: bool) -> Timing:
    async with Kernel(target, snapshot_every_events=10**9) as kernel:
        if watched:
            kernel.health.start()
        with Stopwatch(count) as watch:
            await work(kernel, count)
    return watch.timing


def run(size: Size) -> list[Row]:
    count = size.of(20_000, 100)
    with tempfile.TemporaryDirectory(prefix="lyra-bench-") as folder:
        numbers = iter(range(10**6))

        def fresh() -> str:
            return str(Path(folder) / f"{next(numbers)}.db")

        def contender(target: Callable[[], str], work: Callable[[Kernel, int], Any], *, watched: bool) -> Any:
            return lambda: asyncio.run(timed(target(), work, count, watched=watched))

        places: dict[str, Callable[[], str]] = {"in memory": lambda: "memory", "on SQLite": fresh}
        best = interleave(
            {
                f"{what}, {place}, {watched}": contender(target, work, watched=watched)
                for what, work in WORK.items()
                for place, target in places.items()
                for watched in (False, True)
            },
            min(size.repeats, 5),
        )
    return [
        Row(
            f"{what}, {place}, watched",
            best[f"{what}, {place}, True"],
            "… unwatched",
            best[f"{what}, {place}, False"],
            (ratio_at_most(2.0),),
        )
        for what in WORK
        for place in places
    ]

"""Who gets to run: the share of all steps that `idle` processes get beside busy `realtime` ones."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.measure import Figure, Row, Size
from lyra.kernel import Kernel
from lyra.kernel.process.scheduler import SHARES


async def _shares(realtime: int, idle: int, steps: int) -> float:
    """Percent of the first `steps` steps that went to the idle ones."""
    counts = {"realtime": 0, "idle": 0}
    stop = False

    async def busy(ctx: Any, level: str) -> None:
        while not stop:
            counts[level] += 1
            await asyncio.sleep(0)

    async with Kernel("memory") as kernel:
        handles = [kernel.spawn(busy, "realtime", priority="realtime") for _ in range(realtime)]
        handles += [kernel.spawn(busy, "idle", priority="idle") for _ in range(idle)]
        while sum(counts.values()) < steps:  # noqa: ASYNC110 - the steps themselves are counted
            await asyncio.sleep(0)
        share = 100.0 * counts["idle"] / sum(counts.values())
        stop = True
        for handle in handles:
            await handle.wait()
    return share


def run(size: Size) -> list[Row]:
    rows = []
    for realtime, idle in ((1, 1), (100, 100), (1_000, 1), (2_000, 100)):
        scale = size.of(1, 10)
        busy, resting = max(realtime // scale, 1), max(idle // scale, 1)
        share = asyncio.run(_shares(busy, resting, size.of(200_000, 500)))
        rows.append(Row(f"{resting} idle beside {busy} busy realtime: share of steps", Figure(share, "%")))
    weight = 100.0 * SHARES[-1] / (SHARES[0] + SHARES[-1])
    rows.append(Row("by the weights, when both levels are full", Figure(weight, "%")))
    return rows

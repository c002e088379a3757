"""The days before the web demo: the same team works at high speed in the same store, under clocks that are behind.

So that costs and runs have a past when the page is opened. Each day has a kernel of its own, which goes on from the
store that the one before has left; the demo's kernel goes on from the last.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from lyra.cli.demo.web.office import Office
from lyra.cli.demo.web.scene import Scene
from lyra.core.clock import SystemClock
from lyra.kernel.kernel import Kernel

_DAY_S: Final = 86_400.0
_ROUNDS_A_DAY: Final = (3, 5, 2, 6, 4, 1)  # of the days before today, the oldest first
_PACE: Final = 0.01
_PATIENCE_S: Final = 20.0
FIRST_ROUND: Final = sum(_ROUNDS_A_DAY)  # of the demo itself


class BehindClock(SystemClock):
    """The machine's clock, with a wall clock that is `behind_s` behind."""

    __slots__ = ("behind_s",)

    def __init__(self, behind_s: float) -> None:
        self.behind_s = behind_s

    def now(self) -> float:
        return SystemClock.now() - self.behind_s


async def live_through_past(store: str, folder: Path, *, seed: int) -> None:
    """Let the team work for the days before today."""
    number = 0
    for days_ago, rounds in zip(range(len(_ROUNDS_A_DAY), 0, -1), _ROUNDS_A_DAY, strict=True):
        scene = Scene(folder, seed=seed, pace=_PACE, has_nodes=False)
        async with Kernel(store, BehindClock(days_ago * _DAY_S)) as kernel:
            await scene.prepare(kernel)
            office = Office(scene, number)
            changes = [office.change(1042 + office.take_number(), with_trouble=False) for _ in range(rounds)]
            async with asyncio.timeout(_PATIENCE_S):
                for change in changes:
                    await change.wait()
        number = office.round

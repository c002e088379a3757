"""A kernel that ends processes by the million: no step of its loop grows with them, and neither does its memory.

Trivial processes are run to their end, a few at a time, in a store on disk, with snapshots as often as by default. A
ticker beside them measures what each turn of the event loop costs in processor time of its thread, so that a busy
machine counts for nothing. Then the store is opened again, and the first process is asked how it ended.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from lyra.core.clock import SystemClock
from lyra.kernel import Kernel
from verify.load.soak import resident_mb

__all__ = ["LIMITS", "Ended", "run"]

_AT_ONCE: Final = 20
_SETTLED: Final = 20_000  # processes, before memory is measured: tables and pools fill up first

LIMITS: Final = {"longest_step_ms": 50.0, "growth_mb": 20.0, "reopened_s": 1.0}


class Ended(NamedTuple):
    processes: int
    seconds: float
    longest_step_ms: float
    memory_mb: float  # once settled
    growth_mb: float  # from there to the end
    reopened_s: float
    first_result: Any  # of the first process, as the next kernel tells it

    @property
    def failures(self) -> list[str]:
        faults = [
            f"{name} is {getattr(self, name):.2f}, more than {most:g}"
            for name, most in LIMITS.items()
            if getattr(self, name) > most
        ]
        if self.first_result != 0:
            faults.append(f"the first process ended with {self.first_result!r} instead of 0")
        return faults


async def trivial(_ctx: Any, number: int) -> int:
    return number


class _Ticker:
    """Keeps the most processor time that the loop's thread took between two of its turns."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def tick(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            self.longest_s = max(self.longest_s, now - last)
            last = now


async def _end_many(processes: int, path: Path, progress: Callable[[int, int], None]) -> Ended:
    clock, ticker, memory_mb, first_pid = SystemClock(), _Ticker(), 0.0, ""
    begun = clock.monotonic()
    async with Kernel(path, programs=[trivial]) as kernel:
        ticking = kernel.tasks.start(ticker.tick(), name="ticker")
        for number in range(0, processes, _AT_ONCE):
            handles = [kernel.spawn(trivial, each) for each in range(number, min(number + _AT_ONCE, processes))]
            first_pid = first_pid or handles[0].pid
            for handle in handles:
                await handle.wait()
            if number <= min(_SETTLED, processes // 2):
                memory_mb = resident_mb()
            progress(number + len(handles), processes)
        ticking.cancel()
        growth_mb = resident_mb() - memory_mb
    seconds = clock.monotonic() - begun
    gc.collect()
    begun = clock.monotonic()
    async with Kernel(path, programs=[trivial]) as kernel:
        reopened_s = clock.monotonic() - begun
        first = await kernel.process(first_pid).wait()
    return Ended(processes, seconds, ticker.longest_s * 1000, memory_mb, growth_mb, reopened_s, first.result)


def run(processes: int, progress: Callable[[int, int], None] = lambda _done, _of: None) -> Ended:
    with tempfile.TemporaryDirectory(prefix="lyra-ended-") as folder:
        return asyncio.run(_end_many(processes, Path(folder) / "ended.db", progress))

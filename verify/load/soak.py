"""A long quiet run: thousands of supervised processes, a few crashing every minute, and nothing that grows.

Processes in groups of a hundred, each group under a supervisor, do a small effect now and then; one in a hundred is
told to crash each minute and is restarted. Measured: resident memory at the start and the end, its growth a minute,
how late the event loop is, and whether anything is left when all of it is stopped. Real time, real memory: nothing
simulated.
"""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Any, Final, NamedTuple

from lyra.core.clock import SystemClock
from lyra.core.ids import make_random
from lyra.kernel import Child, Kernel

__all__ = ["LIMITS", "Soak", "resident_mb", "run"]

_GROUP: Final = 100
_BEAT_S: Final = 10.0  # each process does something about this often
_LAG_EVERY_S: Final = 0.05
_SETTLE: Final = 0.25  # of the run, before growth is measured: caches and pools fill up first

LIMITS: Final = {"memory_mb": 300.0, "growth_mb_a_minute": 1.0, "lag_p99_ms": 50.0}


class Soak(NamedTuple):
    processes: int
    seconds: float
    seed: int
    crashes: int
    restarts: int
    effects: int
    memory_mb: float
    growth_mb_a_minute: float
    lag_p99_ms: float
    left: int

    @property
    def failures(self) -> list[str]:
        faults = [
            f"{name} is {getattr(self, name):.2f}, more than {most:g}"
            for name, most in LIMITS.items()
            if getattr(self, name) > most
        ]
        if self.left:
            faults.append(f"{self.left} things are left after the end")
        if self.crashes and self.restarts < self.crashes:
            faults.append(f"{self.crashes} crashed, {self.restarts} were restarted")
        return faults


async def _beat(number: int) -> int:
    return number


async def worker(ctx: Any, number: int) -> None:
    """Beats at its own pace; a message makes it crash."""
    pace_s = _BEAT_S * (0.5 + ctx.random())
    while True:
        if await ctx.receive(timeout=pace_s) is not None:
            raise RuntimeError(f"worker {number} was told to crash")
        await ctx.do(_beat, number)


async def _soak(processes: int, seconds: float, seed: int, store: str) -> Soak:
    rng, clock = make_random(seed), SystemClock()
    started: dict[str, int] = {"process.created": 0, "effect.finished": 0}
    lags: list[float] = []
    memory: list[tuple[float, float]] = []
    async with Kernel(store, programs=[worker]) as kernel:
        supervisors: list[Any] = []
        for first in range(0, processes, _GROUP):
            children = [
                Child(f"w{number}", worker, args=(number,)) for number in range(first, min(first + _GROUP, processes))
            ]
            supervisors.append(kernel.supervise(children, max_restarts=-1))
        wanted = processes + len(supervisors)
        while kernel.live < wanted:  # noqa: ASYNC110 - there is no event for "all are up"
            await asyncio.sleep(0.01)
        kernel.on_event(lambda event: _count(started, event.kind))
        gc.collect()
        begun = clock.monotonic()
        crashes, crashed_until, sampled = 0, begun, begun - 5.0
        while (now := clock.monotonic()) < begun + seconds:
            due = processes / 100 * (now - crashed_until) / 60.0
            if due >= 1:
                crashed_until = now
                crashes += _crash(kernel, rng, int(due))
            if now - sampled >= min(5.0, seconds / 20):
                sampled = now
                memory.append((now - begun, resident_mb()))
            await asyncio.sleep(_LAG_EVERY_S)
            lags.append(clock.monotonic() - now - _LAG_EVERY_S)
        await asyncio.sleep(0.2)
        live = kernel.live
        for supervisor in supervisors:
            await supervisor.stop()
        left = kernel.live + kernel.core.in_flight + len(kernel.lifetimes.deadlines)
        left += abs(live - wanted)
    memory.append((seconds, resident_mb()))
    return Soak(
        processes,
        seconds,
        seed,
        crashes,
        started["process.created"],
        started["effect.finished"],
        max(mb for _, mb in memory),
        _growth(memory, seconds),
        _p99(lags) * 1000,
        left,
    )


def _crash(kernel: Kernel, rng: Any, count: int) -> int:
    workers = [
        pid for pid, process in kernel.processes.items() if process.exit is None and "soak:worker" in process.program
    ]
    for pid in rng.sample(workers, min(count, len(workers))):
        kernel.send(pid, "crash")
    return min(count, len(workers))


def _count(started: dict[str, int], kind: str) -> None:
    if kind in started:
        started[kind] += 1


def resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _growth(memory: list[tuple[float, float]], seconds: float) -> float:
    """The slope of memory over the settled part of the run, by least squares."""
    settled = [(time_s, mb) for time_s, mb in memory if time_s >= seconds * _SETTLE]
    if len(settled) < 3:
        return 0.0
    mean_at = sum(time_s for time_s, _ in settled) / len(settled)
    mean_mb = sum(mb for _, mb in settled) / len(settled)
    spread = sum((time_s - mean_at) ** 2 for time_s, _ in settled)
    return 60.0 * sum((time_s - mean_at) * (mb - mean_mb) for time_s, mb in settled) / spread


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] if values else 0.0


def run(processes: int, seconds: float, seed: int = 1, store: str = "memory") -> Soak:
    return asyncio.run(_soak(processes, seconds, seed, store))

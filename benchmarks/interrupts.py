"""Ten thousand questions to people, all open at once: raise one, find a process's oldest, answer it, let it expire.

The baseline is our own work with a hundred open questions: what one costs may not grow with how many there are, nor
with how many of them are one process's. Questions are looked up and answered oldest first; they expire by their timers,
in virtual time. On SQLite the clock stops when all rows are durable.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, Row, Size, Stopwatch, Timing, interleave, ratio_at_most
from lyra.kernel import Kernel
from lyra.testing.clock import SimClock

TITLES = {
    "create": "raise a question",
    "look up": "find a process's oldest",
    "resolve": "answer a question",
    "expire": "let one expire",
}
_LIFE_S = 1.0


class Questions:
    """One kernel with `pending` questions spread evenly over `processes`; measures each, in that order."""

    def __init__(self, target: Callable[[], str], pending: int, processes: int, looks: int, times: int = 1) -> None:
        self.target = target
        self.pending = pending
        self.processes = processes
        self.looks = looks
        self.times = times
        self._timings: dict[str, Timing] = {}

    def contenders(self, name: str) -> Mapping[str, Callable[[], Timing]]:
        """They share a run: the first asks for it, the others tell what it measured."""
        return {
            f"{name}: create": self._measure,
            f"{name}: look up": lambda: self._timings["look up"],
            f"{name}: resolve": lambda: self._timings["resolve"],
            f"{name}: expire": lambda: self._timings["expire"],
        }

    def _measure(self) -> Timing:
        # Small numbers are measured several times over: a hundred questions are too quick for the clock.
        runs = [asyncio.run(self._run()) for _ in range(self.times)]
        for what in TITLES:
            parts = [run[what] for run in runs]
            self._timings[what] = Timing(
                sum(part.cpu_s for part in parts),
                sum(part.wall_s for part in parts),
                sum(part.operations for part in parts),
            )
        return self._timings["create"]

    async def _run(self) -> dict[str, Timing]:
        pids = [f"p{number}" for number in range(self.processes)]
        async with Kernel(self.target(), snapshot_every_events=10**9) as kernel:
            for pid in pids:
                kernel.submit(pid, user_id="ada")
            await kernel.durable()
            asked = [pids[number % self.processes] for number in range(self.pending)]
            with Stopwatch(self.pending) as create:
                ids = [kernel.create_interrupt(pid, "clarification", question="Which one?").id for pid in asked]
                await kernel.durable()
            wanted = [asked[number % self.pending] for number in range(self.looks)]
            with Stopwatch(self.looks) as look_up:
                pending: Any = [kernel.get_pending_interrupt(pid) for pid in wanted]
            assert [interrupt.id for interrupt in pending[: self.processes]] == ids[: min(self.looks, self.processes)]
            with Stopwatch(self.pending) as resolve:
                for interrupt_id in ids:
                    kernel.resolve_interrupt(interrupt_id, {"text": "That one."}, user_id="ada")
                await kernel.durable()
            assert kernel.get_pending_interrupt(pids[0]) is None
        timings = {"create": create.timing, "look up": look_up.timing, "resolve": resolve.timing}
        return {**timings, "expire": await self._expire(pids)}

    async def _expire(self, pids: list[str]) -> Timing:
        clock = SimClock()
        async with Kernel(self.target(), clock, snapshot_every_events=10**9) as kernel:
            for pid in pids:
                kernel.submit(pid, user_id="ada")
            for number in range(self.pending):
                kernel.create_interrupt(pids[number % self.processes], "clarification", ttl_s=_LIFE_S)
            await kernel.durable()
            with Stopwatch(self.pending) as expire:
                clock.advance(_LIFE_S)
                await kernel.durable()
            assert kernel.interrupts.get_counts()["expired"] == self.pending
        return expire.timing


def run(size: Size) -> list[Row]:
    many, few, times = size.of(10_000, 100), size.of(100, 20), size.of(20, 1)
    spread = 10
    with tempfile.TemporaryDirectory(prefix="lyra-bench-") as folder:
        numbers = iter(range(10**6))

        def fresh() -> str:
            return str(Path(folder) / f"{next(numbers)}.db")

        def memory() -> str:
            return "memory"

        best = interleave(
            {
                **Questions(memory, few, few, few, times).contenders("few"),
                **Questions(memory, many, many, many).contenders("many"),
                **Questions(memory, many, spread, many).contenders("crowded"),
                **Questions(memory, many, 1, many).contenders("one"),
                **Questions(fresh, few, few, few, times).contenders("few on SQLite"),
                **Questions(fresh, many, many, many).contenders("many on SQLite"),
                **Questions(fresh, many, 1, many).contenders("one on SQLite"),
            },
            min(size.repeats, 3),
        )
    baseline = f"… with {few} pending"
    return [
        *_rows(best, "many", f"{many} pending, in memory", baseline, "few"),
        *_rows(best, "crowded", f"{many} pending of {spread} processes, in memory", baseline, "few"),
        *_rows(best, "one", f"{many} pending of one process, in memory", baseline, "few"),
        *_rows(best, "many on SQLite", f"{many} pending, on SQLite", baseline, "few on SQLite"),
        *_rows(best, "one on SQLite", f"{many} pending of one process, on SQLite", baseline, "few on SQLite"),
    ]


def _rows(best: Mapping[str, Figure], name: str, where: str, baseline: str, few: str) -> list[Row]:
    return [
        Row(f"{title}, {where}", best[f"{name}: {what}"], baseline, best[f"{few}: {what}"], (ratio_at_most(2.0),))
        for what, title in TITLES.items()
    ]

"""The harness: interleaved repeats, the best of each, and one table.

A contender is a callable that prepares itself, times its own work (`Stopwatch`) and gives a `Timing`. `interleave`
runs A B C A B C …, so that a machine that slows down for a while slows everybody down, and keeps the best of each:
other work on the machine only ever adds. CPU time decides, wall time stands beside it; ratios travel between machines,
times do not.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["Figure", "Goal", "Row", "Size", "Stopwatch", "Timing", "at_most", "interleave", "markdown", "ratio_at_most"]


@dataclass(frozen=True, slots=True)
class Size:
    """How much to do: `quick` shows that a benchmark works, the full size measures."""

    quick: bool = False

    def of(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @property
    def repeats(self) -> int:
        return 1 if self.quick else 7


class Timing(NamedTuple):
    """One timed piece of work: seconds of CPU and of wall clock, and how many operations they bought."""

    cpu_s: float
    wall_s: float
    operations: int


class Stopwatch:
    """`with Stopwatch(count) as watch: …` and then `watch.timing`."""

    __slots__ = ("_cpu", "_wall", "count", "timing")

    def __init__(self, count: int) -> None:
        self.count = count
        self.timing = Timing(0.0, 0.0, count)

    def __enter__(self) -> Stopwatch:
        gc.collect()
        self._wall = time.perf_counter()
        self._cpu = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        cpu_s = time.process_time() - self._cpu
        self.timing = Timing(cpu_s, time.perf_counter() - self._wall, self.count)


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number with its unit; `wall` is the same by the wall clock, where that makes sense."""

    value: float
    unit: str = "µs"
    wall: float | None = None

    def __str__(self) -> str:
        return _number(self.value, self.unit)

    @property
    def wall_text(self) -> str:
        return "" if self.wall is None else _number(self.wall, self.unit)


def _number(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value:.2f} %"
    if unit == "B":
        return f"{value:,.0f} B".replace(",", " ")
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"


@dataclass(frozen=True, slots=True)
class Goal:
    """A promise about a row: its ratio, or its own figure, is at most `limit`."""

    limit: float
    of: str  # "ratio" or "ours"
    text: str


def ratio_at_most(limit: float) -> Goal:
    return Goal(limit, "ratio", f"≤ {limit:g}×")


def at_most(limit: float, unit: str) -> Goal:
    return Goal(limit, "ours", f"≤ {limit:g} {unit}")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; without a baseline it is a figure to look at, without goals it promises nothing."""

    what: str
    ours: Figure | None
    baseline: str = ""
    theirs: Figure | None = None
    goals: tuple[Goal, ...] = field(default=())
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if self.ours is None or self.theirs is None or not self.theirs.value:
            return None
        return self.ours.value / self.theirs.value

    @property
    def ok(self) -> bool | None:
        """Whether every goal is met; None when there is none, or nothing to hold against it."""
        if not self.goals or self.ours is None:
            return None
        own, ratio = self.ours.value, self.ratio
        if ratio is None and any(goal.of == "ratio" for goal in self.goals):
            return None
        return all((own if goal.of == "ours" else ratio or 0.0) <= goal.limit for goal in self.goals)

    def to_data(self) -> dict[str, Any]:
        def figure(of: Figure | None) -> dict[str, Any] | None:
            return None if of is None else {"value": of.value, "unit": of.unit, "wall": of.wall}

        return {
            "what": self.what,
            "ours": figure(self.ours),
            "baseline": self.baseline,
            "theirs": figure(self.theirs),
            "ratio": self.ratio,
            "goals": [goal.text for goal in self.goals],
            "ok": self.ok,
            "note": self.note,
        }


def interleave(contenders: Mapping[str, Callable[[], Timing]], repeats: int) -> dict[str, Figure]:
    """Run them in turn, `repeats` times; the best µs of CPU and of wall an operation, each by itself."""
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    wall: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            timing = contender()
            cpu[name].append(timing.cpu_s / timing.operations * 1e6)
            wall[name].append(timing.wall_s / timing.operations * 1e6)
    return {name: Figure(min(cpu[name]), "µs", min(wall[name])) for name in contenders}


_HEAD = ("what", "ours (CPU)", "ours (wall)", "baseline", "baseline (CPU)", "ratio", "goal", "ok")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.what + (f" ({row.note})" if row.note else ""),
        str(row.ours) if row.ours is not None else "–",
        row.ours.wall_text if row.ours is not None else "",
        row.baseline,
        str(row.theirs) if row.theirs is not None else "",
        f"{row.ratio:.2f}×" if row.ratio is not None else "",
        ", ".join(goal.text for goal in row.goals),
        "" if row.ok is None else "yes" if row.ok else "NO",
    )


def markdown(rows: list[Row]) -> str:
    """The rows as a Markdown table that also reads well as plain text."""
    table = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEAD))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in table
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)

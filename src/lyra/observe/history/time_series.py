"""Figures over time: calls, errors, tokens, cached tokens, cost, latency and restarts in equal steps of time.

`TimeSeries.add_call` and `add_restart` count into three resolutions at once (`RESOLUTIONS`): the last hour by minute,
the last day by quarter of an hour, the last month by day. Older steps are dropped, so its memory is bounded. Each user
has figures of their own; `points` adds up those that a reader may see. Latency is kept as counts in logarithmic
buckets, from which `LatencyCounts.percentile` reads percentiles within a tenth. Counts values only: hears and reads
nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2
from typing import Final, NamedTuple

import msgspec

_BUCKETS_PER_DOUBLING: Final = 8
_USERS_MAX: Final = 1_000  # with figures of their own in one step; further ones are counted for the operator


class Resolution(NamedTuple):
    """How long one step is, and how many of them are kept."""

    step_s: int
    steps: int


RESOLUTIONS: Final[dict[str, Resolution]] = {
    "hour": Resolution(60, 60),
    "day": Resolution(900, 96),
    "month": Resolution(86_400, 31),
}


class LatencyCounts(msgspec.Struct):
    """How many calls took how long; `buckets` are numbered by the logarithm of the milliseconds."""

    buckets: dict[int, int] = {}

    def add(self, latency_ms: float) -> None:
        bucket = ceil(log2(max(latency_ms, 1.0)) * _BUCKETS_PER_DOUBLING)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def merge(self, other: LatencyCounts) -> None:
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count

    @property
    def count(self) -> int:
        return sum(self.buckets.values())

    def percentile(self, percent: int) -> float | None:
        """Return the milliseconds that so many percent of the calls do not exceed; None without a call."""
        rank = -(-self.count * percent // 100)
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return float(2 ** (bucket / _BUCKETS_PER_DOUBLING))
        return None


class FigurePoint(msgspec.Struct):
    """The figures of one step; `started_at` is where the step begins, in wall-clock seconds."""

    started_at: float
    calls: int = 0
    errors: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    micro_usd: int = 0
    restarts: int = 0
    latency: LatencyCounts = msgspec.field(default_factory=LatencyCounts)

    def merge(self, other: FigurePoint) -> None:
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.latency.merge(other.latency)


_COUNTED: Final = tuple(name for name in FigurePoint.__struct_fields__ if name not in ("started_at", "latency"))


class TimeSeries:
    """See the module."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: dict[str, dict[int, dict[str, FigurePoint]]] = {name: {} for name in RESOLUTIONS}

    def add_call(
        self,
        time: float,
        owner: str,
        *,
        latency_ms: float | None,
        is_error: bool,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_tokens: int = 0,
        micro_usd: int = 0,
    ) -> None:
        """Count a call of a model that ended at that time."""
        for point in self._points_at(time, owner):
            point.calls += 1
            point.errors += is_error
            point.input_tokens += input_tokens
            point.output_tokens += output_tokens
            point.cached_tokens += cached_tokens
            point.micro_usd += micro_usd
            if latency_ms is not None:
                point.latency.add(latency_ms)

    def add_restart(self, time: float, owner: str) -> None:
        """Count a supervised process that was started again."""
        for point in self._points_at(time, owner):
            point.restarts += 1

    def _points_at(self, time: float, owner: str) -> list[FigurePoint]:
        points = []
        for name, resolution in RESOLUTIONS.items():
            steps, number = self._steps[name], int(time // resolution.step_s)
            if number not in steps:
                newest = max(steps, default=number)
                if number <= newest - resolution.steps:
                    continue
                steps[number] = {}
                for old in [old for old in steps if old <= max(newest, number) - resolution.steps]:
                    del steps[old]
            users = steps[number]
            key = owner if owner in users or len(users) < _USERS_MAX else ""
            points.append(users.setdefault(key, FigurePoint(float(number * resolution.step_s))))
        return points

    def points(self, name: str, now: float, is_seen: Callable[[str], bool]) -> list[FigurePoint]:
        """Return the steps of a resolution up to now, the oldest first and none left out; of the users that are
        seen."""
        resolution = RESOLUTIONS[name]
        last = int(now // resolution.step_s)
        points = []
        for number in range(last - resolution.steps + 1, last + 1):
            total = FigurePoint(float(number * resolution.step_s))
            for owner, point in self._steps[name].get(number, {}).items():
                if is_seen(owner):
                    total.merge(point)
            points.append(total)
        return points

"""Numbers spread over buckets, and the figures of the latest executions of a node.

A spread is a plain list, so that it lies in a row of the journal as it is: how many numbers fell into each bucket, how
many above the last, and their sum. Two spreads with the same buckets add up place by place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

DURATION_BUCKETS_MS: Final = (0.01, 0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0)
WINDOW: Final = 100  # executions that alerts look at


def empty_spread(buckets: Sequence[float]) -> list[float]:
    return [0] * (len(buckets) + 2)


def observe(spread: list[float], buckets: Sequence[float], number: float) -> None:
    spread[bisect_left(buckets, number)] += 1
    spread[-1] += number


def add_spread(first: list[float], second: Sequence[float]) -> list[float]:
    return [left + right for left, right in zip(first, second, strict=True)]


class LatestExecutions:
    """The last executions of a node: how many failed, and how long they took."""

    def __init__(self) -> None:
        self._rows: deque[tuple[bool, float]] = deque(maxlen=WINDOW)

    def add(self, *, failed: bool, milliseconds: float) -> None:
        self._rows.append((failed, milliseconds))

    def figures(self) -> dict[str, Any]:
        count = len(self._rows)
        errors = sum(failed for failed, _ in self._rows)
        times = sorted(milliseconds for _, milliseconds in self._rows)
        return {
            "executions": count,
            "errors": errors,
            "error_rate": Decimal(errors) / count if count else Decimal(0),
            "p50_latency_ms": _rank(times, 50),
            "p95_latency_ms": _rank(times, 95),
            "p99_latency_ms": _rank(times, 99),
            "max_latency_ms": _rank(times, 100),
        }


def _rank(times: list[float], percent: int) -> Decimal | None:
    """The nearest rank: the smallest number that so many percent of all do not exceed."""
    if not times:
        return None
    index = -(-len(times) * percent // 100) - 1
    return Decimal(repr(times[index]))

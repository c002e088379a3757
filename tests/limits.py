"""A limit on a time, which a `timed` test measures again where it is missed: no other failure is tried again."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["LimitMissed", "best_within", "within"]


class LimitMissed(AssertionError):
    """It took longer than it may."""


def within(measured: float, limit: float, told: object = "") -> None:
    """What was measured is at most the limit, both in the same unit; otherwise LimitMissed, with what is told."""
    if not measured <= limit:
        raise LimitMissed(f"{measured:.4g} is beyond {limit:.4g}{f': {told}' if told else ''}")


def best_within(measure: Callable[[], float], limit: float, tries: int, told: str = "") -> None:
    """The least of so many measurements is at most the limit. Other work on the machine only ever adds to a time, so
    that the first one within the limit shows it, and no more are made."""
    best = math.inf
    for _ in range(tries):
        best = min(best, measure())
        if best <= limit:
            return
    within(best, limit, told)

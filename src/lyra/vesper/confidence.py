"""How sure some compared executions make us that two paths agree: the lower end of Wilson's score interval.

The bound is for the share of executions that agree, at z = 3.29 (99.9 %). Few executions prove nothing: below the
minimum it is 0. Without a divergence 206 executions reach 0.95, 10 814 reach 0.999 and 108 231 reach 0.9999.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

Z: Final = 3.29
COMPARED_MIN: Final = 1000


def lower_bound(compared: int, divergences: int, minimum: int = COMPARED_MIN) -> float:
    """Return the lowest share of agreement, between 0 and 1, that this many comparisons leave likely."""
    if not 0 <= divergences <= compared:
        raise ValueError(f"{divergences} divergences of {compared} executions")
    if compared == 0 or compared < minimum:
        return 0.0
    return interval(compared, divergences)[0]


def interval(compared: int, divergences: int) -> tuple[float, float]:
    """Return both ends of the interval, also below the minimum; without a comparison every share is as likely."""
    if compared == 0:
        return 0.0, 1.0
    share = (compared - divergences) / compared
    square = Z * Z / compared
    center = share + square / 2
    margin = Z * sqrt(share * (1 - share) / compared + square / (4 * compared))
    return max(0.0, (center - margin) / (1 + square)), min(1.0, (center + margin) / (1 + square))

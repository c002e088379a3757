"""A limit on a time, which a `timed` test measures again where it is missed: no other failure is tried again."""

from __future__ import annotations

__all__ = ["LimitMissed", "within"]


class LimitMissed(AssertionError):
    """It took longer than it may."""


def within(measured: float, limit: float, told: object = "") -> None:
    """What was measured is at most the limit, both in the same unit; otherwise LimitMissed, with what is told."""
    if not measured <= limit:
        raise LimitMissed(f"{measured:.4g} is beyond {limit:.4g}{f': {told}' if told else ''}")

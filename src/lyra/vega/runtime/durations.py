"""Durations and back-offs of Vega settings as the kernel takes them."""

from __future__ import annotations

from typing import Any

from lyra.core.policies.policy import Backoff
from lyra.vega.values.values import Duration, Fault, kind_of


def seconds(value: Any, what: str) -> float:
    """A duration in seconds; a bare integer is milliseconds."""
    if type(value) is Duration:
        return float(value.seconds)
    if type(value) is int:
        return value / 1000
    raise Fault("TypeError", f"`{what}` is a duration, not {kind_of(value)}")


def backoff(value: Any) -> Backoff:
    """`exponential(base, factor, max)`, `linear(step, max)`, `constant(pause)`, or such a word alone."""
    kind, *given = value if isinstance(value, list) else [value]
    if kind == "exponential":
        initial = seconds(given[0], "backoff") if given else 0.1
        factor = float(given[1]) if len(given) > 1 else 2.0
        most = seconds(given[2], "backoff") if len(given) > 2 else max(30.0, initial)
        return Backoff(initial_s=initial, factor=factor, max_s=most)
    initial = seconds(given[0], "backoff") if given else 0.1
    most = seconds(given[1], "backoff") if len(given) > 1 else initial if kind == "constant" else max(30.0, initial)
    return Backoff(kind=kind, initial_s=initial, max_s=most)

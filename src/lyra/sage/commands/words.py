"""Figures as people read them: ages, amounts of money, tokens, shares."""

from __future__ import annotations

from lyra.core.clock import SystemClock

__all__ = ["age", "dollars", "percent", "tokens"]


def age(time: float) -> str:
    """How long ago, in the largest unit."""
    seconds = max(0.0, SystemClock().now() - time)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return "now"


def dollars(usd: float | None) -> str:
    """An amount to two digits, a small one to four; `?` where the price of a call is not known."""
    if usd is None:
        return "?"
    return f"${usd:.2f}" if usd >= 0.1 or not usd else f"${usd:.4f}"


def tokens(count: int) -> str:
    """A count with spaces between thousands."""
    return f"{count:,}".replace(",", " ")


def percent(share: float) -> str:
    return f"{round(100 * share)} %"

"""Figures and texts as people read them: ages, amounts of money, tokens, shares, first words."""

from __future__ import annotations

from typing import Final

from lyra.core.clock import SystemClock
from lyra.core.secrets.visible import visible

_LENGTH_MAX: Final = 90


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


def short(text: str, length: int = _LENGTH_MAX) -> str:
    """The beginning of a text on one line, escape sequences made visible."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= length else f"{line[: length - 1]}…"

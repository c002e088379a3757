"""Durations as files spell them: `500ms`, `30s`, `5m`, `1h`, or a plain number of seconds."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h)\Z")
_UNITS: Final = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}


def seconds_of(value: Any) -> float | None:
    """The duration in seconds; None for what is not one, and for what is not more than nothing."""
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return float(value) if 0 < value < 10**9 else None
    if not isinstance(value, str):
        return None
    match = _DURATION.match(value.strip())
    if match is None:
        return None
    return float(Decimal(match[1]) * _UNITS[match[2]]) or None

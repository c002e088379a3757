"""Texts of moments, and time zones by their names in the tz database, such as Europe/Berlin.

A moment is a date, or a date and a time of day, as RFC 3339 writes them; `TIMESTAMP_TEXT` is the whole grammar.
Python's `fromisoformat` alone takes more: any character between date and time, week dates, digits beyond the
microsecond that it drops. A zone is that of the system's data, else of `tzdata`.

A zone is found by name once. A local time that a zone skips (its clocks go forward) is one by the offset before the
gap, so that it lies as far behind the gap's end; one that it has twice (its clocks go back) is the first of the two.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

# YYYY-MM-DD, then T or a space, HH:MM[:SS[.f…]] and Z or an offset. Behind the microseconds only zeros may follow.
TIMESTAMP_TEXT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6}0{0,6})?)?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?)?"
)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}\Z", re.ASCII)
_CHARS_MAX: Final = 64
_NO_ZONES: Final = ("posix/", "right/", "localtime", "posixrules", "Factory")  # files of a system, unlike on others


def zone_of(name: str) -> ZoneInfo | None:
    """Return the zone of that name; None for an unknown name."""
    is_name = len(name) <= _CHARS_MAX and _NAME.match(name) and not name.startswith(_NO_ZONES)
    return _load(name) if is_name else None


@lru_cache(maxsize=1024)
def _load(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None

"""Schedules: the moments at which something is due, by an interval or by five fields of cron, in UTC.

The fields (`0 3 * * 1-5`) are minute, hour, day of the month, month and day of the week (0 and 7 are Sunday); each is
`*`, a number, a range `a-b`, any of them with `/step`, or a list of those. Where both days are restricted, either will
do, as in cron. An interval counts from 1970, so that its ticks are the same after a restart and on every machine.
Nothing here waits.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

_BOUNDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_DAYS_MAX: Final = 366 * 8  # that are looked at for a tick: a 29th of February may be eight years away
_DAY: Final = timedelta(days=1)


class Schedule(msgspec.Struct, frozen=True):
    """An interval in seconds, or the numbers that each field of cron allows."""

    every_s: float = 0.0
    fields: tuple[frozenset[int], ...] = ()
    either_day: bool = False

    def last(self, now: datetime) -> datetime | None:
        """Return the latest tick that is not after `now`."""
        if self.every_s:
            return datetime.fromtimestamp(now.timestamp() // self.every_s * self.every_s, UTC)
        day = now.astimezone(UTC).replace(second=0, microsecond=0)
        latest = day.hour, day.minute
        for _ in range(_DAYS_MAX):
            times = [time for time in self._times() if time <= latest] if self._has(day) else []
            if times:
                return day.replace(hour=times[-1][0], minute=times[-1][1])
            day, latest = day - _DAY, (23, 59)
        return None

    def next(self, now: datetime) -> datetime | None:
        """Return the first tick after `now`."""
        if self.every_s:
            return datetime.fromtimestamp((now.timestamp() // self.every_s + 1) * self.every_s, UTC)
        day = now.astimezone(UTC).replace(second=0, microsecond=0)
        earliest = day.hour, day.minute + 1
        for _ in range(_DAYS_MAX):
            times = [time for time in self._times() if time >= earliest] if self._has(day) else []
            if times:
                return day.replace(hour=times[0][0], minute=times[0][1])
            day, earliest = day + _DAY, (0, 0)
        return None

    def _times(self) -> list[tuple[int, int]]:
        return [(hour, minute) for hour in sorted(self.fields[1]) for minute in sorted(self.fields[0])]

    def _has(self, day: datetime) -> bool:
        in_month, on_weekday = day.day in self.fields[2], day.isoweekday() % 7 in self.fields[4]
        is_day = (in_month or on_weekday) if self.either_day else (in_month and on_weekday)
        return day.month in self.fields[3] and is_day


def parse_cron(text: str) -> Schedule | None:
    """Return the schedule that five fields of cron mean; None if they are none."""
    words = text.split()
    if len(words) != len(_BOUNDS):
        return None
    fields = [_numbers(word, *bounds) for word, bounds in zip(words, _BOUNDS, strict=True)]
    if not all(fields):
        return None
    days = frozenset(number % 7 for number in fields[4])
    either = words[2] != "*" and words[4] != "*"
    return Schedule(fields=(*fields[:4], days), either_day=either)


def _numbers(word: str, low: int, high: int) -> frozenset[int]:
    """Return the numbers that a field allows; none where it is no field."""
    numbers: set[int] = set()
    for part in word.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text) if slash else 1
        first_text, dash, last_text = ("", "", "") if span == "*" else span.partition("-")
        first = low if span == "*" else _number(first_text)
        last = high if span == "*" or (slash and not dash) else _number(last_text) if dash else first
        if first is None or last is None or not step or not low <= first <= last <= high:
            return frozenset()
        numbers.update(range(first, last + 1, step))
    return frozenset(numbers)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None

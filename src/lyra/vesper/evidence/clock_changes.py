"""Moments at which the clocks of time zones change, and moments near them.

A day of a zone has 23 or 25 hours where its clocks change, an hour is missing or comes twice, and a calculation that is
right on all other days is often wrong there. Random timestamps hardly meet these days, so inputs are drawn near them:
`list_changes` gives the changes before and after a moment, `draw_near` a moment beside one of them, and `local_texts`
the local times at one, in its gap and in its fold, as a text for `parse_timestamp` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random  # noqa: TID251 - the type; generators come from core.ids
from typing import Any, Final

from lyra.vesper.values.zones import TIMESTAMP_TEXT, zone_of

NOW: Final = datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC)  # of the executions that a search makes
ZONES_MAX: Final = 12  # that a search looks at
_ANCHORS_MAX: Final = 6
_FIRST_YEAR: Final = 1900  # before it and after the last year, no changes are looked for
_LAST_YEAR: Final = 2200
_EACH_WAY: Final = 2  # changes before a moment, and after it: one forward and one back
_STEP: Final = timedelta(days=7)  # a zone keeps a change for longer
_STEPS_BACK: Final = 60 * 52  # a zone may have changed its clocks for the last time long ago
_STEPS_ON: Final = 2 * 53
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_SHIFT: Final = timedelta(hours=1)
_BESIDE: Final = (timedelta(0), -_SECOND, _SECOND, _SHIFT / 2, -_SHIFT / 2, _SHIFT, -_SHIFT, _DAY, -_DAY)
_BESIDE_SHARE: Final = 0.5  # of moments near a change; the others lie anywhere within a day of it


def texts_in(values: Iterable[Any]) -> Iterator[str]:
    """Yield the texts inside values, keys of maps left out."""
    todo = list(values)
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, list | tuple):
            todo.extend(value)


def zones_in(texts: Iterable[str]) -> list[str]:
    """Return those of the texts that name a time zone whose clocks change, in their order."""
    return [name for name in dict.fromkeys(texts) if list_changes(name, NOW)][:ZONES_MAX]


def anchors_in(values: Iterable[Any]) -> list[datetime]:
    """Return the present of an execution, and those of the values that are moments, as themselves or as texts."""
    moments = {NOW: None}
    for value in values:
        moment = read_moment(value) if isinstance(value, str) else value
        if isinstance(moment, datetime) and _FIRST_YEAR < moment.year < _LAST_YEAR:
            moments[moment if moment.tzinfo else moment.replace(tzinfo=UTC)] = None
    return [*moments][:_ANCHORS_MAX]


def read_moment(text: str) -> datetime | None:
    """Return the moment that a text names, in UTC where it has no offset; None where it names none."""
    if not TIMESTAMP_TEXT.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=256)
def list_changes(name: str, around: datetime) -> tuple[datetime, ...]:
    """Return the last changes of a zone's clocks up to a moment and the first after it; none of an unknown zone."""
    zone = zone_of(name)
    if zone is None:
        return ()

    def offset(moment: datetime) -> timedelta | None:
        return moment.astimezone(zone).utcoffset()

    changes = []
    for step, steps in ((-_STEP, _STEPS_BACK), (_STEP, _STEPS_ON)):
        here, left = around, _EACH_WAY
        for _ in range(steps):
            there = here + step
            if offset(there) != offset(here):
                changes.append(_find_change(min(here, there), max(here, there), offset))
                left -= 1
                if not left:
                    break
            here = there
    return tuple(sorted(changes))


def _find_change(low: datetime, high: datetime, offset: Callable[[datetime], timedelta | None]) -> datetime:
    """Return the first second with the later distance from UTC, of two moments between which it changes."""
    first = int(low.timestamp())
    last, before = int(high.timestamp()) + 1, offset(low)
    while last - first > 1:
        middle = (first + last) // 2
        if offset(datetime.fromtimestamp(middle, UTC)) == before:
            first = middle
        else:
            last = middle
    return datetime.fromtimestamp(last, UTC)


def draw_near(changes: tuple[datetime, ...], rng: Random) -> datetime:
    """Return a moment at a change, a second, half an hour, an hour or a day beside it, or anywhere within a day."""
    change = changes[int(rng.random() * len(changes))]
    if rng.random() < _BESIDE_SHARE:
        return change + _BESIDE[int(rng.random() * len(_BESIDE))]
    return change + timedelta(minutes=int((rng.random() * 2 - 1) * 24 * 60))


def local_texts(name: str, changes: Iterable[datetime], form: str) -> Iterator[str]:
    """Yield local times at each change as `form` writes them: a second before it, at its ends, and in its gap or
    fold."""
    zone = zone_of(name)
    for change in changes:
        before = (change - _SECOND).astimezone(zone).replace(tzinfo=None)
        after = change.astimezone(zone).replace(tzinfo=None)
        middle = min(before, after) + abs(after - before) / 2
        for local in (before, before + _SECOND, middle.replace(microsecond=0), after, after - _SECOND):
            yield local.strftime(form)

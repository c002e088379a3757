"""Built-in functions of generated code over timestamps, durations and time zones.

A duration is a number of seconds. A timestamp is in UTC; a zone says how it is read as a date and a time of day. What
lies outside the years 1 to 9999 is an overflow.
"""

from __future__ import annotations

import calendar
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from lyra.vesper.expressions.functions import DIRECTIVES, MONTHS, UNITS, WEEKDAYS
from lyra.vesper.python import numbers
from lyra.vesper.python.functions import integer_argument
from lyra.vesper.python.numbers import kind_of
from lyra.vesper.python.operators import string_argument
from lyra.vesper.values.limits import FORMAT_CHARS_MAX
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.zones import TIMESTAMP_TEXT, zone_of


def _time(value: Any, function: str) -> datetime:
    if isinstance(value, datetime):
        return value
    raise NodeError("type_error", f"{function} takes a timestamp, not {kind_of(value)}")


def _zone(name: Any, function: str) -> ZoneInfo:
    zone = zone_of(string_argument(name, function))
    if zone is None:
        raise NodeError("unknown_zone", f"there is no time zone {name[:80]!r}")
    return zone


def is_zone(name: Any) -> bool:
    """Return whether a text is the name of a time zone."""
    return zone_of(string_argument(name, "is_zone")) is not None


def _local(time: datetime, zone: ZoneInfo) -> datetime:
    try:
        return time.astimezone(zone)
    except (OverflowError, ValueError):
        raise numbers.overflow() from None


def _utc(local: datetime) -> datetime:
    """Return the moment of a local time; the first where the zone has two, and by the offset before a gap."""
    try:
        return local.replace(fold=0).astimezone(UTC)
    except (OverflowError, ValueError):
        raise numbers.overflow() from None


def seconds_in(count: Any, factor: int) -> Any:
    """Return a duration in seconds: a number of units times the seconds of one."""
    if not numbers.is_number(count):
        raise NodeError("type_error", f"a duration takes a number, not {kind_of(count)}")
    return numbers.multiply(count, factor)


def milliseconds_in(count: Any) -> Any:
    if not numbers.is_number(count):
        raise NodeError("type_error", f"a duration takes a number, not {kind_of(count)}")
    return numbers.divide(count, 1000)


# ------------------------------------------------------------ parts
def year_of(time: Any, zone: Any = "UTC") -> int:
    return _local(_time(time, "year"), _zone(zone, "year")).year


def month_of(time: Any, zone: Any = "UTC") -> int:
    return _local(_time(time, "month"), _zone(zone, "month")).month


def day_of(time: Any, zone: Any = "UTC") -> int:
    return _local(_time(time, "day"), _zone(zone, "day")).day


def hour_of(time: Any, zone: Any = "UTC") -> int:
    return _local(_time(time, "hour"), _zone(zone, "hour")).hour


def minute_of(time: Any, zone: Any = "UTC") -> int:
    return _local(_time(time, "minute"), _zone(zone, "minute")).minute


def second_of(time: Any, zone: Any = "UTC") -> int:
    return _local(_time(time, "second"), _zone(zone, "second")).second


def microsecond_of(time: Any, zone: Any = "UTC") -> int:
    return _local(_time(time, "microsecond"), _zone(zone, "microsecond")).microsecond


def weekday_of(time: Any, zone: Any = "UTC") -> int:
    """Return the day of the week, from 1 (Monday) to 7."""
    return _local(_time(time, "weekday"), _zone(zone, "weekday")).isoweekday()


def day_of_year(time: Any, zone: Any = "UTC") -> int:
    return _local(_time(time, "day_of_year"), _zone(zone, "day_of_year")).timetuple().tm_yday


# ------------------------------------------------------------ calendar
def add_days(time: Any, count: Any, zone: Any = "UTC") -> datetime:
    """Return the same time of day so many days later."""
    moment, days, place = _time(time, "add_days"), integer_argument(count, "add_days"), _zone(zone, "add_days")
    local = _local(moment, place)
    if days == 0:
        return moment
    try:
        return _utc(local + timedelta(days=days))
    except OverflowError:
        raise numbers.overflow() from None


def add_months(time: Any, count: Any, zone: Any = "UTC") -> datetime:
    """Return the same day so many months later, or the last day of that month."""
    time, count, place = _time(time, "add_months"), integer_argument(count, "add_months"), _zone(zone, "add_months")
    return _months_later(time, count, place)


def add_years(time: Any, count: Any, zone: Any = "UTC") -> datetime:
    time, count, place = _time(time, "add_years"), integer_argument(count, "add_years"), _zone(zone, "add_years")
    return _months_later(time, 12 * count, place)


def _months_later(time: datetime, count: int, zone: ZoneInfo) -> datetime:
    local = _local(time, zone)
    if count == 0:
        return time
    year, month = divmod(local.year * 12 + local.month - 1 + count, 12)
    if not 1 <= year <= 9999:
        raise numbers.overflow()
    day = min(local.day, calendar.monthrange(year, month + 1)[1])
    return _utc(local.replace(year=year, month=month + 1, day=day))


def start_of(time: Any, unit: Any, zone: Any = "UTC") -> datetime:
    """Return the beginning of the unit that the time is in."""
    moment, place = _time(time, "start_of"), _zone(zone, "start_of")
    if unit not in UNITS:
        raise NodeError("type_error", f"start_of takes one of {', '.join(UNITS)}")
    local = _local(moment, place)
    try:
        if unit in ("hour", "minute"):
            minutes = local.minute if unit == "hour" else 0
            back = timedelta(minutes=minutes, seconds=local.second, microseconds=local.microsecond)
            return (moment - back).astimezone(UTC)
        if unit == "week":
            local -= timedelta(days=local.weekday())
    except OverflowError:
        raise numbers.overflow() from None
    month = 1 if unit == "year" else local.month
    day = 1 if unit in ("year", "month") else local.day
    return _utc(local.replace(month=month, day=day, hour=0, minute=0, second=0, microsecond=0))


# ------------------------------------------------------------ texts
def parse_iso(text: Any) -> datetime | None:
    """Return the moment that a text in ISO 8601 names; null where it is none."""
    if not TIMESTAMP_TEXT.fullmatch(string_argument(text, "timestamp")):
        return None
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


_DIRECTIVE: Final = re.compile(r"%(.?)", re.DOTALL)
_PATTERNS: Final = {
    "Y": r"(?P<Y>[0-9]{4})",
    "m": r"(?P<m>[0-9]{2})",
    "d": r"(?P<d>[0-9]{2})",
    "H": r"(?P<H>[0-9]{2})",
    "M": r"(?P<M>[0-9]{2})",
    "S": r"(?P<S>[0-9]{2})",
    "f": r"(?P<f>[0-9]{6})",
    "z": r"(?P<z>[+-][0-9]{4})",
    "b": f"(?P<b>{'|'.join(name[:3] for name in MONTHS)})",
    "B": f"(?P<B>{'|'.join(MONTHS)})",
    "%": "%",
}


def _format(value: Any, function: str) -> str:
    form = string_argument(value, function)
    if len(form) > FORMAT_CHARS_MAX:
        raise NodeError("type_error", f"a format of times has at most {FORMAT_CHARS_MAX} characters")
    return form


def format_timestamp(time: Any, form: Any, zone: Any = "UTC") -> str:
    """Return a time as a text, by directives."""
    time, form = _time(time, "format_timestamp"), _format(form, "format_timestamp")
    place = _zone(zone, "format_timestamp")
    for match in _DIRECTIVE.finditer(form):
        if match[1] not in DIRECTIVES or not match[1]:
            raise NodeError("type_error", f"a format of times has no {match[0]}")
    local = _local(time, place)
    return _DIRECTIVE.sub(lambda match: _directive(local, match[1]), form)


def _directive(local: datetime, letter: str) -> str:
    match letter:
        case "Y":
            return f"{local.year:04d}"
        case "a":
            return WEEKDAYS[local.weekday()][:3]
        case "A":
            return WEEKDAYS[local.weekday()]
        case "b":
            return MONTHS[local.month - 1][:3]
        case "B":
            return MONTHS[local.month - 1]
    return local.strftime(f"%{letter}")  # digits: the same in every locale


@lru_cache(maxsize=256)
def _format_pattern(form: str) -> re.Pattern[str]:
    """Return the pattern of texts in a format; of a directive that comes twice, each place must have the same text."""
    parts: list[str] = []
    end = 0
    seen: set[str] = set()
    for match in _DIRECTIVE.finditer(form):
        letter = match[1]
        if letter not in _PATTERNS:
            raise NodeError("type_error", f"parse_timestamp does not read {match[0]}")
        parts += [re.escape(form[end : match.start()]), f"(?P={letter})" if letter in seen else _PATTERNS[letter]]
        seen |= {letter} - {"%"}
        end = match.end()
    return re.compile("".join([*parts, re.escape(form[end:])]))


def parse_timestamp(text: Any, form: Any, zone: Any = "UTC") -> datetime | None:
    """Return the time that a text names, by directives; null where it is none."""
    text, form = string_argument(text, "parse_timestamp"), _format(form, "parse_timestamp")
    place = _zone(zone, "parse_timestamp")
    match = _format_pattern(form).fullmatch(text)
    if match is None:
        return None
    fields = match.groupdict()
    month = int(fields.get("m") or 0) if "m" in fields else 1
    for letter, names in (("b", [name[:3] for name in MONTHS]), ("B", list(MONTHS))):
        if letter in fields:
            month = names.index(fields[letter]) + 1
    hour, minute, second, micros = (int(fields.get(letter) or 0) for letter in "HMSf")
    try:
        day = datetime(int(fields.get("Y", 1970)), month, int(fields.get("d", 1)))  # noqa: DTZ001 - a zone follows
        time = day.replace(hour=hour, minute=minute, second=second, microsecond=micros)
        if "z" not in fields:
            return _utc(time.replace(tzinfo=place))
        sign, hours, minutes = fields["z"][0], int(fields["z"][1:3]), int(fields["z"][3:])
        if hours > 23 or minutes > 59:
            return None
        offset = timedelta(hours=hours, minutes=minutes)
        return (time - offset if sign == "+" else time + offset).replace(tzinfo=UTC)
    except (ValueError, OverflowError, NodeError):
        return None

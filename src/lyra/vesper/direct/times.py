"""Built-in functions of the direct path over timestamps, durations and time zones.

A timestamp in a zone is worked with as its local date and time; `_from_local` finds the moment of a local time again.
The calendar is counted in days from the year 1 (`date.toordinal`) and in minutes of the day.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from lyra.vesper.direct.numbers import kind_of, overflow
from lyra.vesper.expressions.functions import DIRECTIVES, MONTHS, UNITS, WEEKDAYS
from lyra.vesper.values.limits import FORMAT_CHARS_MAX
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.zones import TIMESTAMP_TEXT, zone_of

_SECOND: Final = 10**6  # microseconds


def _require(function: str, time: Any, zone_name: Any) -> ZoneInfo:
    """Return the zone; a type error where the time is not a timestamp or the zone does not exist."""
    if not isinstance(time, datetime):
        raise NodeError("type_error", f"{function} cannot take {kind_of(time)}")
    return _zone(function, zone_name)


def _zone(function: str, zone_name: Any) -> ZoneInfo:
    zone = zone_of(zone_name) if type(zone_name) is str else None
    if zone is None:
        if type(zone_name) is not str:
            raise NodeError("type_error", f"{function} cannot take {kind_of(zone_name)} for a time zone")
        raise NodeError("unknown_zone", f"{function}: there is no time zone {zone_name[:80]!r}")
    return zone


def _is_zone(name: Any) -> bool:
    if type(name) is not str:
        raise NodeError("type_error", f"is_zone cannot take {kind_of(name)}")
    return zone_of(name) is not None


def _to_local(time: datetime, zone: ZoneInfo) -> datetime:
    try:
        return time.astimezone(zone)
    except (OverflowError, ValueError):
        raise overflow() from None


def _from_local(days: int, micros: int, zone: ZoneInfo) -> datetime:
    """Return the moment of a local day, by its number, and time of day, in microseconds."""
    try:
        midnight = datetime.combine(date.fromordinal(days), datetime.min.time())
        local = (midnight + timedelta(microseconds=micros)).replace(tzinfo=zone)
        return local.astimezone(UTC)
    except (OverflowError, ValueError):
        raise overflow() from None


def _time_of_day(local: datetime) -> int:
    return ((local.hour * 60 + local.minute) * 60 + local.second) * _SECOND + local.microsecond


# ---------------------------------------------------------------- parts and calendar


def _part(name: str, read: Callable[[datetime], int]) -> Callable[..., int]:
    def part(time: Any, zone: Any = "UTC") -> int:
        return read(_to_local(time, _require(name, time, zone)))

    return part


def _count(function: str, value: Any) -> None:
    if type(value) is not int:
        raise NodeError("type_error", f"{function} cannot take {kind_of(value)}")


def _add_days(time: Any, count: Any, zone: Any = "UTC") -> datetime:
    place = _require("add_days", time, zone)
    _count("add_days", count)
    local = _to_local(time, place)
    return _from_local(local.toordinal() + count, _time_of_day(local), place) if count else local.astimezone(UTC)


def _add_months(name: str, months: int) -> Callable[..., datetime]:
    """Return the function that adds so many months for each one counted."""

    def add(time: Any, count: Any, zone: Any = "UTC") -> datetime:
        place = _require(name, time, zone)
        _count(name, count)
        local = _to_local(time, place)
        if not count:
            return local.astimezone(UTC)
        number = local.year * 12 + local.month - 1 + months * count
        if not 12 <= number < 120_000:
            raise overflow()
        first = date(number // 12, number % 12 + 1, 1).toordinal()
        last = _last_day(number)
        return _from_local(min(first + local.day - 1, last), _time_of_day(local), place)

    return add


def _last_day(month: int) -> int:
    """Return the number of the last day of a month, counted from the year 0."""
    if month == 119_999:
        return date.max.toordinal()
    return date((month + 1) // 12, (month + 1) % 12 + 1, 1).toordinal() - 1


def _start_of(time: Any, unit: Any, zone: Any = "UTC") -> datetime:
    place = _require("start_of", time, zone)
    if unit not in UNITS:
        raise NodeError("type_error", "start_of takes the name of a unit")
    local = _to_local(time, place)
    into_day = _time_of_day(local)
    if unit in ("hour", "minute"):
        length = 3600 * _SECOND if unit == "hour" else 60 * _SECOND
        try:
            return local.astimezone(UTC) - timedelta(microseconds=into_day % length)
        except OverflowError:
            raise overflow() from None
    days = {
        "year": date(local.year, 1, 1).toordinal(),
        "month": local.toordinal() - local.day + 1,
        "week": local.toordinal() - local.weekday(),
        "day": local.toordinal(),
    }
    return _from_local(days[unit], 0, place)


# ---------------------------------------------------------------- texts


def _timestamp(text: Any) -> datetime | None:
    if type(text) is not str:
        raise NodeError("type_error", f"timestamp cannot take {kind_of(text)}")
    if not TIMESTAMP_TEXT.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _directives(function: str, form: Any, *, is_read: bool) -> list[tuple[str, str]]:
    """Return a format as texts, each with the directive after it; the last one has none."""
    if type(form) is not str:
        raise NodeError("type_error", f"{function} cannot take {kind_of(form)}")
    if len(form) > FORMAT_CHARS_MAX:
        raise NodeError("type_error", "the format of a time is too long")
    parts: list[tuple[str, str]] = []
    rest = form
    while "%" in rest:
        text, _, rest = rest.partition("%")
        known = DIRECTIVES.get(rest[:1])
        if known is None or (is_read and not known[1]):
            raise NodeError("type_error", f"{function} knows no %{rest[:1]}")
        parts.append((text, rest[0]))
        rest = rest[1:]
    return [*parts, (rest, "")]


def _offset(local: datetime) -> str:
    span = local.utcoffset() or timedelta(0)
    seconds = abs(span.days * 86_400 + span.seconds)
    sign = "-" if span.days < 0 else "+"
    text = f"{sign}{seconds // 3600:02d}{seconds // 60 % 60:02d}"
    return text + (f"{seconds % 60:02d}" if seconds % 60 else "")


_SHOW: Final[dict[str, Callable[[datetime], str]]] = {
    "Y": lambda local: str(local.year).zfill(4),
    "m": lambda local: str(local.month).zfill(2),
    "d": lambda local: str(local.day).zfill(2),
    "H": lambda local: str(local.hour).zfill(2),
    "M": lambda local: str(local.minute).zfill(2),
    "S": lambda local: str(local.second).zfill(2),
    "f": lambda local: str(local.microsecond).zfill(6),
    "z": _offset,
    "j": lambda local: str(local.toordinal() - date(local.year, 1, 1).toordinal() + 1).zfill(3),
    "u": lambda local: str(local.isoweekday()),
    "a": lambda local: WEEKDAYS[local.toordinal() % 7 - 1][:3],
    "A": lambda local: WEEKDAYS[local.toordinal() % 7 - 1],
    "b": lambda local: MONTHS[local.month - 1][:3],
    "B": lambda local: MONTHS[local.month - 1],
    "%": lambda _: "%",
    "": lambda _: "",
}


def _format_timestamp(time: Any, form: Any, zone: Any = "UTC") -> str:
    place = _require("format_timestamp", time, zone)
    parts = _directives("format_timestamp", form, is_read=False)
    local = _to_local(time, place)
    return "".join(text + _SHOW[letter](local) for text, letter in parts)


_DIGITS: Final = {"Y": 4, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2, "f": 6}


def _read(letter: str, text: str) -> tuple[int, int] | None:
    """Return the number at the front of a text and its length in characters; None where the text begins with no
    number."""
    if letter in _DIGITS:
        digits = text[: _DIGITS[letter]]
        is_number = len(digits) == _DIGITS[letter] and digits.isascii() and digits.isdigit()
        return (int(digits), len(digits)) if is_number else None
    if letter == "z":
        digits = text[1:5]
        if text[:1] not in ("+", "-") or len(digits) < 4 or not (digits.isascii() and digits.isdigit()):
            return None
        minutes = int(digits[:2]) * 60 + int(digits[2:])
        is_possible = int(digits[:2]) < 24 and int(digits[2:]) < 60
        return (-minutes if text[0] == "-" else minutes) if is_possible else _NO_OFFSET, 5
    for number, name in enumerate(MONTHS, 1):
        word = name[:3] if letter == "b" else name
        if text.startswith(word):
            return number, len(word)
    return None


_NO_OFFSET: Final = 10**6  # minutes: a distance from UTC that cannot be


def _fields(text: str, parts: list[tuple[str, str]]) -> dict[str, int] | None:
    """Return the numbers that a text names, by directive; None where it does not fit the format."""
    fields: dict[str, tuple[int, str]] = {}
    for plain, letter in parts:
        if not text.startswith(plain):
            return None
        text = text[len(plain) :]
        if letter == "%":
            if text[:1] != "%":
                return None
            text = text[1:]
        elif letter:
            number = _read(letter, text)
            if number is None or fields.get(letter, (0, text[: number[1]]))[1] != text[: number[1]]:
                return None
            fields[letter] = number[0], text[: number[1]]
            text = text[number[1] :]
    return None if text else {letter: number for letter, (number, _) in fields.items()}


def _parse_timestamp(text: Any, form: Any, zone: Any = "UTC") -> datetime | None:
    if type(text) is not str:
        raise NodeError("type_error", f"parse_timestamp cannot take {kind_of(text)}")
    place = _zone("parse_timestamp", zone)
    fields = _fields(text, _directives("parse_timestamp", form, is_read=True))
    if fields is None:
        return None
    month = fields.get("B", fields.get("b", fields.get("m", 1)))
    hour, minute, second = fields.get("H", 0), fields.get("M", 0), fields.get("S", 0)
    if hour > 23 or minute > 59 or second > 59 or fields.get("z") == _NO_OFFSET:
        return None
    micros = ((hour * 60 + minute) * 60 + second) * _SECOND + fields.get("f", 0)
    try:
        day = date(fields.get("Y", 1970), month, fields.get("d", 1)).toordinal()
        if "z" not in fields:
            return _from_local(day, micros, place)
        moment = datetime.fromordinal(day).replace(tzinfo=UTC)
        return moment + timedelta(microseconds=micros) - timedelta(minutes=fields["z"])
    except (ValueError, OverflowError, NodeError):
        return None


TIMES: Final[dict[str, Callable[..., Any]]] = {
    "timestamp": _timestamp,
    "is_zone": _is_zone,
    "year": _part("year", lambda local: local.year),
    "month": _part("month", lambda local: local.month),
    "day": _part("day", lambda local: local.day),
    "hour": _part("hour", lambda local: local.hour),
    "minute": _part("minute", lambda local: local.minute),
    "second": _part("second", lambda local: local.second),
    "microsecond": _part("microsecond", lambda local: local.microsecond),
    "weekday": _part("weekday", lambda local: (local.toordinal() - 1) % 7 + 1),
    "day_of_year": _part("day_of_year", lambda local: local.toordinal() - date(local.year, 1, 1).toordinal() + 1),
    "format_timestamp": _format_timestamp,
    "parse_timestamp": _parse_timestamp,
    "add_days": _add_days,
    "add_months": _add_months("add_months", 1),
    "add_years": _add_months("add_years", 12),
    "start_of": _start_of,
}

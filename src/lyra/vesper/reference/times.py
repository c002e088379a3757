"""Timestamps and time zones in the reference evaluator, on the days and microseconds since 1970.

The calendar is computed here, not taken from the library: a leap year has 366 days, a day 86,400 seconds. Of the zone
only its distance from UTC at a moment is asked for; the moment of a local time is found by trying those distances.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from lyra.vesper.expressions.functions import DIRECTIVES, MONTHS, UNITS, WEEKDAYS
from lyra.vesper.reference.values import arithmetic, is_number, type_error
from lyra.vesper.values.limits import FORMAT_CHARS_MAX
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.zones import TIMESTAMP_TEXT, zone_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400 * 10**6  # microseconds
_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400, "weeks": 7 * 86_400}
_PARTS = ("year", "month", "day", "hour", "minute", "second", "microsecond", "weekday", "day_of_year")
_FIRST, _LAST = -62_135_596_800 * 10**6, 253_402_300_799_999_999  # of the years 1 and 9999


def call_on_time(function: str, values: list[Any]) -> Any:
    """Return the value of a function over times."""
    if function in _SECONDS or function == "milliseconds":
        if not is_number(values[0]):
            raise type_error("a number is needed")
        return arithmetic("/", values[0], 1000) if function == "milliseconds" else _units(function, values[0])
    if function == "is_zone":
        if not isinstance(values[0], str):
            raise type_error("a text is needed")
        return zone_of(values[0]) is not None
    if function == "timestamp":
        return _from_iso(values[0])
    if function == "parse_timestamp":
        return _parse(*values)
    time, *rest = values
    if not isinstance(time, datetime):
        raise type_error("a timestamp is needed")
    if function in _PARTS:
        zone = _zone(*rest)
        return _fields(_local(time, zone))[function]
    argument, zone = rest[0], _zone(*rest[1:])
    if function == "format_timestamp":
        pieces = _pieces(argument, is_read=False)
        local = _local(time, zone)
        return "".join(_format_piece(piece, local, zone, time) for piece in pieces)
    if function == "start_of":
        return _start(time, argument, zone)
    if not isinstance(argument, int) or isinstance(argument, bool):
        raise type_error("an integer is needed")
    return _later(function, time, argument, zone)


def _units(function: str, count: Any) -> Any:
    return arithmetic("*", count, _SECONDS[function])


def _zone(name: Any = "UTC") -> ZoneInfo:
    if not isinstance(name, str):
        raise type_error("a text is needed")
    zone = zone_of(name)
    if zone is None:
        raise NodeError("unknown_zone", "no such time zone")
    return zone


# ---------------------------------------------------------------- microseconds since 1970


def micros_of(time: datetime) -> int:
    span = time - _EPOCH
    return (span.days * 86_400 + span.seconds) * 10**6 + span.microseconds


def time_of(micros: int) -> datetime:
    """Return the time; `overflow` outside the years 1 to 9999."""
    if not _FIRST <= micros <= _LAST:
        raise NodeError("overflow", "no such year")
    days, rest = divmod(micros, _DAY)
    return _EPOCH + timedelta(days=days, microseconds=rest)


def _distance(time: datetime, zone: ZoneInfo) -> int:
    """Return the distance from UTC at a moment."""
    try:
        span = time.astimezone(zone).utcoffset()
    except (OverflowError, ValueError):
        raise NodeError("overflow", "no such local time") from None
    return 0 if span is None else (span.days * 86_400 + span.seconds) * 10**6 + span.microseconds


def _local(time: datetime, zone: ZoneInfo) -> int:
    local = micros_of(time) + _distance(time, zone)
    if not _FIRST <= local <= _LAST:
        raise NodeError("overflow", "no such year")
    return local


def _moment(local: int, zone: ZoneInfo) -> datetime:
    """Return the moment of a local time: the first that has it; in a gap, by the distance before the gap."""
    if not _FIRST <= local <= _LAST:
        raise NodeError("overflow", "no such year")
    guesses = [min(max(local + hours * 3600 * 10**6, _FIRST + _DAY), _LAST - _DAY) for hours in (-26, 0, 26)]
    distances = [_distance(time_of(guess), zone) for guess in guesses]
    moments = sorted({local - distance for distance in distances})
    for moment in moments:
        if _FIRST + _DAY <= moment <= _LAST - _DAY and moment + _distance(time_of(moment), zone) == local:
            return time_of(moment)
    if len(moments) == 1:
        return time_of(moments[0])
    return time_of(local - distances[0])


# ---------------------------------------------------------------- the calendar


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _length(year: int, month: int) -> int:
    return 30 + (month + month // 8) % 2 if month != 2 else 28 + _is_leap(year)


def _days_before(year: int) -> int:
    """Return the days from 1970 to the beginning of a year."""
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400 - 719_162


def _days(year: int, month: int, day: int) -> int:
    return _days_before(year) + sum(_length(year, earlier) for earlier in range(1, month)) + day - 1


def _fields(local: int) -> dict[str, int]:
    days, rest = divmod(local, _DAY)
    year = 1970 + days // 366
    while _days_before(year + 1) <= days:
        year += 1
    while _days_before(year) > days:
        year -= 1
    day_of_year = days - _days_before(year)
    month, day = 1, day_of_year
    while day >= _length(year, month):
        month, day = month + 1, day - _length(year, month)
    seconds = rest // 10**6
    return {
        "year": year,
        "month": month,
        "day": day + 1,
        "hour": seconds // 3600,
        "minute": seconds // 60 % 60,
        "second": seconds % 60,
        "microsecond": rest % 10**6,
        "weekday": (days + 3) % 7 + 1,
        "day_of_year": day_of_year + 1,
    }


def _later(function: str, time: datetime, count: int, zone: ZoneInfo) -> datetime:
    local = _local(time, zone)
    if count == 0:
        return time
    if function == "add_days":
        return _moment(local + count * _DAY, zone)
    fields = _fields(local)
    months = fields["year"] * 12 + fields["month"] - 1 + count * (12 if function == "add_years" else 1)
    year, month = months // 12, months % 12 + 1
    if not 1 <= year <= 9999:
        raise NodeError("overflow", "no such year")
    day = min(fields["day"], _length(year, month))
    return _moment(_days(year, month, day) * _DAY + local % _DAY, zone)


def _start(time: datetime, unit: Any, zone: ZoneInfo) -> datetime:
    if unit not in UNITS:
        raise type_error("no such unit")
    local = _local(time, zone)
    if unit in ("hour", "minute"):
        return time_of(micros_of(time) - local % ((3600 if unit == "hour" else 60) * 10**6))
    fields = _fields(local)
    days = {
        "year": _days_before(fields["year"]),
        "month": local // _DAY - fields["day"] + 1,
        "week": local // _DAY - fields["weekday"] + 1,
        "day": local // _DAY,
    }
    return _moment(days[unit] * _DAY, zone)


# ---------------------------------------------------------------- texts


def _from_iso(value: Any) -> datetime | None:
    if not isinstance(value, str):
        raise type_error("a text is needed")
    if not TIMESTAMP_TEXT.fullmatch(value):
        return None
    try:
        time = datetime.fromisoformat(value)
        offset = time.utcoffset() or timedelta(0)
        return time.replace(tzinfo=UTC) - offset
    except (ValueError, OverflowError):
        return None


def _pieces(form: Any, *, is_read: bool) -> list[str]:
    """Return a format as characters and directives; a directive has its percent sign."""
    if not isinstance(form, str) or len(form) > FORMAT_CHARS_MAX:
        raise type_error("a format is needed")
    pieces, index = [], 0
    while index < len(form):
        length = 2 if form[index] == "%" else 1
        piece = form[index : index + length]
        if length == 2 and (piece[1:] not in DIRECTIVES or (is_read and not DIRECTIVES[piece[1:]][1])):
            raise type_error("no such directive")
        pieces.append(piece)
        index += length
    return pieces


_WIDTHS = {"%Y": 4, "%m": 2, "%d": 2, "%H": 2, "%M": 2, "%S": 2, "%f": 6, "%j": 3, "%u": 1}
_NAMES = {
    "%Y": "year",
    "%m": "month",
    "%d": "day",
    "%H": "hour",
    "%M": "minute",
    "%S": "second",
    "%f": "microsecond",
    "%j": "day_of_year",
    "%u": "weekday",
}


def _format_piece(piece: str, local: int, zone: ZoneInfo, time: datetime) -> str:
    fields = _fields(local)
    if piece in _NAMES:
        return f"{fields[_NAMES[piece]]:0{_WIDTHS[piece]}d}"
    match piece:
        case "%z":
            seconds = abs(_distance(time, zone)) // 10**6
            sign = "-" if _distance(time, zone) < 0 else "+"
            rest = f"{seconds % 60:02d}" if seconds % 60 else ""
            return f"{sign}{seconds // 3600:02d}{seconds // 60 % 60:02d}{rest}"
        case "%a" | "%A":
            name = WEEKDAYS[fields["weekday"] - 1]
            return name[:3] if piece == "%a" else name
        case "%b" | "%B":
            name = MONTHS[fields["month"] - 1]
            return name[:3] if piece == "%b" else name
        case "%%":
            return "%"
    return piece


def _parse(text: Any, form: Any, zone_name: Any = "UTC") -> datetime | None:
    if not isinstance(text, str):
        raise type_error("a text is needed")
    zone, pieces = _zone(zone_name), _pieces(form, is_read=True)
    taken: dict[str, str] = {}
    for piece in pieces:
        part = _front(piece, text)
        if part is None or (piece in taken and taken[piece] != part and len(piece) == 2):
            return None
        taken[piece] = part
        text = text[len(part) :]
    return None if text else _build_time(taken, zone)


def _front(piece: str, text: str) -> str | None:
    """Return the front of a text that matches a piece of the format."""
    if piece in _WIDTHS:
        part = text[: _WIDTHS[piece]]
        return part if len(part) == _WIDTHS[piece] and set(part) <= set("0123456789") else None
    if piece == "%z":
        part = text[:5]
        return part if len(part) == 5 and part[0] in "+-" and set(part[1:]) <= set("0123456789") else None
    if piece in ("%b", "%B"):
        names = [name[:3] if piece == "%b" else name for name in MONTHS]
        return next((name for name in names if text[: len(name)] == name), None)
    plain = "%" if piece == "%%" else piece
    return plain if text[:1] == plain else None


def _build_time(taken: dict[str, str], zone: ZoneInfo) -> datetime | None:
    numbers = {piece: int(part) for piece, part in taken.items() if piece in _WIDTHS}
    year, month, day = numbers.get("%Y", 1970), numbers.get("%m", 1), numbers.get("%d", 1)
    for piece, length in (("%b", 3), ("%B", 9)):
        if piece in taken:
            month = [name[:length] for name in MONTHS].index(taken[piece]) + 1
    hour, minute, second = numbers.get("%H", 0), numbers.get("%M", 0), numbers.get("%S", 0)
    is_date = year >= 1 and 1 <= month <= 12 and 1 <= day <= _length(year, month)
    if not is_date or hour > 23 or minute > 59 or second > 59:
        return None
    micros = _days(year, month, day) * _DAY + (hour * 3600 + minute * 60 + second) * 10**6 + numbers.get("%f", 0)
    offset = taken.get("%z", "")
    if offset and (int(offset[1:3]) > 23 or int(offset[3:]) > 59):
        return None
    try:
        if not offset:
            return _moment(micros, zone)
        distance = (int(offset[1:3]) * 60 + int(offset[3:])) * 60 * 10**6
        return time_of(micros - distance if offset[0] == "+" else micros + distance)
    except NodeError:
        return None

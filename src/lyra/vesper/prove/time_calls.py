"""Functions of times, for the walk over expressions.

Times are microseconds since 1970. Days, hours and what is shorter are exact. Of a date its year, month and day are any
within some days of where years and months of equal length would put it: a formula of the calendar takes a solver too
long. `add_months`, `add_years` and `start_of` say how the dates of their results follow from those before, and that so
many months are within so many times the length of one.

In UTC this is all. In another zone the local time is the time plus a distance of less than a day, about which nothing
else is known, and a local time is turned back with another such distance; so what holds there holds whatever the clocks
do. A call with a zone that is no constant may also fail with `unknown_zone`, unless `is_zone` said that it is one.
A text that `format_timestamp` gives is one of the form that its directives say. The functions stand alone: `walk` has a
table of them, and the solver's terms are built here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import z3

from lyra.vesper.evidence.clock_changes import read_moment
from lyra.vesper.expressions.functions import DIRECTIVES, MONTHS, WEEKDAYS
from lyra.vesper.prove.text_calls import constant_text
from lyra.vesper.prove.texts import text_constant
from lyra.vesper.prove.values import (
    NULL,
    TIMES,
    NumberValue,
    OpaqueValue,
    SymbolicValue,
    Term,
    TextValue,
    TimeValue,
    ValueChoice,
    conj,
    disj,
    implies,
    microseconds,
    negate,
)

if TYPE_CHECKING:
    from lyra.vesper.prove.walk import ExpressionWalk

_Parts = tuple[SymbolicValue, ...]
_SECONDS: Final = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400, "weeks": 604_800}
_SECOND: Final = 10**6
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_UNITS: Final = {"minute": _MINUTE, "hour": _HOUR, "day": _DAY, "week": 7 * _DAY}
_LONGEST: Final = {"month": 31 * _DAY, "year": 366 * _DAY}  # units that are not always as long
_THURSDAY: Final = 3  # 1970 began on a Thursday, three days behind the first one of a week
_CLOCK: Final = {"hour": (_HOUR, 24), "minute": (_MINUTE, 60), "second": (_SECOND, 60), "microsecond": (1, _SECOND)}
_RANGES: Final = {"year": (1, 9999), "month": (1, 12), "day": (1, 31), "weekday": (1, 7), "day_of_year": (1, 366)}
_PARTS: Final = (*_RANGES, *_CLOCK)
_SCALE: Final = 1_000_000
_YEAR: Final = 365_242_500  # millionths of a day
_SPARE: Final = 4 * _SCALE  # that a date is at most from the day on which months and years of equal length put it
_MONTH_DAYS: Final = (30_436_875, 2_960_000)  # in 1 000 000ths of a day: a month, and what months may differ from it
_DIGIT: Final = z3.Range("0", "9")
_WIDTHS: Final = {"Y": 4, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2, "f": 6, "j": 3, "u": 1}
_NAMES: Final = {
    "a": [name[:3] for name in WEEKDAYS],
    "A": list(WEEKDAYS),
    "b": [name[:3] for name in MONTHS],
    "B": list(MONTHS),
}


class _Local(NamedTuple):
    """A moment as a zone shows it."""

    number: NumberValue  # microseconds since 1970 of its local time
    is_utc: bool


class _Date(NamedTuple):
    year: NumberValue
    month: NumberValue
    day: NumberValue


# ---------------------------------------------------------------- zones


def _needs(walk: ExpressionWalk, time: SymbolicValue, zone: _Parts, *counts: SymbolicValue) -> SymbolicValue | None:
    """Return what a call gives whose arguments are not modelled or of another type; None of a usable call."""
    for part in (time, *counts):
        if isinstance(part, OpaqueValue) and not part.kind:
            return walk.any_of(part.why)
    if not isinstance(time, TimeValue):
        walk.fail("type_error")
        return NULL
    for name in zone:
        _fail_without_zone(walk, name)
    if not all(isinstance(count, NumberValue) and count.whole for count in counts):
        walk.fail("type_error")
        return NULL
    return None


def _local(walk: ExpressionWalk, time: NumberValue, zone: _Parts) -> _Local:
    """Return a moment in a zone that there is; fails where there is no such local time."""
    if not zone or constant_text(zone[0]) == "UTC":
        return _Local(time, True)
    numbers = walk.numbers
    local = numbers.add(time, _distance(walk, time, zone[0]))
    _fail_outside(walk, local)
    return _Local(local, False)


def _fail_without_zone(walk: ExpressionWalk, zone: SymbolicValue) -> None:
    """Fail where a value is no name of a zone."""
    if isinstance(zone, TextValue):
        walk.fail("unknown_zone", negate(walk.is_zone(z3.simplify(zone.term))))
        return
    if not isinstance(zone, OpaqueValue):
        walk.fail("type_error")
        return
    if zone.kind != "string":
        walk.fail("type_error", walk.open_condition("a zone that is not modelled"))
    walk.fail("unknown_zone", walk.open_condition("a zone that is not modelled"))


def _distance(walk: ExpressionWalk, time: NumberValue, zone: SymbolicValue | None) -> NumberValue:
    """Return a distance from UTC: less than a day, the same for the same moment and zone."""
    numbers = walk.numbers

    def make() -> NumberValue:
        distance = numbers.fresh("distance", whole=True)
        walk.approximate("the clocks of another zone than UTC", distance.term)
        for ends in ((numbers.constant(-_DAY), distance), (distance, numbers.constant(_DAY))):
            numbers.axioms.append(numbers.less(*ends))
        return distance

    if not isinstance(zone, TextValue):
        return make()
    distance: NumberValue = walk.compute_once(("distance", time.term, z3.simplify(zone.term)), make)
    return distance


def _is_outside(walk: ExpressionWalk, number: NumberValue) -> Term:
    low, high = (walk.numbers.constant(microseconds(end)) for end in TIMES)
    return disj(walk.numbers.less(number, low), walk.numbers.less(high, number))


def _fail_outside(walk: ExpressionWalk, number: NumberValue) -> None:
    walk.fail("overflow", _is_outside(walk, number))


def _moment(walk: ExpressionWalk, local: NumberValue, *, is_utc: bool) -> TimeValue:
    """Return the moment of a local time."""
    _fail_outside(walk, local)
    if is_utc:
        return TimeValue(NumberValue(local.term, True))
    moment = walk.numbers.subtract(local, _distance(walk, local, None))
    _fail_outside(walk, moment)
    return TimeValue(NumberValue(moment.term, True))


# ---------------------------------------------------------------- the calendar


def _divide(walk: ExpressionWalk, number: NumberValue, size: int) -> NumberValue:
    """Return the whole part below of a number of microseconds over so many."""
    quotient = walk.numbers.round_quotient(number, walk.numbers.constant(size), 0, "floor")
    return NumberValue(quotient.term, True)


def _date(walk: ExpressionWalk, local: NumberValue) -> _Date:
    """Return the date of a local time."""
    numbers = walk.numbers

    def make() -> _Date:
        date = _Date(*(numbers.fresh(name, whole=True) for name in ("year", "month", "day")))
        days = _divide(walk, local, _DAY)
        walk.approximate("the calendar", *(part.term for part in date))
        facts = [part for name, number in zip(_Date._fields, date, strict=True) for part in _within(walk, number, name)]
        years, months = (numbers.subtract(part, numbers.constant(first)) for part, first in zip(date, (1970, 1)))  # noqa: B905
        usual = numbers.constant(-_SCALE)
        for part, size in ((years, _YEAR), (months, _YEAR // 12), (date.day, _SCALE)):
            usual = numbers.add(usual, numbers.multiply(part, numbers.constant(size)))
        rest = numbers.subtract(numbers.multiply(days, numbers.constant(_SCALE)), usual)
        spare = numbers.constant(_SPARE)
        facts += [numbers.at_most(rest, spare), numbers.at_most(numbers.negate(spare), rest)]
        # What a later step fails for is no date: it is not to be excluded here.
        numbers.axioms.append(implies(negate(_is_outside(walk, local)), conj(*facts)))
        return date

    date: _Date = walk.compute_once(("date", local.term), make)
    return date


def _within(walk: ExpressionWalk, number: NumberValue, name: str) -> list[Term]:
    numbers = walk.numbers
    low, high = _RANGES.get(name) or (0, _CLOCK[name][1] - 1)
    return [numbers.at_most(numbers.constant(low), number), numbers.at_most(number, numbers.constant(high))]


def _set_date(walk: ExpressionWalk, local: NumberValue, date: _Date) -> None:
    """Know the date of a local time."""
    numbers = walk.numbers
    facts = conj(*(numbers.equal(*pair) for pair in zip(_date(walk, local), date, strict=True)))
    numbers.axioms.append(implies(negate(_is_outside(walk, local)), facts))


def part_of(walk: ExpressionWalk, parts: _Parts, *, name: str) -> SymbolicValue:
    """Return the year, month, … of a time."""
    unusable = _needs(walk, parts[0], parts[1:])
    if unusable is not None:
        return unusable
    assert isinstance(parts[0], TimeValue)
    local = _local(walk, parts[0].number, parts[1:]).number
    return part_of_local(walk, local, name)


def part_of_local(walk: ExpressionWalk, local: NumberValue, name: str) -> NumberValue:
    numbers = walk.numbers
    if name in ("year", "month", "day"):
        number: NumberValue = getattr(_date(walk, local), name)
        return number
    if numbers.is_exact and name in _CLOCK:
        size, count = _CLOCK[name]
        return NumberValue(z3.simplify(local.term / size % count), True)
    if numbers.is_exact and name == "weekday":
        return NumberValue(z3.simplify((local.term / _DAY + _THURSDAY) % 7 + 1), True)

    def make() -> NumberValue:
        number = numbers.fresh(name, whole=True)
        walk.approximate("the calendar", number.term)
        numbers.axioms += _within(walk, number, name)
        return number

    part: NumberValue = walk.compute_once((name, local.term), make)
    return part


# ---------------------------------------------------------------- other moments


def add_days(walk: ExpressionWalk, parts: _Parts) -> SymbolicValue:
    time, count = parts[:2]
    unusable = _needs(walk, time, parts[2:], count)
    if unusable is not None:
        return unusable
    assert isinstance(time, TimeValue)
    assert isinstance(count, NumberValue)
    numbers = walk.numbers
    local, is_utc = _local(walk, time.number, parts[2:])
    moved = numbers.add(local, numbers.multiply(count, numbers.constant(_DAY)))
    if is_utc:
        return _moment(walk, NumberValue(moved.term, True), is_utc=True)
    return walk.branch(
        numbers.is_zero(count), lambda: time, lambda: _moment(walk, NumberValue(moved.term, True), is_utc=False)
    )


def add_months(walk: ExpressionWalk, parts: _Parts, *, size: int) -> SymbolicValue:
    """Return the time so many times `size` months later."""
    time, count = parts[:2]
    unusable = _needs(walk, time, parts[2:], count)
    if unusable is not None:
        return unusable
    assert isinstance(time, TimeValue)
    assert isinstance(count, NumberValue)
    numbers = walk.numbers
    local, is_utc = _local(walk, time.number, parts[2:])
    months = numbers.multiply(count, numbers.constant(size))

    def move() -> SymbolicValue:
        moved = _move(walk, local, NumberValue(months.term, True))
        return _moment(walk, moved, is_utc=is_utc)

    return move() if is_utc else walk.branch(numbers.is_zero(count), lambda: time, move)


def _move(walk: ExpressionWalk, local: NumberValue, months: NumberValue) -> NumberValue:
    """Return a time so many months later: each has 28 to 31 days, and many have 30.436875 of them."""
    numbers, moved = walk.numbers, walk.numbers.fresh("later", whole=True)
    walk.approximate("the calendar", moved.term)
    distance = numbers.subtract(moved, local)
    short, long = (numbers.multiply(months, numbers.constant(days * _DAY)) for days in (28, 31))
    zero, micros = numbers.constant(0), _DAY // 10**6
    usual = numbers.multiply(months, numbers.constant(_MONTH_DAYS[0] * micros))
    allowed = numbers.constant(_MONTH_DAYS[1] * micros)
    numbers.axioms += [
        implies(numbers.at_most(zero, months), conj(numbers.at_most(short, distance), numbers.at_most(distance, long))),
        implies(numbers.at_most(months, zero), conj(numbers.at_most(long, distance), numbers.at_most(distance, short))),
        numbers.at_most(numbers.subtract(distance, usual), allowed),
        numbers.at_most(numbers.subtract(usual, distance), allowed),
    ]
    is_moved = negate(numbers.is_zero(months))
    walk.fail("overflow", conj(is_moved, walk.open_condition("the calendar"), _is_far(walk, moved)))
    before, after = _date(walk, local), _date(walk, moved)
    twelve, last = numbers.constant(12), numbers.constant(28)
    counts = [numbers.add(numbers.multiply(date.year, twelve), date.month) for date in (before, after)]
    facts = [
        numbers.equal(counts[1], numbers.add(counts[0], months)),
        numbers.at_most(after.day, before.day),
        implies(numbers.less(after.day, before.day), numbers.at_most(last, after.day)),
    ]
    numbers.axioms.append(implies(negate(disj(_is_outside(walk, local), _is_outside(walk, moved))), conj(*facts)))
    return moved


def _is_far(walk: ExpressionWalk, number: NumberValue) -> Term:
    """Return whether a moment is less than a month from the first or the last year, or beyond."""
    numbers = walk.numbers
    low, high = (microseconds(end) for end in TIMES)
    near = (numbers.constant(low + 31 * _DAY), numbers.constant(high - 31 * _DAY))
    return disj(numbers.less(number, near[0]), numbers.less(near[1], number))


def start_of(walk: ExpressionWalk, parts: _Parts) -> SymbolicValue:
    time, unit = parts[0], constant_text(parts[1])
    unusable = _needs(walk, time, parts[2:])
    if unusable is not None:
        return unusable
    if unit not in {*_UNITS, *_LONGEST}:
        return walk.any_of("the start of a unit that is no constant")
    assert isinstance(time, TimeValue)
    numbers = walk.numbers
    local, is_utc = _local(walk, time.number, parts[2:])
    if unit in ("minute", "hour"):
        size = numbers.constant(_UNITS[unit])
        rest = numbers.subtract(local, numbers.multiply(_divide(walk, local, _UNITS[unit]), size))
        return TimeValue(NumberValue(numbers.subtract(time.number, rest).term, True))
    return _moment(walk, _start(walk, local, unit), is_utc=is_utc)


def _start(walk: ExpressionWalk, local: NumberValue, unit: str) -> NumberValue:
    """Return the beginning of the day, week, month or year that a local time is in."""
    numbers = walk.numbers
    if unit in _UNITS:
        shift = numbers.constant(_THURSDAY * _DAY if unit == "week" else 0)
        units = _divide(walk, numbers.add(local, shift), _UNITS[unit])
        begun = numbers.subtract(numbers.multiply(units, numbers.constant(_UNITS[unit])), shift)
        return NumberValue(begun.term, True)
    start = numbers.fresh("start", whole=True)
    least = numbers.subtract(local, numbers.constant(_LONGEST[unit]))
    numbers.axioms.append(conj(numbers.at_most(start, local), numbers.less(least, start)))
    low = numbers.constant(microseconds(TIMES[0]))  # the first year begins there
    numbers.axioms.append(implies(numbers.at_most(low, local), numbers.at_most(low, start)))
    walk.approximate("the calendar", start.term)
    first, date = numbers.constant(1), _date(walk, local)
    _set_date(walk, start, _Date(date.year, date.month if unit == "month" else first, first))
    days = _divide(walk, start, _DAY)
    numbers.axioms.append(numbers.equal(start, numbers.multiply(days, numbers.constant(_DAY))))
    return start


# ---------------------------------------------------------------- texts


def format_time(walk: ExpressionWalk, parts: _Parts) -> SymbolicValue:
    time, form = parts[0], constant_text(parts[1])
    unusable = _needs(walk, time, parts[2:])
    if unusable is not None:
        return unusable
    if form is None:
        return walk.any_of("a format that is no constant")
    assert isinstance(time, TimeValue)
    local = _local(walk, time.number, parts[2:])
    pieces = _pieces(form, is_utc=local.is_utc)
    if pieces is None:
        return walk.any_of("a format with rare characters")
    text = walk.numbers.fresh_text("moment")
    walk.approximate("times in texts", text)
    walk.numbers.axioms.append(z3.InRe(text, pieces[0] if len(pieces) == 1 else z3.Concat(*pieces)))
    return TextValue(text)


def _pieces(form: str, *, is_utc: bool) -> list[Any] | None:
    """Return the regular expressions of what a format writes, one behind the other; None of what is not translated."""
    pieces, index = [z3.Re("")], 0
    while index < len(form):
        name = form[index + 1 : index + 2] if form[index] == "%" else ""
        index += 2 if name else 1
        if name in _WIDTHS:
            pieces.append(z3.Loop(_DIGIT, _WIDTHS[name], _WIDTHS[name]))
        elif name in _NAMES:
            pieces.append(z3.Union(*map(z3.Re, _NAMES[name])))
        elif name == "z":
            digits = [z3.Loop(_DIGIT, count, count) for count in ((4,) if is_utc else (4, 6))]
            pieces.append(z3.Concat(z3.Union(z3.Re("+"), z3.Re("-")), digits[0] if is_utc else z3.Union(*digits)))
        elif name not in ("", "%") or form[index - 1 :] == "%" != name:  # a lone one at the end is no directive
            return None
        else:
            character = text_constant(form[index - 1])
            if character is None:
                return None
            pieces.append(z3.Re(character))
    return pieces


def read_time(walk: ExpressionWalk, parts: _Parts, *, function: str) -> SymbolicValue:
    """Return the time that a text names: any, or none."""
    subject = parts[0]
    if isinstance(subject, OpaqueValue) and not subject.kind:
        return walk.any_of(subject.why)
    if not isinstance(subject, TextValue) and not (isinstance(subject, OpaqueValue) and subject.kind == "string"):
        walk.fail("type_error")
        return NULL
    if function == "parse_timestamp":
        form = constant_text(parts[1])
        if form is None:
            return walk.any_of("a format that is no constant")
        for name in parts[2:]:
            _fail_without_zone(walk, name)
        is_read = all(name in DIRECTIVES and DIRECTIVES[name][1] for name in re.findall("%(.?)", form, re.DOTALL))
        if not is_read or _pieces(form, is_utc=True) is None:
            walk.fail("type_error", walk.open_condition("a format that is not modelled"))
    known = constant_text(subject)
    if known is not None and function == "timestamp":
        moment = read_moment(known)
        return NULL if moment is None else walk.constant(moment)
    is_none = walk.open_condition("times of texts")
    number = walk.numbers.fresh("moment", whole=True)
    walk.approximate("times of texts", number.term)
    low, high = (walk.numbers.constant(microseconds(end)) for end in TIMES)
    walk.numbers.axioms += [walk.numbers.at_most(low, number), walk.numbers.at_most(number, high)]
    return ValueChoice(((is_none, NULL), (negate(is_none), TimeValue(number))))


TIME_CALLS: Final[dict[str, Callable[[Any, _Parts], SymbolicValue]]] = {
    "add_days": add_days,
    "add_months": partial(add_months, size=1),
    "add_years": partial(add_months, size=12),
    "start_of": start_of,
    "format_timestamp": format_time,
    "timestamp": partial(read_time, function="timestamp"),
    "parse_timestamp": partial(read_time, function="parse_timestamp"),
    **{
        name: lambda walk, parts, seconds=seconds: walk.arithmetic("*", parts[0], walk.numbers.constant(seconds))  # type: ignore[misc]
        for name, seconds in _SECONDS.items()
    },
    "milliseconds": lambda walk, parts: walk.arithmetic("/", parts[0], walk.numbers.constant(1000)),
    **{name: partial(part_of, name=name) for name in _PARTS},
}

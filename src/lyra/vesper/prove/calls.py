"""Functions of times and of padded texts, for the walk over expressions.

Times are microseconds since 1970. In UTC, `add_days` and `start_of` a minute, hour, day or week are exact; the start of
a month or year is some moment before, by no more than its length. A text that `format_timestamp` or `pad_left` gives is
open but for its length and, where it is padded, its end. With a zone, a format or a fill that is not constant, and in
another zone than UTC, a call may give any value. It stands alone: `walk` has a table of these functions, and the
solver's terms are built here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import z3

from lyra.vesper.prove.texts import text_of
from lyra.vesper.prove.values import (
    NULL,
    TIMES,
    NumberValue,
    OpaqueValue,
    SymbolicValue,
    TextValue,
    TimeValue,
    conj,
    disj,
    microseconds,
)

if TYPE_CHECKING:
    from lyra.vesper.prove.walk import ExpressionWalk

_Parts = tuple[SymbolicValue, ...]
_MINUTE: Final = 60 * 10**6
_DAY: Final = 24 * 60 * _MINUTE
_EXACT_UNITS: Final = {
    "minute": (_MINUTE, 0),
    "hour": (60 * _MINUTE, 0),
    "day": (_DAY, 0),
    "week": (7 * _DAY, 3 * _DAY),
}
_LONGEST: Final = {"month": 31 * _DAY, "year": 366 * _DAY}  # units that are not always as long
_WIDTHS: Final = {
    "Y": 4,
    "m": 2,
    "d": 2,
    "H": 2,
    "M": 2,
    "S": 2,
    "f": 6,
    "z": 5,
    "j": 3,
    "u": 1,
    "a": 3,
    "b": 3,
    "%": 1,
}


def add_days(walk: ExpressionWalk, parts: _Parts) -> SymbolicValue:
    time, count = parts[:2]
    if not _is_utc(parts[2:]) or isinstance(time, OpaqueValue) or isinstance(count, OpaqueValue):
        return walk.any_of("the function add_days outside UTC")
    if not isinstance(time, TimeValue) or not isinstance(count, NumberValue) or not count.whole:
        walk.fail("type_error")
        return NULL
    numbers = walk.numbers
    moved = numbers.add(time.number, numbers.multiply(count, numbers.constant(_DAY)))
    low, high = (numbers.constant(microseconds(end)) for end in TIMES)
    walk.fail("overflow", disj(numbers.less(moved, low), numbers.less(high, moved)))
    return TimeValue(NumberValue(moved.term, True))


def start_of(walk: ExpressionWalk, parts: _Parts) -> SymbolicValue:
    time, unit = parts[0], _constant(parts[1])
    if not _is_utc(parts[2:]) or isinstance(time, OpaqueValue) or unit not in {*_EXACT_UNITS, *_LONGEST}:
        return walk.any_of("the function start_of outside UTC")
    if not isinstance(time, TimeValue):
        walk.fail("type_error")
        return NULL
    numbers = walk.numbers
    if unit in _EXACT_UNITS:
        size, shift = (numbers.constant(part) for part in _EXACT_UNITS[unit])  # 1970 began on a Thursday
        units = numbers.round_quotient(numbers.add(time.number, shift), size, 0, "floor")
        start = numbers.subtract(numbers.multiply(units, size), shift)
        return TimeValue(NumberValue(start.term, True))
    walk.approximations.add(f"the start of a {unit}")
    start = numbers.fresh("start", whole=True)
    least = numbers.subtract(time.number, numbers.constant(_LONGEST[unit]))
    low = numbers.constant(microseconds(TIMES[0]))
    is_before = numbers.at_most(start, time.number)
    numbers.axioms.append(conj(is_before, numbers.less(least, start), numbers.at_most(low, start)))
    return TimeValue(start)


def format_time(walk: ExpressionWalk, parts: _Parts) -> SymbolicValue:
    time, form = parts[0], _constant(parts[1])
    if not _is_utc(parts[2:]) or isinstance(time, OpaqueValue) or form is None:
        return walk.any_of("the function format_timestamp outside UTC")
    if not isinstance(time, TimeValue):
        walk.fail("type_error")
        return NULL
    walk.approximations.add("times in texts")
    text = walk.numbers.fresh_text("moment")
    pieces = form.split("%%")
    names = [piece[:1] for part in pieces for piece in part.split("%")[1:]]
    if all(name in _WIDTHS for name in names):
        length = len(form) - len(pieces) + 1 + sum(_WIDTHS[name] - 2 for name in names)
        walk.numbers.axioms.append(z3.Length(text) == length)
    return TextValue(text)


def pad(walk: ExpressionWalk, parts: _Parts, *, is_left: bool) -> SymbolicValue:
    subject, width = parts[:2]
    fill = _constant(parts[2]) if len(parts) > 2 else " "
    if fill is None or not isinstance(subject, TextValue) or not isinstance(width, NumberValue) or not width.whole:
        return walk.any_of("a padded text whose parts are not modelled")
    if len(fill) != 1:
        walk.fail("type_error")
        return NULL
    numbers = walk.numbers
    walk.approximations.add("padded texts")
    text = numbers.fresh_text("padded")
    had, has = numbers.from_length(z3.Length(subject.term)), numbers.from_length(z3.Length(text))
    is_wide = numbers.less(had, width)
    size = z3.If(is_wide, *(number.term for number in numbers.align(width, had)))
    keeps = z3.SuffixOf(subject.term, text) if is_left else z3.PrefixOf(subject.term, text)
    numbers.axioms.append(conj(numbers.equal(has, NumberValue(size, True)), keeps))
    return TextValue(text)


def _constant(value: SymbolicValue) -> str | None:
    """Return the text of a constant, None for any other value."""
    if not isinstance(value, TextValue):
        return None
    term = z3.simplify(value.term)
    return text_of(term) if z3.is_string_value(term) else None


def _is_utc(parts: _Parts) -> bool:
    return not parts or _constant(parts[0]) == "UTC"


CALLS: Final[dict[str, Callable[[ExpressionWalk, _Parts], SymbolicValue]]] = {
    "add_days": add_days,
    "start_of": start_of,
    "format_timestamp": format_time,
    "pad_left": partial(pad, is_left=True),
    "pad_right": partial(pad, is_left=False),
}

"""Built-in functions of the direct path: numbers, texts, lists and maps; those over times are in `direct.times`.

Each entry of `FUNCTIONS_OF_VALUES` takes the values of its arguments; one whose row in the table of functions has a
bound takes the limit before them. `compile_call` gives the closure of a call, which is charged as the row says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from lyra.core.linear_regex import BadPattern, TooManySteps
from lyra.vesper import ir
from lyra.vesper.direct.frames import EXECUTION, METER, Evaluate, Frame, Scope
from lyra.vesper.direct.numbers import (
    absolute,
    divide,
    group_key,
    in_order,
    is_number,
    key_text,
    kind_of,
    least,
    multiply,
    normalize_decimal,
    overflow,
    round_number,
)
from lyra.vesper.direct.times import TIMES
from lyra.vesper.expressions.functions import CHARS_A_STEP, FUNCTIONS, ROUNDINGS
from lyra.vesper.values.limits import ELEMENT_BYTES, PATTERN_STEPS_MAX
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.patterns import compile_pattern
from lyra.vesper.values.types import INTEGER_MAX, INTEGER_MIN


def wrong_argument(function: str, value: Any) -> NodeError:
    return NodeError("type_error", f"{function} cannot take {kind_of(value)}")


def _require(kind: type, function: str, *values: Any) -> None:
    for value in values:
        if type(value) is not kind:
            raise wrong_argument(function, value)


def _list(value: Any, function: str) -> list[Any]:
    if type(value) is list:
        return value
    if type(value) is frozenset:
        return in_order(value)
    raise wrong_argument(function, value)


def length_of(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, str | bytes | list | frozenset | dict):
        return len(value)
    raise NodeError("type_error", f"{kind_of(value)} has no length")


# ---------------------------------------------------------------- numbers


def _in_range(value: int) -> int:
    if INTEGER_MIN <= value <= INTEGER_MAX:
        return value
    raise overflow()


def _floor(value: Any) -> int:
    if not is_number(value):
        raise wrong_argument("floor", value)
    numerator, denominator = value.as_integer_ratio()
    return _in_range(numerator // denominator)


def _ceil(value: Any) -> int:
    if not is_number(value):
        raise wrong_argument("ceil", value)
    numerator, denominator = value.as_integer_ratio()
    return _in_range(-(-numerator // denominator))


def _round(value: Any, scale: Any = None, mode: Any = "half_even") -> Any:
    if scale is None:
        if not is_number(value):
            raise wrong_argument("round", value)
        numerator, denominator = value.as_integer_ratio()
        whole, rest = divmod(numerator, denominator)
        return _in_range(whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2 == 1)))
    if type(scale) is not int:
        raise NodeError("type_error", f"round cannot take {kind_of(scale)} digits")
    if mode not in ROUNDINGS:
        raise NodeError("type_error", "round has no such mode")
    return round_number(value, scale, mode)


def _div(left: Any, right: Any) -> int:
    for value in (left, right):
        if not is_number(value):
            raise wrong_argument("div", value)
    if right == 0:
        raise NodeError("division_by_zero", "a number was divided by zero")
    (above, below), (other_above, other_below) = left.as_integer_ratio(), right.as_integer_ratio()
    dividend, divisor = above * other_below, below * other_above
    quotient, rest = divmod(dividend, divisor)
    return _in_range(quotient + 1 if quotient < 0 and rest else quotient)


def _extreme(name: str, is_better: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def choose(*values: Any) -> Any:
        if any(value is None for value in values):
            raise wrong_argument(name, None)
        return least(values, is_better)

    return choose


def _clamp(value: Any, low: Any, high: Any) -> Any:
    for other in (low, high):
        if value is None or other is None:
            raise wrong_argument("clamp", None)
        least((value, other), _is_below)
    if low > high:
        raise NodeError("type_error", "clamp takes the lower bound first")
    return low if value < low else high if value > high else value


def _is_below(left: Any, right: Any) -> bool:
    return bool(left < right)


def _is_above(left: Any, right: Any) -> bool:
    return bool(left > right)


# ---------------------------------------------------------------- texts


def _require_texts(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, for texts only."""

    def call(*values: Any) -> Any:
        _require(str, name, *values)
        return function(*values)

    return call


def _matches(text: str, pattern: str) -> bool:
    try:
        groups, _ = compile_pattern(pattern).search(text, 0, PATTERN_STEPS_MAX)
    except BadPattern as error:
        raise NodeError("type_error", f"bad pattern: {error}") from None
    except TooManySteps:
        raise NodeError("resource_limit", "the pattern needs too many steps") from None
    return groups is not None


def _long_text() -> NodeError:
    return NodeError("resource_limit", "the text is too long")


def _slice(sequence: Any, start: Any, end: Any = None) -> Any:
    _require(int, "slice", start)
    if end is not None:
        _require(int, "slice", end)
    whole = sequence if type(sequence) is str else _list(sequence, "slice")
    return whole[slice(start, end)]


def _replace(text_max: int, text: Any, old: Any, new: Any) -> str:
    _require(str, "replace", text, old, new)
    if old == "":
        raise NodeError("type_error", "replace needs a text to look for")
    places = text.count(old)
    if len(text) - places * len(old) + places * len(new) > text_max:
        raise _long_text()
    return str(text.replace(old, new))


def _split(memory_max: int, text: Any, separator: Any) -> list[str]:
    _require(str, "split", text, separator)
    if separator == "":
        raise NodeError("type_error", "split needs a separator")
    count = text.count(separator)
    if ELEMENT_BYTES * (count + 1) + len(text) - count * len(separator) > memory_max:
        raise _large_array()
    return list(text.split(separator))


def _join(text_max: int, texts: Any, separator: Any) -> str:
    parts = _list(texts, "join")
    _require(str, "join", separator, *parts)
    length = len(separator) * (len(parts) - 1) if parts else 0
    if length + sum(map(len, parts)) > text_max:
        raise _long_text()
    return str(separator.join(parts))


def _pad(name: str, *, is_left: bool) -> Callable[..., str]:
    def pad(text_max: int, text: Any, width: Any, fill: Any = " ") -> str:
        _require(str, name, text, fill)
        _require(int, name, width)
        if len(fill) != 1:
            raise NodeError("type_error", f"{name} takes one character to fill with")
        if width > text_max or len(text) > text_max:
            raise _long_text()
        blanks = fill * (width - len(text))
        return str(blanks + text if is_left else text + blanks)

    return pad


def _number_reader(name: str, form: str, convert: Callable[[Decimal], Any]) -> Callable[[Any], Any]:
    """Return the function that reads a text of this form as a number."""
    pattern = re.compile(form)

    def read(text: Any) -> Any:
        _require(str, name, text)
        if not pattern.fullmatch(text):
            raise NodeError("not_a_number", f"{name} cannot read {text[:40]!r}")
        return convert(normalize_decimal(Decimal(text)))

    return read


# ---------------------------------------------------------------- lists


def _large_array() -> NodeError:
    return NodeError("resource_limit", "the array takes too much memory")


def _fitting(memory_max: int, count: int, elements: list[Any]) -> None:
    """Raise an error where an array of so many elements, and the characters of these, take too much memory."""
    size = count * ELEMENT_BYTES
    if size <= memory_max:
        size += sum(len(element) for element in elements if type(element) is str)
    if size > memory_max:
        raise _large_array()


def _append(memory_max: int, elements: Any, element: Any) -> list[Any]:
    result = _list(elements, "append").copy()
    result.append(element)
    _fitting(memory_max, len(result), result)
    return result


def _concat(memory_max: int, *lists: Any) -> list[Any]:
    parts = [_list(part, "concat") for part in lists]
    count = sum(len(part) for part in parts)
    _fitting(memory_max, count, [])
    result = list(chain.from_iterable(parts))
    _fitting(memory_max, count, result)
    return result


_SORT_KINDS: Final = {bool: 1, int: 2, Decimal: 2, str: 3, bytes: 4}


def _sort(elements: Any, by: Any = None) -> list[Any]:
    values = _list(elements, "sort")
    keys = values
    if by is not None:
        _require(str, "sort", by)
        keys = [_key_of(value, by) for value in values]
    kind = 0
    ranks: list[tuple[bool, Any]] = []
    for key in keys:
        if key is not None:
            own = 5 if isinstance(key, datetime) else _SORT_KINDS.get(type(key), 6)
            if own == 6 or kind not in (0, own):
                raise NodeError("type_error", f"sort cannot compare {kind_of(key)} with others")
            kind = own
        ranks.append((key is not None, 0 if key is None else key))
    order = sorted(range(len(values)), key=ranks.__getitem__)
    return [values[index] for index in order]


def _key_of(value: Any, by: str) -> Any:
    if value is None:
        return None
    if type(value) is not dict:
        raise wrong_argument("sort by a field", value)
    return value.get(by)


def _reverse(elements: Any) -> list[Any]:
    return list(reversed(_list(elements, "reverse")))


def _distinct(elements: Any) -> list[Any]:
    result, seen = [], set()
    for element in _list(elements, "distinct"):
        key = group_key(element)
        if key not in seen:
            seen.add(key)
            result.append(element)
    return result


def _take(elements: Any, count: Any) -> list[Any]:
    values = _list(elements, "take")
    _require(int, "take", count)
    return list(islice(values, max(count, 0)))


def _zip(memory_max: int, first: Any, second: Any) -> list[list[Any]]:
    left, right = _list(first, "zip"), _list(second, "zip")
    count = min(len(left), len(right))
    _fitting(memory_max, count, [])
    return [[left[index], right[index]] for index in range(count)]


# ---------------------------------------------------------------- maps


def _get(target: Any, key: Any, default: Any) -> Any:
    if target is None:
        return default
    if type(target) is dict and type(key) is str:
        return target.get(key, default)
    if type(target) is list and type(key) is int:
        return target[key] if 0 <= key < len(target) else default
    raise NodeError("type_error", f"{kind_of(target)} has no element of {kind_of(key)}")


def _keys(entries: Any, kind: str = "string") -> list[Any]:
    _require(dict, "keys", entries)
    return [*entries] if kind == "string" else [_KEY_READERS[kind](text) for text in entries]


def _values(entries: Any) -> list[Any]:
    _require(dict, "values", entries)
    return [*entries.values()]


def _put(memory_max: int, entries: Any, key: Any, value: Any) -> dict[str, Any]:
    _require(dict, "put", entries)
    _require(str, "put", key)
    result = dict(entries)
    result[key] = value
    if len(result) * ELEMENT_BYTES > memory_max:
        raise _large_array()
    return result


def _map_of(keys: list[Any], values: list[Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in zip(keys, values, strict=True):
        _require(str, "a map", key)
        result[key] = value
    return result


def _key_reader(kind: str, pattern: str, convert: Callable[[str], Any]) -> Callable[[str], Any]:
    form = re.compile(pattern, re.ASCII)

    def read(text: str) -> Any:
        try:
            if form.fullmatch(text):
                value = convert(text)
                if key_text(value, kind) == text:
                    return value
        except (ValueError, NodeError):
            pass
        raise NodeError("type_error", f"a key of the map is no {kind}")

    return read


_KEY_READERS: Final = {
    "boolean": _key_reader("boolean", "true|false", lambda text: text == "true"),
    "integer": _key_reader("integer", r"-?\d{1,19}", lambda text: _in_range(int(text))),
    "decimal": _key_reader("decimal", r"-?\d+(\.\d+)?", Decimal),
    "timestamp": _key_reader("timestamp", r"[0-9T:.Z-]+", lambda text: datetime.fromisoformat(text).astimezone(UTC)),
}


# ---------------------------------------------------------------- the table


def _duration(name: str, factor: int) -> Callable[[Any], Any]:
    def convert(count: Any) -> Any:
        if not is_number(count):
            raise wrong_argument(name, count)
        return multiply(count, factor)

    return convert


def _milliseconds(count: Any) -> Any:
    if not is_number(count):
        raise wrong_argument("milliseconds", count)
    return divide(count, 1000)


FUNCTIONS_OF_VALUES: Final[dict[str, Callable[..., Any]]] = {
    "len": length_of,
    "round": _round,
    "abs": absolute,
    "floor": _floor,
    "ceil": _ceil,
    "div": _div,
    "min": _extreme("min", _is_below),
    "max": _extreme("max", _is_above),
    "clamp": _clamp,
    "lower": _require_texts("lower", str.lower),
    "upper": _require_texts("upper", str.upper),
    "trim": _require_texts("trim", str.strip),
    "starts_with": _require_texts("starts_with", str.startswith),
    "ends_with": _require_texts("ends_with", str.endswith),
    "matches": _require_texts("matches", _matches),
    "parse_integer": _number_reader("parse_integer", r"[+-]?[0-9]+", _floor),
    "parse_decimal": _number_reader("parse_decimal", r"[+-]?[0-9]+(?:\.[0-9]+)?", lambda number: number),
    "slice": _slice,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "pad_left": _pad("pad_left", is_left=True),
    "pad_right": _pad("pad_right", is_left=False),
    "append": _append,
    "concat": _concat,
    "sort": _sort,
    "reverse": _reverse,
    "distinct": _distinct,
    "take": _take,
    "zip": _zip,
    "get": _get,
    "keys": _keys,
    "values": _values,
    "put": _put,
    "map_of": _map_of,
    "map_key": key_text,
    "milliseconds": _milliseconds,
    "seconds": _duration("seconds", 1),
    "minutes": _duration("minutes", 60),
    "hours": _duration("hours", 3600),
    "days": _duration("days", 86_400),
    "weeks": _duration("weeks", 604_800),
    **TIMES,
}


def compile_call(function_name: str, arguments: list[Evaluate], scope: Scope) -> Evaluate:
    """Return the closure of a call."""
    if function_name == "current_timestamp":
        return lambda frame: frame[EXECUTION].now
    if function_name == "current_year":
        return lambda frame: frame[EXECUTION].now.year
    row, function = FUNCTIONS[function_name], FUNCTIONS_OF_VALUES[function_name]
    if row.bound:
        function = partial(function, scope.text_max if row.bound == "text" else scope.memory_max)
    if row.charge and scope.is_charged(ir.FunctionCall):
        return _compile_metered_call(function, arguments)
    if len(arguments) == 1:
        argument = arguments[0]
        return lambda frame: function(argument(frame))
    return lambda frame: function(*[argument(frame) for argument in arguments])


def _compile_metered_call(function: Callable[..., Any], arguments: list[Evaluate]) -> Evaluate:
    def call(frame: Frame) -> Any:
        values = [argument(frame) for argument in arguments]
        size = 0
        for value in values:
            if type(value) is str:
                size += len(value) // CHARS_A_STEP
            elif type(value) in (list, dict, frozenset):
                size += len(value)
        frame[METER].spend(size)
        return function(*values)

    return call

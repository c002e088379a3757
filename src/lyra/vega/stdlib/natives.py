"""The pure functions of the library by their full name: what the LIBRARY instruction calls.

`strings` has its own file; lists and maps, as far as they call no lambda, regular expressions, numbers, JSON, durations
and results are here.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from lyra.core.budgets.money import Money
from lyra.core.limits import VEGA_LIST_ITEMS_MAX, VEGA_REGEX_PROGRAM_MAX, VEGA_REGEX_STEPS_MAX, VEGA_STRING_CHARS_MAX
from lyra.core.linear_regex import BadPattern, PatternTooLarge, RegexProgram, TooManySteps, Unsupported
from lyra.vega.stdlib import strings
from lyra.vega.stdlib.strings import bounds, check_kinds, check_length, need
from lyra.vega.values.operators import add, key, less, negate
from lyra.vega.values.values import (
    BULK,
    INT_MAX,
    INT_MIN,
    WORK,
    Duration,
    Err,
    Fault,
    Ok,
    check_int,
    compute_mark,
    equal,
    kind_of,
    render,
)

# ---------------- `regex::…`: patterns as in Python, matched in time that grows with the text, never exponentially
# Back references and look-around cannot be matched so and are refused. A bound on steps keeps even a large text short.
_PIECE: Final = 1 << 20
_SIMPLE = frozenset({int, float, str, bool, type(None), Money, Duration})


def check_list_length(size: int) -> None:
    if size > VEGA_LIST_ITEMS_MAX:
        raise Fault("LimitExceeded", f"a list may have at most {VEGA_LIST_ITEMS_MAX} items")


def _push(items: Any, item: Any) -> Any:
    need(items, "list", "list::push").append(item)
    return items


def _pop(items: Any) -> Any:
    if not need(items, "list", "list::pop"):
        raise Fault("IndexError", "list::pop of an empty list: there is no index to take from")
    return items.pop()


def _position(function: str, items: Any, index: Any, size: int) -> int:
    check_kinds(function, (items, "list"), (index, "int"))
    if not 0 <= index < size:
        raise Fault("IndexError", f"index {index} is outside a list of length {len(items)}")
    return int(index)


def _insert(items: Any, index: Any, item: Any) -> Any:
    need(items, "list", "list::insert")
    items.insert(_position("list::insert", items, index, len(items) + 1), item)
    return items


def _remove(items: Any, index: Any) -> Any:
    need(items, "list", "list::remove")
    return items.pop(_position("list::remove", items, index, len(items)))


def _index_of(items: Any, item: Any) -> int:
    need(items, "list", "list::index_of")
    for index, other in enumerate(items):
        if equal(other, item):
            WORK.units += index
            return index
    WORK.units += len(items)
    return -1


def _slice(items: Any, start: Any, end: Any = None) -> list[Any]:
    check_kinds("list::slice", (items, "list"), (start, "int"))
    start, end = bounds("list::slice", start, end, len(items))
    WORK.units += max(0, end - start) >> BULK
    return list(items[start:end])


def _concat(items: Any, others: Any) -> Any:
    check_kinds("list::concat", (items, "list"), (others, "list"))
    return add(items, others)


def _range(start: Any, end: Any, step: Any = 1) -> list[int]:
    check_kinds("list::range", (start, "int"), (end, "int"), (step, "int"))
    if step == 0:
        raise Fault("ValueError", "list::range needs a step that is not zero")
    numbers = range(start, end, step)
    check_list_length((end - start) // step)
    WORK.units += len(numbers) >> BULK
    return list(numbers) if len(numbers) <= _PIECE else _in_pieces(numbers)


def _in_pieces(numbers: range) -> list[int]:
    """Not all at once: between two pieces a signal is heard."""
    out: list[int] = []
    for start in range(0, len(numbers), _PIECE):
        out.extend(numbers[start : start + _PIECE])
    return out


def _reverse(items: Any) -> list[Any]:
    WORK.units += len(need(items, "list", "list::reverse")) >> BULK
    return list(items[::-1])


def _end(function: str, index: int) -> Callable[[Any], Any]:
    def take(items: Any) -> Any:
        if not need(items, "list", function):
            raise Fault("IndexError", f"{function} of an empty list: there is no such index")
        return items[index]

    return take


def _sum(items: Any) -> Any:
    need(items, "list", "list::sum")
    WORK.units += len(items)
    return functools.reduce(add, items) if items else 0


def _unique(items: Any) -> list[Any]:
    need(items, "list", "list::unique")
    WORK.units += len(items)
    kinds = set(map(type, items))
    if len(kinds) == 1 and kinds <= {int, str, Money, Duration}:
        return list(dict.fromkeys(items))
    seen: set[Any] = set()
    alike: dict[int, list[Any]] = {}  # what may be equal, by its mark
    marks: dict[int, int] = {}
    out: list[Any] = []
    for item in items:
        if type(item) in _SIMPLE:
            if type(item) is float and math.isnan(item):  # not a number is never equal, not even to itself
                out.append(item)
                continue
            # Kinds that are never equal to each other must not share a hash; the two kinds of number are.
            mark = ("number", item) if type(item) in (int, float) else (type(item), item)
            if mark not in seen:
                seen.add(mark)
                out.append(item)
        else:
            others = alike.setdefault(compute_mark(item, marks), [])
            if not any(equal(item, other) for other in others):
                others.append(item)
                out.append(item)
    return out


def _flatten(items: Any) -> list[Any]:
    need(items, "list", "list::flatten")
    out: list[Any] = []
    for item in items:
        if type(item) is list:
            out.extend(item)
            check_list_length(len(out))
        else:
            out.append(item)
    WORK.units += len(items) + (len(out) >> BULK)
    return out


def _zip(items: Any, others: Any) -> list[Any]:
    check_kinds("list::zip", (items, "list"), (others, "list"))
    WORK.units += min(len(items), len(others)) >> 1
    return [[item, other] for item, other in zip(items, others, strict=False)]


def _compare(left: Any, right: Any) -> int:
    return -1 if less(left, right) else int(less(right, left))


def _sort(items: Any) -> list[Any]:
    need(items, "list", "list::sort")
    kinds = set(map(type, items))
    if len(kinds) == 1 and kinds <= {int, str, Money, Duration}:
        WORK.units += len(items)
        return sorted(items)
    WORK.units += len(items) * len(items).bit_length()
    return sorted(items, key=functools.cmp_to_key(_compare))


# ---------------------------------------------------------------- maps


def _has(mapping: Any, wanted: Any) -> bool:
    return key(wanted) in need(mapping, "map", "map::has")


def _get(mapping: Any, wanted: Any, default: Any = None) -> Any:
    return need(mapping, "map", "map::get").get(key(wanted), default)


def _set(mapping: Any, wanted: Any, value: Any) -> Any:
    need(mapping, "map", "map::set")[key(wanted)] = value
    return mapping


def _merge(mapping: Any, other: Any) -> dict[Any, Any]:
    check_kinds("map::merge", (mapping, "map"), (other, "map"))
    WORK.units += (len(mapping) + len(other)) >> BULK
    return {**mapping, **other}


def _keys(mapping: Any) -> list[Any]:
    WORK.units += len(need(mapping, "map", "map::keys")) >> BULK
    return list(mapping)


def _values(mapping: Any) -> list[Any]:
    WORK.units += len(need(mapping, "map", "map::values")) >> BULK
    return list(mapping.values())


def _entries(mapping: Any) -> list[Any]:
    WORK.units += len(need(mapping, "map", "map::entries")) >> 1
    return [list(pair) for pair in mapping.items()]


_LISTS: Final[dict[str, Callable[..., Any]]] = {
    "list::len": lambda items: len(need(items, "list", "list::len")),
    "list::push": _push,
    "list::pop": _pop,
    "list::insert": _insert,
    "list::remove": _remove,
    "list::contains": lambda items, item: _index_of(items, item) >= 0,
    "list::index_of": _index_of,
    "list::reverse": _reverse,
    "list::slice": _slice,
    "list::concat": _concat,
    "list::range": _range,
    "list::first": _end("list::first", 0),
    "list::last": _end("list::last", -1),
    "list::sum": _sum,
    "list::unique": _unique,
    "list::flatten": _flatten,
    "list::zip": _zip,
    "list::sorted": _sort,
    "map::len": lambda mapping: len(need(mapping, "map", "map::len")),
    "map::has": _has,
    "map::get": _get,
    "map::set": _set,
    "map::keys": _keys,
    "map::values": _values,
    "map::entries": _entries,
    "map::remove": lambda mapping, wanted: need(mapping, "map", "map::remove").pop(key(wanted), None),
    "map::merge": _merge,
}


class Pattern:
    """A pattern, and how it is searched within the limits of Vega."""

    def __init__(self, source: str) -> None:
        try:
            self._program = RegexProgram(source, size_max=VEGA_REGEX_PROGRAM_MAX)
        except PatternTooLarge:
            raise Fault("ValueError", "the pattern is too long when its repetitions are written out") from None
        except Unsupported as error:
            raise Fault("ValueError", f"regex patterns have no {error}") from None
        except BadPattern as error:
            raise Fault("ValueError", f"not a pattern: {error}") from None

    def search(self, text: str, start: int, steps_max: int) -> tuple[tuple[int, ...] | None, int]:
        """As `RegexProgram.search`; the steps count as work of the program."""
        try:
            match, steps = self._program.search(text, start, steps_max)
        except TooManySteps:
            raise Fault("LimitExceeded", "the pattern needs too many steps on this text") from None
        WORK.units += steps
        return match, steps

    def first(self, text: str) -> tuple[int, ...] | None:
        return self.search(text, 0, VEGA_REGEX_STEPS_MAX)[0]

    def all(self, text: str) -> Iterator[tuple[int, ...]]:
        start, steps_left = 0, VEGA_REGEX_STEPS_MAX
        while start <= len(text):
            match, steps = self.search(text, start, steps_left)
            if match is None:
                return
            steps_left -= steps
            yield match
            start = match[1] if match[1] > match[0] else match[1] + 1


@functools.lru_cache(maxsize=64)
def _pattern(source: str) -> Pattern:
    return Pattern(source)


def _compile(function: str, text: Any, pattern: Any) -> Pattern:
    check_kinds(function, (text, "str"), (pattern, "str"))
    return _pattern(pattern)


def _find(text: Any, pattern: Any) -> list[Any] | None:
    match = _compile("regex::find", text, pattern).first(text)
    if match is None:
        return None
    return [text[match[index] : match[index + 1]] if match[index] >= 0 else None for index in range(0, len(match), 2)]


def _find_all(text: Any, pattern: Any) -> list[str]:
    return [text[match[0] : match[1]] for match in _compile("regex::find_all", text, pattern).all(text)]


def _replace(text: Any, pattern: Any, new: Any) -> str:
    check_kinds("regex::replace", (new, "str"))
    pieces, last_end, size = [], 0, 0
    for match in _compile("regex::replace", text, pattern).all(text):
        pieces += [text[last_end : match[0]], new]
        size += len(pieces[-2]) + len(new)
        check_length(size)
        last_end = match[1]
    return "".join(pieces) + str(text[last_end:])


def _split(text: Any, pattern: Any) -> list[str]:
    pieces, last_end = [], 0
    for match in _compile("regex::split", text, pattern).all(text):
        if match[1] == match[0]:
            continue
        pieces.append(text[last_end : match[0]])
        last_end = match[1]
    return [*pieces, text[last_end:]]


_REGEX: Final[dict[str, Callable[..., Any]]] = {
    "regex::matches": lambda text, pattern: _compile("regex::matches", text, pattern).first(text) is not None,
    "regex::find": _find,
    "regex::find_all": _find_all,
    "regex::replace": _replace,
    "regex::split": _split,
}


# ---------------- `math::…`


def _number(value: Any, function: str) -> Any:
    if type(value) is int or type(value) is float:
        return value
    raise Fault("TypeError", f"{function} needs a number, got {kind_of(value)}")


def _abs(value: Any) -> Any:
    zero = type(value)(0) if type(value) in (int, float) else value
    if type(value) in (int, float):
        return check_int(abs(value)) if type(value) is int else abs(value)
    # Money and durations have a sign too; anything else is refused by the comparison.
    opposite = negate(zero)
    return opposite if less(value, opposite) else value


def _float(name: str, operation: Callable[[float], float]) -> Callable[[Any], float]:
    def apply(value: Any) -> float:
        try:
            return operation(float(_number(value, name)))
        except (ValueError, OverflowError):
            raise Fault("ValueError", f"{name} of {value} is not a number") from None

    return apply


def _make_rounding(name: str, operation: Callable[[float], int]) -> Callable[[Any], int]:
    def apply(value: Any) -> int:
        if type(_number(value, name)) is int:
            return int(value)
        try:
            return check_int(operation(value))
        except (ValueError, OverflowError):
            raise Fault("ValueError", f"{name} of {value} is not an int") from None

    return apply


def _round(value: float) -> int:
    return math.floor(value + 0.5) if value >= 0 else math.ceil(value - 0.5)


def _pow(base: Any, exponent: Any) -> Any:
    _number(base, "math::pow")
    _number(exponent, "math::pow")
    if type(base) is int and type(exponent) is int and exponent >= 0:
        if abs(base) > 1 and exponent > 64:
            raise Fault("Overflow", "integer overflow: the power does not fit 64 bits")
        return check_int(base ** (exponent % 2 + 2 if abs(base) <= 1 and exponent > 2 else exponent))
    try:
        result = float(base) ** float(exponent)
    except (OverflowError, ZeroDivisionError):
        raise Fault("ValueError", f"math::pow({base}, {exponent}) is not a number") from None
    if isinstance(result, complex):
        raise Fault("ValueError", f"math::pow({base}, {exponent}) is not a real number")
    return result


_MATHS: Final[dict[str, Callable[..., Any]]] = {
    "math::abs": _abs,
    "math::min": lambda left, right: right if less(right, left) else left,
    "math::max": lambda left, right: right if less(left, right) else left,
    "math::sqrt": _float("math::sqrt", math.sqrt),
    "math::pow": _pow,
    "math::floor": _make_rounding("math::floor", math.floor),
    "math::ceil": _make_rounding("math::ceil", math.ceil),
    "math::round": _make_rounding("math::round", _round),
    "math::int": _make_rounding("math::int", int),
    "math::float": _float("math::float", lambda value: value),
    "math::log": _float("math::log", math.log),
    "math::exp": _float("math::exp", math.exp),
    "math::sin": _float("math::sin", math.sin),
    "math::cos": _float("math::cos", math.cos),
    "math::pi": lambda: math.pi,
}


# ---------------------------------------------------------------- json
# `json::…`. Money is written as a number of dollars, a duration as seconds; neither is read back as such.

_DEPTH_MAX: Final = 200
_NODES_MAX: Final = 1 << 23
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _read_int(text: str) -> int | float:
    number = int(text) if len(text) < 25 else None
    return number if number is not None and INT_MIN <= number <= INT_MAX else float(text)


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _parse(text: Any) -> Any:
    WORK.units += len(need(text, "str", "json::parse")) >> 5
    try:
        value = json.loads(text, parse_int=_read_int, parse_constant=_constant)
        if _HALF.search(text):  # half of a pair is no character, and no text can hold it
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError:
        raise Fault("ValueError", "json::parse: nested too deeply") from None
    except UnicodeEncodeError:
        raise Fault("ValueError", "json::parse: half of a pair of surrogates") from None
    except ValueError as error:
        raise Fault("ValueError", f"json::parse: {error}") from None


def _stringify(value: Any, indent: Any = None) -> str:
    if indent is not None:
        need(indent, "int", "json::stringify")
    left = [_NODES_MAX]
    plain = _to_json(value, 0, left)
    WORK.units += _NODES_MAX - left[0]
    text = json.dumps(plain, ensure_ascii=False, indent=None if indent is None else max(0, min(indent, 16)))
    if len(text) > VEGA_STRING_CHARS_MAX:
        raise Fault("LimitExceeded", f"a string may have at most {VEGA_STRING_CHARS_MAX} characters")
    return text


def _to_json(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if depth > _DEPTH_MAX or left[0] < 0:
        raise Fault("ValueError", "json::stringify: nested too deeply, or a list that holds itself")
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        if value - value != 0:
            raise Fault("ValueError", f"json::stringify: {render(value)} is not JSON")
        return int(value) if value.is_integer() and abs(value) < 1 << 53 else value
    if kind is list:
        return [_to_json(item, depth + 1, left) for item in value]
    if kind is dict:
        return {render(name): _to_json(item, depth + 1, left) for name, item in value.items()}
    if kind is Money:
        return float(value.usd)
    if kind is Duration:
        return value.seconds
    raise Fault("TypeError", f"json::stringify: {kind_of(value)} is not JSON")


_SECONDS_MAX: Final = INT_MAX // 1_000_000_000  # that a duration can hold


def _result_unwrap(result: Any) -> Any:
    need(result, "result", "unwrap")
    if isinstance(result, Ok):
        return result.value
    raise Fault("ValueError", f"unwrap of {kind_of(result)} Err({result.value})")


def _duration(seconds: Any) -> Duration:
    if type(seconds) not in (int, float) or seconds - seconds != 0:
        raise Fault("TypeError", f"time::duration needs a number of seconds, got {kind_of(seconds)}")
    if abs(seconds) > _SECONDS_MAX:
        raise Fault("Overflow", f"duration overflow: the longest is {_SECONDS_MAX} seconds")
    return Duration(check_int(round(seconds * 1_000_000_000)))


def _assert(condition: Any, message: Any = None) -> None:
    if type(condition) is not bool:
        raise Fault("TypeError", f"assert needs a bool, got {kind_of(condition)}")
    if not condition:
        raise Fault("AssertionFailed", "this does not hold" if message is None else render(message))


_OTHERS: Final[dict[str, Callable[..., Any]]] = {
    "time::seconds": lambda duration: need(duration, "duration", "time::seconds").seconds,
    "time::millis": lambda duration: need(duration, "duration", "time::millis").nanoseconds // 1_000_000,
    "time::duration": _duration,
    "json::parse": _parse,
    "json::stringify": _stringify,
    "type": kind_of,
    "assert": _assert,
    "result::is_ok": lambda result: isinstance(result, Ok),
    "result::is_err": lambda result: isinstance(result, Err),
    "result::unwrap": _result_unwrap,
}

NATIVES: Final[dict[str, Callable[..., Any]]] = {**strings.FUNCTIONS, **_LISTS, **_MATHS, **_REGEX, **_OTHERS}


def native(name: str) -> Callable[..., Any] | None:
    return NATIVES.get(name)

"""Built-in functions in the reference evaluator: they read like the rules of the table, one after the other.

`call_function` charges for a call, computes it, and measures the result where the table says that it is bounded.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol

from lyra.core.linear_regex import BadPattern, TooManySteps
from lyra.vesper import ir
from lyra.vesper.expressions.functions import CHARS_A_STEP, FUNCTIONS, ROUNDINGS
from lyra.vesper.reference.times import call_on_time
from lyra.vesper.reference.values import (
    SCALE_MAX,
    decimal_of,
    equal,
    integer,
    is_number,
    key_text,
    kind,
    less,
    negate,
    parts,
    round_fraction,
    sort_set,
    type_error,
)
from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX, ELEMENT_BYTES, PATTERN_STEPS_MAX, TEXT_MAX
from lyra.vesper.values.outcome import Execution, NodeError
from lyra.vesper.values.patterns import compile_pattern


class SizeBudget(Protocol):
    execution: Execution
    memory: int

    def charge(self, part: ir.Step | ir.TypedExpression, count: int) -> None: ...


def call_function(call: ir.FunctionCall, values: list[Any], budget: SizeBudget) -> Any:
    """Return the value of a call, its arguments evaluated."""
    function, row = call.function, FUNCTIONS[call.function]
    if row.charge:
        texts = [value for value in values if isinstance(value, str)]
        collections = [value for value in values if isinstance(value, list | dict | frozenset)]
        budget.charge(call, sum(len(subject) // CHARS_A_STEP for subject in texts) + sum(map(len, collections)))
    if row.bound:
        _check_size(function, values, budget)
    if function == "current_timestamp":
        return budget.execution.now
    if function == "current_year":
        return budget.execution.now.year
    if row.group == "Times":
        return call_on_time(function, values)
    return {"Numbers": _on_numbers, "Texts": _on_texts, "Lists and maps": _on_collections}[row.group](function, values)


def _check_size(function: str, values: list[Any], budget: SizeBudget) -> None:
    """Raise an error where the result would be too large. Values of other types are left to the function."""
    size, limit = 0, budget.memory
    match function, values:
        case (("pad_left" | "pad_right"), [str(subject), int(width), *fill]) if not isinstance(width, bool):
            is_fill = not fill or (isinstance(fill[0], str) and len(fill[0]) == 1)
            size, limit = (max(len(subject), width) if is_fill else 0), min(TEXT_MAX, budget.memory)
        case "replace", [str(subject), str(old), str(new)] if old:
            count = len(_places(subject, old))
            size, limit = len(subject) + count * (len(new) - len(old)), min(TEXT_MAX, budget.memory)
        case "join", [list() | frozenset() as items, str(separator)] if all(isinstance(item, str) for item in items):
            size = sum(len(item) for item in items) + len(separator) * max(len(items) - 1, 0)
            limit = min(TEXT_MAX, budget.memory)
        case "split", [str(subject), str(separator)] if separator:
            count = len(_places(subject, separator))
            size = (count + 1) * ELEMENT_BYTES + len(subject) - count * len(separator)
        case "append", [list() | frozenset() as items, item]:
            size = _array_size([*items, item])
        case "concat", lists if all(isinstance(items, list | frozenset) for items in lists):
            size = sum(_array_size(items) for items in lists)
        case "zip", [list() | frozenset() as first, list() | frozenset() as second]:
            size = min(len(first), len(second)) * ELEMENT_BYTES
        case "put", [dict() as entries, str(key), _]:
            size = len({*entries, key}) * ELEMENT_BYTES
    if size > limit:
        raise NodeError("resource_limit", f"the result of {function} is too large")


def _array_size(items: Any) -> int:
    return sum(ELEMENT_BYTES + (len(item) if isinstance(item, str) else 0) for item in items)


def _places(subject: str, part: str) -> list[int]:
    """Return where a text has a part, from the left, without overlaps."""
    places = []
    place = subject.find(part)
    while place >= 0:
        places.append(place)
        place = subject.find(part, place + len(part))
    return places


# ---------------------------------------------------------------- kinds of arguments


def _number(value: Any) -> Fraction:
    if not is_number(value):
        raise type_error("a number is needed")
    return parts(value)[0]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise type_error("a text is needed")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise type_error("an integer is needed")
    return value


def _list(value: Any) -> list[Any]:
    if isinstance(value, frozenset):
        return sort_set(value)
    if not isinstance(value, list):
        raise type_error("a list is needed")
    return value


def _map(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise type_error("a map is needed")
    return value


# ---------------------------------------------------------------- numbers


def _on_numbers(function: str, values: list[Any]) -> Any:
    match function, values:
        case "abs", [value]:
            return negate(value) if _number(value) < 0 else value
        case "floor", [value]:
            return integer(_number(value).__floor__())
        case "ceil", [value]:
            return integer(_number(value).__ceil__())
        case "round", [value]:
            return integer(round(_number(value)))  # half to even
        case "round", [value, digits, *mode]:
            return round_to(value, digits, mode[0] if mode else "half_even")
        case "div", [left, right]:
            dividend, divisor = _number(left), _number(right)
            if divisor == 0:
                raise NodeError("division_by_zero", "division by zero")
            return integer(int(dividend / divisor))
        case (("min" | "max"), _):
            best = values[0]
            for value in values[1:]:
                if less(value, best) if function == "min" else less(best, value):
                    best = value
            return best
        case "clamp", [value, low, high]:
            is_below, is_above = less(value, low), less(high, value)
            if less(high, low):
                raise type_error("the bounds are the wrong way round")
            return low if is_below else high if is_above else value
    raise AssertionError(function)


def round_to(value: Any, digits: Any, mode: Any) -> Any:
    """Return a number with so many digits after the point."""
    if mode not in ROUNDINGS:
        raise type_error("no such mode")
    return round_fraction(_number(value), _count(digits), mode)


# ---------------------------------------------------------------- texts


def _on_texts(function: str, values: list[Any]) -> Any:
    if function == "len":
        return length(values[0])
    if function == "slice":
        return _slice(*values)
    if function == "join":
        texts, separator = [_text(item) for item in _list(values[0])], _text(values[1])
        return "".join(texts[:1] + [separator + item for item in texts[1:]])
    if function in ("pad_left", "pad_right"):
        return _pad(function, *values)
    texts = [_text(value) for value in values]
    subject = texts[0]
    match function, texts[1:]:
        case "lower", _:
            return subject.lower()
        case "upper", _:
            return subject.upper()
        case "trim", _:
            return subject.strip()
        case "starts_with", [start]:
            return subject[: len(start)] == start
        case "ends_with", [end]:
            return subject[max(0, len(subject) - len(end)) :] == end
        case "matches", [pattern]:
            return _matches(subject, pattern)
        case "replace", [old, new]:
            return new.join(_split(subject, old))
        case "split", [separator]:
            return _split(subject, separator)
        case (("parse_integer" | "parse_decimal"), _):
            return _parse_number(subject, is_whole=function == "parse_integer")
    raise AssertionError(function)


def length(target: Any) -> int | None:
    """Return how many characters, bytes, elements or entries; of null: null."""
    if target is None:
        return None
    if kind(target) in ("string", "bytes", "list", "set", "map"):
        return len(target)
    raise type_error("no length")


def _slice(sequence: Any, start: Any, end: Any = None) -> Any:
    items = sequence if isinstance(sequence, str) else _list(sequence)
    length = len(items)
    bounds = [_count(start), length if end is None else _count(end)]
    first, last = (max(0, bound + length) if bound < 0 else min(bound, length) for bound in bounds)
    chosen = [items[index] for index in range(first, last)]
    return "".join(chosen) if isinstance(sequence, str) else chosen


def _split(subject: str, separator: str) -> list[str]:
    if not separator:
        raise type_error("an empty text is everywhere")
    pieces, begin = [], 0
    for place in _places(subject, separator):
        pieces.append(subject[begin:place])
        begin = place + len(separator)
    return [*pieces, subject[begin:]]


def _pad(function: str, subject: Any, width: Any, fill: Any = " ") -> str:
    missing = _count(width) - len(_text(subject))
    if len(_text(fill)) != 1:
        raise type_error("one character is needed")
    filling = "".join(fill for _ in range(missing))
    return filling + str(subject) if function == "pad_left" else str(subject) + filling


def _parse_number(subject: str, *, is_whole: bool) -> int | Decimal:
    """Return the number that a text writes: a sign or none, digits, and, unless it is whole, a point and digits."""
    before, *after = subject[subject[:1] in ("+", "-") :].split(".")
    pieces = [before, *after]
    if len(after) > (not is_whole) or not all(piece and set(piece) <= set("0123456789") for piece in pieces):
        raise NodeError("not_a_number", "a number is needed")
    shown, scale = "".join(pieces).lstrip("0"), len("".join(after))
    zeros = scale if not shown else min(scale, len(shown) - len(shown.rstrip("0")))
    spare = min(zeros, max(0, len(shown) - DECIMAL_DIGITS_MAX, scale - SCALE_MAX))  # zeros that find no place
    shown, scale = shown[: len(shown) - spare], scale - spare
    if len(shown.rstrip("0")) > DECIMAL_DIGITS_MAX or len(shown) > 2 * DECIMAL_DIGITS_MAX + scale:
        raise NodeError("overflow", "too many digits")
    value = Fraction(Decimal(shown or "0")) / 10**scale * (-1 if subject[:1] == "-" else 1)
    return integer(int(value)) if is_whole else decimal_of(value, scale)


def _matches(subject: str, pattern: str) -> bool:
    try:
        groups, _ = compile_pattern(pattern).search(subject, 0, PATTERN_STEPS_MAX)
    except BadPattern:
        raise type_error("a bad pattern") from None
    except TooManySteps:
        raise NodeError("resource_limit", "too many steps of a pattern") from None
    return groups is not None


# ---------------------------------------------------------------- lists and maps


def _on_collections(function: str, values: list[Any]) -> Any:
    match function, values:
        case "append", [items, item]:
            return [*_list(items), item]
        case "concat", lists:
            return [item for items in [_list(elements) for elements in lists] for item in items]
        case "sort", [items, *by]:
            return _sort(_list(items), by[0] if by else None)
        case "reverse", [items]:
            return [item for _, item in sorted(enumerate(_list(items)), key=lambda pair: -pair[0])]
        case "distinct", [items]:
            unique: list[Any] = []
            for item in _list(items):
                if not any(equal(item, other) for other in unique):
                    unique.append(item)
            return unique
        case "take", [items, count]:
            chosen = range(min(_count(count), len(_list(items))))
            return [_list(items)[index] for index in chosen]
        case "zip", [first, second]:
            length = min(len(_list(first)), len(_list(second)))
            return [[_list(first)[index], _list(second)[index]] for index in range(length)]
        case "get", [target, key, default]:
            return _get(target, key, default)
        case "values", [entries]:
            return [value for _, value in _map(entries).items()]
        case "keys", [entries, *of]:
            return [key_of(key, of[0]) if of else key for key in _map(entries)]
        case "put", [entries, key, value]:
            return {**_map(entries), _text(key): value}
        case "map_of", [keys, items]:
            return {_text(key): item for key, item in zip(keys, items, strict=True)}
        case "map_key", [key, of]:
            return key_text(key, of)
    raise AssertionError(function)


def _sort(items: list[Any], by: Any) -> list[Any]:
    """Return the items in order, by insertion: each one goes behind those that are not greater."""
    keys = [item if by is None else _field(item, _text(by)) for item in items]
    if by is not None:
        _text(by)
    kinds = {kind(key) for key in keys} - {"null"}
    if len(kinds) > 1 or kinds & {"list", "set", "map"}:
        raise type_error("these have no order")
    ordered: list[tuple[Any, Any]] = []
    for key, item in zip(keys, items, strict=True):
        low, high = 0, len(ordered)
        while low < high:
            middle = (low + high) // 2
            if _comes_before(key, ordered[middle][0]):
                high = middle
            else:
                low = middle + 1
        ordered.insert(low, (key, item))
    return [item for _, item in ordered]


def _comes_before(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is None and right is not None
    return bool(left < right)


def _field(item: Any, name: str) -> Any:
    if item is None:
        return None
    return _map(item).get(name)


def _get(target: Any, key: Any, default: Any) -> Any:
    match kind(target), kind(key):
        case "null", _:
            return default
        case "map", "string":
            return next((value for name, value in target.items() if name == key), default)
        case "list", "number" if isinstance(key, int):
            return next((value for index, value in enumerate(target) if index == key), default)
    raise type_error("no such element")


def key_of(shown: str, of: str) -> Any:
    """Return the key that a text stands for."""
    key: Any = None
    digits = shown.removeprefix("-").replace(".", "", 1)
    is_number = digits.isascii() and digits.isdigit()
    try:
        if of == "boolean":
            key = {"true": True, "false": False}.get(shown)
        elif of == "timestamp":
            key = datetime.fromisoformat(shown)
        elif is_number and of == "integer" and "." not in shown:
            key = integer(int(Decimal(shown)))
        elif is_number and of == "decimal":
            key = Decimal(shown)
        if key is not None and key_text(key, of) == shown:
            return key
    except (ValueError, NodeError):
        pass
    raise type_error("a key of another type")

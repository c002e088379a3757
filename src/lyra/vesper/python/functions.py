"""Built-in functions of generated code over numbers, texts, lists and maps; those over times are in `python.times`.

Values may be of any kind: what a function does not take is a type error. A result that could be large is measured
before it is built. A list may also be a set, in the order of its elements.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from operator import itemgetter
from typing import Any, Final, NoReturn

from lyra.vesper.expressions.functions import CHARS_A_STEP
from lyra.vesper.python import numbers
from lyra.vesper.python.numbers import check_integer, is_number, kind_of
from lyra.vesper.python.operators import (
    MEMORY_BYTES,
    field,
    greater,
    in_order,
    key_text,
    less,
    string_argument,
    too_large,
    value_token,
)
from lyra.vesper.values.limits import ELEMENT_BYTES, TEXT_MAX
from lyra.vesper.values.outcome import NodeError


def _refuse(function: str, value: Any) -> NoReturn:
    raise NodeError("type_error", f"{function} does not take {kind_of(value)}")


def integer_argument(value: Any, function: str) -> int:
    if type(value) is not int:
        _refuse(function, value)
    return value


def size_of(values: tuple[Any, ...]) -> int:
    """Return the steps that a call counts as: one for each element, and one for every CHARS_A_STEP characters."""
    return sum(
        len(value) // CHARS_A_STEP if isinstance(value, str) else len(value)
        for value in values
        if isinstance(value, str | list | dict | frozenset)
    )


def first_value(*operands: Callable[[], Any]) -> Any:
    """Return the first value that is not null; the others are not evaluated."""
    for operand in operands:
        value = operand()
        if value is not None:
            return value
    return None


# ------------------------------------------------------------ numbers
def _round_to_integer(value: Any, function: str, rounding: str) -> int:
    if type(value) is int:
        return value
    if type(value) is not Decimal:
        _refuse(function, value)
    if value.adjusted() > 20:
        raise numbers.overflow()
    return check_integer(int(value.to_integral_value(rounding)))


def floor(value: Any) -> int:
    return _round_to_integer(value, "floor", ROUND_FLOOR)


def ceil(value: Any) -> int:
    return _round_to_integer(value, "ceil", ROUND_CEILING)


def round_whole(value: Any) -> int:
    """Return the nearest integer, half to even."""
    return _round_to_integer(value, "round", ROUND_HALF_EVEN)


def divide_whole(left: Any, right: Any) -> int:
    """Return the quotient, cut off towards zero."""
    if not (is_number(left) and is_number(right)):
        _refuse("div", right if is_number(left) else left)
    if not right:
        raise NodeError("division_by_zero", "division by zero")
    if type(left) is int and type(right) is int:
        quotient = abs(left) // abs(right)
        return check_integer(quotient if (left < 0) is (right < 0) else -quotient)
    if not left:
        return 0
    left, right = Decimal(left), Decimal(right)
    if left.adjusted() - right.adjusted() > 20:
        raise numbers.overflow()
    # Rounded towards zero, the first 64 digits hold the whole part, which has at most 22.
    return check_integer(int(_DOWN.divide(left, right).to_integral_value(ROUND_DOWN)))


_DOWN: Final = numbers.wide(64, ROUND_DOWN)


def smallest_of(first: Any, *others: Any) -> Any:
    best = first
    for value in others:
        _require_order("min", best, value)
        best = value if value < best else best
    return best


def largest_of(first: Any, *others: Any) -> Any:
    best = first
    for value in others:
        _require_order("max", best, value)
        best = value if value > best else best
    return best


def _require_order(function: str, left: Any, right: Any) -> None:
    if left is None or right is None:
        _refuse(function, None)
    less(left, right)


def clamp(value: Any, low: Any, high: Any) -> Any:
    """Return the value, or the bound that it is beyond."""
    for other in (low, high):
        _require_order("clamp", value, other)
    if greater(low, high):
        raise NodeError("type_error", "the low bound of clamp is above the high one")
    if value < low:
        return low
    return high if value > high else value


# ------------------------------------------------------------ texts
def part_of(sequence: Any, start: Any, end: Any = None) -> Any:
    """Return a part of a text or list, by Python's rules of slices."""
    start = integer_argument(start, "slice")
    end = None if end is None else integer_argument(end, "slice")
    if isinstance(sequence, str):
        return sequence[start:end]
    return in_order(sequence)[start:end]


def replace_text(text: Any, old: Any, new: Any, *, chars_max: int = TEXT_MAX) -> str:
    whole, part, other = (string_argument(value, "replace") for value in (text, old, new))
    if not part:
        raise NodeError("type_error", "replace cannot look for an empty text")
    if len(whole) + whole.count(part) * (len(other) - len(part)) > chars_max:
        raise NodeError("resource_limit", "the text is too long")
    return whole.replace(part, other)


def split_text(text: Any, separator: Any, *, bytes_max: int = MEMORY_BYTES) -> list[str]:
    whole, mark = string_argument(text, "split"), string_argument(separator, "split")
    if not mark:
        raise NodeError("type_error", "the separator of split is empty")
    marks = whole.count(mark)
    if (marks + 1) * ELEMENT_BYTES + len(whole) - marks * len(mark) > bytes_max:
        raise too_large()
    return whole.split(mark)


def join_texts(texts: Any, separator: Any, *, chars_max: int = TEXT_MAX) -> str:
    elements = [string_argument(text, "join") for text in in_order(texts)]
    mark = string_argument(separator, "join")
    if sum(map(len, elements)) + max(0, len(elements) - 1) * len(mark) > chars_max:
        raise NodeError("resource_limit", "the text is too long")
    return mark.join(elements)


def pad_left(text: Any, width: Any, fill: Any = " ", *, chars_max: int = TEXT_MAX) -> str:
    return _pad("pad_left", text, width, fill, chars_max, str.rjust)


def pad_right(text: Any, width: Any, fill: Any = " ", *, chars_max: int = TEXT_MAX) -> str:
    return _pad("pad_right", text, width, fill, chars_max, str.ljust)


def _pad(function: str, text: Any, width: Any, fill: Any, chars_max: int, pad: Callable[[str, int, str], str]) -> str:
    text, width, fill = (
        string_argument(text, function),
        integer_argument(width, function),
        string_argument(fill, function),
    )
    if len(fill) != 1:
        raise NodeError("type_error", f"{function} fills with one character")
    if max(len(text), width) > chars_max:
        raise NodeError("resource_limit", "the text is too long")
    return pad(text, width, fill)


_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")


def integer_from(text: Any) -> int:
    """Return the whole number that a text writes."""
    written = string_argument(text, "parse_integer")
    if _WHOLE_NUMBER.fullmatch(written) is None:
        raise NodeError("not_a_number", f"{written[:40]!r} is no whole number")
    if len(written) > 20 and len(written.lstrip("+-0")) > 19:
        raise numbers.overflow()
    return check_integer(int(Decimal(written)))


def decimal_from(text: Any) -> Decimal:
    """Return the number that a text writes, with as many digits after the point."""
    written = string_argument(text, "parse_decimal")
    if _NUMBER.fullmatch(written) is None:
        raise NodeError("not_a_number", f"{written[:40]!r} is no number")
    try:
        return numbers.EXACT.plus(Decimal(written))
    except ArithmeticError:
        raise numbers.overflow() from None


# ------------------------------------------------------------ lists
def _short(elements: list[Any], bytes_max: int) -> list[Any]:
    """Return a list that is not too large."""
    if len(elements) * ELEMENT_BYTES + sum(len(element) for element in elements if type(element) is str) > bytes_max:
        raise too_large()
    return elements


def append_element(elements: Any, element: Any, *, bytes_max: int = MEMORY_BYTES) -> list[Any]:
    return _short([*in_order(elements), element], bytes_max)


def concatenate_lists(*lists: Any, bytes_max: int = MEMORY_BYTES) -> list[Any]:
    ordered = [in_order(elements) for elements in lists]
    if sum(map(len, ordered)) * ELEMENT_BYTES > bytes_max:
        raise too_large()
    return _short([element for elements in ordered for element in elements], bytes_max)


_SORTED: Final = {bool: "boolean", int: "number", Decimal: "number", str: "string", bytes: "bytes"}


def sort_list(elements: Any, by: Any = None) -> list[Any]:
    """Return the elements in order, or by a field; equal ones stay as they are, and null comes first."""
    if by is not None:
        string_argument(by, "sort")
    rows = [(element if by is None else _field_of(element, by), element) for element in in_order(elements)]
    kinds = {
        "timestamp" if isinstance(key, datetime) else _SORTED.get(type(key), "") for key, _ in rows if key is not None
    }
    if len(kinds) > 1 or "" in kinds:
        raise NodeError("type_error", "sort takes values of one kind that has an order")
    first = [element for key, element in rows if key is None]
    rest = sorted((row for row in rows if row[0] is not None), key=itemgetter(0))
    return first + [element for _, element in rest]


def _field_of(element: Any, name: str) -> Any:
    if element is not None and not isinstance(element, dict):
        _refuse("sort by a field", element)
    return field(element, name)


def reverse_list(elements: Any) -> list[Any]:
    return in_order(elements)[::-1]


def distinct(elements: Any) -> list[Any]:
    """Return the elements without those that equal an earlier one."""
    unique: dict[Any, Any] = {}
    for element in in_order(elements):
        unique.setdefault(value_token(element), element)
    return list(unique.values())


def first_of(elements: Any, count: Any) -> list[Any]:
    return in_order(elements)[: max(0, integer_argument(count, "take"))]


def pairs(first: Any, second: Any, *, bytes_max: int = MEMORY_BYTES) -> list[list[Any]]:
    """Return the elements at equal places, up to the end of the shorter list."""
    return _short([list(pair) for pair in zip(in_order(first), in_order(second), strict=False)], bytes_max)


# ------------------------------------------------------------ maps
def item_or(target: Any, key: Any, default: Any) -> Any:
    """Return an element by its index or key; the default where it is missing."""
    if target is None:
        return default
    if isinstance(target, dict) and isinstance(key, str):
        return target.get(key, default)
    if isinstance(target, list) and type(key) is int:
        return target[key] if 0 <= key < len(target) else default
    _refuse("get", target)


def _map(value: Any, function: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(function, value)
    return value


def values_of(entries: Any) -> list[Any]:
    return list(_map(entries, "values").values())


def keys_of(entries: Any, kind: str = "string") -> list[Any]:
    """Return the keys of a map, as values of their kind."""
    keys = list(_map(entries, "keys"))
    return keys if kind == "string" else [key_value(key, kind) for key in keys]


def with_entry(entries: Any, key: Any, value: Any, *, bytes_max: int = MEMORY_BYTES) -> dict[str, Any]:
    result = {**_map(entries, "put"), string_argument(key, "put"): value}
    if len(result) * ELEMENT_BYTES > bytes_max:
        raise too_large()
    return result


def map_from(keys: list[Any], values: list[Any]) -> dict[str, Any]:
    """Return a map of keys and values; of equal keys the last one counts."""
    return dict(zip([string_argument(key, "a map") for key in keys], values, strict=True))


def map_key(value: Any, kind: str) -> str:
    """Return the text that stands for a key in a map of keys of the kind."""
    return key_text(value, kind)


_PLAIN_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def key_value(text: str, kind: str) -> Any:
    """Return the key that a text stands for."""
    value: Any = None
    try:
        if kind == "boolean":
            value = {"true": True, "false": False}.get(text)
        elif kind == "integer" and len(text) <= 20:
            value = check_integer(int(text))
        elif kind == "decimal" and _PLAIN_NUMBER.fullmatch(text):
            value = Decimal(text)
        elif kind == "timestamp":
            value = datetime.fromisoformat(text)
    except (ValueError, NodeError):
        value = None
    if value is None or map_key(value, kind) != text:
        raise NodeError("type_error", f"the key {text[:40]!r} is no {kind}")
    return value

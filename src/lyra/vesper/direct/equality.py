"""Equality and order of values on the direct path.

Values are equal when their kinds are alike and their contents are: integers and decimals are one kind, booleans are
never numbers, and lists and maps compare their elements by the same rule. `group_key` gives equal values the same
hashable key. Numbers, texts and timestamps have an order; a comparison with null is false, and any other pair of kinds
is a type error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from lyra.vesper.direct.numbers import kind_of
from lyra.vesper.values.outcome import NodeError

_NUMBERS: Final = frozenset({int, Decimal})
_ATOMS: Final = frozenset({int, Decimal, str, bool, bytes, type(None)})
ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def equal(left: Any, right: Any) -> bool:
    left_type, right_type = type(left), type(right)
    if left_type is right_type and left_type in _ATOMS:
        return bool(left == right)
    if left_type is not right_type:
        if left_type in _NUMBERS and right_type in _NUMBERS:
            return bool(left == right)
        return isinstance(left, datetime) and isinstance(right, datetime) and left == right
    if left_type is list:
        return len(left) == len(right) and all(map(equal, left, right))
    if left_type is dict:
        return left.keys() == right.keys() and all(equal(value, right[key]) for key, value in left.items())
    if left_type is frozenset:
        return set(map(group_key, left)) == set(map(group_key, right))
    return bool(left == right)


def group_key(value: Any) -> Any:
    """A hashable key that equal values share and unequal values do not."""
    match value:
        case bool() | None | str() | bytes():
            return type(value), value
        case int() | Decimal():
            return "number", value
        case list():
            return "list", tuple(map(group_key, value))
        case dict():
            return "map", frozenset((key, group_key(item)) for key, item in value.items())
        case frozenset():
            return "set", frozenset(map(group_key, value))
    return "timestamp", value


def ordered_pair(left: Any, right: Any) -> bool:
    """Whether the two have an order; false with a null, a type error where they never have one."""
    left_type, right_type = type(left), type(right)
    if left_type in _NUMBERS and right_type in _NUMBERS:
        return True
    if left is None or right is None:
        return False
    if left_type is str and right_type is str:
        return True
    if isinstance(left, datetime) and isinstance(right, datetime):
        return True
    raise NodeError("type_error", f"{kind_of(left)} and {kind_of(right)} have no order")


def contains(collection: Any, item: Any) -> bool:
    """Whether the item is an element of the list or set, a key of the map, a part of the text."""
    if collection is None:
        return False
    if isinstance(collection, list | frozenset):
        return any(equal(element, item) for element in collection)
    if isinstance(collection, dict):
        return isinstance(item, str) and item in collection
    if isinstance(collection, str) and isinstance(item, str):
        return item in collection
    raise NodeError("type_error", f"{kind_of(item)} cannot be looked for in {kind_of(collection)}")


def least(values: Iterable[Any], order: Callable[[Any, Any], bool]) -> Any:
    """The first value that comes before all others in the order; null of none. Nulls are passed over."""
    best: Any = None
    for value in values:
        if value is not None and (best is None or ordered_pair(value, best)):
            if best is None:
                ordered_pair(value, value)
                best = value
            elif order(value, best):
                best = value
    return best


def _rank(value: Any) -> tuple[int, Any]:
    match value:
        case None:
            return 0, 0
        case bool():
            return 1, value
        case int() | Decimal():
            return 2, value
        case str():
            return 3, value
        case bytes():
            return 4, value
    return 5, value


def in_order(values: frozenset[Any]) -> list[Any]:
    """The elements of a set: null, booleans, numbers, texts, bytes, timestamps, each by value."""
    return sorted(values, key=_rank)

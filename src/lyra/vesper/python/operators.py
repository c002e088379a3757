"""Operators of generated code on values whose kind only a run knows: truth, equality, order, members, fields, text.

Equality is strict about booleans (true is not 1, also inside lists and maps) and numeric across integers and decimals.
An order with null is false. Fields of null are null. Texts of values are canonical: decimals without exponent,
timestamps in UTC with Z.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from lyra.core.linear_regex import BadPattern, RegexProgram, TooManySteps
from lyra.vesper.python.numbers import is_number, kind_of
from lyra.vesper.values.limits import PATTERN_INSTRUCTIONS_MAX, PATTERN_STEPS_MAX, TEXT_MAX
from lyra.vesper.values.outcome import NodeError

_ATOMS: Final = (str, bytes, datetime)


def truth(value: Any) -> bool:
    """A condition's value; null counts as false."""
    if value is True or value is False:
        return bool(value)
    if value is None:
        return False
    raise NodeError("type_error", f"a condition is a boolean, not {kind_of(value)}")


def equal(left: Any, right: Any) -> bool:
    if type(left) is type(right):
        if type(left) is list:
            return len(left) == len(right) and all(map(equal, left, right))
        if type(left) is dict:
            return len(left) == len(right) and all(key in right and equal(left[key], right[key]) for key in left)
        if type(left) is frozenset:
            return len(left) == len(right) and all(member(element, right) for element in left)
        return bool(left == right)
    return bool(left == right) if is_number(left) and is_number(right) else False


def _ordered(operator: str, left: Any, right: Any) -> bool:
    """Whether the two have an order; false where a side is null."""
    if left is None or right is None:
        return False
    if is_number(left) and is_number(right):
        return True
    if any(isinstance(left, kind) and isinstance(right, kind) for kind in (str, datetime)):
        return True
    raise NodeError("type_error", f"{operator} cannot compare {kind_of(left)} with {kind_of(right)}")


def less(left: Any, right: Any) -> bool:
    return _ordered("<", left, right) and bool(left < right)


def less_equal(left: Any, right: Any) -> bool:
    return _ordered("<=", left, right) and bool(left <= right)


def greater(left: Any, right: Any) -> bool:
    return _ordered(">", left, right) and bool(left > right)


def greater_equal(left: Any, right: Any) -> bool:
    return _ordered(">=", left, right) and bool(left >= right)


def member(element: Any, collection: Any) -> bool:
    """Whether the collection holds the element: an element, a key of a map, a part of a text."""
    if collection is None:
        return False
    if isinstance(collection, str):
        if isinstance(element, str):
            return element in collection
        raise NodeError("type_error", f"a text cannot hold {kind_of(element)}")
    if isinstance(collection, list | frozenset):
        return any(equal(element, other) for other in collection)
    if isinstance(collection, dict):
        return isinstance(element, str) and element in collection
    raise NodeError("type_error", f"{kind_of(collection)} is not a collection")


def field(target: Any, name: str) -> Any:
    """The field of a map; of null and a missing one: null; of an array: that of each element."""
    if isinstance(target, dict):
        return target.get(name)
    if target is None:
        return None
    if isinstance(target, list):
        return project(target, name)
    raise NodeError("type_error", f"{kind_of(target)} has no fields")


def project(target: Any, name: str) -> Any:
    """The field of each element of an array or set."""
    if target is None:
        return None
    return [field(element, name) for element in in_order(target)]


def item(target: Any, index: Any) -> Any:
    """An element by its number or key; outside, and of null: null."""
    if target is None:
        return None
    if isinstance(target, list):
        if type(index) is not int:
            raise NodeError("type_error", f"an array's index is an integer, not {kind_of(index)}")
        return target[index] if 0 <= index < len(target) else None
    if isinstance(target, dict):
        if not isinstance(index, str):
            raise NodeError("type_error", f"a map's key is a string, not {kind_of(index)}")
        return target.get(index)
    raise NodeError("type_error", f"{kind_of(target)} has no elements")


def size(target: Any) -> Any:
    """How many characters, bytes, elements or entries; of null: null."""
    if target is None:
        return None
    if isinstance(target, str | bytes | list | dict | frozenset):
        return len(target)
    raise NodeError("type_error", f"{kind_of(target)} has no length")


def in_order(collection: Any) -> list[Any]:
    """The elements of an array, or of a set in sorted order."""
    if isinstance(collection, list):
        return collection
    if isinstance(collection, frozenset):
        return sorted(collection, key=_rank)
    raise NodeError("type_error", f"{kind_of(collection)} is not an array")


def _rank(value: Any) -> tuple[Any, ...]:
    """A sort key over scalars of all kinds."""
    if value is None:
        return (0,)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, int | Decimal):
        return (2, value)
    return (3 + _ATOMS.index(type(value)), value)


# ------------------------------------------------------------ text
def decimal_text(value: Decimal) -> str:
    """The decimal without exponent; its scale is kept, and minus zero is zero."""
    return format(value if value else abs(value), "f")


def timestamp_text(value: datetime) -> str:
    form = "%H:%M:%S.%f" if value.microsecond else "%H:%M:%S"
    return f"{value.year:04d}-{value.month:02d}-{value.day:02d}T{value.strftime(form)}Z"


def text_of(*parts: Any, chars_max: int = TEXT_MAX) -> str:
    """A template's text: the parts in a row."""
    return short_text("".join([part if type(part) is str else _text(part) for part in parts]), chars_max)


def short_text(text: str, chars_max: int = TEXT_MAX) -> str:
    """The text, if it is not too long."""
    if len(text) > chars_max:
        raise NodeError("resource_limit", "the text is too long")
    return text


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, datetime):
        return timestamp_text(value)
    raise NodeError("type_error", f"{kind_of(value)} has no text in a template")


def _string(value: Any, function: str) -> str:
    if isinstance(value, str):
        return value
    raise NodeError("type_error", f"{function} takes a string, not {kind_of(value)}")


def to_lower(value: Any) -> str:
    return _string(value, "lower").lower()


def to_upper(value: Any) -> str:
    return _string(value, "upper").upper()


def trimmed(value: Any) -> str:
    return _string(value, "trim").strip()


def starts_with(value: Any, start: Any) -> bool:
    return _string(value, "starts_with").startswith(_string(start, "starts_with"))


def ends_with(value: Any, end: Any) -> bool:
    return _string(value, "ends_with").endswith(_string(end, "ends_with"))


def regex_matches(value: Any, pattern: Any) -> bool:
    """Whether the pattern occurs in the text; its time grows with the text only."""
    value, pattern = _string(value, "matches"), _string(pattern, "matches")
    try:
        match, _ = _compiled(pattern).search(value, 0, PATTERN_STEPS_MAX)
    except BadPattern as error:
        raise NodeError("type_error", f"the pattern cannot be used: {error}") from None
    except TooManySteps:
        raise NodeError("resource_limit", "the match takes too many steps") from None
    return match is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> RegexProgram:
    return RegexProgram(pattern, size_max=PATTERN_INSTRUCTIONS_MAX)

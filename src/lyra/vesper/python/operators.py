"""Operators of generated code on values whose kind only a run knows: truth, equality, order, members, fields, text.

Equality is strict about booleans (true is not 1, also inside lists and maps) and numeric across integers and decimals.
An order with null is false. Fields of null are null. Texts of values are canonical: decimals without exponent,
timestamps in UTC with Z. Aggregates, groups and matrix products are here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from lyra.core.linear_regex import BadPattern, TooManySteps
from lyra.vesper.python import numbers
from lyra.vesper.python.numbers import is_number, kind_of
from lyra.vesper.values.limits import ELEMENT_BYTES, MEMORY_MB_DEFAULT, PATTERN_STEPS_MAX, TEXT_MAX
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.patterns import compile_pattern
from lyra.vesper.values.types import INTEGER_MAX, INTEGER_MIN

_ATOMS: Final = (str, bytes, datetime)


def truth(value: Any) -> bool:
    """Return a condition's value; null counts as false."""
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


def _are_comparable(operator: str, left: Any, right: Any) -> bool:
    """Return whether the two have an order; false where a side is null."""
    if left is None or right is None:
        return False
    if is_number(left) and is_number(right):
        return True
    if any(isinstance(left, kind) and isinstance(right, kind) for kind in (str, datetime)):
        return True
    raise NodeError("type_error", f"{operator} cannot compare {kind_of(left)} with {kind_of(right)}")


def less(left: Any, right: Any) -> bool:
    return _are_comparable("<", left, right) and bool(left < right)


def less_equal(left: Any, right: Any) -> bool:
    return _are_comparable("<=", left, right) and bool(left <= right)


def greater(left: Any, right: Any) -> bool:
    return _are_comparable(">", left, right) and bool(left > right)


def greater_equal(left: Any, right: Any) -> bool:
    return _are_comparable(">=", left, right) and bool(left >= right)


def member(element: Any, collection: Any) -> bool:
    """Return whether the collection holds the element: an element, a key of a map, a part of a text."""
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
    """Return the field of a map; of null and a missing one: null; of an array: that of each element."""
    if isinstance(target, dict):
        return target.get(name)
    if target is None:
        return None
    if isinstance(target, list):
        return project(target, name)
    raise NodeError("type_error", f"{kind_of(target)} has no fields")


def project(target: Any, name: str) -> Any:
    """Return the field of each element of an array or set."""
    if target is None:
        return None
    return [field(element, name) for element in in_order(target)]


def item(target: Any, index: Any) -> Any:
    """Return an element by its number or key; outside, and of null: null."""
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
    """Return how many characters, bytes, elements or entries; of null: null."""
    if target is None:
        return None
    if isinstance(target, str | bytes | list | dict | frozenset):
        return len(target)
    raise NodeError("type_error", f"{kind_of(target)} has no length")


def in_order(collection: Any) -> list[Any]:
    """Return the elements of an array, or of a set in sorted order."""
    if isinstance(collection, list):
        return collection
    if isinstance(collection, frozenset):
        return sorted(collection, key=_rank)
    raise NodeError("type_error", f"{kind_of(collection)} is not an array")


def _rank(value: Any) -> tuple[Any, ...]:
    """Return a sort key over scalars of all kinds."""
    if value is None:
        return (0,)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, int | Decimal):
        return (2, value)
    return (3 + _ATOMS.index(type(value)), value)


# ------------------------------------------------------------ text
def decimal_text(value: Decimal) -> str:
    """Return the decimal without exponent; its scale is kept, and minus zero is zero."""
    return format(value if value else abs(value), "f")


def timestamp_text(value: datetime) -> str:
    form = "%H:%M:%S.%f" if value.microsecond else "%H:%M:%S"
    return f"{value.year:04d}-{value.month:02d}-{value.day:02d}T{value.strftime(form)}Z"


def key_text(value: Any, kind: str) -> str:
    """Return the text that stands for a key in a map of keys of the kind."""
    if kind == "boolean" and isinstance(value, bool):
        return "true" if value else "false"
    if kind == "integer" and type(value) is int:
        return str(value)
    if kind == "decimal" and is_number(value):
        text = decimal_text(Decimal(value))
        return text.rstrip("0").rstrip(".") if "." in text else text
    if kind == "timestamp" and isinstance(value, datetime):
        return timestamp_text(value.astimezone(UTC))
    raise NodeError("type_error", f"a map of keys of type {kind} does not take {kind_of(value)}")


def text_of(*parts: Any, chars_max: int = TEXT_MAX) -> str:
    """Return a template's text: the parts in a row."""
    return short_text("".join([part if type(part) is str else _text(part) for part in parts]), chars_max)


def short_text(text: str, chars_max: int = TEXT_MAX) -> str:
    """Return the text, if it is not too long."""
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


def string_argument(value: Any, function: str) -> str:
    """Return an argument that is a text."""
    if isinstance(value, str):
        return value
    raise NodeError("type_error", f"{function} takes a string, not {kind_of(value)}")


def to_lower(value: Any) -> str:
    return string_argument(value, "lower").lower()


def to_upper(value: Any) -> str:
    return string_argument(value, "upper").upper()


def trim_text(value: Any) -> str:
    return string_argument(value, "trim").strip()


def starts_with(value: Any, start: Any) -> bool:
    return string_argument(value, "starts_with").startswith(string_argument(start, "starts_with"))


def ends_with(value: Any, end: Any) -> bool:
    return string_argument(value, "ends_with").endswith(string_argument(end, "ends_with"))


def regex_matches(value: Any, pattern: Any) -> bool:
    """Return whether the pattern occurs in the text; its time grows with the text only."""
    value, pattern = string_argument(value, "matches"), string_argument(pattern, "matches")
    try:
        match, _ = compile_pattern(pattern).search(value, 0, PATTERN_STEPS_MAX)
    except BadPattern as error:
        raise NodeError("type_error", f"the pattern cannot be used: {error}") from None
    except TooManySteps:
        raise NodeError("resource_limit", "the match takes too many steps") from None
    return match is not None


# ---------------------------------------------------------------- transforms

MEMORY_BYTES: Final = MEMORY_MB_DEFAULT * 1024 * 1024


def too_large() -> NodeError:
    """Return the error of an array that takes too much memory."""
    return NodeError("resource_limit", "the array takes more memory than the node may")


def fitting(elements: list[Any], bytes_max: int = MEMORY_BYTES) -> Iterable[Any]:
    """Return the elements of an array, to make an array of as many; an error after so many that it would be too
    large."""
    count_max = bytes_max // ELEMENT_BYTES
    return elements if len(elements) <= count_max else _until(elements, count_max + 1)


def _until(elements: list[Any], count_max: int) -> Iterator[Any]:
    yield from elements[:count_max]
    raise too_large()


def collect_elements(values: Iterable[Any], bytes_max: int = MEMORY_BYTES) -> list[Any]:
    """Return an array of values among which there may be texts, if it is not too large."""
    result: list[Any] = []
    left = bytes_max
    for value in values:
        left -= ELEMENT_BYTES + (len(value) if type(value) is str else 0)
        if left < 0:
            raise too_large()
        result.append(value)
    return result


def count(collection: Any) -> int:
    return len(in_order(collection))


def total(collection: Any) -> Any:
    """Return the sum in order; nulls are passed over."""
    result: Any = 0
    for value in in_order(collection):
        if value is not None:
            if not numbers.is_number(value):
                raise NodeError("type_error", f"SUM takes numbers, not {numbers.kind_of(value)}")
            result = numbers.add(result, value)
    return result


def total_integers(collection: Iterable[int]) -> int:
    """Return the sum of integers; each partial sum must fit."""
    result = 0
    for value in collection:
        result += value
        if not INTEGER_MIN <= result <= INTEGER_MAX:
            raise numbers.overflow()
    return result


def total_decimals(collection: Iterable[Decimal]) -> Decimal | int:
    """Return the exact sum of decimals; of none: 0."""
    result: Decimal | int = 0
    add = numbers.EXACT.add
    for value in collection:
        result = add(result, value)
    return result


def average(collection: Any) -> Any:
    """Return the mean of the values that are not null; null where all are."""
    values = [value for value in in_order(collection) if value is not None]
    return numbers.divide(total(values), len(values)) if values else None


def _extreme(collection: Any, is_better: Callable[[Any, Any], bool]) -> Any:
    best = None
    for value in in_order(collection):
        # Comparing a single value with itself refuses kinds that have no order.
        if value is not None and (is_better(value, value if best is None else best) or best is None):
            best = value
    return best


def smallest(collection: Any) -> Any:
    return _extreme(collection, less)


def largest(collection: Any) -> Any:
    return _extreme(collection, greater)


_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "sum": total,
    "count": count,
    "avg": average,
    "min": smallest,
    "max": largest,
}


def value_token(value: Any) -> Any:
    """Return a hashable stand-in: equal for values that are equal by the language's rule."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return ("array", tuple(map(value_token, value)))
    if isinstance(value, dict):
        return ("map", frozenset((key, value_token(element)) for key, element in value.items()))
    if isinstance(value, frozenset):
        return ("set", frozenset(map(value_token, value)))
    return ("number", value) if isinstance(value, int | Decimal) else (type(value).__name__, value)


def group_elements(
    collection: Any,
    keys: Sequence[tuple[str, Callable[[Any], Any]]],
    aggregations: Sequence[tuple[str, str, Callable[[Any], Any] | None]],
) -> Any:
    """Return one map for each group in the order of first appearance, or one map for all elements where there are no
    keys."""
    groups: dict[Any, tuple[list[Any], list[Any]]] = {}
    for element in in_order(collection):
        values = [key(element) for _, key in keys]
        groups.setdefault(tuple(map(value_token, values)), (values, []))[1].append(element)
    if not keys:
        members = groups[()][1] if groups else []
        return _row((), [], members, aggregations)
    names = [name for name, _ in keys]
    return [_row(names, values, members, aggregations) for values, members in groups.values()]


def _row(
    names: Sequence[str],
    values: list[Any],
    members: list[Any],
    aggregations: Sequence[tuple[str, str, Callable[[Any], Any] | None]],
) -> dict[str, Any]:
    row = dict(zip(names, values, strict=True))
    for output, function, operand in aggregations:
        operands = members if operand is None else [operand(element) for element in members]
        row[output] = _FUNCTIONS[function](operands)
    if not aggregations:
        row["items"] = members
    return row


def matrix_product(left: Any, right: Any, tick: Callable[[int], None]) -> list[list[Any]]:
    """Return the product of two arrays of rows; `tick` counts the products of numbers."""
    rows, others = _matrix(left), _matrix(right)
    if rows and len(rows[0]) != len(others):
        raise NodeError("type_error", "the sizes of the two matrices do not fit together")
    columns = list(zip(*others, strict=True))
    tick(len(rows) * len(columns) * len(others))
    return [[_dot(row, column) for column in columns] for row in rows]


def _matrix(value: Any) -> list[list[Any]]:
    is_matrix = isinstance(value, list) and all(isinstance(row, list) and len(row) == len(value[0]) for row in value)
    if not is_matrix:
        raise NodeError("type_error", "a matrix is an array of rows of equal length")
    return list(value)


def _dot(row: Sequence[Any], column: Sequence[Any]) -> Any:
    result: Any = 0
    for left, right in zip(row, column, strict=True):
        result = numbers.add(result, numbers.multiply(left, right))
    return result

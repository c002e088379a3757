"""Aggregates, groups and matrix products of generated code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

from lyra.vesper.python import numbers, operators
from lyra.vesper.values.limits import ELEMENT_BYTES, MEMORY_MB_DEFAULT
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.types import INTEGER_MAX, INTEGER_MIN

_MEMORY_BYTES: Final = MEMORY_MB_DEFAULT * 1024 * 1024


def _too_large() -> NodeError:
    return NodeError("resource_limit", "the array takes more memory than the node may")


def fitting(elements: list[Any], bytes_max: int = _MEMORY_BYTES) -> Iterable[Any]:
    """The elements of an array, to make an array of as many; an error after so many that it would be too large."""
    count_max = bytes_max // ELEMENT_BYTES
    return elements if len(elements) <= count_max else _until(elements, count_max)


def _until(elements: list[Any], count_max: int) -> Iterator[Any]:
    yield from elements[:count_max]
    raise _too_large()


def collected(values: Iterable[Any], bytes_max: int = _MEMORY_BYTES) -> list[Any]:
    """An array of values among which there may be texts, if it is not too large."""
    result: list[Any] = []
    left = bytes_max
    for value in values:
        left -= ELEMENT_BYTES + (len(value) if type(value) is str else 0)
        if left < 0:
            raise _too_large()
        result.append(value)
    return result


def count(collection: Any) -> int:
    return len(operators.in_order(collection))


def total(collection: Any) -> Any:
    """The sum in order; nulls are passed over."""
    result: Any = 0
    for value in operators.in_order(collection):
        if value is not None:
            if not numbers.is_number(value):
                raise NodeError("type_error", f"SUM takes numbers, not {numbers.kind_of(value)}")
            result = numbers.add(result, value)
    return result


def total_integers(collection: Iterable[int]) -> int:
    """The sum of integers; each partial sum must fit."""
    result = 0
    for value in collection:
        result += value
        if not INTEGER_MIN <= result <= INTEGER_MAX:
            raise numbers.overflow()
    return result


def total_decimals(collection: Iterable[Decimal]) -> Decimal | int:
    """The exact sum of decimals; of none: 0."""
    result: Decimal | int = 0
    add = numbers.EXACT.add
    for value in collection:
        result = add(result, value)
    return result


def average(collection: Any) -> Any:
    """The sum divided by how many are not null; null where there are none."""
    values = [value for value in operators.in_order(collection) if value is not None]
    return numbers.divide(total(values), len(values)) if values else None


def _extreme(collection: Any, is_better: Callable[[Any, Any], bool]) -> Any:
    best = None
    for value in operators.in_order(collection):
        # Comparing a single value with itself refuses kinds that have no order.
        if value is not None and (is_better(value, value if best is None else best) or best is None):
            best = value
    return best


def smallest(collection: Any) -> Any:
    return _extreme(collection, operators.less)


def largest(collection: Any) -> Any:
    return _extreme(collection, operators.greater)


_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "sum": total,
    "count": count,
    "avg": average,
    "min": smallest,
    "max": largest,
}


def _token(value: Any) -> Any:
    """A hashable stand-in: equal for values that are equal by the language's rule."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return ("array", tuple(map(_token, value)))
    if isinstance(value, dict):
        return ("map", frozenset((key, _token(element)) for key, element in value.items()))
    if isinstance(value, frozenset):
        return ("set", frozenset(map(_token, value)))
    return ("number", value) if isinstance(value, int | Decimal) else (type(value).__name__, value)


def grouped(
    collection: Any,
    keys: Sequence[tuple[str, Callable[[Any], Any]]],
    aggregations: Sequence[tuple[str, str, Callable[[Any], Any] | None]],
) -> Any:
    """One map for each group in the order of first appearance, or one map for all elements where there are no keys."""
    groups: dict[Any, tuple[list[Any], list[Any]]] = {}
    for element in operators.in_order(collection):
        values = [key(element) for _, key in keys]
        groups.setdefault(tuple(map(_token, values)), (values, []))[1].append(element)
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


def matrix_product(left: Any, right: Any) -> list[list[Any]]:
    """The product of two arrays of rows."""
    rows, others = _matrix(left), _matrix(right)
    if rows and len(rows[0]) != len(others):
        raise NodeError("type_error", "the sizes of the two matrices do not fit together")
    columns = list(zip(*others, strict=True))
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

"""Compiles expressions over collections to closures: quantifiers, aggregates, transforms and matrix products.

All of them take an array, or a set in the order of its elements; null and anything else is a type error. Where
`charges.CHARGES` says so, the meter is charged for all elements at once, before the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from lyra.vesper import ir
from lyra.vesper.direct.expressions import Compiler, compile_condition, compile_expression
from lyra.vesper.direct.frames import METER, Evaluate, Frame, Scope
from lyra.vesper.direct.numbers import ORDERS, add, divide, group_key, in_order, kind_of, least, multiply
from lyra.vesper.values.limits import ELEMENT_BYTES
from lyra.vesper.values.outcome import NodeError


def compile_elements(
    part: ir.ForEachStep | ir.Quantifier | ir.MapOver | ir.Filter | ir.Reduce | ir.Aggregate | ir.GroupBy, scope: Scope
) -> Callable[[Frame], list[Any]]:
    """Return a function that gives the elements of the part's collection in order and counts them as steps."""
    collection = compile_expression(part.collection, scope)

    def elements(frame: Frame) -> list[Any]:
        value = collection(frame)
        if type(value) is list:
            return value
        if type(value) is frozenset:
            return in_order(value)
        raise NodeError("type_error", f"{kind_of(value)} is not a collection")

    def meter_elements(frame: Frame) -> list[Any]:
        paid = elements(frame)
        frame[METER].spend(len(paid))
        return paid

    return meter_elements if scope.is_charged(type(part)) else elements


def _quantifier(expression: ir.Quantifier, scope: Scope) -> Evaluate:
    elements = compile_elements(expression, scope)
    inner, (slot,) = scope.for_rounds().bind(expression.name)
    holds = compile_condition(expression.body, inner)
    decisive = expression.kind == "exists"  # the value of the body that ends the search

    def decide(frame: Frame) -> bool:
        for element in elements(frame):
            frame[slot] = element
            if holds(frame) is decisive:
                return decisive
        return not decisive

    return decide


def _map_over(expression: ir.MapOver, scope: Scope) -> Evaluate:
    elements = compile_elements(expression, scope)
    inner, (slot,) = scope.for_rounds().bind(expression.name)
    body, memory_max = compile_expression(expression.body, inner), scope.memory_max

    def transform(frame: Frame) -> list[Any]:
        results: list[Any] = []
        size = 0
        for element in elements(frame):
            frame[slot] = element
            result = body(frame)
            size += ELEMENT_BYTES + len(result) if type(result) is str else ELEMENT_BYTES
            if size > memory_max:
                raise NodeError("resource_limit", "the array takes too much memory")
            results.append(result)
        return results

    return transform


def _filter(expression: ir.Filter, scope: Scope) -> Evaluate:
    elements = compile_elements(expression, scope)
    inner, (slot,) = scope.for_rounds().bind(expression.name)
    holds = compile_condition(expression.body, inner)

    def select(frame: Frame) -> list[Any]:
        results: list[Any] = []
        for element in elements(frame):
            frame[slot] = element
            if holds(frame):
                results.append(element)
        return results

    return select


def _reduce(expression: ir.Reduce, scope: Scope) -> Evaluate:
    elements = compile_elements(expression, scope)
    initial = compile_expression(expression.initial, scope)
    inner, (slot, accumulator) = scope.for_rounds().bind(expression.name, expression.accumulator)
    body = compile_expression(expression.body, inner)

    def reduce(frame: Frame) -> Any:
        paid = elements(frame)
        total = initial(frame)
        for element in paid:
            frame[slot], frame[accumulator] = element, total
            total = body(frame)
        return total

    return reduce


# ---------------------------------------------------------------- aggregates


def _sum(values: Iterable[Any]) -> Any:
    total: Any = 0
    for value in values:
        if value is not None:
            total = add(total, value)
    return total


def _average(values: list[Any]) -> Any:
    count = sum(value is not None for value in values)
    return divide(_sum(values), count) if count else None


AGGREGATES: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "sum": _sum,
    "count": len,
    "avg": _average,
    "min": lambda values: least(values, ORDERS["<"]),
    "max": lambda values: least(values, ORDERS[">"]),
}


def _aggregate(expression: ir.Aggregate, scope: Scope) -> Evaluate:
    elements, aggregate = compile_elements(expression, scope), AGGREGATES[expression.function]
    return lambda frame: aggregate(elements(frame))


def _group_by(expression: ir.GroupBy, scope: Scope) -> Evaluate:
    elements = compile_elements(expression, scope)
    inner, (slot,) = scope.for_rounds().bind(expression.name)
    keys = [(name, compile_expression(key, inner)) for name, key in expression.keys]
    columns = [
        (
            item.output,
            AGGREGATES[item.function],
            None if item.operand is None else compile_expression(item.operand, inner),
        )
        for item in expression.aggregations
    ]

    def row_of(key: list[Any], members: list[Any], frame: Frame) -> dict[str, Any]:
        row = {name: value for (name, _), value in zip(keys, key, strict=True)}
        for output, aggregate, operand in columns:
            row[output] = aggregate(members if operand is None else _values_of(operand, slot, members, frame))
        if not columns:
            row["items"] = members
        return row

    def group(frame: Frame) -> Any:
        members = elements(frame)
        if not keys:
            return row_of([], members, frame)
        groups: dict[Any, tuple[list[Any], list[Any]]] = {}
        for element in members:
            frame[slot] = element
            key = [evaluate(frame) for _, evaluate in keys]
            groups.setdefault(group_key(key), (key, []))[1].append(element)
        return [row_of(key, members, frame) for key, members in groups.values()]

    return group


def _values_of(operand: Evaluate, slot: int, elements: list[Any], frame: Frame) -> list[Any]:
    """Return the operand for all elements, in order."""
    values = []
    for element in elements:
        frame[slot] = element
        values.append(operand(frame))
    return values


# ---------------------------------------------------------------- matrices


def _rows(value: Any) -> list[list[Any]]:
    if type(value) is not list or not all(type(row) is list for row in value):
        raise NodeError("type_error", "a matrix is an array of rows")
    if len({len(row) for row in value}) > 1:
        raise NodeError("type_error", "the rows of a matrix are equally long")
    return value


def _matrix_product(expression: ir.MatrixProduct, scope: Scope) -> Evaluate:
    left, right = compile_expression(expression.left, scope), compile_expression(expression.right, scope)

    is_charged = scope.is_charged(ir.MatrixProduct)

    def product(frame: Frame) -> list[list[Any]]:
        first, second = left(frame), right(frame)
        rows, columns = _rows(first), list(zip(*_rows(second), strict=True))
        if rows and len(rows[0]) != len(second):
            raise NodeError("type_error", f"{len(rows[0])} columns cannot meet {len(second)} rows")
        if is_charged:
            frame[METER].spend(len(rows) * len(columns) * len(second))
        return [[_sum(map(multiply, row, column)) for column in columns] for row in rows]

    return product


TRANSFORMS: Final[dict[type[ir.TypedExpression], Compiler]] = {
    ir.Quantifier: _quantifier,
    ir.MapOver: _map_over,
    ir.Filter: _filter,
    ir.Reduce: _reduce,
    ir.Aggregate: _aggregate,
    ir.GroupBy: _group_by,
    ir.MatrixProduct: _matrix_product,
}

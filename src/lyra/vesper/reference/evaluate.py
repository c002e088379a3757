"""The reference evaluator of expressions: a walk over the tree, with variables in a dict.

It reads like the rules: no expression is prepared, specialised or cached. `Unjudged` is raised for what the host did
not supply; it is a type error for everything but contracts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lyra.vesper import ir
from lyra.vesper.charges import is_charged
from lyra.vesper.reference.functions import call_function, length, round_to
from lyra.vesper.reference.values import (
    arithmetic,
    equal,
    is_number,
    kind,
    less,
    negate,
    parts,
    read,
    round_fraction,
    sort_set,
    text,
    type_error,
)
from lyra.vesper.values.limits import ELEMENT_BYTES, TEXT_MAX
from lyra.vesper.values.outcome import Execution, NodeError
from lyra.vesper.values.types import ANY

Variables = Mapping[str, Any]


class Unjudged(NodeError):
    def __init__(self, message: str) -> None:
        super().__init__("type_error", message)


class StepMeter:
    """The execution, and what is left of its limits and `old` values."""

    def __init__(self, execution: Execution, limits: ir.NodeLimits) -> None:
        self.execution = execution
        self.steps = limits.steps
        self.deadline = execution.monotonic() + limits.time_s
        self.memory = limits.memory_mb * 1024 * 1024
        self.olds: list[Any] = []
        self.is_in_loop = False

    @contextmanager
    def rounds(self, *, is_in_loop: bool = True) -> Iterator[None]:
        """Charge what is done inside as the rounds of a loop."""
        kept, self.is_in_loop = self.is_in_loop, is_in_loop
        try:
            yield
        finally:
            self.is_in_loop = kept

    def charge(self, part: ir.Step | ir.TypedExpression, count: int) -> None:
        if is_charged(type(part), in_loop=self.is_in_loop):
            self.spend(count)

    def spend(self, count: int) -> None:
        self.steps -= count
        if self.steps < 0:
            raise NodeError("resource_limit", "too many steps")
        if self.execution.monotonic() > self.deadline:
            raise NodeError("timeout", "too much time")


def is_true(expression: ir.TypedExpression, variables: Variables, budget: StepMeter) -> bool:
    """Return a condition: null is false, and only booleans are conditions."""
    value = evaluate(expression, variables, budget)
    if value is None or isinstance(value, bool):
        return value is True
    raise type_error("not a condition")


def elements_of(part: Any, collection: Any, budget: StepMeter) -> list[Any]:
    """Return the elements that a part goes over, paid for."""
    if isinstance(collection, frozenset):
        collection = sort_set(collection)
    if not isinstance(collection, list):
        raise type_error("not a collection")
    budget.charge(part, len(collection))
    return collection


def _elements(part: Any, variables: Variables, budget: StepMeter) -> list[Any]:
    return elements_of(part, evaluate(part.collection, variables, budget), budget)


def evaluate(expression: ir.TypedExpression, variables: Variables, budget: StepMeter) -> Any:
    def value_of(part: ir.TypedExpression, more: Variables | None = None) -> Any:
        return evaluate(part, {**variables, **more} if more else variables, budget)

    match expression:
        case ir.Constant():
            return expression.value
        case ir.NodeVariable():
            return _name(expression.name, variables)
        case ir.FieldOf():
            return _field(value_of(expression.target), expression.name)
        case ir.Projection():
            target = value_of(expression.target)
            if target is not None and not isinstance(target, list):
                raise type_error("not an array")
            return _field(target, expression.name)
        case ir.ItemOf():
            return _item(value_of(expression.target), value_of(expression.index))
        case ir.Length():
            return length(value_of(expression.target))
        case ir.Negate():
            return negate(value_of(expression.operand))
        case ir.Not():
            return not is_true(expression.operand, variables, budget)
        case ir.Arithmetic():
            result = arithmetic(expression.operator, value_of(expression.left), value_of(expression.right))
            return _short(result, budget) if isinstance(result, str) else result
        case ir.Rounded():
            return _evaluate_rounding(expression, variables, budget)
        case ir.Compare():
            return _compare(expression.operator, value_of(expression.left), value_of(expression.right))
        case ir.Membership():
            return _is_member(value_of(expression.item), value_of(expression.collection))
        case ir.IsNull():
            return value_of(expression.operand) is None
        case ir.Logic():
            is_left = is_true(expression.left, variables, budget)
            is_decided = is_left if expression.operator == "or" else not is_left
            return expression.operator != "and" if is_decided else is_true(expression.right, variables, budget)
        case ir.Quantifier():
            return _quantifier(expression, variables, budget)
        case ir.Aggregate():
            return aggregate(expression.function, _elements(expression, variables, budget))
        case ir.FunctionCall():
            return call_function(expression, [value_of(part) for part in expression.arguments], budget)
        case ir.Conditional():
            is_then = is_true(expression.condition, variables, budget)
            return value_of(expression.then if is_then else expression.otherwise)
        case ir.Coalesce():
            return next((value for part in expression.operands if (value := value_of(part)) is not None), None)
        case ir.HostCall():
            return _ask(expression.name, expression.arguments, variables, budget)
        case ir.Old():
            return _recall(budget.olds[expression.slot])
        case ir.ListOf():
            return [value_of(item) for item in expression.items]
        case ir.MapOf():
            return {name: value_of(item) for name, item in expression.entries}
        case ir.TemplateText():
            texts = [part if isinstance(part, str) else text(value_of(part)) for part in expression.parts]
            return _short("".join(texts), budget)
        case ir.MapOver():
            return _map(expression, variables, budget)
        case ir.Filter():
            elements = _elements(expression, variables, budget)
            with budget.rounds():
                kept = [is_true(expression.body, {**variables, expression.name: item}, budget) for item in elements]
            return [item for item, is_kept in zip(elements, kept, strict=True) if is_kept]
        case ir.Reduce():
            elements = _elements(expression, variables, budget)
            total = value_of(expression.initial)
            with budget.rounds():
                for element in elements:
                    total = value_of(expression.body, {expression.name: element, expression.accumulator: total})
            return total
        case ir.GroupBy():
            return _group_by(expression, variables, budget)
        case ir.MatrixProduct():
            return _matrix_product(expression, value_of(expression.left), value_of(expression.right), budget)
    raise AssertionError(expression)


def _short(result: str, budget: StepMeter) -> str:
    if len(result) > min(TEXT_MAX, budget.memory):
        raise NodeError("resource_limit", "the text is too long")
    return result


def _map(expression: ir.MapOver, variables: Variables, budget: StepMeter) -> list[Any]:
    """Return the array, if it never needs more memory than allowed."""
    results: list[Any] = []
    size = 0
    elements = _elements(expression, variables, budget)
    with budget.rounds():
        for element in elements:
            result = evaluate(expression.body, {**variables, expression.name: element}, budget)
            size += ELEMENT_BYTES + (len(result) if isinstance(result, str) else 0)
            if size > budget.memory:
                raise NodeError("resource_limit", "the array takes too much memory")
            results.append(result)
    return results


def _name(name: str, variables: Variables) -> Any:
    if name not in variables:
        raise Unjudged(f"no {name}")
    return _recall(variables[name])


def _recall(value: Any) -> Any:
    """Return a value that was kept, or raise the error that was kept in its place."""
    if isinstance(value, NodeError):
        raise value
    return value


def _field(target: Any, name: str) -> Any:
    match kind(target):
        case "null":
            return None
        case "map":
            return target.get(name)
        case "list":
            return [_field(item, name) for item in target]
    raise type_error("no fields")


def _item(target: Any, index: Any) -> Any:
    if target is None:
        return None
    if isinstance(target, list) and isinstance(index, int) and not isinstance(index, bool):
        return target[index] if 0 <= index < len(target) else None
    if isinstance(target, dict) and isinstance(index, str):
        return target.get(index)
    raise type_error("no such element")


def _evaluate_rounding(expression: ir.Rounded, variables: Variables, budget: StepMeter) -> Any:
    operand = expression.operand
    if isinstance(operand, ir.Arithmetic) and operand.operator == "/":
        left, right = evaluate(operand.left, variables, budget), evaluate(operand.right, variables, budget)
        if not is_number(left) or not is_number(right):
            raise type_error("/ needs numbers")
        if right == 0:
            raise NodeError("division_by_zero", "division by zero")
        return round_fraction(parts(left)[0] / parts(right)[0], expression.scale, expression.rounding)
    return round_to(evaluate(operand, variables, budget), expression.scale, expression.rounding)


def _compare(operator: str, left: Any, right: Any) -> bool:
    match operator:
        case "==":
            return equal(left, right)
        case "!=":
            return not equal(left, right)
    if left is None or right is None:
        return False
    match operator:
        case "<":
            return less(left, right)
        case ">":
            return less(right, left)
        case "<=":
            return not less(right, left)
        case ">=":
            return not less(left, right)
    raise AssertionError(operator)


def _is_member(item: Any, collection: Any) -> bool:
    match kind(collection):
        case "null":
            return False
        case "list" | "set":
            return any(equal(item, element) for element in collection)
        case "map":
            return any(equal(item, key) for key in collection)
        case "string" if isinstance(item, str):
            return item in collection
    raise type_error("cannot be a member")


def _quantifier(expression: ir.Quantifier, variables: Variables, budget: StepMeter) -> bool:
    elements = _elements(expression, variables, budget)
    with budget.rounds():
        for element in elements:
            holds = is_true(expression.body, {**variables, expression.name: element}, budget)
            if expression.kind == "forall" and not holds:
                return False
            if expression.kind == "exists" and holds:
                return True
    return expression.kind == "forall"


def aggregate(function: str, elements: list[Any]) -> Any:
    values = [element for element in elements if element is not None]
    match function:
        case "count":
            return len(elements)
        case "sum":
            total: Any = 0
            for value in values:
                if not is_number(value):
                    raise type_error("SUM needs numbers")
                total = arithmetic("+", total, value)
            return total
        case "avg":
            return arithmetic("/", aggregate("sum", values), len(values)) if values else None
        case "min" | "max":
            return _extreme(function, values)
    raise AssertionError(function)


def _extreme(function: str, values: list[Any]) -> Any:
    best = None
    for value in values:
        less(value, value)  # of a kind that has an order
        if best is None or (less(value, best) if function == "min" else less(best, value)):
            best = value
    return best


def _group_by(expression: ir.GroupBy, variables: Variables, budget: StepMeter) -> Any:
    def value_of(part: ir.TypedExpression, element: Any) -> Any:
        with budget.rounds():
            return evaluate(part, {**variables, expression.name: element}, budget)

    elements = _elements(expression, variables, budget)
    groups: list[tuple[list[Any], list[Any]]] = [] if expression.keys else [([], elements)]
    if expression.keys:
        for element in elements:
            key = [value_of(part, element) for _, part in expression.keys]
            members = next((members for other, members in groups if equal(other, key)), None)
            if members is None:
                groups.append((key, [element]))
            else:
                members.append(element)
    rows = []
    for key, members in groups:
        row = {name: value for (name, _), value in zip(expression.keys, key, strict=True)}
        for aggregation in expression.aggregations:
            operand = aggregation.operand
            values = members if operand is None else [value_of(operand, member) for member in members]
            row[aggregation.output] = aggregate(aggregation.function, values)
        if not expression.aggregations:
            row["items"] = members
        rows.append(row)
    return rows if expression.keys else rows[0]


def _matrix_product(part: ir.MatrixProduct, left: Any, right: Any, budget: StepMeter) -> list[list[Any]]:
    for matrix in (left, right):
        if not isinstance(matrix, list) or not all(isinstance(row, list) for row in matrix):
            raise type_error("not a matrix")
        if any(len(row) != len(matrix[0]) for row in matrix):
            raise type_error("rows of unequal length")
    if left and len(left[0]) != len(right):
        raise type_error("unequal sizes")
    width = len(right[0]) if right else 0
    budget.charge(part, len(left) * width * len(right))
    result = []
    for row in left:
        sums: list[Any] = []
        for column in range(width):
            total: Any = 0
            for index, number in enumerate(row):
                total = arithmetic("+", total, arithmetic("*", number, right[index][column]))
            sums.append(total)
        result.append(sums)
    return result


def _ask(name: str, arguments: tuple[ir.TypedExpression, ...], variables: Variables, budget: StepMeter) -> Any:
    predicate = budget.execution.predicates.get(name)
    if predicate is None:
        raise Unjudged(f"no predicate {name}")
    values = [evaluate(argument, variables, budget) for argument in arguments]
    try:
        return read(ANY, predicate(*values))
    except Exception as error:  # noqa: BLE001 - the host's code may raise anything
        raise type_error(f"the predicate {name} failed: {type(error).__name__}") from None

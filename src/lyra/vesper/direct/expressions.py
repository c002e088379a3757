"""Compiles expressions of the IR to closures over a frame.

`compile_expression(expression, scope)` gives a function that takes a frame and returns the value, or raises a
NodeError. Each kind of expression has one compiler in a table; transforms of collections are in `steps`. Operands
that are plain integers or decimals take a short way through the operators; all other cases are left to `numbers`. The
built-in functions are in `functions` and `times`. The current time is the execution's, so a node sees one time from its
first step to its last.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from lyra.vesper import ir
from lyra.vesper.direct.coercion import reader
from lyra.vesper.direct.frames import EXECUTION, MISSING, Evaluate, Frame, NotSupplied, Scope
from lyra.vesper.direct.functions import compile_call, length_of
from lyra.vesper.direct.numbers import (
    OPERATIONS,
    ORDERS,
    are_comparable,
    contains,
    equal,
    kind_of,
    negate,
    number_text,
    overflow,
    round_number,
    round_quotient,
)
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.types import ANY, INTEGER_MAX, INTEGER_MIN

Compiler = Callable[[Any, Scope], Evaluate]
_ALWAYS_BOOLEAN: Final = (ir.Compare, ir.Membership, ir.IsNull, ir.Logic, ir.Not, ir.Quantifier)


def compile_expression(expression: ir.TypedExpression, scope: Scope) -> Evaluate:
    return COMPILERS[type(expression)](expression, scope)


def compile_condition(expression: ir.TypedExpression, scope: Scope) -> Callable[[Frame], bool]:
    """Return the value as a condition: null is false, anything but a boolean a type error."""
    evaluate = compile_expression(expression, scope)
    return evaluate if type(expression) in _ALWAYS_BOOLEAN else condition(evaluate)


def condition(evaluate: Evaluate) -> Callable[[Frame], bool]:
    """Return the function that reads a value as a condition."""

    def decide(frame: Frame) -> bool:
        value = evaluate(frame)
        if value is True:
            return True
        if value is False or value is None:
            return False
        raise NodeError("type_error", f"{kind_of(value)} is not a condition")

    return decide


# ---------------------------------------------------------------- values and names


def _constant(expression: ir.Constant, scope: Scope) -> Evaluate:  # noqa: ARG001 (one signature)
    value = expression.value
    return lambda _: value


def _name(expression: ir.NodeVariable, scope: Scope) -> Evaluate:
    slot = scope.slot(expression.name)
    name = expression.name
    if slot is None:

        def raise_undefined(_: Frame) -> Any:
            raise NotSupplied(f"{name} is not defined")

        return raise_undefined
    if slot not in scope.guarded:
        return lambda frame: frame[slot]

    def read(frame: Frame) -> Any:
        value = frame[slot]
        if value is MISSING:
            return None
        if isinstance(value, NodeError):  # the reason why an ambient object is not there
            raise value
        return value

    return read


def field_of(value: Any, name: str) -> Any:
    if type(value) is dict:
        return value.get(name)
    if value is None:
        return None
    if type(value) is list:
        return [field_of(item, name) for item in value]
    raise NodeError("type_error", f"{kind_of(value)} has no field {name}")


def _field(expression: ir.FieldOf, scope: Scope) -> Evaluate:
    target, name = compile_expression(expression.target, scope), expression.name

    def read(frame: Frame) -> Any:
        value = target(frame)
        return value.get(name) if type(value) is dict else field_of(value, name)

    return read


def _project(expression: ir.Projection, scope: Scope) -> Evaluate:
    target, name = compile_expression(expression.target, scope), expression.name

    def project(frame: Frame) -> Any:
        value = target(frame)
        if value is None:
            return None
        if type(value) is not list:
            raise NodeError("type_error", f"{kind_of(value)} is not an array")
        return [item.get(name) if type(item) is dict else field_of(item, name) for item in value]

    return project


def _item(expression: ir.ItemOf, scope: Scope) -> Evaluate:
    target, index = compile_expression(expression.target, scope), compile_expression(expression.index, scope)

    def item(frame: Frame) -> Any:
        value, key = target(frame), index(frame)
        if value is None:
            return None
        if type(value) is list and type(key) is int:
            return value[key] if 0 <= key < len(value) else None
        if type(value) is dict and type(key) is str:
            return value.get(key)
        raise NodeError("type_error", f"{kind_of(value)} has no element of {kind_of(key)}")

    return item


def _length(expression: ir.Length, scope: Scope) -> Evaluate:
    target = compile_expression(expression.target, scope)
    return lambda frame: length_of(target(frame))


def _list(expression: ir.ListOf, scope: Scope) -> Evaluate:
    items = [compile_expression(item, scope) for item in expression.items]
    return lambda frame: [item(frame) for item in items]


def _map(expression: ir.MapOf, scope: Scope) -> Evaluate:
    entries = [(name, compile_expression(value, scope)) for name, value in expression.entries]
    return lambda frame: {name: value(frame) for name, value in entries}


def text_of(value: Any) -> str:
    """Return a value as a template shows it."""
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    match value:
        case str():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return number_text(value)
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    raise NodeError("type_error", f"a template cannot show {kind_of(value)}")


def _text(expression: ir.TemplateText, scope: Scope) -> Evaluate:
    text_max = scope.text_max
    parts = [
        (part, None) if isinstance(part, str) else ("", compile_expression(part, scope)) for part in expression.parts
    ]

    def join(frame: Frame) -> str:
        texts = [text if evaluate is None else text_of(evaluate(frame)) for text, evaluate in parts]
        if sum(map(len, texts)) > text_max:
            raise NodeError("resource_limit", "the text is too long")
        return "".join(texts)

    return join


def _old(expression: ir.Old, scope: Scope) -> Evaluate:
    slot = scope.slot(old_name(expression.slot))
    assert slot is not None

    def recall(frame: Frame) -> Any:
        value = frame[slot]
        if isinstance(value, NodeError):
            raise value
        return value

    return recall


def old_name(slot: int) -> str:
    """Return the name, impossible in a file, under which a scope knows the slot of an `old`."""
    return f"old({slot})"


# ---------------------------------------------------------------- operators


def _negate(expression: ir.Negate, scope: Scope) -> Evaluate:
    operand = compile_expression(expression.operand, scope)
    return lambda frame: negate(operand(frame))


def _not(expression: ir.Not, scope: Scope) -> Evaluate:
    operand = compile_condition(expression.operand, scope)
    return lambda frame: not operand(frame)


def _find_plain_slot(expression: ir.TypedExpression, scope: Scope) -> int | None:
    """Return the slot of a variable that surely has a value and is read without a check."""
    slot = scope.slot(expression.name) if isinstance(expression, ir.NodeVariable) else None
    return None if slot in scope.guarded else slot


def _integer_constant(expression: ir.TypedExpression) -> int | None:
    value = expression.value if isinstance(expression, ir.Constant) else None
    return value if type(value) is int else None


def _add_slots(first_slot: int, second_slot: int, text_max: int) -> Evaluate:
    add = OPERATIONS["+"]

    def evaluate(frame: Frame) -> Any:
        first, second = frame[first_slot], frame[second_slot]
        if type(first) is int and type(second) is int:
            total = first + second
            if INTEGER_MIN <= total <= INTEGER_MAX:
                return total
            raise overflow()
        if type(first) is str and type(second) is str:
            return _join_texts(first, second, text_max)
        return add(first, second)

    return evaluate


def _join_texts(first: str, second: str, text_max: int) -> str:
    if len(first) + len(second) > text_max:
        raise NodeError("resource_limit", "the text is too long")
    return first + second


def _add(left: Evaluate, right: Evaluate, text_max: int) -> Evaluate:
    add = OPERATIONS["+"]

    def evaluate(frame: Frame) -> Any:
        first, second = left(frame), right(frame)
        if type(first) is int and type(second) is int:
            total = first + second
            if INTEGER_MIN <= total <= INTEGER_MAX:
                return total
            raise overflow()
        if type(first) is str and type(second) is str:
            return _join_texts(first, second, text_max)
        return add(first, second)

    return evaluate


def _arithmetic(expression: ir.Arithmetic, scope: Scope) -> Evaluate:
    slots = _find_plain_slot(expression.left, scope), _find_plain_slot(expression.right, scope)
    if expression.operator == "+" and slots[0] is not None and slots[1] is not None:
        return _add_slots(slots[0], slots[1], scope.text_max)
    left, right = compile_expression(expression.left, scope), compile_expression(expression.right, scope)
    if expression.operator == "+":
        return _add(left, right, scope.text_max)
    operation = OPERATIONS[expression.operator]
    if slots[0] is not None:
        slot = slots[0]
        return lambda frame: operation(frame[slot], right(frame))
    return lambda frame: operation(left(frame), right(frame))


def _compile_rounding(expression: ir.Rounded, scope: Scope) -> Evaluate:
    scale, rounding, operand = expression.scale, expression.rounding, expression.operand
    if isinstance(operand, ir.Arithmetic) and operand.operator == "/":
        left, right = compile_expression(operand.left, scope), compile_expression(operand.right, scope)
        return lambda frame: round_quotient(left(frame), right(frame), scale, rounding)
    value = compile_expression(operand, scope)
    return lambda frame: round_number(value(frame), scale, rounding)


def _compare(expression: ir.Compare, scope: Scope) -> Evaluate:
    left, right = compile_expression(expression.left, scope), compile_expression(expression.right, scope)
    if expression.operator == "==":
        return lambda frame: equal(left(frame), right(frame))
    if expression.operator == "!=":
        return lambda frame: not equal(left(frame), right(frame))
    order = ORDERS[expression.operator]
    slot, bound = _find_plain_slot(expression.left, scope), _integer_constant(expression.right)
    if slot is not None and bound is not None:
        decimal_bound = Decimal(bound)

        def compare_with_bound(frame: Frame) -> bool:
            first = frame[slot]
            if type(first) is int:
                return order(first, bound)
            if type(first) is Decimal:
                return order(first, decimal_bound)
            return order(first, bound) if are_comparable(first, bound) else False

        return compare_with_bound

    def compare(frame: Frame) -> bool:
        first, second = left(frame), right(frame)
        kind = type(first)
        if (kind is type(second) and (kind is int or kind is Decimal)) or are_comparable(first, second):
            return order(first, second)
        return False

    return compare


def _membership(expression: ir.Membership, scope: Scope) -> Evaluate:
    item, collection = compile_expression(expression.item, scope), compile_expression(expression.collection, scope)

    def is_member(frame: Frame) -> bool:
        value = item(frame)
        return contains(collection(frame), value)

    return is_member


def _is_null(expression: ir.IsNull, scope: Scope) -> Evaluate:
    operand = compile_expression(expression.operand, scope)
    return lambda frame: operand(frame) is None


def _logic(expression: ir.Logic, scope: Scope) -> Evaluate:
    left = compile_condition(expression.left, scope)
    right = compile_condition(expression.right, scope)
    match expression.operator:
        case "and":
            return lambda frame: left(frame) and right(frame)
        case "or":
            return lambda frame: left(frame) or right(frame)
        case "implies":
            return lambda frame: not left(frame) or right(frame)
    raise AssertionError(expression.operator)


def _host(expression: ir.HostCall, scope: Scope) -> Evaluate:
    name = expression.name
    arguments = [compile_expression(argument, scope) for argument in expression.arguments]
    read_anything = reader(ANY)

    def ask(frame: Frame) -> Any:
        predicate = frame[EXECUTION].predicates.get(name)
        if predicate is None:
            raise NotSupplied(f"no predicate {name} is registered")
        values = [argument(frame) for argument in arguments]
        try:
            return read_anything(predicate(*values))
        except Exception as error:  # noqa: BLE001 - the host's code may raise anything
            raise NodeError("type_error", f"the predicate {name} failed: {type(error).__name__}") from None

    return ask


COMPILERS: Final[dict[type[ir.TypedExpression], Compiler]] = {
    ir.Constant: _constant,
    ir.NodeVariable: _name,
    ir.FieldOf: _field,
    ir.Projection: _project,
    ir.ItemOf: _item,
    ir.Length: _length,
    ir.ListOf: _list,
    ir.MapOf: _map,
    ir.TemplateText: _text,
    ir.Old: _old,
    ir.Negate: _negate,
    ir.Not: _not,
    ir.Arithmetic: _arithmetic,
    ir.Rounded: _compile_rounding,
    ir.Compare: _compare,
    ir.Membership: _membership,
    ir.IsNull: _is_null,
    ir.Logic: _logic,
    ir.HostCall: _host,
}


# ---------------------------------------------------------------- functions


def _conditional(expression: ir.Conditional, scope: Scope) -> Evaluate:
    decide = compile_condition(expression.condition, scope)
    then, otherwise = compile_expression(expression.then, scope), compile_expression(expression.otherwise, scope)
    return lambda frame: then(frame) if decide(frame) else otherwise(frame)


def _coalesce(expression: ir.Coalesce, scope: Scope) -> Evaluate:
    operands = [compile_expression(operand, scope) for operand in expression.operands]

    def choose(frame: Frame) -> Any:
        for operand in operands:
            value = operand(frame)
            if value is not None:
                return value
        return None

    return choose


def _call(expression: ir.FunctionCall, scope: Scope) -> Evaluate:
    arguments = [compile_expression(argument, scope) for argument in expression.arguments]
    return compile_call(expression.function, arguments, scope)


FUNCTIONS: Final[dict[type[ir.TypedExpression], Compiler]] = {
    ir.FunctionCall: _call,
    ir.Conditional: _conditional,
    ir.Coalesce: _coalesce,
}

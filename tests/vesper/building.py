"""Short names for building programs by hand in tests."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from typing import Any

from lyra.vesper import ir
from lyra.vesper.ir import (
    Condition,
    Contract,
    ErrorAnswer,
    NodeInput,
    NodeOutput,
    NodeProgram,
    ReturnStep,
    Step,
)
from lyra.vesper.values.outcome import Execution
from lyra.vesper.values.types import ANY, BOOLEAN, DECIMAL, INTEGER, STRING, ValueType

NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
EXECUTION = Execution(now=NOW, trace_id="trace")
_numbers = count()


def lit(value: Any) -> ir.TypedExpression:
    """A constant; lists and maps are written out, expressions are left as they are."""
    if isinstance(value, ir.TypedExpression):
        return value
    if isinstance(value, list):
        return ir.ListOf(type=ANY, items=tuple(map(lit, value)))
    if isinstance(value, dict):
        return ir.MapOf(type=ANY, entries=tuple((key, lit(item)) for key, item in value.items()))
    kinds: dict[type, ValueType] = {bool: BOOLEAN, int: INTEGER, Decimal: DECIMAL, str: STRING}
    return ir.Constant(type=kinds.get(type(value), ANY), value=value)


def dec(text: str) -> ir.TypedExpression:
    return lit(Decimal(text))


def name(text: str, kind: ValueType = ANY) -> ir.TypedExpression:
    return ir.NodeVariable(type=kind, name=text)


def arith(left: Any, operator: str, right: Any) -> ir.TypedExpression:
    return ir.Arithmetic(type=ANY, operator=operator, left=lit(left), right=lit(right))


def comp(left: Any, operator: str, right: Any) -> ir.TypedExpression:
    return ir.Compare(type=BOOLEAN, operator=operator, left=lit(left), right=lit(right))


def logic(left: Any, operator: str, right: Any) -> ir.TypedExpression:
    return ir.Logic(type=BOOLEAN, operator=operator, left=lit(left), right=lit(right))


def call(function: str, *arguments: Any) -> ir.TypedExpression:
    return ir.FunctionCall(type=ANY, function=function, arguments=tuple(map(lit, arguments)))


def check(expression: Any, text: str = "check") -> Condition:
    return Condition(text, lit(expression))


def contract(expression: Any, text: str = "contract") -> Contract:
    return Contract(text, lit(expression))


def fails(code: str, **fields: Any) -> ErrorAnswer:
    return ErrorAnswer(lit(code), tuple((key, lit(value)) for key, value in fields.items()))


def give(**fields: Any) -> ReturnStep:
    return ReturnStep(name="return", success=tuple((key, lit(value)) for key, value in fields.items()))


def node(
    *steps: Step,
    inputs: tuple[NodeInput, ...] = (),
    success: tuple[NodeOutput, ...] = (NodeOutput("result", ANY),),
    error: tuple[NodeOutput, ...] = (),
    **more: Any,
) -> NodeProgram:
    """A program; each has a digest of its own."""
    number = next(_numbers)
    return NodeProgram(
        node_id=f"node{number}_v1",
        kind="function",
        intent="test",
        digest=f"digest{number}",
        inputs=inputs,
        success=success,
        error=error,
        steps=steps,
        **more,
    )

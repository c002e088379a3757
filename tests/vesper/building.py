"""Short names for building programs by hand in tests."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from typing import Any

from lyra.vesper.ir import expressions as ir
from lyra.vesper.ir.program import Check, Contract, ErrorValue, Input, Output, Program, Return, Step
from lyra.vesper.values.execution import Execution
from lyra.vesper.values.types import ANY, BOOLEAN, DECIMAL, INTEGER, STRING, Type

NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
EXECUTION = Execution(now=NOW, trace_id="trace")
_numbers = count()


def lit(value: Any) -> ir.Expression:
    """A constant; lists and maps are written out, expressions are left as they are."""
    if isinstance(value, ir.Expression):
        return value
    if isinstance(value, list):
        return ir.ListOf(type=ANY, items=tuple(map(lit, value)))
    if isinstance(value, dict):
        return ir.MapOf(type=ANY, entries=tuple((key, lit(item)) for key, item in value.items()))
    kinds: dict[type, Type] = {bool: BOOLEAN, int: INTEGER, Decimal: DECIMAL, str: STRING}
    return ir.Constant(type=kinds.get(type(value), ANY), value=value)


def dec(text: str) -> ir.Expression:
    return lit(Decimal(text))


def name(text: str, kind: Type = ANY) -> ir.Expression:
    return ir.Name(type=kind, name=text)


def arith(left: Any, operator: str, right: Any) -> ir.Expression:
    return ir.Arithmetic(type=ANY, operator=operator, left=lit(left), right=lit(right))


def comp(left: Any, operator: str, right: Any) -> ir.Expression:
    return ir.Compare(type=BOOLEAN, operator=operator, left=lit(left), right=lit(right))


def logic(left: Any, operator: str, right: Any) -> ir.Expression:
    return ir.Logic(type=BOOLEAN, operator=operator, left=lit(left), right=lit(right))


def call(function: str, *arguments: Any) -> ir.Expression:
    return ir.Call(type=ANY, function=function, arguments=tuple(map(lit, arguments)))


def check(expression: Any, text: str = "check") -> Check:
    return Check(text, lit(expression))


def contract(expression: Any, text: str = "contract") -> Contract:
    return Contract(text, lit(expression))


def fails(code: str, **fields: Any) -> ErrorValue:
    return ErrorValue(lit(code), tuple((key, lit(value)) for key, value in fields.items()))


def give(**fields: Any) -> Return:
    return Return(name="return", success=tuple((key, lit(value)) for key, value in fields.items()))


def node(
    *steps: Step,
    inputs: tuple[Input, ...] = (),
    success: tuple[Output, ...] = (Output("result", ANY),),
    error: tuple[Output, ...] = (),
    **more: Any,
) -> Program:
    """A program; each has a digest of its own."""
    number = next(_numbers)
    return Program(
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

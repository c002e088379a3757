"""Programs built by hand, for the tests of the Python path."""

from __future__ import annotations

from decimal import Decimal
from itertools import count
from typing import Any

from lyra.vesper.ir import expressions as ir
from lyra.vesper.ir.program import (
    Assign,
    Branch,
    Check,
    Contract,
    EffectStep,
    ErrorValue,
    ForEach,
    Input,
    Loop,
    Output,
    Program,
    Return,
    Step,
    Validate,
)
from lyra.vesper.values.types import ANY, BOOLEAN, DECIMAL, INTEGER, STRING, Type

_numbers = count()


def const(value: Any) -> ir.Constant:
    kinds: dict[type, Type] = {bool: BOOLEAN, int: INTEGER, str: STRING, Decimal: DECIMAL}
    return ir.Constant(type=kinds.get(type(value), ANY), value=value)


def expr(value: Any) -> ir.Expression:
    return value if isinstance(value, ir.Expression) else const(value)


def var(name: str, kind: Type = ANY) -> ir.Name:
    return ir.Name(type=kind, name=name)


def arith(operator: str, left: Any, right: Any) -> ir.Arithmetic:
    return ir.Arithmetic(type=ANY, operator=operator, left=expr(left), right=expr(right))


def cmp(operator: str, left: Any, right: Any) -> ir.Compare:
    return ir.Compare(type=BOOLEAN, operator=operator, left=expr(left), right=expr(right))


def logic(operator: str, left: Any, right: Any) -> ir.Logic:
    return ir.Logic(type=BOOLEAN, operator=operator, left=expr(left), right=expr(right))


def call(function: str, *arguments: Any) -> ir.Call:
    return ir.Call(type=ANY, function=function, arguments=tuple(map(expr, arguments)))


def host(name: str, *arguments: Any) -> ir.Host:
    return ir.Host(type=ANY, name=name, arguments=tuple(map(expr, arguments)))


def field(target: Any, name: str) -> ir.FieldOf:
    return ir.FieldOf(type=ANY, target=expr(target), name=name)


def text(*parts: Any) -> ir.Text:
    return ir.Text(type=STRING, parts=parts)


def listed(*items: Any) -> ir.ListOf:
    return ir.ListOf(type=ANY, items=tuple(map(expr, items)))


def mapped(**entries: Any) -> ir.MapOf:
    return ir.MapOf(type=ANY, entries=tuple((key, expr(value)) for key, value in entries.items()))


def check(expression: ir.Expression, words: str = "a check") -> Check:
    return Check(words, expression)


def contract(words: str, expression: ir.Expression | None, reason: str = "") -> Contract:
    return Contract(words, expression, reason)


def failure(code: Any, **fields: Any) -> ErrorValue:
    return ErrorValue(expr(code), tuple((key, expr(value)) for key, value in fields.items()))


def assign(target: str, value: Any, **more: Any) -> Assign:
    return Assign(name=f"compute_{target}", target=target, value=expr(value), **more)


def validate(*checks: ir.Expression, error: ErrorValue | None = None, **more: Any) -> Validate:
    return Validate(name="validate", checks=tuple(check(item) for item in checks), failure=error, **more)


def branch(condition: Any, then: tuple[Step, ...], otherwise: tuple[Step, ...] = (), **more: Any) -> Branch:
    return Branch(name="decide", condition=expr(condition), then=then, otherwise=otherwise, **more)


def for_each(collection: Any, variable: str, *steps: Step) -> ForEach:
    return ForEach(name="each_element", collection=expr(collection), variable=variable, steps=steps)


def loop(condition: Any, limit: int, *steps: Step) -> Loop:
    return Loop(name="repeat", condition=expr(condition), max_iterations=limit, steps=steps)


def succeed(**fields: Any) -> Return:
    return Return(name="answer", success=tuple((key, expr(value)) for key, value in fields.items()))


def fail(code: Any, **fields: Any) -> Return:
    return Return(name="refuse", error=failure(code, **fields))


def effect(name: str, kind: str, request: Any, output: str = "", **more: Any) -> EffectStep:
    return EffectStep(
        name=name, kind=kind, capability=f"{kind}.x", request=expr(request), output=output, output_type=ANY, **more
    )


def inputs(**kinds: Type) -> tuple[Input, ...]:
    return tuple(Input(name, kind) for name, kind in kinds.items())


def outputs(**kinds: Type) -> tuple[Output, ...]:
    return tuple(Output(name, kind) for name, kind in kinds.items())


def program(*steps: Step, node_id: str = "example_v1", **more: Any) -> Program:
    number = next(_numbers)
    settings: dict[str, Any] = {
        "kind": "function",
        "intent": "An example",
        "inputs": (),
        "success": (),
        "error": (),
        **more,
    }
    return Program(node_id=node_id, digest=f"digest-{number}", steps=steps, **settings)

"""Programs built by hand, for the tests of the Python path."""

from __future__ import annotations

from decimal import Decimal
from itertools import count
from typing import Any

from lyra.vesper import ir
from lyra.vesper.ir import (
    AssignStep,
    BranchStep,
    Condition,
    Contract,
    EffectStep,
    ErrorAnswer,
    ForEachStep,
    LoopStep,
    NodeInput,
    NodeOutput,
    NodeProgram,
    ReturnStep,
    Step,
    ValidateStep,
)
from lyra.vesper.values.types import ANY, BOOLEAN, DECIMAL, INTEGER, STRING, ValueType

_numbers = count()


def const(value: Any) -> ir.Constant:
    kinds: dict[type, ValueType] = {bool: BOOLEAN, int: INTEGER, str: STRING, Decimal: DECIMAL}
    return ir.Constant(type=kinds.get(type(value), ANY), value=value)


def expr(value: Any) -> ir.TypedExpression:
    return value if isinstance(value, ir.TypedExpression) else const(value)


def var(name: str, kind: ValueType = ANY) -> ir.NodeVariable:
    return ir.NodeVariable(type=kind, name=name)


def arith(operator: str, left: Any, right: Any) -> ir.Arithmetic:
    return ir.Arithmetic(type=ANY, operator=operator, left=expr(left), right=expr(right))


def cmp(operator: str, left: Any, right: Any) -> ir.Compare:
    return ir.Compare(type=BOOLEAN, operator=operator, left=expr(left), right=expr(right))


def logic(operator: str, left: Any, right: Any) -> ir.Logic:
    return ir.Logic(type=BOOLEAN, operator=operator, left=expr(left), right=expr(right))


def call(function: str, *arguments: Any) -> ir.FunctionCall:
    return ir.FunctionCall(type=ANY, function=function, arguments=tuple(map(expr, arguments)))


def host(name: str, *arguments: Any) -> ir.HostCall:
    return ir.HostCall(type=ANY, name=name, arguments=tuple(map(expr, arguments)))


def field(target: Any, name: str) -> ir.FieldOf:
    return ir.FieldOf(type=ANY, target=expr(target), name=name)


def text(*parts: Any) -> ir.TemplateText:
    return ir.TemplateText(type=STRING, parts=parts)


def listed(*items: Any) -> ir.ListOf:
    return ir.ListOf(type=ANY, items=tuple(map(expr, items)))


def mapped(**entries: Any) -> ir.MapOf:
    return ir.MapOf(type=ANY, entries=tuple((key, expr(value)) for key, value in entries.items()))


def check(expression: ir.TypedExpression, words: str = "a check") -> Condition:
    return Condition(words, expression)


def contract(words: str, expression: ir.TypedExpression | None, reason: str = "") -> Contract:
    return Contract(words, expression, reason)


def failure(code: Any, **fields: Any) -> ErrorAnswer:
    return ErrorAnswer(expr(code), tuple((key, expr(value)) for key, value in fields.items()))


def assign(target: str, value: Any, **more: Any) -> AssignStep:
    return AssignStep(name=f"compute_{target}", target=target, value=expr(value), **more)


def validate(*checks: ir.TypedExpression, error: ErrorAnswer | None = None, **more: Any) -> ValidateStep:
    return ValidateStep(name="validate", checks=tuple(check(item) for item in checks), failure=error, **more)


def branch(condition: Any, then: tuple[Step, ...], otherwise: tuple[Step, ...] = (), **more: Any) -> BranchStep:
    return BranchStep(name="decide", condition=expr(condition), then=then, otherwise=otherwise, **more)


def for_each(collection: Any, variable: str, *steps: Step) -> ForEachStep:
    return ForEachStep(name="each_element", collection=expr(collection), variable=variable, steps=steps)


def loop(condition: Any, limit: int, *steps: Step) -> LoopStep:
    return LoopStep(name="repeat", condition=expr(condition), max_iterations=limit, steps=steps)


def succeed(**fields: Any) -> ReturnStep:
    return ReturnStep(name="answer", success=tuple((key, expr(value)) for key, value in fields.items()))


def fail(code: Any, **fields: Any) -> ReturnStep:
    return ReturnStep(name="refuse", error=failure(code, **fields))


def effect(name: str, kind: str, request: Any, output: str = "", **more: Any) -> EffectStep:
    return EffectStep(
        name=name, kind=kind, capability=f"{kind}.x", request=expr(request), output=output, output_type=ANY, **more
    )


def inputs(**kinds: ValueType) -> tuple[NodeInput, ...]:
    return tuple(NodeInput(name, kind) for name, kind in kinds.items())


def outputs(**kinds: ValueType) -> tuple[NodeOutput, ...]:
    return tuple(NodeOutput(name, kind) for name, kind in kinds.items())


def program(*steps: Step, node_id: str = "example_v1", **more: Any) -> NodeProgram:
    number = next(_numbers)
    settings: dict[str, Any] = {
        "kind": "function",
        "intent": "An example",
        "inputs": (),
        "success": (),
        "error": (),
        **more,
    }
    return NodeProgram(node_id=node_id, digest=f"digest-{number}", steps=steps, **settings)

"""Answers of a program on the direct path: success fields, declared errors, and the error rules that give them.

A step that ends the node returns a dict of success fields or a Failure; None means that the flow goes on. Success
fields are evaluated in written order and then coerced in declared order. Rules see the error as `error`, and a rule of
a kind that the host obeys (retry, backoff, circuit_breaker) is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.vesper.direct.coercion import writer, written
from lyra.vesper.direct.expressions import compile_expression, text_of
from lyra.vesper.direct.frames import MISSING, Evaluate, Frame, Scope
from lyra.vesper.direct.walk import assigned_names
from lyra.vesper.ir import ErrorAnswer, ErrorRule, NodeOutput, NodeProgram, TypedExpression
from lyra.vesper.values.outcome import NodeError, NodeFailure
from lyra.vesper.values.types import Nullable

Answer = dict[str, Any] | NodeFailure
CODE_FIELDS: Final = ("error_code", "code")
_ANSWERING: Final = ("map_to", "return_error", "compensate")


def output_writer(output: NodeOutput) -> Callable[[Any], Any]:
    return writer(output.type if output.required else Nullable(output.type))


def incomplete(name: str) -> NodeError:
    return NodeError("incomplete_output", f"the field {name} has no value")


def collect_success(
    outputs: tuple[NodeOutput, ...],
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Gives the function that checks and coerces the fields of a success."""
    declared = [(output.name, output_writer(output)) for output in outputs]
    required = [output.name for output in outputs if output.required]

    def collect(values: dict[str, Any]) -> dict[str, Any]:
        for name in required:
            if name not in values:
                raise incomplete(name)
        return {name: written(name, write, values[name]) for name, write in declared if name in values}

    return collect


def compile_success(
    fields: tuple[tuple[str, TypedExpression], ...], outputs: tuple[NodeOutput, ...], scope: Scope
) -> Callable[[Frame], dict[str, Any]]:
    evaluated = [(name, compile_expression(value, scope)) for name, value in fields]
    collect = collect_success(outputs)
    if len(evaluated) == 1 and [output.name for output in outputs] == [evaluated[0][0]]:
        (name, evaluate), write = evaluated[0], output_writer(outputs[0])
        return lambda frame: {name: written(name, write, evaluate(frame))}
    return lambda frame: collect({name: evaluate(frame) for name, evaluate in evaluated})


def success_of_variables(program: NodeProgram, scope: Scope) -> Callable[[Frame], dict[str, Any]]:
    """The answer of a flow that ends without a return: variables named like success fields."""
    outputs, ambient = program.success, set(program.ambient) - set(assigned_names(program.steps))
    slots = {output.name: None if output.name in ambient else scope.slot(output.name) for output in outputs}
    declared = [(output.name, slots[output.name], output_writer(output), output.required) for output in outputs]

    def gather(frame: Frame) -> dict[str, Any]:
        values = []
        for name, slot, write, required in declared:
            value = MISSING if slot is None else frame[slot]
            if value is not MISSING:
                values.append((name, write, value))
            elif required:
                raise incomplete(name)
        return {name: written(name, write, value) for name, write, value in values}

    return gather


def code_field(program: NodeProgram) -> str:
    """The declared error field that holds the code; empty if there is none."""
    names = {output.name for output in program.error}
    return next((name for name in CODE_FIELDS if name in names), "")


def compile_failure(value: ErrorAnswer, program: NodeProgram, scope: Scope) -> Callable[[Frame], NodeFailure]:
    code = compile_expression(value.code, scope)
    writers = {output.name: writer(Nullable(output.type)) for output in program.error}
    fields: list[tuple[str, Evaluate]] = [(name, compile_expression(part, scope)) for name, part in value.fields]
    declared = [(name, writers.get(name)) for name in dict(value.fields)]
    code_name = code_field(program)

    def fail(frame: Frame) -> NodeFailure:
        text = code(frame)
        if type(text) is not str:
            raise NodeError("type_error", "an error code is a string")
        values = {name: evaluate(frame) for name, evaluate in fields}
        result = {code_name: text} if code_name else {}
        for name, write in declared:
            result[name] = values[name] if write is None else written(name, write, values[name])
        return NodeFailure(text, text_of(values.get("message")), "flow", result)

    return fail


def failure_of(error: NodeError) -> NodeFailure:
    return NodeFailure(error.code, error.message, error.phase, error.fields)


def declared_message(failure: NodeFailure) -> str:
    """The message that the error declares; how Lyra words its own errors decides no contract."""
    return failure.message if "message" in failure.fields else ""


def error_facts(error: NodeError) -> dict[str, Any]:
    """`error` as rules see it: of a failed act its kind and message, of Lyra's own errors the code."""
    kind = getattr(error, "kind", None)
    return error_object(error.code, "") if kind is None else error_object(kind, error.message)


def error_object(code: str | None, message: str | None) -> dict[str, Any]:
    """`error` as contracts see it; without a code, none occurred."""
    return {"occurred": code is not None, "code": code, "message": message, "logged": code is not None}


def matching_rules(rules: tuple[ErrorRule, ...], kinds: tuple[str, ...]) -> list[int]:
    """The numbers of the rules that a path obeys for an error with these names, in order."""
    return [
        number
        for number, rule in enumerate(rules)
        if rule.action in _ANSWERING and (rule.error == "*" or rule.error in kinds)
    ]


def rule_scope(scope: Scope) -> tuple[Scope, int]:
    """A scope in which `error` is the error that a rule is about, and its slot."""
    inner, (slot,) = scope.bind("error")
    return inner, slot

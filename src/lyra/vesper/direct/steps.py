"""Compiles steps that do not act outside the node to closures.

A compiled step takes the frame and returns None, or the answer that ends the node. A step whose guards are not all true
is skipped; on a validation, guards are checks like the others. Steps that act outside, or hold steps that do, are
compiled by `effect_steps`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.vesper.direct.answers import Answer, compile_failure, compile_success
from lyra.vesper.direct.contracts import all_hold
from lyra.vesper.direct.expressions import compile_condition, compile_expression
from lyra.vesper.direct.frames import METER, Frame, Scope
from lyra.vesper.direct.transforms import elements_of
from lyra.vesper.ir import (
    AssignStep,
    BranchStep,
    ForEachStep,
    LoopStep,
    NodeProgram,
    ParallelStep,
    ReturnStep,
    Step,
    ValidateStep,
)
from lyra.vesper.values.outcome import NodeError

RunStep = Callable[[Frame], Answer | None]


def compile_steps(steps: tuple[Step, ...], program: NodeProgram, scope: Scope) -> RunStep:
    """Runs the steps in order, to the first that answers."""
    compiled = [compile_step(step, program, scope) for step in steps]
    if len(compiled) == 1:
        return compiled[0]

    def run(frame: Frame) -> Answer | None:
        for step in compiled:
            answer = step(frame)
            if answer is not None:
                return answer
        return None

    return run


def compile_step(step: Step, program: NodeProgram, scope: Scope) -> RunStep:
    compiled = _compile_guarded(step, program, scope)
    watch = scope.watch
    if watch is None:
        return compiled

    def run(frame: Frame) -> Answer | None:
        scope.tell(watch, step, frame)
        return compiled(frame)

    return run


def _compile_guarded(step: Step, program: NodeProgram, scope: Scope) -> RunStep:
    compiled = _COMPILERS[type(step)](step, program, scope)
    if not step.guards or isinstance(step, ValidateStep):
        return compiled
    is_wanted = all_hold(step.guards, scope)
    return lambda frame: compiled(frame) if is_wanted(frame) else None


def validation(step: ValidateStep, program: NodeProgram, scope: Scope) -> RunStep:
    holds = all_hold((*step.guards, *step.checks), scope)
    if step.failure is not None:
        failure = compile_failure(step.failure, program, scope)
        return lambda frame: None if holds(frame) else failure(frame)
    message = f"{step.name} failed"

    def validate(frame: Frame) -> None:
        if not holds(frame):
            raise NodeError("validation_failed", message)

    return validate


def _assign(step: AssignStep, program: NodeProgram, scope: Scope) -> RunStep:  # noqa: ARG001 (one signature)
    slot, evaluate = scope.names[step.target], compile_expression(step.value, scope)

    def assign(frame: Frame) -> None:
        frame[slot] = evaluate(frame)

    return assign


def _branch(step: BranchStep, program: NodeProgram, scope: Scope) -> RunStep:
    is_true = compile_condition(step.condition, scope)
    then, otherwise = compile_steps(step.then, program, scope), compile_steps(step.otherwise, program, scope)
    return lambda frame: then(frame) if is_true(frame) else otherwise(frame)


def _for_each(step: ForEachStep, program: NodeProgram, scope: Scope) -> RunStep:
    collection = compile_expression(step.collection, scope)
    inner, (slot,) = scope.bind(step.variable)
    body = compile_steps(step.steps, program, inner)

    def iterate(frame: Frame) -> Answer | None:
        for element in elements_of(collection(frame), frame):
            frame[slot] = element
            answer = body(frame)
            if answer is not None:
                return answer
        return None

    return iterate


def loop_limit(step: LoopStep) -> NodeError:
    return NodeError("loop_limit", f"{step.name} went on after {step.max_iterations} rounds")


def _loop(step: LoopStep, program: NodeProgram, scope: Scope) -> RunStep:
    goes_on = compile_condition(step.condition, scope)
    body = compile_steps(step.steps, program, scope)

    def repeat(frame: Frame) -> Answer | None:
        meter = frame[METER]
        rounds = 0
        while goes_on(frame):
            if rounds == step.max_iterations:
                raise loop_limit(step)
            rounds += 1
            meter.spend(1)
            answer = body(frame)
            if answer is not None:
                return answer
        return None

    return repeat


def _parallel(step: ParallelStep, program: NodeProgram, scope: Scope) -> RunStep:
    return compile_steps(step.steps, program, scope)


def _return(step: ReturnStep, program: NodeProgram, scope: Scope) -> RunStep:
    if step.error is not None:
        return compile_failure(step.error, program, scope)
    return compile_success(step.success or (), program.success, scope)


_COMPILERS: Final[dict[type[Step], Callable[[Any, NodeProgram, Scope], RunStep]]] = {
    ValidateStep: validation,
    AssignStep: _assign,
    BranchStep: _branch,
    ForEachStep: _for_each,
    LoopStep: _loop,
    ParallelStep: _parallel,
    ReturnStep: _return,
}

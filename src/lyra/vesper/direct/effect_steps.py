"""Compiles steps that act outside the node to coroutine functions over a frame.

A step evaluates its request, awaits the response and binds it; `effects.request` says how errors, rules and
compensations work together. Steps that hold such steps are coroutines as well, all others stay plain closures. The
steps of a Parallel run at once where the effects can do that; all of them end before the first error counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from copy import copy
from typing import Any, Final

from lyra.vesper import ir
from lyra.vesper.direct.coercion import Misfit, reader
from lyra.vesper.direct.expressions import compile_condition, compile_expression
from lyra.vesper.direct.frames import EFFECTS, METER, Frame, Scope, acts_outside
from lyra.vesper.direct.steps import (
    Answer,
    Judge,
    RunStep,
    all_hold,
    compile_elements,
    compile_failure,
    compile_step,
    error_facts,
    loop_limit,
    matching_rules,
    rule_scope,
)
from lyra.vesper.effects.request import (
    EffectError,
    EffectRequest,
    Effects,
    TransactionBody,
    TransactionEnd,
    error_names,
    failure_code,
    request_key,
    retry_of,
    transact,
)
from lyra.vesper.values.outcome import NodeError, NodeFailure, WrongAnswer, describe_answer
from lyra.vesper.values.types import ANY, describe_fields

RunAsync = Callable[[Frame], Coroutine[Any, Any, Answer | None]]
ObeyRule = Callable[[Frame, NodeError], Awaitable[Answer | None]]


class FailedAct(NodeError):
    """An act outside the node failed. Rules may name its code or its kind."""

    def __init__(self, error: EffectError, effect: str) -> None:
        super().__init__(failure_code(error.kind, effect), error.message, fields=error.fields)
        self.kind = error.kind
        self.names = error_names(error, effect)


def invariant_failed(text: str) -> NodeError:
    return NodeError("invariant_failed", f"does not hold: {text}", phase="invariant")


class EffectRun:
    """The state that the effects of one execution share: who performs them, their numbers, what takes them back."""

    def __init__(self, effects: Effects | None, key: str, invariants: Judge, unverifiable: list[str]) -> None:
        self.effects = effects
        self._key = key
        self._invariants = invariants
        self._unverifiable = unverifiable
        self._calls: dict[str, int] = {}
        self._compensations: list[tuple[RunAsync, Frame]] = []

    async def perform(
        self,
        step: ir.Step,
        kind: str,
        capability: str,
        payload: Any,
        *,
        timeout_s: float | None = None,
        retry: ir.StepRetry | None = None,
    ) -> Any:
        effects, index = self._number_request(step)
        key = request_key(self._key, step.name, index)
        try:
            return await effects.perform(
                EffectRequest(step.name, index, kind, capability, payload, timeout_s, retry, key)
            )
        except EffectError as error:
            raise FailedAct(error, kind) from None

    async def transact(
        self, step: ir.TransactionStep, payload: Any, body: TransactionBody, retry: ir.StepRetry | None
    ) -> TransactionEnd:
        effects, index = self._number_request(step)
        key = request_key(self._key, step.name, index)
        request = EffectRequest(step.name, index, ir.TRANSACTION, step.capability, payload, step.timeout_s, retry, key)
        try:
            return await transact(effects, request, body)
        except EffectError as error:
            raise FailedAct(error, ir.TRANSACTION) from None

    def _number_request(self, step: ir.Step) -> tuple[Effects, int]:
        """Return who performs the request, and its number."""
        if self.effects is None:
            raise NodeError("capability_denied", f"{step.name} acts outside, and the node was given no effects")
        index = self._calls.get(step.name, 0)
        self._calls[step.name] = index + 1
        return self.effects, index

    def within(self, effects: Effects) -> EffectRun:
        """Return a copy for one run of a transaction's steps."""
        inner = copy(self)
        inner.effects, inner._calls, inner._unverifiable = effects, dict(self._calls), list(self._unverifiable)
        return inner

    def take_over(self, inner: EffectRun) -> None:
        """Count what the run that counts has counted."""
        self._calls = inner._calls
        self._unverifiable[:] = inner._unverifiable

    def register(self, compensations: list[RunAsync], frame: Frame) -> None:
        """Keep what takes a completed act back, with the variables as they are now."""
        self._compensations.extend((compensation, list(frame)) for compensation in reversed(compensations))

    async def undo(self) -> None:
        """Run the registered compensations, the latest first; their errors are passed over."""
        while self._compensations:
            await _attempt(*self._compensations.pop())

    def check_invariants(self, frame: Frame) -> None:
        text = self._invariants(frame, self._unverifiable)
        if text is not None:
            raise invariant_failed(text)


async def _attempt(steps: RunAsync, frame: Frame) -> None:
    try:
        await steps(frame)
    except NodeError:
        return


# ---------------------------------------------------------------- steps that hold others


def compile_async_steps(steps: tuple[ir.Step, ...], program: ir.NodeProgram, scope: Scope) -> RunAsync:
    """Return a function that runs the steps in order, up to the first that answers."""
    compiled: list[tuple[RunStep | None, RunAsync | None]] = []
    for step in steps:
        if acts_outside(step):
            compiled.append((None, _compile_async_step(step, program, scope)))
        else:
            compiled.append((compile_step(step, program, scope), None))

    async def run(frame: Frame) -> Answer | None:
        for plain, waiting in compiled:
            if plain is not None:
                answer = plain(frame)
            else:
                assert waiting is not None
                answer = await waiting(frame)
            if answer is not None:
                return answer
        return None

    return run


def _compile_async_step(step: ir.Step, program: ir.NodeProgram, scope: Scope) -> RunAsync:
    compiled = _COMPILERS[type(step)](step, program, scope)
    watch = scope.watch
    if not step.guards and watch is None:
        return compiled
    is_wanted = all_hold(step.guards, scope)

    async def run(frame: Frame) -> Answer | None:
        if watch is not None:
            scope.tell(watch, step, frame)
        return await compiled(frame) if is_wanted(frame) else None

    return run


def _branch(step: ir.BranchStep, program: ir.NodeProgram, scope: Scope) -> RunAsync:
    is_true = compile_condition(step.condition, scope)
    then = compile_async_steps(step.then, program, scope)
    otherwise = compile_async_steps(step.otherwise, program, scope)

    async def run(frame: Frame) -> Answer | None:
        return await (then if is_true(frame) else otherwise)(frame)

    return run


def _for_each(step: ir.ForEachStep, program: ir.NodeProgram, scope: Scope) -> RunAsync:
    elements = compile_elements(step, scope)
    inner, (slot,) = scope.for_rounds().bind(step.variable)
    body = compile_async_steps(step.steps, program, inner)

    async def iterate(frame: Frame) -> Answer | None:
        for element in elements(frame):
            frame[slot] = element
            answer = await body(frame)
            if answer is not None:
                return answer
        return None

    return iterate


def _loop(step: ir.LoopStep, program: ir.NodeProgram, scope: Scope) -> RunAsync:
    is_charged, scope = scope.is_charged(ir.LoopStep), scope.for_rounds()
    goes_on = compile_condition(step.condition, scope)
    body = compile_async_steps(step.steps, program, scope)

    async def repeat(frame: Frame) -> Answer | None:
        rounds = 0
        while goes_on(frame):
            if rounds == step.max_iterations:
                raise loop_limit(step)
            rounds += 1
            if is_charged:
                frame[METER].spend(1)
            answer = await body(frame)
            if answer is not None:
                return answer
        return None

    return repeat


def _parallel(step: ir.ParallelStep, program: ir.NodeProgram, scope: Scope) -> RunAsync:
    parts = [compile_async_steps((part,), program, scope) for part in step.steps]

    async def run(frame: Frame) -> Answer | None:
        together = getattr(frame[EFFECTS].effects, "together", None)
        results: list[Any]
        if together is not None:
            results = await together([part(frame) for part in parts])
        else:
            results = [await _result(part, frame) for part in parts]
        for result in results:
            if isinstance(result, BaseException):
                raise result
            if result is not None:
                answer: Answer = result
                return answer
        return None

    return run


async def _result(part: RunAsync, frame: Frame) -> Any:
    try:
        return await part(frame)
    except NodeError as error:
        return error


# ---------------------------------------------------------------- steps that act


def compile_async_rule(rule: ir.ErrorRule, program: ir.NodeProgram, scope: Scope) -> ObeyRule:
    """Return a function that runs the compensations of a rule and gives its answer, or None where it has none."""
    inner, slot = rule_scope(scope)
    compensation = compile_async_steps(rule.compensation, program, inner.for_compensation())
    answer = compile_failure(rule.answer, program, inner) if rule.answer is not None else None

    async def obey(frame: Frame, error: NodeError) -> Answer | None:
        frame[slot] = error_facts(error)
        if rule.action == "compensate":
            await _attempt(compensation, frame)
            await frame[EFFECTS].undo()
        return None if answer is None else answer(frame)

    return obey


def _apply_rules(
    step: ir.EffectStep | ir.TransactionStep, act: RunAsync, program: ir.NodeProgram, scope: Scope
) -> RunAsync:
    """Return the act, with the step's rules about its errors."""
    rules = [compile_async_rule(rule, program, scope) for rule in step.rules]

    async def run(frame: Frame) -> Answer | None:
        try:
            return await act(frame)
        except NodeError as error:
            for number in matching_rules(step.rules, getattr(error, "names", (error.code,))):
                answer = await rules[number](frame, error)
                if answer is not None:
                    return answer
                break
            raise

    return run


def _response_scope(step: ir.EffectStep, scope: Scope) -> tuple[Scope, list[int]]:
    """Return the scope after the act: the response under its output's name and the name that its kind gives it."""
    usual = "query_result" if step.kind == "db.query" else "response"
    inner, (slot,) = scope.bind(usual)
    outputs = [slot]
    if step.output:
        outputs.append(scope.names[step.output])
    return (scope if step.output == usual else inner), outputs


def _compensations(step: ir.EffectStep | ir.TransactionStep, program: ir.NodeProgram, scope: Scope) -> list[RunAsync]:
    """Return the compiled compensations of a step."""
    return [
        compile_async_steps(rule.compensation, program, rule_scope(scope)[0].for_compensation())
        for rule in step.rules
        if rule.action == "compensate" and rule.compensation
    ]


def _answer_checks(step: ir.EffectStep, scope: Scope) -> Callable[[Frame, Any], Any]:
    """Return what reads an agent's answer in its declared type, and refuses one that breaks a constraint of it."""
    read, expected = reader(step.output_type), describe_fields(step.output_type)
    inner, (slot,) = scope.bind("value")
    conditions = [(check.text, compile_condition(check.expression, inner)) for check in step.checks]

    def check(frame: Frame, response: Any) -> Any:
        try:
            value = frame[slot] = read(response)
        except Misfit:
            raise WrongAnswer(step.name, f"is no {expected}: it is {describe_answer(response)}") from None
        for text, holds in conditions:
            try:
                if holds(frame):
                    continue
            except NodeError:
                pass
            raise WrongAnswer(step.name, f"does not hold: {text}")
        return value

    return check


def _effect(step: ir.EffectStep, program: ir.NodeProgram, scope: Scope) -> RunAsync:
    request = compile_expression(step.request, scope)
    read = reader(ANY)
    retry = retry_of(step, program)
    read_answer = _answer_checks(step, scope)
    inner, slots = _response_scope(step, scope)
    extracts = [(scope.names[name], compile_expression(value, inner)) for name, value in step.extract]
    compensations = _compensations(step, program, scope)

    async def act(frame: Frame) -> None:
        state: EffectRun = frame[EFFECTS]
        payload = request(frame)
        response = await state.perform(step, step.kind, step.capability, payload, timeout_s=step.timeout_s, retry=retry)
        frame[METER].check_time()
        value = read_answer(frame, response) if step.kind == "agent.call" else _read(step, read, response)
        for slot in slots:
            frame[slot] = value
        for slot, extract in extracts:
            frame[slot] = extract(frame)
        state.register(compensations, frame)

    perform = _apply_rules(step, act, program, scope)
    some, none = compile_async_steps(step.found, program, inner), compile_async_steps(step.empty, program, inner)

    async def run(frame: Frame) -> Answer | None:
        answer = await perform(frame)
        if answer is not None:
            return answer
        # The act is complete and its compensation registered: its own rules do not apply to a broken invariant.
        if not scope.in_compensation:
            frame[EFFECTS].check_invariants(frame)
        is_empty = frame[slots[0]] is None or frame[slots[0]] == []
        return await (none if is_empty else some)(frame)

    return run


def _read(step: ir.Step, read: Callable[[Any], Any], response: Any) -> Any:
    try:
        return read(response)
    except Misfit as misfit:
        raise NodeError("type_error", f"{step.name}: {misfit}") from None


def _transaction(step: ir.TransactionStep, program: ir.NodeProgram, scope: Scope) -> RunAsync:
    """Return a function that runs the steps on a copy of the frame, and takes the copy over if they succeed."""
    request, retry = compile_expression(step.request, scope), retry_of(step, program)
    steps, compensations = compile_async_steps(step.steps, program, scope), _compensations(step, program, scope)

    async def attempt(frame: Frame, effects: Effects) -> TransactionEnd:
        inner = frame.copy()
        inner[METER], inner[EFFECTS] = copy(frame[METER]), frame[EFFECTS].within(effects)
        try:
            answer = await steps(inner)
        except NodeError as error:
            return TransactionEnd(False, (inner, error))
        return TransactionEnd(not isinstance(answer, NodeFailure), (inner, answer))

    async def act(frame: Frame) -> Answer | None:
        state: EffectRun = frame[EFFECTS]
        end = await state.transact(step, request(frame), lambda effects: attempt(frame, effects), retry)
        inner, answer = end.result
        state.take_over(inner[EFFECTS])
        inner[EFFECTS] = state
        frame[METER] = inner[METER]
        frame[METER].check_time()
        if isinstance(answer, NodeError):
            raise answer
        if end.commits:
            frame[:] = inner
            state.register(compensations, frame)
        result: Answer | None = answer
        return result

    return _apply_rules(step, act, program, scope)


def _transition(step: ir.TransitionStep, program: ir.NodeProgram, scope: Scope) -> RunAsync:
    machine = next((machine for machine in program.machines if machine.name == step.machine), None)
    retry = retry_of(step, program)
    entity, source, target = (compile_expression(part, scope) for part in (step.entity, step.source, step.target))
    holds = all_hold(step.checks, scope)
    moves = [] if machine is None else machine.moves
    allowed = {(start, end): all_hold((check,), scope) if check is not None else None for start, end, check in moves}
    read = reader(ANY)

    async def run(frame: Frame) -> None:
        state: EffectRun = frame[EFFECTS]
        payload: dict[str, Any] = {
            "machine": step.machine,
            "entity": entity(frame),
            "from": source(frame),
            "to": target(frame),
        }
        edge = payload["from"], payload["to"]
        is_allowed = edge in allowed and holds(frame)
        if is_allowed:
            guard = allowed[edge]
            is_allowed = guard is None or guard(frame)
        if not is_allowed:
            raise NodeError("invalid_transition", f"{step.machine} does not go from {edge[0]} to {edge[1]}")
        if machine is not None:
            payload["initial"] = machine.initial
        response = await state.perform(step, "state.transition", f"state.{step.machine}", payload, retry=retry)
        frame[METER].check_time()
        if step.output:
            frame[scope.names[step.output]] = _read(step, read, response)
        if not scope.in_compensation:
            state.check_invariants(frame)

    return run


_COMPILERS: Final[dict[type[ir.Step], Callable[[Any, ir.NodeProgram, Scope], RunAsync]]] = {
    ir.BranchStep: _branch,
    ir.ForEachStep: _for_each,
    ir.LoopStep: _loop,
    ir.ParallelStep: _parallel,
    ir.EffectStep: _effect,
    ir.TransactionStep: _transaction,
    ir.TransitionStep: _transition,
}

"""Compiles and runs programs on the direct path: `run` for pure ones, `start` for those with effects.

A `DirectProgram` is closures in the order of an execution: it binds and coerces the inputs, judges constraints,
preconditions and invariants, keeps the values of `old`, runs the steps, and judges postconditions and invariants about
the answer. An absent input without a default reads as null, and constraints do not apply to it. An entry failure
first lets the leading validations speak: if one of them fails, its error is the answer. `execute` runs a pure program
and never touches a coroutine; `execute_async` runs one with effects. Nothing here raises for bad inputs: every end of a
node is an Outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any, Final

from lyra.vesper.direct.coercion import Misfit, input_reader, reader
from lyra.vesper.direct.effect_steps import EffectRun, compile_async_rule, compile_async_steps, invariant_failed
from lyra.vesper.direct.expressions import COMPILERS, FUNCTIONS, compile_expression, old_name
from lyra.vesper.direct.frames import (
    EFFECTS,
    EXECUTION,
    METER,
    MISSING,
    Frame,
    Meter,
    NotSupplied,
    Scope,
    Slots,
    StepWatch,
    list_assigned_names,
    names_in,
)
from lyra.vesper.direct.steps import (
    TRANSFORMS,
    Answer,
    Judge,
    all_hold,
    code_field,
    compile_contracts,
    compile_failure,
    compile_steps,
    error_facts,
    error_object,
    failure_of,
    matching_rules,
    read_declared_message,
    rule_scope,
    success_of_variables,
)
from lyra.vesper.effects.compiled_path import CompiledPath
from lyra.vesper.effects.request import Effects
from lyra.vesper.ir import ErrorRule, NodeInput, NodeProgram, ReturnStep, Step, ValidateStep
from lyra.vesper.values.outcome import NOT_CONFIGURED, Execution, NodeError, NodeFailure, Outcome
from lyra.vesper.values.types import ANY, Nullable

COMPILERS.update(TRANSFORMS)
COMPILERS.update(FUNCTIONS)
PATH: Final = "direct"


def _invalid(message: str) -> NodeFailure:
    return NodeFailure("invalid_input", message, "input")


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


class DirectProgram:
    """See the module. Instances hold no state of an execution and may be used by several threads."""

    def __init__(self, program: NodeProgram, watch: StepWatch | None = None) -> None:
        self.program = program
        slots = Slots(program.limits, watch)
        ambient = slots.for_names(program.ambient)
        inputs = slots.for_names(declared.name for declared in program.inputs)
        self._ambient = list(ambient.items())
        entry = Scope(slots, {**ambient, **inputs}, frozenset(ambient.values()))
        self._inputs = [InputReader(declared, entry) for declared in program.inputs]
        self._reads = [(item.name, item.slot, item.read, item.absent) for item in self._inputs]
        self._known = frozenset(item.name for item in self._inputs)
        self._constraints = [
            (item.name, item.slot, item.holds, item.null_is_absent) for item in self._inputs if item.holds is not None
        ]
        flow = self._flow_scope(slots, entry, inputs)
        self._preconditions = compile_contracts(program.preconditions, entry, undefined=frozenset())
        self._compile_olds(slots, entry)
        self._compile_end(slots, entry, flow, frozenset(inputs))
        leading = tuple(takewhile(lambda step: isinstance(step, ValidateStep), program.steps))
        self._leading = compile_steps(leading, program, flow)
        self._success = success_of_variables(program, flow)
        self._rules = [self._compile_rule(rule, flow) for rule in program.rules]
        self._async_rules = [] if program.pure else [compile_async_rule(rule, program, flow) for rule in program.rules]
        self._steps = compile_steps(program.steps if program.pure else (), program, flow)
        self._async_steps = None if program.pure else compile_async_steps(program.steps, program, flow)
        self._needs_meter = slots.is_metered or not program.pure
        self._template: Frame = [None] * slots.count
        for slot in self._unwritten:
            self._template[slot] = MISSING

    # ------------------------------------------------------------ compiling

    def _flow_scope(self, slots: Slots, entry: Scope, inputs: dict[str, int]) -> Scope:
        """Return the scope of the steps. A variable that is named like an input starts with its value."""
        variables = slots.for_names(list_assigned_names((*self.program.steps, *_compensations(self.program))))
        self._copies = [(inputs[name], slot) for name, slot in variables.items() if name in inputs]
        watched = self._list_watched_names()
        self._unwritten = [slot for name, slot in variables.items() if name in watched and name not in inputs]
        guarded = entry.guarded | frozenset(self._unwritten)
        return Scope(slots, {**entry.names, **variables}, guarded)

    def _list_watched_names(self) -> set[str]:
        """Return variables for which it matters whether they were written; all others are null until they are."""
        program = self.program
        watched = {name for item in program.invariants for name in names_in(item.expression)}
        last = program.steps[-1] if program.steps else None
        if not isinstance(last, ReturnStep) or last.guards:
            watched |= {output.name for output in program.success}
        return watched

    def _compile_olds(self, slots: Slots, entry: Scope) -> None:
        self._olds = [(slots.new(), compile_expression(old, entry)) for old in self.program.olds]
        self._old_names = {old_name(number): slot for number, (slot, _) in enumerate(self._olds)}

    def _compile_end(self, slots: Slots, entry: Scope, flow: Scope, inputs: frozenset[str]) -> None:
        """Compile the contracts about the answer, whose fields get slots apart from the variables of the flow."""
        program = self.program
        successes, errors = [o.name for o in program.success], [o.name for o in program.error]
        fields = slots.for_names(dict.fromkeys([*successes, *errors]))
        fallbacks = {name: entry.names.get(name) for name in fields}
        contracts = (*program.postconditions, *program.invariants)
        used = frozenset[str]().union(*(names_in(contract.expression) for contract in contracts))
        self._names_error = "error" in used
        self._fields = [
            (name, slot, fallbacks[name], name in successes) for name, slot in fields.items() if name in used
        ]
        results = slots.for_names(["success", "error"])
        self._result_slots = results["success"], results["error"]
        self._code_field = code_field(program)
        guarded = flow.guarded | frozenset(fields.values()) | frozenset(results.values())
        names = {**entry.names, **fields, **results, **self._old_names}
        undefined = frozenset(successes) - inputs
        self._postconditions = compile_contracts(
            program.postconditions, Scope(slots, names, guarded), undefined=undefined
        )
        self._unwritten += [*fields.values(), *results.values()]
        # Before the answer, a field that is named like an input is the input; at the end, where the answer lacks it.
        self._current = [(name, slot, flow.names[name]) for name, slot in fields.items() if name in inputs]
        later = {name: slot for name, slot in fields.items() if name not in inputs and name not in flow.names}
        self._invariants, self._last_invariants = (
            self._compile_invariants(Scope(slots, {**flow.names, **names, **results}, guarded), inputs)
            for names in (later, fields)
        )
        self._has_end = bool(program.postconditions or program.invariants)
        has_checks = bool(program.preconditions or program.invariants or self._constraints)
        self._has_entry = has_checks or bool(program.olds or program.ambient)

    def _compile_invariants(self, scope: Scope, inputs: frozenset[str]) -> Judge:
        known = inputs | frozenset(self.program.ambient)
        return compile_contracts(self.program.invariants, scope, undefined=frozenset(scope.names) - known, always=True)

    def _compile_rule(self, rule: ErrorRule, flow: Scope) -> Callable[[Frame, NodeError], Answer | None]:
        inner, slot = rule_scope(flow)
        compensate = compile_steps(rule.compensation, self.program, inner) if self.program.pure else None
        answer = compile_failure(rule.answer, self.program, inner) if rule.answer is not None else None

        def obey(frame: Frame, error: NodeError) -> Answer | None:
            frame[slot] = error_facts(error)
            if compensate is not None and rule.action == "compensate":
                with suppress(NodeError):
                    compensate(frame)
            return None if answer is None else answer(frame)

        return obey

    # ------------------------------------------------------------ the entry

    def _bind(self, inputs: Mapping[str, Any], frame: Frame) -> NodeFailure | None:
        """Coerce the inputs into their slots; the failure if they are not valid."""
        if not (type(inputs) is dict or _is_mapping(inputs)):
            return _invalid("inputs are a map of names")
        given = 0
        for name, slot, read, absent in self._reads:
            if name in inputs:
                given += 1
                try:
                    frame[slot] = read(inputs[name])
                except Misfit as misfit:
                    return _invalid(f"{name}: {misfit}")
            elif absent is MISSING:
                return _invalid(f"the input {name} is missing")
            else:
                frame[slot] = absent
        if given != len(inputs):
            unknown = next(name for name in inputs if name not in self._known)
            return _invalid(f"no input is named {unknown!r}")
        for source, target in self._copies:
            frame[target] = frame[source]
        return None

    def _bind_ambient(self, frame: Frame, execution: Execution) -> None:
        read = reader(ANY)
        for name, slot in self._ambient:
            if name not in execution.ambient:
                frame[slot] = NotSupplied(f"{name} is not there")
                continue
            try:
                frame[slot] = read(execution.ambient[name])
            except Misfit as misfit:
                frame[slot] = NodeError("type_error", f"{name}: {misfit}")

    def _entry_failure(self, frame: Frame, unverifiable: list[str]) -> NodeFailure | None:
        """Return why the inputs are refused, if they are."""
        for name, slot, holds, null_is_absent in self._constraints:
            try:
                if (null_is_absent and frame[slot] is None) or holds(frame):
                    continue
            except NodeError:
                pass
            return _invalid(f"{name} breaks a constraint")
        text = self._preconditions(frame, unverifiable)
        if text is not None:
            return NodeFailure("precondition_failed", f"does not hold: {text}", "precondition")
        text = self._invariants(frame, unverifiable)
        return None if text is None else failure_of(invariant_failed(text))

    def _enter(self, inputs: Mapping[str, Any], frame: Frame, unverifiable: list[str]) -> Answer | None:
        """Return the answer of an execution that ends before its first step; else `old` is kept and None is given."""
        invalid = self._bind(inputs, frame)
        if invalid is not None:
            return invalid
        if self._ambient:
            self._bind_ambient(frame, frame[EXECUTION])
        refusal = self._entry_failure(frame, unverifiable)
        if refusal is not None:
            try:
                answer = self._leading(frame)
            except NodeError as error:
                answer = self._handle(error, frame)
            return refusal if answer is None else answer
        for slot, evaluate in self._olds:
            try:
                frame[slot] = snapshot(evaluate(frame))
            except NodeError as error:
                frame[slot] = error
        return None

    def _frame(self, execution: Execution) -> Frame:
        frame = self._template.copy()
        frame[EXECUTION] = execution
        if self._needs_meter:
            frame[METER] = Meter(self.program.limits, execution)
        return frame

    # ------------------------------------------------------------ the end

    def _handle(self, error: NodeError, frame: Frame) -> Answer:
        """Return the answer to an error of the flow, by the node's rules."""
        for number in matching_rules(self.program.rules, getattr(error, "names", (error.code,))):
            try:
                answer = self._rules[number](frame, error)
            except NodeError as second:
                return failure_of(second)
            return failure_of(error) if answer is None else answer
        return failure_of(error)

    def _check_answer(self, answer: Answer, frame: Frame, unverifiable: list[str]) -> Answer:
        """Return the answer, or the failure of a postcondition or invariant about it. None is about a mistake of the
        host program."""
        if isinstance(answer, NodeFailure) and answer.code == NOT_CONFIGURED:
            return answer
        values: dict[str, Any]
        if isinstance(answer, NodeFailure):
            failure: NodeFailure | None = answer
            values = {self._code_field: answer.code, "message": read_declared_message(answer), **answer.fields}
        else:
            failure, values = None, answer
        for name, slot, fallback, is_success_field in self._fields:
            if name in values:
                frame[slot] = values[name]
            elif fallback is not None:
                frame[slot] = frame[fallback]
            elif failure is None or not is_success_field:
                frame[slot] = None
        success, error = self._result_slots
        frame[success] = failure is None
        if self._names_error:
            message = None if failure is None else read_declared_message(failure)
            frame[error] = error_object(None if failure is None else failure.code, message)
        text = self._postconditions(frame, unverifiable)
        if text is not None:
            return NodeFailure("postcondition_failed", f"does not hold: {text}", "postcondition")
        if not self.program.invariants:
            return answer
        for name, slot, fallback in self._current:
            if name not in values:
                frame[slot] = frame[fallback]
        text = self._last_invariants(frame, unverifiable)
        return answer if text is None else failure_of(invariant_failed(text))

    def _outcome(self, answer: Answer, unverifiable: list[str]) -> Outcome:
        if type(answer) is dict:
            return Outcome("success", answer, None, PATH, tuple(unverifiable))
        assert isinstance(answer, NodeFailure)
        return Outcome("error", {}, answer, PATH, tuple(unverifiable))

    # ------------------------------------------------------------ executions

    def execute(self, inputs: Mapping[str, Any], execution: Execution) -> Outcome:
        """Return the outcome of a pure program."""
        frame = self._template.copy()
        frame[EXECUTION] = execution
        if self._needs_meter:
            frame[METER] = Meter(self.program.limits, execution)
        unverifiable: list[str] = []
        answer: Answer | None
        try:
            if self._has_entry:
                answer = self._enter(inputs, frame, unverifiable)
            else:
                answer = self._bind(inputs, frame)
            if answer is None:
                try:
                    answer = self._steps(frame)
                    if answer is None:
                        answer = self._success(frame)
                except NodeError as error:
                    answer = self._handle(error, frame)
                if self._has_end:
                    answer = self._check_answer(answer, frame, unverifiable)
        except (RecursionError, MemoryError):
            answer = NodeFailure("resource_limit", "a value is nested too deeply or too large")
        if type(answer) is dict:
            return Outcome("success", answer, None, PATH, tuple(unverifiable))
        return self._outcome(answer, unverifiable)

    async def execute_async(self, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None) -> Outcome:
        """Return the outcome of a program with effects."""
        frame = self._frame(execution)
        unverifiable: list[str] = []
        assert self._async_steps is not None
        try:
            answer = self._enter(inputs, frame, unverifiable)
            if answer is None:
                key = self._key(inputs, execution)
                state = frame[EFFECTS] = EffectRun(effects, key, self._invariants, unverifiable)
                answer = await self._flow(frame, state)
                judged = self._check_answer(answer, frame, unverifiable) if self._has_end else answer
                if isinstance(judged, NodeFailure) and judged.code == "invariant_failed" and judged is not answer:
                    await state.undo()
                answer = judged
        except (RecursionError, MemoryError):
            answer = NodeFailure("resource_limit", "a value is nested too deeply or too large")
        return self._outcome(answer, unverifiable)

    async def _flow(self, frame: Frame, state: EffectRun) -> Answer:
        assert self._async_steps is not None
        try:
            answer = await self._async_steps(frame)
            return self._success(frame) if answer is None else answer
        except NodeError as error:
            if error.code == "invariant_failed":
                await state.undo()
            # Like `_handle`, with compensations that may act outside.
            for number in matching_rules(self.program.rules, getattr(error, "names", (error.code,))):
                try:
                    answer = await self._async_rules[number](frame, error)
                except NodeError as second:
                    return failure_of(second)
                return failure_of(error) if answer is None else answer
            return failure_of(error)

    def _key(self, inputs: Mapping[str, Any], execution: Execution) -> str:
        """Return the prefix of the idempotency keys of requests."""
        key = inputs.get(self.program.idempotency_key)
        return key if isinstance(key, str) and key else execution.trace_id


def _compensations(program: NodeProgram) -> tuple[Step, ...]:
    return tuple(step for rule in program.rules for step in rule.compensation)


class InputReader:
    """Binds one input: its slot, its coercion and its value when it is absent."""

    __slots__ = ("absent", "holds", "name", "null_is_absent", "read", "slot")

    def __init__(self, declared: NodeInput, scope: Scope) -> None:
        self.name = declared.name
        self.slot = scope.names[declared.name]
        self.read, self.absent = input_reader(declared)
        self.null_is_absent = self.absent is None or isinstance(declared.type, Nullable)
        inner = scope.with_slot("value", self.slot)
        self.holds = all_hold(declared.constraints, inner) if declared.constraints else None


def snapshot(value: Any) -> Any:
    """Return a copy that later changes of an ambient object do not reach."""
    if isinstance(value, list):
        return [snapshot(item) for item in value]
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    return value


_path: Final = CompiledPath(DirectProgram)
compile_program, run, start = _path.compile, _path.run, _path.start

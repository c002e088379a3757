"""The reference evaluator of programs: the order of an execution, step by step, with nothing prepared.

It is the third opinion where the Python path and the direct path differ, and the yardstick in tests of both. It walks
the tree and is a coroutine for every program; `run` drives it, since the effects of a pure program are none and those
of a replay answer at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy, deepcopy
from functools import cached_property
from typing import Any

import msgspec

from lyra.vesper import ir
from lyra.vesper.effects.compiled_path import drive
from lyra.vesper.effects.request import (
    EffectError,
    EffectRequest,
    Effects,
    TransactionEnd,
    failure_code,
    request_key,
    retry_of,
    transact,
)
from lyra.vesper.reference.evaluate import StepMeter, Unjudged, elements_of, evaluate, is_true
from lyra.vesper.reference.values import coerce_computed, read, text, type_error
from lyra.vesper.values.outcome import (
    NOT_CONFIGURED,
    Execution,
    NodeError,
    NodeFailure,
    Outcome,
    WrongAnswer,
    describe_answer,
)
from lyra.vesper.values.types import ANY, Nullable, describe_fields


def run(
    program: ir.NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None = None
) -> Outcome:
    """Return the outcome of an execution. Effects, if there are any, must answer at once."""
    return drive(start(program, inputs, execution, effects))


async def start(
    program: ir.NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None = None
) -> Outcome:
    return await ReferenceWalk(program, execution, effects).outcome(inputs)


class _Answered(Exception):
    """The node answers with an error."""

    def __init__(self, failure: NodeFailure) -> None:
        super().__init__(failure.code)
        self.failure = failure


class _Returned(Exception):
    """The node answers with success fields, which are not coerced yet."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__()
        self.values = values


class _EffectFailed(NodeError):
    kind = ""
    statuses: tuple[str, ...] = ()


def _failure(error: NodeError) -> NodeFailure:
    return NodeFailure(error.code, error.message, error.phase, error.fields)


def _error_object(code: str | None, message: str | None) -> dict[str, Any]:
    occurred = code is not None
    return {"occurred": occurred, "code": code, "message": message, "logged": occurred}


def _effect_failed(error: EffectError, kind: str) -> _EffectFailed:
    failed = _EffectFailed(failure_code(error.kind, kind), error.message, fields=error.fields)
    failed.kind = error.kind
    status = error.fields.get("status")
    if kind == "http.call" and isinstance(status, int) and not isinstance(status, bool) and 300 <= status < 600:
        failed.statuses = (f"http_{status}", f"http_{str(status)[0]}xx")
    return failed


class ReferenceWalk:
    """One execution; `evidence.reach` watches one by a class of its own."""

    def __init__(self, program: ir.NodeProgram, execution: Execution, effects: Effects | None) -> None:
        self.program = program
        self.effects = effects
        self.budget = StepMeter(execution, program.limits)
        self.unverifiable: list[str] = []
        self.ambient: dict[str, Any] = {}
        self.inputs: dict[str, Any] = {}
        self.variables: dict[str, Any] = {}
        self.calls: dict[str, int] = {}
        self.undo: list[tuple[tuple[ir.Step, ...], dict[str, Any], dict[str, Any], bool]] = []
        self.is_compensating = False

    @cached_property
    def assigned(self) -> set[str]:
        """All variables that any step of the program may write."""
        return get_writes(self.program)

    # ------------------------------------------------------------ the order of an execution

    async def outcome(self, given: Mapping[str, Any]) -> Outcome:
        try:
            outputs = await self.execute(given)
        except _Answered as answer:
            return Outcome("error", {}, answer.failure, "reference", tuple(self.unverifiable))
        except (RecursionError, MemoryError):
            failure = NodeFailure("resource_limit", "a value is nested too deeply or too large")
            return Outcome("error", {}, failure, "reference", tuple(self.unverifiable))
        return Outcome("success", outputs, None, "reference", tuple(self.unverifiable))

    async def execute(self, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self.bind_inputs(given)
        except NodeError as error:
            raise _Answered(_failure(error)) from None
        self.bind_ambient()
        await self.enter()
        self.budget.olds = [self.snapshot(old) for old in self.program.olds]
        try:
            outputs = await self.run_flow()
        except _Answered as answer:
            await self.judge_end({}, answer.failure)
            raise
        await self.judge_end(outputs, None)
        return outputs

    def bind_inputs(self, given: Mapping[str, Any]) -> None:
        if not hasattr(given, "keys"):
            raise NodeError("invalid_input", "inputs are a map", phase="input")
        declared = {declared.name: declared for declared in self.program.inputs}
        if not set(given) <= set(declared):
            raise NodeError("invalid_input", "an unknown input", phase="input")
        for name, item in declared.items():
            null_if_absent = not item.required and item.default in (msgspec.UNSET, None)
            kind = Nullable(item.type) if null_if_absent else item.type
            if name in given:
                self.inputs[name] = read(kind, given[name])
            elif item.default is not msgspec.UNSET:
                self.inputs[name] = read(kind, item.default)
            elif item.required:
                raise NodeError("invalid_input", "a missing input", phase="input")
            else:
                self.inputs[name] = None
        self.variables = dict(self.inputs)

    def bind_ambient(self) -> None:
        supplied = self.budget.execution.ambient
        for name in self.program.ambient:
            if name in supplied:
                try:
                    self.ambient[name] = read(ANY, supplied[name])
                except NodeError:
                    self.ambient[name] = type_error(f"{name} is no value of a node")

    async def enter(self) -> None:
        refusal = self.refusal()
        if refusal is None:
            return
        for step in self.program.steps:
            if not isinstance(step, ir.ValidateStep):
                break
            try:
                await self.step(step, {})
            except NodeError as error:
                try:
                    await self.obey_rules(self.program.rules, error, {}, may_act=self.program.pure)
                except NodeError as second:
                    raise _Answered(_failure(second)) from None
                raise _Answered(_failure(error)) from None
        raise _Answered(_failure(refusal))

    def refusal(self) -> NodeError | None:
        """Return why the inputs are refused, if they are."""
        for item in self.program.inputs:
            value = self.inputs[item.name]
            if value is None and (not item.required or isinstance(item.type, Nullable)):
                continue  # absent
            for check in item.constraints:
                if not self.holds(check.expression, {**self.ambient, **self.inputs, "value": value}):
                    return NodeError("invalid_input", check.text, phase="input")
        for contract in self.program.preconditions:
            if self.is_broken(contract, {**self.ambient, **self.inputs}):
                return NodeError("precondition_failed", contract.text, phase="precondition")
        return self.find_broken_invariant(self.fields_known())

    def holds(self, expression: ir.TypedExpression, variables: dict[str, Any]) -> bool:
        """Return whether a contract is true; an error in it is a failure of it."""
        try:
            return is_true(expression, variables, self.budget)
        except NodeError:
            return False

    def is_broken(self, contract: ir.Contract, variables: dict[str, Any]) -> bool:
        """Return whether a contract is false. One that cannot be judged is not; its text is kept."""
        if contract.expression is not None:
            try:
                return not is_true(contract.expression, variables, self.budget)
            except Unjudged:
                pass
            except NodeError:
                return True
        if contract.text not in self.unverifiable:
            self.unverifiable.append(contract.text)
        return False

    # ------------------------------------------------------------ contracts at the end

    def fields_known(self) -> dict[str, Any]:
        """Return the values that an invariant can use during the flow: inputs and variables. The answer has no value
        yet."""
        known = {name: value for name, value in self.variables.items() if name not in ("success", "error")}
        return {**self.ambient, **self.inputs, **known}

    def find_broken_invariant(self, variables: dict[str, Any]) -> NodeError | None:
        for contract in self.program.invariants:
            if contract.expression is not None and self.is_early(contract.expression, variables):
                continue
            if self.is_broken(contract, variables):
                return NodeError("invariant_failed", contract.text, phase="invariant")
        return None

    def is_early(self, expression: ir.TypedExpression, variables: dict[str, Any]) -> bool:
        """Return whether an invariant names a variable or a field of the answer that has no value yet."""
        names = {"success", "error"} | {output.name for output in (*self.program.success, *self.program.error)}
        names |= self.assigned
        return any(name in names and name not in variables for name in self.names_of(expression))

    def names_of(self, expression: ir.TypedExpression) -> set[str]:
        """Return the variables that an expression names."""
        return names_in(expression)

    async def judge_end(self, outputs: dict[str, Any], failure: NodeFailure | None) -> None:
        if failure is not None and failure.code == NOT_CONFIGURED:
            return  # a mistake of the host program, about which no contract is
        known = {**self.ambient, **self.inputs}
        error_fields = {output.name for output in self.program.error}
        success_fields = {output.name for output in self.program.success}
        if failure is None:
            known |= {name: known.get(name) for name in error_fields | success_fields} | outputs
            known |= {"success": True, "error": _error_object(None, None)}
        else:
            known |= {name: known.get(name) for name in error_fields if name in known or name not in success_fields}
            message = failure.message if "message" in failure.fields else ""
            values = {"message": message, **failure.fields, _code_field(self.program): failure.code}
            known |= {name: value for name, value in values.items() if name in error_fields | success_fields}
            known |= {"success": False, "error": _error_object(failure.code, message)}
        for contract in self.program.postconditions:
            if failure is not None and contract.expression is not None:
                names = self.names_of(contract.expression)
                if not names & {"success", "error"} and any(
                    name in success_fields and name not in known for name in names
                ):
                    continue
            if self.is_broken(contract, {**dict.fromkeys(success_fields), **known}):
                raise _Answered(NodeFailure("postcondition_failed", contract.text, "postcondition"))
        answer_fields = (success_fields | error_fields) - set(self.inputs) | {"success", "error"}
        answer_fields |= set(outputs if failure is None else values)
        own = {name: value for name, value in self.variables.items() if name not in answer_fields}
        broken = self.find_broken_invariant({**known, **own})
        if broken is not None:
            await self.compensate(())
            raise _Answered(_failure(broken))

    # ------------------------------------------------------------ the flow

    def snapshot(self, old: ir.TypedExpression) -> Any:
        try:
            return deepcopy(evaluate(old, {**self.ambient, **self.inputs}, self.budget))
        except NodeError as error:
            return error

    async def run_flow(self) -> dict[str, Any]:
        try:
            try:
                await self.steps(self.program.steps, {})
            except _Returned as returned:
                return self.success(returned.values)
            assigned = self.assigned & set(self.variables) | set(self.inputs)
            names = {output.name for output in self.program.success} & assigned
            return self.success({name: self.variables[name] for name in names})
        except NodeError as error:
            if error.code == "invariant_failed":
                await self.compensate(())
            try:
                await self.obey_rules(self.program.rules, error, {})
            except NodeError as second:
                raise _Answered(_failure(second)) from None
            raise _Answered(_failure(error)) from None

    def success(self, values: dict[str, Any]) -> dict[str, Any]:
        for output in self.program.success:
            if output.required and output.name not in values:
                raise NodeError("incomplete_output", output.name)
        return {
            output.name: coerce_computed(output.type if output.required else Nullable(output.type), values[output.name])
            for output in self.program.success
            if output.name in values
        }

    def value(self, expression: ir.TypedExpression, local: dict[str, Any]) -> Any:
        unset = dict.fromkeys(self.assigned)
        return evaluate(expression, {**unset, **self.ambient, **self.variables, **local}, self.budget)

    def all_true(self, checks: Iterable[ir.Condition], local: dict[str, Any]) -> bool:
        unset = dict.fromkeys(self.assigned)
        variables = {**unset, **self.ambient, **self.variables, **local}
        return all(is_true(check.expression, variables, self.budget) for check in checks)

    def fail(self, value: ir.ErrorAnswer, local: dict[str, Any]) -> _Answered:
        """Return the declared error."""
        code = self.value(value.code, local)
        if not isinstance(code, str):
            raise type_error("an error code is a text")
        values = {name: self.value(field, local) for name, field in value.fields}
        types = {output.name: output.type for output in self.program.error}
        fields = {name: coerce_computed(Nullable(types.get(name, ANY)), field) for name, field in values.items()}
        if _code_field(self.program):
            fields.setdefault(_code_field(self.program), code)
        return _Answered(NodeFailure(code, text(values.get("message")), "flow", fields))

    async def steps(self, sequence: Iterable[ir.Step], local: dict[str, Any]) -> None:
        for step in sequence:
            await self.step(step, local)

    async def step(self, step: ir.Step, local: dict[str, Any]) -> None:
        if not isinstance(step, ir.ValidateStep) and not self.all_true(step.guards, local):
            return
        match step:
            case ir.ValidateStep():
                if not self.all_true((*step.guards, *step.checks), local):
                    if step.failure is not None:
                        raise self.fail(step.failure, local)
                    raise NodeError("validation_failed", step.name)
            case ir.AssignStep():
                # The element of a loop is a variable of the loop's own, also where a step assigns it.
                target = local if step.target in local else self.variables
                target[step.target] = self.value(step.value, local)
            case ir.BranchStep():
                chosen = self.all_true((ir.Condition("", step.condition),), local)
                await self.steps(step.then if chosen else step.otherwise, local)
            case ir.ForEachStep():
                elements = elements_of(step, self.value(step.collection, local), self.budget)
                with self.in_rounds():
                    for element in elements:
                        await self.steps(step.steps, {**local, step.variable: element})
            case ir.LoopStep():
                await self.loop(step, local)
            case ir.ParallelStep():
                await self.parallel(step, local)
            case ir.ReturnStep():
                if step.error is not None:
                    raise self.fail(step.error, local)
                raise _Returned({name: self.value(value, local) for name, value in step.success or ()})
            case ir.EffectStep():
                await self.effect(step, local)
            case ir.TransitionStep():
                await self.transition(step, local)
            case ir.TransactionStep():
                await self.transaction(step, local)
            case _:
                raise AssertionError(step)

    async def parallel(self, step: ir.ParallelStep, local: dict[str, Any]) -> None:
        if not any(isinstance(part, ir.EffectStep | ir.TransitionStep) for part in _parts(step)):
            await self.steps(step.steps, local)  # nothing takes time: one after the other, to the first that fails
            return
        first: Exception | None = None
        for part in step.steps:
            try:
                await self.step(part, local)
            except (NodeError, _Answered, _Returned) as end:
                first = first or end
        if first is not None:
            raise first

    @contextmanager
    def in_rounds(self, *, is_in_loop: bool = True) -> Iterator[None]:
        """Charge the steps inside as the rounds of a loop. A transaction may put another meter in the place of this."""
        kept, self.budget.is_in_loop = self.budget.is_in_loop, is_in_loop
        try:
            yield
        finally:
            self.budget.is_in_loop = kept

    async def loop(self, step: ir.LoopStep, local: dict[str, Any]) -> None:
        rounds = 0
        is_in_loop = self.budget.is_in_loop
        with self.in_rounds():
            while self.all_true((ir.Condition("", step.condition),), local):
                if rounds == step.max_iterations:
                    raise NodeError("loop_limit", step.name)
                rounds += 1
                with self.in_rounds(is_in_loop=is_in_loop):
                    self.budget.charge(step, 1)
                await self.steps(step.steps, local)

    # ------------------------------------------------------------ effects and rules

    def request(self, step: ir.Step, kind: str, capability: str, payload: Any, **options: Any) -> EffectRequest:
        index = self.calls.get(step.name, 0)
        self.calls[step.name] = index + 1
        base = self.inputs.get(self.program.idempotency_key) or self.budget.execution.trace_id
        key = request_key(base, step.name, index)
        return EffectRequest(step.name, index, kind, capability, payload, idempotency_key=key, **options)

    async def perform(self, step: ir.Step, kind: str, capability: str, payload: Any, **options: Any) -> Any:
        if self.effects is None:
            raise NodeError("capability_denied", step.name)
        try:
            response = await self.effects.perform(self.request(step, kind, capability, payload, **options))
        except EffectError as error:
            raise _effect_failed(error, kind) from None
        self.budget.spend(0)
        try:
            return read(ANY, response)
        except NodeError:
            raise type_error("no value of a node") from None

    async def effect(self, step: ir.EffectStep, local: dict[str, Any]) -> None:
        usual = "query_result" if step.kind == "db.query" else "response"
        try:
            payload = self.value(step.request, local)
            options = {"timeout_s": step.timeout_s, "retry": retry_of(step, self.program)}
            response = await self.perform(step, step.kind, step.capability, payload, **options)
            if step.kind == "agent.call":
                try:
                    response = read(step.output_type, response)
                except NodeError:
                    problem = f"is no {describe_fields(step.output_type)}: it is {describe_answer(response)}"
                    raise WrongAnswer(step.name, problem) from None
                for check in step.checks:
                    if not self.holds(check.expression, {**self.ambient, **self.variables, **local, "value": response}):
                        raise WrongAnswer(step.name, f"does not hold: {check.text}")
            if step.output:
                self.variables[step.output] = response
            after = local if step.output == usual else {**local, usual: response}
            for name, expression in step.extract:
                self.variables[name] = self.value(expression, after)
            for rule in reversed(step.rules):
                if rule.action == "compensate" and rule.compensation:
                    bound, variables = {**local, "error": None}, dict(self.variables)
                    self.undo.append((rule.compensation, bound, variables, self.budget.is_in_loop))
        except NodeError as error:
            await self.obey_rules(step.rules, error, local)
            raise
        self.check_invariants()
        if step.found or step.empty:
            await self.steps(step.empty if response is None or response == [] else step.found, after)

    async def transaction(self, step: ir.TransactionStep, local: dict[str, Any]) -> None:
        try:
            payload = self.value(step.request, local)
            if self.effects is None:
                raise NodeError("capability_denied", step.name)
            options = {"timeout_s": step.timeout_s, "retry": retry_of(step, self.program)}
            request = self.request(step, ir.TRANSACTION, step.capability, payload, **options)
            try:
                end = await transact(self.effects, request, lambda effects: self.attempt(step, local, effects))
            except EffectError as error:
                raise _effect_failed(error, ir.TRANSACTION) from None
            walk, names, ending = end.result
            self.calls, self.budget, self.unverifiable[:] = walk.calls, walk.budget, walk.unverifiable
            self.budget.spend(0)
            if isinstance(ending, NodeError):
                raise ending
            if end.commits:
                self.variables.update(walk.variables)
                local.update(names)
                for rule in reversed(step.rules):
                    if rule.action == "compensate" and rule.compensation:
                        bound, variables = {**local, "error": None}, dict(self.variables)
                        self.undo.append((rule.compensation, bound, variables, self.budget.is_in_loop))
        except NodeError as error:
            await self.obey_rules(step.rules, error, local)
            raise
        if ending is not None:
            raise ending

    async def attempt(self, step: ir.TransactionStep, local: dict[str, Any], effects: Effects) -> TransactionEnd:
        """Run the steps of a transaction with variables of their own."""
        walk, names = copy(self), dict(local)
        walk.effects, walk.budget = effects, copy(self.budget)
        walk.variables, walk.calls, walk.unverifiable = dict(self.variables), dict(self.calls), list(self.unverifiable)
        try:
            try:
                await walk.steps(step.steps, names)
            except _Returned as returned:
                walk.success(returned.values)  # what does not fit the outputs is an error of the step
                return TransactionEnd(True, (walk, names, returned))
        except (NodeError, _Answered) as end:
            return TransactionEnd(False, (walk, names, end))
        return TransactionEnd(True, (walk, names, None))

    async def transition(self, step: ir.TransitionStep, local: dict[str, Any]) -> None:
        source, target = self.value(step.source, local), self.value(step.target, local)
        machine = next((machine for machine in self.program.machines if machine.name == step.machine), None)
        entity = self.value(step.entity, local)
        moves = [] if machine is None else [move for move in machine.moves if move[:2] == (source, target)]
        if not moves or not self.all_true(step.checks, local):
            raise NodeError("invalid_transition", step.machine)
        guard = moves[-1][2]
        if guard is not None and not self.all_true((guard,), local):
            raise NodeError("invalid_transition", step.machine)
        payload = {"machine": step.machine, "entity": entity, "from": source, "to": target}
        if machine is not None:
            payload["initial"] = machine.initial
        retry = retry_of(step, self.program)
        response = await self.perform(step, "state.transition", f"state.{step.machine}", payload, retry=retry)
        if step.output:
            self.variables[step.output] = response
        self.check_invariants()

    def check_invariants(self) -> None:
        if self.is_compensating:  # a broken invariant does not stop what takes its cause back
            return
        with self.in_rounds(is_in_loop=False):
            broken = self.find_broken_invariant(self.fields_known())
        if broken is not None:
            raise broken

    async def obey_rules(
        self, rules: tuple[ir.ErrorRule, ...], error: NodeError, local: dict[str, Any], *, may_act: bool = True
    ) -> None:
        """Obey the first rule about the error; its answer, if it has one, ends the node."""
        if error.code == NOT_CONFIGURED:
            return
        names = ("*", error.code, getattr(error, "kind", error.code), *getattr(error, "statuses", ()))
        facts = _error_object(error.code, "")
        if isinstance(error, _EffectFailed | WrongAnswer):
            facts = _error_object(error.kind, error.message)
        about = {**local, "error": facts}
        for rule in rules:
            if rule.error in names and rule.action in ir.ANSWERING:
                if rule.action == "compensate" and may_act:
                    await self.compensate(rule.compensation, about)
                if rule.answer is not None:
                    raise self.fail(rule.answer, about)
                return

    async def compensate(self, first: tuple[ir.Step, ...], local: dict[str, Any] | None = None) -> None:
        """Run these steps, then the registered ones, each with the variables that it was registered with."""
        pending = [(first, local or {}, self.variables, self.budget.is_in_loop), *reversed(self.undo)]
        self.undo.clear()
        current, was_compensating = self.variables, self.is_compensating
        self.is_compensating = True
        for compensation, bound, variables, is_in_loop in pending:
            self.variables = variables
            with suppress(NodeError, _Answered, _Returned), self.in_rounds(is_in_loop=is_in_loop):
                await self.steps(compensation, bound)
        self.variables, self.is_compensating = current, was_compensating


def _code_field(program: ir.NodeProgram) -> str:
    names = [output.name for output in program.error]
    return "error_code" if "error_code" in names else "code" if "code" in names else ""


def _parts(node: Any) -> Iterable[Any]:
    if isinstance(node, tuple):
        for item in node:
            yield from _parts(item)
    elif isinstance(node, msgspec.Struct):
        yield node
        for name in node.__struct_fields__:
            yield from _parts(getattr(node, name))


def names_in(expression: ir.TypedExpression) -> set[str]:
    return {part.name for part in _parts(expression) if isinstance(part, ir.NodeVariable)}


def get_writes(program: ir.NodeProgram) -> set[str]:
    """Return all variables that any step of a program may write."""
    names = set()
    for part in _parts((program.steps, program.rules)):
        match part:
            case ir.AssignStep():
                names.add(part.target)
            case ir.EffectStep():
                names |= {part.output, *(name for name, _ in part.extract)}
            case ir.TransitionStep():
                names.add(part.output)
    return names - {""}

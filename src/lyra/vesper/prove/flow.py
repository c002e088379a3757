"""The walk over a whole node, in the order of the reference evaluator, and what can go wrong on the way.

`NodeWalk(program, numbers, list_items=…).run()` notes, as conditions over the inputs: when inputs are accepted, when
each contract is broken, when each step is reached and when each operation of a step fails. With `list_items=None` an
input list has any length; with a number, at most so many elements, and `numbers.incomplete` says so. What an effect
answers, and whether it fails, is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from math import floor
from typing import Any, Final

import msgspec
import z3

from lyra.vesper import ir
from lyra.vesper.evidence.rooms import LENGTH, rooms_of
from lyra.vesper.prove.folds import State
from lyra.vesper.prove.numbers import NumberEncoding
from lyra.vesper.prove.typed_values import TypedWalk
from lyra.vesper.prove.values import (
    FALSE,
    NULL,
    TIMES,
    TRUE,
    UNSET,
    NullValue,
    OpaqueValue,
    RecordValue,
    SymbolicValue,
    Term,
    TextValue,
    TruthValue,
    UnsetValue,
    UnsupportedNode,
    ValueChoice,
    conj,
    disj,
    microseconds,
    negate,
    options,
)
from lyra.vesper.prove.walk import UNJUDGED, UNKNOWN, Env
from lyra.vesper.values.types import ANY, Nullable, ValueType

ROUNDS_MAX: Final = 8  # of a loop that are walked one by one in the bounded walk
_EFFECT_FAILED: Final = "effect"  # a failure of an act: any code, and no mistake of the node


@dataclass(frozen=True, eq=False)
class FlowEnd:
    """An end of the flow: success fields, or an error with its code and fields; `variables` as they then are."""

    guard: Term
    fields: State
    variables: State
    code: SymbolicValue | None = None


class NodeWalk(TypedWalk):
    """One walk over a program."""

    def __init__(self, program: ir.NodeProgram, numbers: NumberEncoding, list_items: int | None) -> None:
        super().__init__(numbers)
        self.program = program
        self.list_items = list_items
        self.steps_max = program.limits.steps
        constants = {part.value for part in parts_of(program) if isinstance(part, ir.Constant)}
        self.constants = tuple(sorted({abs(int(value)) + 1 for value in constants if _is_plain_number(value)}))[:40]
        self.assigned = _find_assigned_in((program.steps, program.rules))
        self.inputs: State = {}
        self.ambient: State = {}
        self.variables: State = {}
        self.local: State = {}
        self.broken: dict[tuple[str, int], Term] = {}
        self.deciding: dict[tuple[str, int], list[Term]] = {}  # what the values of a contract are
        self.trivial: dict[tuple[str, int], Term] = {}  # when the right side of an implication matters
        self.entry: list[tuple[str, Term]] = []  # each condition of the entry, by its text
        self.failures: list[tuple[Term, str, str]] = []
        self.axiom_variables = []
        # Preconditions are left out: one that cannot be judged refuses no input.
        self._rooms = rooms_of(msgspec.structs.replace(program, preconditions=()))
        low, high = (self.numbers.constant(microseconds(time)) for time in TIMES)
        self.numbers.axioms += [self.numbers.at_most(low, self.now), self.numbers.at_most(self.now, high)]

    def longest(self, path: tuple[str, ...]) -> int | None:
        room = self._rooms.get((*path, LENGTH))
        return None if room is None or room.high is None else floor(room.high)

    def bind_inputs(self) -> None:
        for item in self.program.inputs:
            null_if_absent = not item.required and item.default in (msgspec.UNSET, None)
            kind = Nullable(item.type) if null_if_absent and not isinstance(item.type, Nullable) else item.type
            self.inputs[item.name] = self.make_symbolic(kind, item.name)
        self.variables = dict(self.inputs)
        self.ambient = {name: OpaqueValue(f"`{name}`, which the caller supplies") for name in self.program.ambient}

    # ------------------------------------------------------------ contracts

    def judge(self, expression: ir.TypedExpression, env: Env, here: Term | None = None) -> tuple[Term, Term]:
        """Return when a contract is true, and when it cannot be judged; an error in it is neither."""
        start = self.here if here is None else here
        truth, ends, raised = self.quietly(lambda: self.is_true(expression, env), start)
        unjudged = disj(*(guard for guard, code, _ in raised if code == UNJUDGED))
        return conj(ends, truth), unjudged

    def enter(self) -> None:
        """Set what holds for accepted inputs."""
        known = {**self.ambient, **self.inputs}
        for item in self.program.inputs:
            value = self.inputs[item.name]
            is_absent = disj(*(guard for guard, part in options(value) if isinstance(part, NullValue)))
            may_be_absent = not item.required or isinstance(item.type, Nullable)
            plain = self.choose(
                [(guard, part) for guard, part in options(value) if not isinstance(part, NullValue)] or [(TRUE, NULL)]
            )
            for check in item.constraints:
                env = {**known, "value": plain if may_be_absent else value}
                holds, _ = self.judge(check.expression, env, TRUE)
                self._accept(f"{item.name}: {check.text}", disj(holds, is_absent) if may_be_absent else holds)
        for contract in self.program.preconditions:
            if contract.expression is not None:
                holds, unjudged = self.judge(contract.expression, known, TRUE)
                self._accept(contract.text, disj(holds, unjudged))
        for contract in self.program.invariants:
            if contract.expression is not None:
                broken = self.invariant_broken(contract.expression, self.fields_known())
                self._accept("", negate(broken))

    def _accept(self, text: str, condition: Term) -> None:
        condition = z3.simplify(condition)
        self.entry.append((text, condition))
        self.assumed = self.here = conj(self.here, condition)

    def fields_known(self) -> State:
        known = {name: value for name, value in self.variables.items() if name not in ("success", "error")}
        return {**self.ambient, **self.inputs, **known}

    def invariant_broken(self, expression: ir.TypedExpression, variables: State) -> Term:
        """Return when an invariant is broken; one about a variable that has no value yet is not."""
        outputs = {output.name for output in (*self.program.success, *self.program.error)}
        early = FALSE
        for name in _names(expression) & ({"success", "error"} | outputs | self.assigned):
            if name not in variables:
                return FALSE
            early = disj(early, *(guard for guard, part in options(variables[name]) if isinstance(part, UnsetValue)))
        holds, unjudged = self.judge(expression, variables)
        return conj(self.here, negate(early), negate(unjudged), negate(holds))

    # ------------------------------------------------------------ the flow

    def run(self) -> None:
        self.bind_inputs()
        self.input_axioms = len(self.numbers.axioms)  # about the types of inputs
        self.enter()
        for old in self.program.olds:
            value, _, raised = self.quietly(lambda old=old: self.evaluate(old, {**self.ambient, **self.inputs}))  # type: ignore[misc]
            self.olds.append((value, raised))
        self.variables |= {name: UNSET for name in self.assigned if name not in self.variables}
        self.walk_steps(self.program.steps)
        if not z3.is_false(self.here):
            names = {output.name for output in self.program.success} & (self.assigned | set(self.inputs))
            self.ends.append(FlowEnd(self.here, {name: self.variables[name] for name in names}, dict(self.variables)))
        ends, self.ends = self.ends, []
        successes = [self.succeed(end) if end.code is None else end for end in ends]
        for guard, code, site in self.raised:
            if code == "invariant_failed":
                key = ("invariant", int(site))
                self.broken[key] = disj(self.broken.get(key, FALSE), guard)
            self.failures.append((guard, code, site))
            self.obey_rules(guard, code)
        for end in (*successes, *self.ends):
            if not z3.is_false(end.guard):
                self.judge_end(end)

    def succeed(self, end: FlowEnd) -> FlowEnd:
        """Return a success with its fields coerced; what is missing or not of its type is a failure."""
        fields: State = {}
        self.here = end.guard
        for output in self.program.success:
            value = end.fields.get(output.name, UNSET)
            missing = disj(*(guard for guard, part in options(value) if isinstance(part, UnsetValue)))
            if output.required:
                self.site = f"output {output.name}"
                self.fail("incomplete_output", missing)
        for output in self.program.success:
            value = end.fields.get(output.name, UNSET)
            kind = output.type if output.required else Nullable(output.type)
            self.site = f"output {output.name}"
            fields |= {output.name: self._output(kind, value)} if not isinstance(value, UnsetValue) else {}
        return FlowEnd(self.here, fields, end.variables)

    def _output(self, kind: ValueType, value: SymbolicValue) -> SymbolicValue:
        present = [(guard, part) for guard, part in options(value) if not isinstance(part, UnsetValue)]
        missing = disj(*(guard for guard, part in options(value) if isinstance(part, UnsetValue)))
        coerced = self.under(negate(missing), lambda: self.coerce_computed(kind, self.choose(present)))
        assert isinstance(coerced, SymbolicValue)
        return self.choose(((negate(missing), coerced), (missing, NULL)))

    def env(self) -> Env:
        return {**self.ambient, **self.variables, **self.local}

    def all_true(self, checks: Iterable[ir.Condition]) -> Term:
        holds: Term = TRUE
        for check in checks:
            holds = conj(holds, self.under(holds, lambda check=check: self.is_true(check.expression, self.env())))  # type: ignore[misc]
        return holds

    def when(self, condition: Term, then: Callable[[], None], otherwise: Callable[[], None] = lambda: None) -> None:
        """Walk both branches, each where its condition holds, and join what they assigned."""
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            (then if z3.is_true(condition) else otherwise)()
            return
        entry, variables, local = self.here, self.variables, self.local
        results = []
        for guard, branch in ((condition, then), (negate(condition), otherwise)):
            self.here, self.variables, self.local = conj(entry, guard), dict(variables), dict(local)
            start = self.here
            branch()
            results.append((self.here, self.here is start, self.variables, self.local))
        (first_end, first_plain, first, first_local), (second_end, second_plain, second, second_local) = results
        self.here = entry if first_plain and second_plain else disj(first_end, second_end)
        if z3.is_false(first_end) or z3.is_false(second_end):
            self.variables, self.local = (second, second_local) if z3.is_false(first_end) else (first, first_local)
            return
        self.variables = self.join_states(condition, first, second)
        self.local = self.join_states(condition, first_local, second_local)

    def walk_steps(self, steps: Iterable[ir.Step]) -> None:
        for step in steps:
            if z3.is_false(self.here):
                return
            site, self.site = self.site, step.name
            if isinstance(step, ir.ValidateStep):
                self.reached.append((step.name, self.here))
                self._validate(step)
            elif step.guards:
                self.when(self.all_true(step.guards), lambda step=step: self._step(step))  # type: ignore[misc]
            else:
                self._step(step)
            self.site = site

    def _validate(self, step: ir.ValidateStep) -> None:
        failure = step.failure
        failed = negate(self.all_true((*step.guards, *step.checks)))
        if failure is None:
            self.fail("validation_failed", failed)
        else:
            self.when(failed, lambda: self.answer(failure, {}))

    def _step(self, step: ir.Step) -> None:
        self.reached.append((step.name, self.here))
        match step:
            case ir.AssignStep():
                target = self.local if step.target in self.local else self.variables
                target[step.target] = self.evaluate(step.value, self.env())
            case ir.BranchStep():
                condition = self.all_true((ir.Condition("", step.condition),))
                self.reached.append((f"{step.name}: then", conj(self.here, condition)))
                self.reached.append((f"{step.name}: else", conj(self.here, negate(condition))))
                self.when(condition, lambda: self.walk_steps(step.then), lambda: self.walk_steps(step.otherwise))
            case ir.ForEachStep():
                self._for_each(step)
            case ir.LoopStep():
                self._loop(step)
            case ir.ParallelStep():
                entry = alive = self.here
                for part in step.steps:
                    self.here = entry if not self.program.pure else self.here
                    self.walk_steps((part,))
                    alive = self.here if self.program.pure else conj(alive, self.here)
                self.here = alive
            case ir.ReturnStep():
                if step.error is not None:
                    self.answer(step.error, {})
                    return
                fields = {name: self.evaluate(value, self.env()) for name, value in step.success or ()}
                self.ends.append(FlowEnd(self.here, fields, dict(self.variables)))
                self.here = FALSE
            case ir.EffectStep() | ir.TransitionStep():
                self._effect(step)
            case ir.TransactionStep():
                self._transaction(step)
            case _:
                raise UnsupportedNode(f"the step {step.name}, which the prover does not know")

    def answer(self, value: ir.ErrorAnswer, more: State) -> None:
        """End with a declared error."""
        env = {**self.env(), **more}
        code = self.evaluate(value.code, env)
        if not all(isinstance(part, TextValue) for _, part in options(code)):
            self.per_kind(self._text_only, code)
        values = {name: self.evaluate(field, env) for name, field in value.fields}
        types = {output.name: output.type for output in self.program.error}
        fields = {name: self.coerce_computed(Nullable(types.get(name, ANY)), field) for name, field in values.items()}
        if code_field(self.program):
            fields.setdefault(code_field(self.program), code)
        if "message" in values:  # what the failure holds as its message is the text of it
            self.per_kind(self.render_text, values["message"])
        self.ends.append(FlowEnd(self.here, fields, dict(self.variables), code))
        self.here = FALSE

    def _text_only(self, part: SymbolicValue) -> SymbolicValue:
        if isinstance(part, OpaqueValue):
            if part.kind != "string":
                self.fail("type_error", self.open_condition(part.why))
        elif not isinstance(part, TextValue):
            self.fail("type_error")
        return part

    # ------------------------------------------------------------ loops

    def _block(self, steps: tuple[ir.Step, ...], local: State) -> Callable[[State], State]:
        """Return a round of a loop: from what its steps may assign to what they did assign."""
        names = {name for name in _find_assigned_in(steps) if name not in local}
        kept_local, outside = self.local, self.variables

        def round_of(state: State) -> State:
            self.variables = {**outside, **{name: state[name] for name in names & set(outside)}}
            self.local = {**kept_local, **{name: state[name] for name in names & set(kept_local)}, **local}
            self.walk_steps(steps)
            after = {**self.variables, **{name: self.local[name] for name in kept_local if name not in local}}
            return {name: after[name] for name in state}

        return round_of

    def _state(self, steps: tuple[ir.Step, ...], local: State) -> State:
        names = {name for name in _find_assigned_in(steps) if name not in local}
        return {name: self.local.get(name, self.variables.get(name, UNSET)) for name in sorted(names)}

    def _restore(self, variables: State, local: State, state: State) -> None:
        self.variables = {**variables, **{name: value for name, value in state.items() if name not in local}}
        self.local = {**local, **{name: value for name, value in state.items() if name in local}}

    def _for_each(self, step: ir.ForEachStep) -> None:
        values = self.elements(step.collection, self.env())
        variables, local, site = self.variables, self.local, self.site

        def body(item: SymbolicValue, state: State) -> State:
            self.variables, self.local = variables, local
            self.site = site
            return self._block(step.steps, {step.variable: item})(state)

        state = self.fold(values, self._state(step.steps, {step.variable: NULL}), body)
        self._restore(variables, local, state)

    def _loop(self, step: ir.LoopStep) -> None:
        variables, local, site = self.variables, self.local, self.site
        round_of = self._block(step.steps, {})
        state = self._state(step.steps, {})

        def condition(state: State) -> Term:
            self._restore(variables, local, state)
            self.site = site
            return self.all_true((ir.Condition("", step.condition),))

        if self.list_items is None and not self._ends_soon(step, state, condition, round_of):
            # As many rounds as a list has elements, each with the condition true before it.
            rounds = self.new_source(lambda: NULL)
            most = self.numbers.constant(step.max_iterations)
            self.numbers.axioms.append(self.numbers.at_most(rounds.length, most))

            def run_round(current: State) -> State:
                self.here = conj(self.here, condition(current))
                return round_of(current)

            limits = self._find_limits(step.condition, state)
            state = self.keep_invariants(state, run_round, (rounds, self.new_element(rounds)), limits)
            again = condition(state)
            self.fail("loop_limit", conj(again, self.numbers.equal(rounds.length, most)))
            self.here = conj(self.here, negate(again))
        else:
            state = self._unroll(step, state, condition, round_of)
        self._restore(variables, local, state)

    def _find_limits(self, condition: ir.TypedExpression, state: State) -> dict[str, SymbolicValue]:
        """Return what variables of a loop are compared with in its condition, where no round changes that."""
        if isinstance(condition, ir.Logic):
            return self._find_limits(condition.left, state) | self._find_limits(condition.right, state)
        limits = {}
        if isinstance(condition, ir.Compare):
            for side, other in ((condition.left, condition.right), (condition.right, condition.left)):
                if isinstance(side, ir.NodeVariable) and side.name in state and not _names(other) & set(state):
                    limits[side.name] = self.pure(lambda other=other: self.evaluate(other, self.env()))[0]  # type: ignore[misc]
        return limits

    def _ends_soon(self, step: ir.LoopStep, state: State, condition: Any, round_of: Any) -> bool:
        """Return whether the loop has ended after few rounds, for all inputs."""

        def unroll_rounds() -> bool:
            current = state
            for _ in range(min(ROUNDS_MAX, step.max_iterations) + 1):
                again = condition(current)
                if z3.is_false(z3.simplify(conj(self.here, again))) or self.holds_always(negate(again)):
                    return True
                before = current
                current = self.under(again, lambda before=before: round_of(before))  # type: ignore[misc]
                current = self.join_states(again, current, before)
            return False

        result, _, _ = self.quietly(unroll_rounds, self.here)
        return bool(result)

    def _unroll(self, step: ir.LoopStep, state: State, condition: Any, round_of: Any) -> State:
        for number in range(step.max_iterations + 1):
            again = condition(state)
            if z3.is_false(z3.simplify(conj(self.here, again))):
                return state
            if number == step.max_iterations:
                self.fail("loop_limit", again)
                return state
            if number == ROUNDS_MAX:
                if not self.holds_always(negate(again)):
                    self.numbers.incomplete.add(f"loops of at most {ROUNDS_MAX} rounds")
                self.here = conj(self.here, negate(again))
                return state
            before = state
            changed = self.under(again, lambda before=before: round_of(before))  # type: ignore[misc]
            state = self.join_states(again, changed, before)
        return state

    # ------------------------------------------------------------ effects and rules

    def _effect(self, step: ir.EffectStep | ir.TransitionStep) -> None:
        """Walk an act: its request may fail, it may fail, and it answers with anything."""
        entry, first, local = self.here, len(self.raised), self.local
        why = f"the answer of step {step.name}"
        if isinstance(step, ir.EffectStep):
            self.evaluate(step.request, self.env())
        else:
            for part in (step.source, step.target, step.entity):
                self.evaluate(part, self.env())
            self.all_true(step.checks)
        self.fail(_EFFECT_FAILED, self.open_condition(why))
        response = OpaqueValue(why)
        if step.output:
            self.variables[step.output] = response
        rules: tuple[ir.ErrorRule, ...] = ()
        if isinstance(step, ir.EffectStep):
            usual = "query_result" if step.kind == "db.query" else "response"
            self.local = {**self.local, **({} if step.output == usual else {usual: response})}
            for name, expression in step.extract:
                self.variables[name] = self.evaluate(expression, self.env())
            rules = step.rules
        failed = disj(*(guard for guard, _, _ in self.raised[first:]))
        for rule in rules:
            if rule.answer is not None and rule.action in ir.ANSWERING:
                self._answer_somewhere(rule.answer, conj(entry, failed))
        self._check_invariants()
        if isinstance(step, ir.EffectStep) and (step.found or step.empty):
            some, none = step.found, step.empty
            self.when(self.open_condition(why), lambda: self.walk_steps(none), lambda: self.walk_steps(some))
        self.local = local

    def _transaction(self, step: ir.TransactionStep) -> None:
        """Walk the steps of a transaction: an error in it or at its commit resets the variables that they assigned."""
        entry, first = self.here, len(self.ends)
        self.evaluate(step.request, self.env())
        self.fail(_EFFECT_FAILED, self.open_condition(f"whether the transaction {step.name} succeeds"))
        self.walk_steps(step.steps)
        for index, end in enumerate(self.ends[first:], first):
            if end.code is not None:
                self.ends[index] = FlowEnd(end.guard, end.fields, self._forget_assigned(), end.code)
        for rule in step.rules:
            if rule.answer is not None and rule.action in ir.ANSWERING:
                self._answer_somewhere(rule.answer, entry)

    def _answer_somewhere(self, answer: ir.ErrorAnswer, guard: Term) -> None:
        """Note an answer of a rule: it is possible wherever the guard holds, with any value of what steps assign."""
        kept = self.here, self.variables, self.site
        self.here = conj(guard, self.numbers.fresh_bool("rule"))
        self.variables = self._forget_assigned()
        self.site = ""
        code, message = OpaqueValue("the code of an error", "string"), OpaqueValue("the message of an error", "string")
        error = {"occurred": TruthValue(TRUE), "code": code, "message": message, "logged": TruthValue(TRUE)}
        before = len(self.raised)
        self.answer(answer, {"error": RecordValue(error)})
        for failure, failed_code, _ in self.raised[before:]:
            self.ends.append(FlowEnd(failure, {}, self._forget_assigned(), self.error_code(failed_code)))
        del self.raised[before:]
        self.here, self.variables, self.site = kept

    def _forget_assigned(self) -> State:
        """Return the variables with anything in those that steps assign."""
        why = "variables where an error is handled"
        blurred: State = {}
        for name in self.variables:
            if name not in self.assigned:
                blurred[name] = self.variables[name]
                continue
            unset = self.numbers.fresh_bool("unset")
            blurred[name] = ValueChoice(((unset, UNSET), (negate(unset), OpaqueValue(why))))
        return blurred

    def _check_invariants(self) -> None:
        for index, contract in enumerate(self.program.invariants):
            if contract.expression is not None:
                broken = self.invariant_broken(contract.expression, self.fields_known())
                site, self.site = self.site, str(index)
                self.fail("invariant_failed", broken)
                self.site = site

    def obey_rules(self, guard: Term, code: str) -> None:
        """Note how an execution ends that failed with a code: by a rule of the node, or with the code itself."""
        is_open = code in (UNKNOWN, _EFFECT_FAILED)
        matching = [
            rule
            for rule in self.program.rules
            if rule.action in ir.ANSWERING
            and (is_open or rule.error in ("*", code, "type_error" if code == UNJUDGED else code))
        ]
        for rule in matching if is_open else matching[:1]:
            if rule.answer is not None:
                self._answer_somewhere(rule.answer, guard)
        if is_open or not matching or matching[0].answer is None:
            self.ends.append(FlowEnd(guard, {}, self._forget_assigned(), self.error_code(code)))

    def error_code(self, code: str) -> SymbolicValue:
        if code in (UNKNOWN, _EFFECT_FAILED):
            return OpaqueValue("the code of an error", "string")
        return self.constant("type_error" if code == UNJUDGED else code)

    # ------------------------------------------------------------ contracts at the end

    def judge_end(self, end: FlowEnd) -> None:
        self.here, program = end.guard, self.program
        known: State = {**self.ambient, **self.inputs}
        error_fields = {output.name for output in program.error}
        success_fields = {output.name for output in program.success}
        occurred = end.code is not None
        if end.code is None:
            known |= {name: known.get(name, NULL) for name in error_fields | success_fields} | end.fields
            values: State = end.fields
            code: SymbolicValue = NULL
            message: SymbolicValue = NULL
        else:
            known |= {n: known.get(n, NULL) for n in error_fields if n in known or n not in success_fields}
            message = self._message(end)
            values = {"message": message, **end.fields, code_field(program): end.code}
            known |= {name: value for name, value in values.items() if name in error_fields | success_fields}
            code = end.code
        flag = TruthValue(z3.BoolVal(occurred))
        known |= {
            "success": TruthValue(z3.BoolVal(not occurred)),
            "error": RecordValue({"occurred": flag, "code": code, "message": message, "logged": flag}),
        }
        for index, contract in enumerate(program.postconditions):
            expression = contract.expression
            if expression is None:
                continue
            names = _names(expression)
            if (
                occurred
                and not names & {"success", "error"}
                and any(n in success_fields and n not in known for n in names)
            ):
                continue
            env = {**dict.fromkeys(success_fields, NULL), **known}
            holds, unjudged = self.judge(expression, env)
            key = ("postcondition", index)
            self.deciding.setdefault(key, []).append(holds)
            broken = conj(self.here, negate(unjudged), negate(holds))
            self.broken[key] = disj(self.broken.get(key, FALSE), broken)
            if isinstance(expression, ir.Logic) and expression.operator == "implies":
                (asked, ends, _) = self.quietly(lambda e=expression, v=env: self.is_true(e.left, v), self.here)  # type: ignore[misc]
                matters = conj(ends, asked)
                self.trivial[key] = disj(self.trivial.get(key, FALSE), matters)
        answer_fields = (success_fields | error_fields) - set(self.inputs) | {"success", "error"} | set(values)
        own = {name: value for name, value in end.variables.items() if name not in answer_fields}
        for index, contract in enumerate(program.invariants):
            if contract.expression is not None:
                broken = self.invariant_broken(contract.expression, {**known, **own})
                key = ("invariant", index)
                self.deciding.setdefault(key, []).append(broken)
                self.broken[key] = disj(self.broken.get(key, FALSE), broken)

    def _message(self, end: FlowEnd) -> SymbolicValue:
        if "message" not in end.fields:
            return self.constant("") if end.code is not None else NULL
        value, _, _ = self.quietly(lambda: self.per_kind(self.render_text, end.fields["message"]))
        assert isinstance(value, SymbolicValue)
        return value


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool) and abs(Decimal(value)) < 10**24


def code_field(program: ir.NodeProgram) -> str:
    names = [output.name for output in program.error]
    return "error_code" if "error_code" in names else "code" if "code" in names else ""


def parts_of(node: Any) -> Iterator[Any]:
    """Yield a struct of the IR and all structs inside it."""
    if isinstance(node, tuple):
        for item in node:
            yield from parts_of(item)
    elif isinstance(node, msgspec.Struct):
        yield node
        for name in node.__struct_fields__:
            yield from parts_of(getattr(node, name))


def _names(expression: ir.TypedExpression) -> set[str]:
    return {part.name for part in parts_of(expression) if isinstance(part, ir.NodeVariable)}


def _find_assigned_in(node: Any) -> set[str]:
    names = set()
    for part in parts_of(node):
        match part:
            case ir.AssignStep():
                names.add(part.target)
            case ir.EffectStep():
                names |= {part.output, *(name for name, _ in part.extract)}
            case ir.TransitionStep():
                names.add(part.output)
    return names - {""}

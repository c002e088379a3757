"""Which steps, branches and declared errors of a program an execution reaches, and which none can.

`ReachPlan` lists what there is to reach: each step by its name, both sides of a conditional (`choose: then`), each
declared error (`error too_heavy`). `watch` runs one execution on the reference evaluator and notes what it reached, on
which side each comparison came out and how near its operands were; `evidence.search` makes further inputs from that.
`unreachable` names the parts that no execution can reach: behind conditions that are constant or that contradict the
bounds of the inputs, and behind steps that always end the node. `PROVERS` may add to it: functions that take a program
and give names with the reason why they cannot be reached.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from lyra.vesper import ir
from lyra.vesper.check.satisfiable import fold_constant
from lyra.vesper.effects.compiled_path import drive
from lyra.vesper.effects.request import Effects
from lyra.vesper.evidence.inputs import parts_of
from lyra.vesper.evidence.rooms import Room, outcome_of, rooms_of
from lyra.vesper.reference.evaluate import evaluate
from lyra.vesper.reference.run import ReferenceWalk, get_writes
from lyra.vesper.values.json_values import json_shape
from lyra.vesper.values.outcome import CODES, Execution, NodeError, Outcome
from lyra.vesper.values.types import EnumType, without_null

PROVERS: Final[list[Callable[[ir.NodeProgram], Mapping[str, str]]]] = []
_PAIRS_MAX: Final = 48  # operands of comparisons that are kept of one execution
_SHOWN_MAX: Final = 100  # characters of a value
_ROUNDS_MAX: Final = 8  # of a loop in which the same comparison is looked at


class ReachPlan:
    """What there is to reach in one program, and the comparisons that decide about it."""

    def __init__(self, program: ir.NodeProgram) -> None:
        self.program = program
        self.branches: dict[int, str] = {}  # id of a condition → the name of its step
        self.names: dict[int, set[str]] = {}  # id of an expression → the variables in it, once they were asked for
        self.atoms: dict[int, list[tuple[int, ir.TypedExpression]]] = {}  # id of a condition → its comparisons
        goals: dict[str, None] = {}
        for step in steps_of(program):
            goals[step.name] = None
            if isinstance(step, ir.BranchStep):
                self.branches[id(step.condition)] = step.name
                goals[f"{step.name}: then"] = goals[f"{step.name}: else"] = None
        goals.update((f"error {code}", None) for code in list_declared_errors(program))
        self.goals = tuple(goals)
        self.unreachable = unreachable(program)
        self.assigned = get_writes(program)
        number = 0
        for condition in _find_conditions(program):
            comparisons = []
            for atom in _atoms(condition):
                comparisons.append((number, atom))
                number += 1
            self.atoms[id(condition)] = comparisons

    def missing(self, reached: Iterable[str]) -> tuple[str, ...]:
        """Return the parts that were not reached and are not known to be unreachable."""
        known = {*reached, *self.unreachable}
        return tuple(goal for goal in self.goals if goal not in known)


class Watched(NamedTuple):
    """What one execution reached. `features` are all that is new when seen first; `names` are the goals among them."""

    outcome: Outcome
    is_accepted: bool
    features: set[Any]
    names: set[str]
    pairs: list[tuple[Any, Any]]  # operands of comparisons
    last_step: str
    sides: tuple[str, ...]  # each comparison that is false in a contract that was broken, with its values


def watch(plan: ReachPlan, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None = None) -> Watched:
    """Run an execution on the reference evaluator and note what it reaches. Effects must answer at once."""
    walk = _WatchedWalk(plan, execution, effects)
    outcome = drive(walk.outcome(inputs))
    if outcome.error is not None:
        walk.names.add(f"error {outcome.error.code}")
    walk.features.add(("ending", outcome.status if outcome.error is None else outcome.error.code, walk.is_accepted))
    walk.features.update(walk.names)
    return Watched(outcome, walk.is_accepted, walk.features, walk.names, walk.pairs, walk.last_step, walk.sides)


class _WatchedWalk(ReferenceWalk):
    """An execution of the reference evaluator that notes where it comes along."""

    def __init__(self, plan: ReachPlan, execution: Execution, effects: Effects | None) -> None:
        super().__init__(plan.program, execution, effects)
        self.plan = plan
        self.assigned = plan.assigned
        self.is_accepted = False
        self.features: set[Any] = set()
        self.names: set[str] = set()
        self.pairs: list[tuple[Any, Any]] = []
        self.last_step = ""
        self.sides: tuple[str, ...] = ()
        self.rounds: dict[int, int] = {}

    def names_of(self, expression: ir.TypedExpression) -> set[str]:
        names = self.plan.names.get(id(expression))
        if names is None:
            names = self.plan.names[id(expression)] = super().names_of(expression)
        return names

    def refusal(self) -> NodeError | None:
        refusal = super().refusal()
        self.is_accepted = refusal is None
        return refusal

    def holds(self, expression: ir.TypedExpression, variables: dict[str, Any]) -> bool:
        self.note(expression, variables)
        return super().holds(expression, variables)

    def is_broken(self, contract: ir.Contract, variables: dict[str, Any]) -> bool:
        if contract.expression is not None:
            self.note(contract.expression, variables)
        if not super().is_broken(contract, variables):
            return False
        self.sides = tuple(self._false_comparisons(contract.expression, variables))
        return True

    def _false_comparisons(self, condition: ir.TypedExpression | None, variables: dict[str, Any]) -> Iterator[str]:
        for _, atom in self.plan.atoms.get(id(condition), ()):
            if isinstance(atom, ir.Compare):
                with suppress(NodeError):
                    left, right = (evaluate(side, variables, self.budget) for side in (atom.left, atom.right))
                    if evaluate(atom, variables, self.budget) is False:
                        yield f"{_show(left)} {atom.operator} {_show(right)} is false"

    def all_true(self, checks: Iterable[ir.Condition], local: dict[str, Any]) -> bool:
        checks = tuple(checks)
        if checks:
            variables = {**dict.fromkeys(self.assigned), **self.ambient, **self.variables, **local}
            for check in checks:
                self.note(check.expression, variables)
        holds = super().all_true(checks, local)
        branch = self.plan.branches.get(id(checks[0].expression)) if len(checks) == 1 else None
        if branch is not None and self.is_accepted:
            self.names.add(f"{branch}: then" if holds else f"{branch}: else")
        return holds

    async def step(self, step: ir.Step, local: dict[str, Any]) -> None:
        if step.guards and not isinstance(step, ir.ValidateStep) and not self.all_true(step.guards, local):
            self.features.add((step.name, "skipped"))
            return
        self.last_step = step.name
        if self.is_accepted:
            self.names.add(step.name)
        await super().step(step, local)

    async def perform(self, step: ir.Step, kind: str, capability: str, payload: Any, **options: Any) -> Any:
        try:
            response = await super().perform(step, kind, capability, payload, **options)
        except NodeError as error:
            self.features.add((step.name, "error", getattr(error, "kind", error.code)))
            raise
        self.features.add((step.name, "answer", type(response).__name__, bool(response)))
        return response

    def note(self, condition: ir.TypedExpression, variables: dict[str, Any]) -> None:
        """Note how each comparison in a condition comes out."""
        for number, atom in self.plan.atoms.get(id(condition), ()):
            rounds = self.rounds[number] = self.rounds.get(number, 0) + 1
            if rounds > _ROUNDS_MAX:
                continue
            try:
                if isinstance(atom, ir.Compare):
                    left = evaluate(atom.left, variables, self.budget)
                    right = evaluate(atom.right, variables, self.budget)
                    self.features.add((number, _distance(left, right)))
                    if len(self.pairs) < _PAIRS_MAX and left != right:
                        self.pairs.append((left, right))
                else:
                    self.features.add((number, evaluate(atom, variables, self.budget) is True))
            except NodeError:
                self.features.add((number, "error"))


def _show(value: Any) -> str:
    shown = json_shape(value)
    text = shown if isinstance(value, Decimal) else json.dumps(shown, ensure_ascii=False)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _distance(left: Any, right: Any) -> Any:
    """Return which of two values is greater, and roughly by how much: each nearer decade is something new."""
    if isinstance(left, datetime) and isinstance(right, datetime):
        left, right = left.timestamp(), right.timestamp()
    if isinstance(left, bool) or isinstance(right, bool) or not isinstance(left, (int, float, Decimal)):
        return left == right
    if not isinstance(right, (int, float, Decimal)):
        return False
    if left == right:
        return 0
    difference = Decimal(left) - Decimal(right)
    return difference > 0, difference.adjusted(), int(str(abs(difference.scaleb(-difference.adjusted())))[0]) // 3


# ---------------------------------------------------------------- what there is


def steps_of(program: ir.NodeProgram) -> Iterator[ir.Step]:
    """Yield all steps of a program, in the order of the file, those of compensations behind their step."""

    def walk(part: Any) -> Iterator[ir.Step]:
        if isinstance(part, tuple):
            for item in part:
                yield from walk(item)
        elif isinstance(part, ir.Step | ir.ErrorRule):
            if isinstance(part, ir.Step):
                yield part
            for name in part.__struct_fields__:
                yield from walk(getattr(part, name))

    yield from walk((program.steps, program.rules))


def list_declared_errors(program: ir.NodeProgram) -> list[str]:
    """Return the codes of the errors that a node declares and that its own steps give."""
    answered = {
        part.code.value
        for part in parts_of((program.steps, program.rules))
        if isinstance(part, ir.ErrorAnswer) and isinstance(part.code, ir.Constant)
    }
    codes = dict.fromkeys(code for code in answered if isinstance(code, str))
    for output in program.error:
        kind = without_null(output.type)
        if output.name in ("error_code", "code") and isinstance(kind, EnumType):
            codes.update((code, None) for code in kind.values if code not in CODES)
    return sorted(codes)


def _find_conditions(program: ir.NodeProgram) -> Iterator[ir.TypedExpression]:
    """Yield everything that is judged as true or false."""
    for part in parts_of(program):
        match part:
            case ir.Condition() | ir.Contract():
                if part.expression is not None:
                    yield part.expression
            case ir.BranchStep() | ir.LoopStep():
                yield part.condition


def _atoms(condition: ir.TypedExpression) -> Iterator[ir.TypedExpression]:
    match condition:
        case ir.Logic():
            yield from _atoms(condition.left)
            yield from _atoms(condition.right)
        case ir.Not():
            yield from _atoms(condition.operand)
        case ir.Constant():
            return
        case _:
            yield condition


# ---------------------------------------------------------------- what cannot be reached


def unreachable(program: ir.NodeProgram) -> dict[str, str]:
    """Return the parts that no execution can reach, with the reason."""
    changed = {part.target for part in parts_of(program.steps) if isinstance(part, ir.AssignStep)}
    changed |= {name for part in parts_of(program.steps) if isinstance(part, ir.EffectStep) for name, _ in part.extract}
    rooms = {path: room for path, room in rooms_of(program).items() if path[0] not in changed}
    finding = _Unreachable(rooms)
    finding.block(program.steps, "")
    dead = finding.names
    answers = [part for part in parts_of((program.steps, program.rules)) if isinstance(part, ir.ErrorAnswer)]
    is_open = any(isinstance(part, ir.EffectStep) and part.kind == "node.call" for part in steps_of(program))
    if not is_open and all(isinstance(answer.code, ir.Constant) for answer in answers):
        given = {answer.code.value for answer in answers if isinstance(answer.code, ir.Constant)}
        for code in list_declared_errors(program):
            if code not in given:
                dead[f"error {code}"] = "no step answers with it"
            elif code in finding.dead_codes - finding.live_codes - _rule_codes(program):
                dead[f"error {code}"] = "only steps that cannot be reached answer with it"
    for prover in PROVERS:
        dead.update(prover(program))
    return dead


def _rule_codes(program: ir.NodeProgram) -> set[Any]:
    rules = [part for part in parts_of((program.steps, program.rules)) if isinstance(part, ir.ErrorRule)]
    return {
        part.code.value
        for part in parts_of(tuple(rules))
        if isinstance(part, ir.ErrorAnswer) and isinstance(part.code, ir.Constant)
    }


class _Unreachable:
    """A walk over the steps with what is known about the inputs."""

    def __init__(self, rooms: Mapping[tuple[str, ...], Room]) -> None:
        self.rooms = rooms
        self.names: dict[str, str] = {}
        self.live_codes: set[Any] = set()
        self.dead_codes: set[Any] = set()

    def decide(self, condition: ir.TypedExpression) -> bool | None:
        value = fold_constant(condition)
        return outcome_of(condition, self.rooms) if value is None else value

    def block(self, steps: tuple[ir.Step, ...], dead: str) -> str:
        """Walk consecutive steps; return why nothing after them is reached, "" where it may be."""
        for step in steps:
            why = dead
            if not why and any(self.decide(guard.expression) is False for guard in step.guards):
                why = "a guard is never true" if not isinstance(step, ir.ValidateStep) else ""
            if why:
                self.names[step.name] = why
            ends = self.inside(step, why)
            self.codes(step, why)
            if ends and not why and not step.guards:
                dead = ends
        return dead

    def inside(self, step: ir.Step, dead: str) -> str:
        match step:
            case ir.BranchStep():
                value = self.decide(step.condition)
                sides = []
                for side, steps, holds in (("then", step.then, True), ("else", step.otherwise, False)):
                    why = dead or ("" if value is None or value is holds else "its condition never comes out so")
                    if why:
                        self.names[f"{step.name}: {side}"] = why
                    sides.append(self.block(steps, why))
                return f"{step.name} ends the node before" if all(sides) and not dead else ""
            case ir.ForEachStep() | ir.ParallelStep() | ir.TransactionStep():
                self.block(step.steps, dead)
            case ir.LoopStep():
                self.block(
                    step.steps, dead or ("its condition is never true" if self.decide(step.condition) is False else "")
                )
            case ir.EffectStep():
                for steps in (step.found, step.empty, *(rule.compensation for rule in step.rules)):
                    self.block(steps, dead)
            case ir.ReturnStep():
                return f"{step.name} ends the node before"
            case ir.ValidateStep():
                if any(self.decide(check.expression) is False for check in step.checks):
                    return f"{step.name} ends the node before"
        return ""

    def codes(self, step: ir.Step, dead: str) -> None:
        failure = step.failure if isinstance(step, ir.ValidateStep) else getattr(step, "error", None)
        if isinstance(failure, ir.ErrorAnswer) and isinstance(failure.code, ir.Constant):
            (self.dead_codes if dead else self.live_codes).add(failure.code.value)

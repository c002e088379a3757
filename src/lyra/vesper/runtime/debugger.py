"""A debugger of one path: it stops an execution before a step, at a transition, or at its end.

`Debugger` is a path for a `Runtime`: it runs a node on a `WatchedPath`, which compiles programs with a call before each
step, for itself alone, and calls `prompt` with each stop. The prompt answers with a command: `step` goes to the next
step, `continue` to the next breakpoint, `quit` ends the node with the error `cancelled` before anything else is done.
Time at the prompt does not count for the node's limits. A watch on the direct path may give values back, which the step
then finds; on the Python path it can only look. The forms of `--break-on` are:

    contract_violation            an execution ends because a contract does not hold
    divergence                    the other path gives another outcome, or asks for other effects
    state_transition:a->b         an entity is about to move from state a to state b
    step:NAME                     the step is about to run
    input.amount > 10000          an expression over inputs and variables becomes true

Stops at the first two are made at the end of the execution, where all values are known. An expression is typed by the
checker like a contract, and judged by the reference path; while a name in it has no value yet, it is not true.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.clock import SystemClock
from lyra.errors import ConfigError
from lyra.vesper.check.contracts import ContractReader
from lyra.vesper.check.infer import Typing
from lyra.vesper.check.judge import lower_node
from lyra.vesper.check.state import NameScope
from lyra.vesper.direct.frames import assigned_names, parts_of
from lyra.vesper.direct.run import DirectProgram
from lyra.vesper.effects.compiled_path import CompiledPath
from lyra.vesper.effects.replay import EffectLog, ReplayEffects
from lyra.vesper.effects.request import EffectError, EffectRequest, Effects
from lyra.vesper.evidence.compare import compare_ends, is_same
from lyra.vesper.ir import Step
from lyra.vesper.nodes.model import ContractText
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.python.run import PythonProgram
from lyra.vesper.python.running import ABSENT
from lyra.vesper.reference.evaluate import StepMeter, is_true
from lyra.vesper.runtime.paths import DirectPath, PythonPath
from lyra.vesper.values.limits import TRACE_STEPS_MAX
from lyra.vesper.values.outcome import Execution, NodeError
from lyra.vesper.values.types import BOOLEAN, without_null

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from lyra.vesper.ir import NodeProgram, TypedExpression
    from lyra.vesper.nodes import Node
    from lyra.vesper.values.outcome import Outcome


_CONTRACTS: Final = frozenset(
    {"precondition_failed", "postcondition_failed", "invariant_failed", "validation_failed", "invalid_input"}
)


class DebuggerStop(msgspec.Struct, frozen=True):
    """Where an execution stands still, and why."""

    reason: str  # the form that caused it, or `step`
    location: str
    variables: dict[str, Any]
    notes: tuple[str, ...] = ()


class Debugger:
    """See the module."""

    def __init__(self, path: str, breakpoints: Sequence[NodeBreakpoint], prompt: Callable[[DebuggerStop], str]) -> None:
        self._breakpoints = breakpoints
        self._prompt = prompt
        self._path = WatchedPath(path, self._before)
        self._other = PythonPath() if path == "direct" else DirectPath()
        self._is_stepping = not breakpoints  # without one, the first step is a stop
        self._was_true: set[str] = set()
        self._waited_s = 0.0
        self._program: NodeProgram
        self._execution: Execution
        self._clock: Callable[[], float]
        self._location = "entry"
        self._variables: dict[str, Any] = {}
        self.stops = 0

    # ------------------------------------------------------------------ a path of a runtime

    def run(self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution) -> Outcome:
        execution = self._begin(program, inputs, execution)
        outcome = self._path.run(program, inputs, execution)
        if self._wants("divergence"):
            self._compared(self._differences(outcome, _end(self._other.run, program, inputs, execution)))
        self._ended(outcome)
        return outcome

    def start(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects
    ) -> Coroutine[Any, Any, Outcome]:
        return self._start(program, inputs, self._begin(program, inputs, execution), effects)

    async def _start(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects
    ) -> Outcome:
        log = EffectLog()
        outcome = await self._path.start(program, inputs, execution, _WatchedEffects(effects, log, self))
        if self._wants("divergence"):
            replay = ReplayEffects(log, replayed="direct" if self._path.name == "python" else "python")
            second = await self._other.start(program, inputs, execution, replay)
            self._compared(self._differences(outcome, second) + replay.mismatches())
        self._ended(outcome)
        return outcome

    def _begin(self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution) -> Execution:
        self._program = program
        self._variables = dict(inputs)
        self._clock = execution.monotonic
        self._execution = msgspec.structs.replace(execution, monotonic=lambda: execution.monotonic() - self._waited_s)
        return self._execution

    # ------------------------------------------------------------------ stops

    def _before(self, step: Step, variables: dict[str, Any]) -> Mapping[str, Any]:
        self._location, self._variables = step.name, variables
        reason = self._reason(step, variables)
        if reason:
            self._stop(reason)
        return {}

    def _reason(self, step: Step, variables: Mapping[str, Any]) -> str:
        """Return the first form that asks for a stop before this step."""
        reasons = ["step"] if self._is_stepping else []
        for item in self._breakpoints:
            if item.kind == "step" and item.step == step.name:
                reasons.append(item.text)
            elif item.kind == "expression":
                holds = item.is_true(self._program, self._execution, variables)
                if holds and item.text not in self._was_true:
                    reasons.append(item.text)
                (self._was_true.add if holds else self._was_true.discard)(item.text)
        return reasons[-1] if reasons else ""

    def transition(self, request: EffectRequest) -> None:
        """Stop where an entity is about to move by an edge of a breakpoint."""
        edge = str(request.payload.get("from")), str(request.payload.get("to"))
        for item in self._breakpoints:
            if item.kind == "state_transition" and item.states == edge:
                self._location = request.step
                self._stop(item.text)

    def _ended(self, outcome: Outcome) -> None:
        failure = outcome.error
        if failure is not None and failure.code in _CONTRACTS and self._wants("contract_violation"):
            with suppress(NodeError):  # the execution is over: there is nothing left to cancel
                self._stop("contract_violation", f"{failure.code}: {failure.message}")

    def _compared(self, differences: list[dict[str, Any]]) -> None:
        if differences:
            with suppress(NodeError):
                self._stop("divergence", *(f"{row['path']}: {row['python']} | {row['direct']}" for row in differences))

    def _differences(self, outcome: Outcome, second: Outcome | Exception) -> list[dict[str, Any]]:
        return compare_ends(*((outcome, second) if self._path.name == "python" else (second, outcome)))

    def _wants(self, kind: str) -> bool:
        return any(item.kind == kind for item in self._breakpoints)

    def _stop(self, reason: str, *notes: str) -> None:
        self.stops += 1
        began = self._clock()
        command = self._prompt(DebuggerStop(reason, self._location, self._variables, notes))
        self._waited_s += self._clock() - began
        self._is_stepping = command == "step"
        if command == "quit":
            raise NodeError("cancelled", "the debugger was left")


class _WatchedEffects:
    """The effects of a debugged execution, logged for the other path."""

    def __init__(self, effects: Effects, log: EffectLog, debugger: Debugger) -> None:
        self._effects = effects
        self._log = log
        self._debugger = debugger
        if hasattr(effects, "together"):
            self.together: Callable[[Sequence[Coroutine[Any, Any, Any]]], Awaitable[list[Any]]] = effects.together

    async def perform(self, request: EffectRequest) -> Any:
        if request.kind == "state.transition":
            self._debugger.transition(request)
        try:
            response = await self._effects.perform(request)
        except EffectError as error:
            self._log.add(request, error=error)
            raise
        self._log.add(request, response=response)
        return response


# ---------------------------------------------------------------- breakpoints

FORMS: Final = "contract_violation, divergence, state_transition:A->B, step:NAME or an expression"
_TRANSITION: Final = re.compile(r"state_transition:\s*(\S+?)\s*->\s*(\S+)")
_WORD: Final = re.compile(r"[a-z_]+(:.*)?")


class NodeBreakpoint(msgspec.Struct, frozen=True):
    """A form, with what is in it."""

    text: str
    kind: str  # contract_violation, divergence, state_transition, step or expression
    step: str = ""
    states: tuple[str, str] = ("", "")
    expression: TypedExpression | None = None

    def is_true(self, program: NodeProgram, execution: Execution, variables: Mapping[str, Any]) -> bool:
        """Return whether the expression holds for these values."""
        assert self.expression is not None
        try:
            return is_true(self.expression, dict(variables), StepMeter(execution, program.limits))
        except (NodeError, KeyError):
            return False


def breakpoint_of(text: str, node: Node, program: NodeProgram) -> NodeBreakpoint:
    """Return the breakpoint that a text asks for; ConfigError where it has none of the forms."""
    form = text.strip()
    if form in ("contract_violation", "divergence"):
        return NodeBreakpoint(text, form)
    transition = _TRANSITION.fullmatch(form)
    if transition is not None:
        return _at_transition(text, (transition[1], transition[2]), program)
    if form.startswith("step:"):
        return _at_step(text, form.removeprefix("step:").strip(), program)
    return _at_expression(text, form, node, program)


def _at_transition(text: str, states: tuple[str, str], program: NodeProgram) -> NodeBreakpoint:
    known = list(dict.fromkeys(state for machine in program.machines for state in machine.states))
    for state in states:
        if state not in known:
            hint = close_to(state, known) or (f"the states are {', '.join(known)}" if known else "it has no states")
            raise ConfigError(f"there is no state {state!r} in {program.node_id}", hint=hint, key="--break-on")
    return NodeBreakpoint(text, "state_transition", states=states)


def _at_step(text: str, name: str, program: NodeProgram) -> NodeBreakpoint:
    steps = steps_by_name(program)
    if name not in steps:
        hint = close_to(name, steps) or f"the steps are {', '.join(steps)}"
        raise ConfigError(f"there is no step {name!r} in {program.node_id}", hint=hint, key="--break-on")
    return NodeBreakpoint(text, "step", step=name)


def _at_expression(text: str, form: str, node: Node, program: NodeProgram) -> NodeBreakpoint:
    inputs = {entry.name: entry.type for entry in program.inputs}
    plain = form if "input" in inputs else re.sub(r"\binput\.", "", form)
    _, state = lower_node(node)
    known = len(state.issues.items)
    scope = NameScope(names={**state.end_names, **inputs}, inputs=inputs, is_contract=True)
    contract = ContractReader(state, Typing(state)).contract(ContractText(plain, ("flow",)), scope)
    problems = state.issues.items[known:]
    is_boolean = contract.expression is not None and without_null(contract.expression.type) == BOOLEAN
    if contract.expression is None or not is_boolean or problems or (_WORD.fullmatch(form) and form not in scope.names):
        reason = problems[0].message if problems and not _WORD.fullmatch(form) else ""
        raise ConfigError(
            f"{text!r} is no place to stop" + (f": {reason}" if reason else ""), hint=f"say {FORMS}", key="--break-on"
        )
    return NodeBreakpoint(text, "expression", expression=contract.expression)


def _end(run: Callable[..., Outcome], *arguments: Any) -> Outcome | Exception:
    try:
        return run(*arguments)
    except Exception as error:  # noqa: BLE001 - a path that breaks differs from one that does not
        return error


# ---------------------------------------------------------------- watching

Watch = Callable[[Step, dict[str, Any]], Mapping[str, Any]]


def steps_by_name(program: NodeProgram) -> dict[str, Step]:
    """Return all steps of a program, inner ones too."""
    return {part.name: part for part in parts_of(program) if isinstance(part, Step)}


class WatchedPath(CompiledPath[DirectProgram | PythonProgram]):
    """The path `name` (python or direct), with a watch."""

    def __init__(self, name: str, watch: Watch) -> None:
        super().__init__(self._compile_watched)
        self.name = name
        self._watch = watch

    def _compile_watched(self, program: NodeProgram) -> DirectProgram | PythonProgram:
        if self.name == "direct":
            return DirectProgram(program, self._watch)
        steps = steps_by_name(program)
        names = [entry.name for entry in program.inputs] + assigned_names(program.steps)

        def watch(step: str, variables: dict[str, Any]) -> None:
            self._watch(steps[step], _own_values(names, variables))

        return PythonProgram(program, watch)


def _own_values(names: list[str], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node's values among the local variables of generated code, where `class` is called `class_`."""
    values: dict[str, Any] = {}
    for name in names:
        python = name if name in variables else f"{name.strip('_')}_"
        if variables.get(python, ABSENT) is not ABSENT:
            values[name] = variables[python]
    return values


# ---------------------------------------------------------------- where two paths part

_Trail = list[tuple[str, dict[str, Any]]]  # the steps that ran, each with the values before it


def step_of_parting(program: NodeProgram, inputs: Mapping[str, Any], execution: Execution) -> str:
    """Return the step of a pure node after which its paths have different values, or run different steps; empty where
    they differ before the first step, or do not differ again."""
    trails: dict[str, _Trail] = {"python": [], "direct": []}
    ends: list[Outcome | Exception] = []
    for path, trail in trails.items():
        ends.append(_end(WatchedPath(path, _follow(trail)).run, program, inputs, execution))
    if not compare_ends(*ends):
        return ""
    before = ""
    for (first, python), (second, direct) in zip(*trails.values(), strict=False):
        if first != second or not all(is_same(python[name], direct[name]) for name in python if name in direct):
            return before
        before = first
    return before


def _follow(trail: _Trail) -> Watch:
    def follow(step: Step, variables: dict[str, Any]) -> Mapping[str, Any]:
        if len(trail) < TRACE_STEPS_MAX:
            trail.append((step.name, dict(variables)))
        return {}

    return follow


# ---------------------------------------------------------------- profile

ENTRY: Final = "(entry)"  # what is done before the first step: inputs, constraints, preconditions


class ProfiledPath:
    """A path that measures how long each step takes: from its beginning to that of the next step that runs. The last
    step has the contracts about the answer too, and steps of a `parallel` share their time."""

    def __init__(self, name: str) -> None:
        self._path = WatchedPath(name, self._before)
        self._clock: Callable[[], float] = SystemClock.monotonic
        self._current, self._since = ENTRY, 0.0
        self.seconds: dict[str, float] = {}  # by step, in the order in which they first ran
        self.counts: Counter[str] = Counter()

    def run(self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution) -> Outcome:
        self._begin(ENTRY)
        try:
            return self._path.run(program, inputs, execution)
        finally:
            self._end()

    async def start(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects
    ) -> Outcome:
        self._begin(ENTRY)
        try:
            return await self._path.start(program, inputs, execution, effects)
        finally:
            self._end()

    def _before(self, step: Step, _: dict[str, Any]) -> Mapping[str, Any]:
        self._end()
        self._begin(step.name)
        return {}

    def _begin(self, step: str) -> None:
        self.counts[step] += 1
        self._current, self._since = step, self._clock()

    def _end(self) -> None:
        spent = self._clock() - self._since
        self.seconds[self._current] = self.seconds.get(self._current, 0.0) + spent

    def rows(self) -> list[dict[str, Any]]:
        """Return the steps with how often they ran, their milliseconds, and their share of the whole."""
        whole = sum(self.seconds.values()) or 1.0
        return [
            {"step": step, "count": self.counts[step], "milliseconds": 1_000 * spent, "share": spent / whole}
            for step, spent in self.seconds.items()
        ]

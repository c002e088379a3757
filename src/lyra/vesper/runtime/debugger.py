"""A debugger: an execution of a node that halts before each step, on one path or on both side by side.

`NodeDebug` executes a node on a thread of its own, on a `SteppedPath`, and is a `Travel` over the steps that it has
reached: going back shows past states, `run_on` runs the execution to its next step. Where both paths are compared, one
is live and the other runs one step behind it, with the live path's effects as its answers; inside a transaction, and
inside steps that run at once, it waits until they are over. Time at a halt does not count for the limits of the node;
only a transaction's own time-out keeps running, since its database waits. `leave` ends the node with the error
`cancelled` before anything else is done. The forms of `--break-on` and `break` are:

    contract_violation            an execution ends because a contract does not hold
    divergence                    the paths have other values, run other steps, or ask for other effects
    state_transition:a->b         an entity is about to move from state a to state b
    step:NAME                     the step is about to run
    input.amount > 10000          an expression over inputs and variables becomes true

An expression is typed by the checker like a contract, and judged by the reference path; while a name in it has no value
yet, it is not true. A divergence is a stop at the first step whose values differ; one that shows in the answer alone,
at the end of the execution.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core.clock import SystemClock
from lyra.errors import ConfigError, LyraError, ParseError
from lyra.observe.timeline.step import TravelStep
from lyra.observe.timeline.travel import Breakpoint, Breakpoints, Hit, Travel
from lyra.vesper.check.infer import Typing
from lyra.vesper.check.judge import lower_node
from lyra.vesper.check.state import NameScope, TextSite, UndefinedName
from lyra.vesper.direct.frames import parts_of
from lyra.vesper.effects.compiled_path import drive
from lyra.vesper.effects.replay import EffectLog, ReplayEffects
from lyra.vesper.evidence.compare import compare_ends, is_same
from lyra.vesper.expressions.parser import parse_expression
from lyra.vesper.ir import EffectStep, NodeProgram, ParallelStep, Step, TransactionStep, TransitionStep, TypedExpression
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.reference.evaluate import StepMeter, evaluate, is_true
from lyra.vesper.runtime.stepping import WatchedPath, steps_by_name
from lyra.vesper.values.outcome import Execution, NodeError, Outcome, build_refusal, new_execution
from lyra.vesper.values.types import BOOLEAN, without_null

if TYPE_CHECKING:
    from lyra.vesper.effects.request import Effects
    from lyra.vesper.nodes import Node


_CONTRACTS: Final = frozenset(
    {"precondition_failed", "postcondition_failed", "invariant_failed", "validation_failed", "invalid_input"}
)


class PathView(msgspec.Struct, frozen=True):
    """Where a path halts: before a step, or at the end of its execution."""

    location: str
    variables: dict[str, Any]
    has_ended: bool = False


class _Halt:
    """A paused thread; `reply` resumes it, and with False ends the node."""

    def __init__(self, view: PathView) -> None:
        self.view = view
        self.reply: SimpleQueue[bool] = SimpleQueue()


class SteppedPath:
    """A path that halts before each step, on the thread that runs it, until the debugger resumes it.

    `on_begin` is called with what an execution is given, before it begins."""

    def __init__(self, name: str, on_begin: Callable[..., None] | None = None) -> None:
        self.name = name
        self.view = PathView("entry", {})
        self.ended: Outcome | Exception | None = None  # as the path gave it
        self._path = WatchedPath(name, self._before)
        self._lines: dict[str, str] | None = None  # of code, by step
        self._on_begin = on_begin
        self._halts: SimpleQueue[_Halt] = SimpleQueue()
        self._halted: _Halt | None = None
        self._waited_s = 0.0
        self._extend: Callable[[float], None] | None = None  # the time that an execution may take
        self._is_left = False

    def line_of(self, program: NodeProgram, step: str) -> str:
        """Return the line of generated code that this path runs for a step."""
        if self._lines is None:
            self._lines = self._path.code_lines(program)
        return self._lines.get(step, "")

    def run(self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution) -> Outcome:
        if self._on_begin is not None:
            self._on_begin(program, inputs, execution, None)
        try:
            outcome = self._path.run(program, inputs, self._stop_clock_at_halts(execution))
        except Exception as error:
            self.ended = error
            raise
        self.ended = outcome
        return outcome

    async def start(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects
    ) -> Outcome:
        if self._on_begin is not None:
            self._on_begin(program, inputs, execution, effects)
        try:
            outcome = await self._path.start(program, inputs, self._stop_clock_at_halts(execution), effects)
        except Exception as error:
            self.ended = error
            raise
        self.ended = outcome
        return outcome

    def finish(self) -> None:
        """Tell that the execution is over."""
        self._halts.put(_Halt(PathView(self.view.location, self.view.variables, has_ended=True)))

    def _stop_clock_at_halts(self, execution: Execution) -> Execution:
        """Return the execution with a clock that stands still at a halt."""
        clock = execution.monotonic
        self._extend = getattr(clock, "extend", None)
        return msgspec.structs.replace(execution, monotonic=lambda: clock() - self._waited_s)

    def _before(self, step: Step, variables: dict[str, Any]) -> Mapping[str, Any]:
        if self._is_left:
            raise NodeError("cancelled", "the debugger was left")
        halt = _Halt(PathView(step.name, variables))
        began = SystemClock.monotonic()
        self._halts.put(halt)
        goes_on = halt.reply.get()
        waited_s = SystemClock.monotonic() - began
        if self._extend is None:
            self._waited_s += waited_s
        else:
            self._extend(waited_s)
        if not goes_on:
            raise NodeError("cancelled", "the debugger was left")
        return {}

    def go_on(self) -> PathView:
        """Resume the path and wait for its next halt. An interrupted wait is continued by the next call."""
        if self.view.has_ended:
            return self.view
        if self._halted is not None:
            self._halted.reply.put(True)
            self._halted = None
        self._halted = self._halts.get()
        self.view = self._halted.view
        return self.view

    def leave(self) -> None:
        """End the node at the step that it halts before, or comes to next; return when it has ended."""
        self._is_left = True
        while not self.view.has_ended:
            if self._halted is not None:
                self._halted.reply.put(False)
                self._halted = None
            self._halted = self._halts.get()
            self.view = self._halted.view


class DebugStep(TravelStep):
    """A step that an execution came to, with how each path stands before it; the last one is the end."""

    views: dict[str, PathView | None] = msgspec.field(
        default_factory=dict
    )  # by path; None: it waits until the steps around this one are over
    transition: tuple[str, str] = ("", "")  # of states, that is about to be made
    differences: list[dict[str, Any]] = msgspec.field(default_factory=list)  # that were not there a step before
    violation: str = ""

    def to_data(self) -> dict[str, Any]:
        return {"step": self.number, "location": self.what}


class NodeDebug(Travel):
    """See the module. `execute` executes the node on the path that it is given, such as `Runtime.execute` does with
    `watched=`; it is called on a thread of its own. Use it in a `with`, so that the execution ends with it."""

    steps: list[DebugStep]

    def __init__(
        self,
        node: Node,
        program: NodeProgram,
        execute: Callable[[SteppedPath], Outcome],
        *,
        live: str = "direct",
        compares: bool = False,
    ) -> None:
        super().__init__([])
        self.steps = []
        self.node, self.program = node, program
        self.live = SteppedPath(live, self._began)
        self.other = SteppedPath("direct" if live == "python" else "python") if compares else None
        self.outcome: Outcome | None = None  # once the execution has ended
        self._execute = execute
        self._result: Outcome | BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._execution = new_execution()
        self._log: EffectLog | None = None
        self._known_records = self._known_mismatches = 0
        self._replay: ReplayEffects | None = None
        self._has_begun = False  # the live path, and with it the other one
        self._is_ahead = False  # the live path has come to its next step, and the other one has still to follow
        self._differing: set[str] = set()
        self._has_parted = False
        self._steps = steps_by_name(program)
        self._declared = {step.name: step for step in node.all_steps()}
        self.enclosing = _enclosing(program)

    def __enter__(self) -> NodeDebug:
        self._start(self._run_live)
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="lyra-vesper-debug", daemon=True)
        self._threads.append(thread)
        thread.start()

    # ------------------------------------------------------------------ on the threads of the paths

    def _run_live(self) -> None:
        try:
            self._result = self._execute(self.live)
        except BaseException as error:  # noqa: BLE001 - `outcome` raises it, or says what it was
            self._result = error
        finally:
            self.live.finish()

    def _began(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None
    ) -> None:
        self._execution, other = execution, self.other
        if other is None:
            return
        self._has_begun = True
        own = msgspec.structs.replace(execution, monotonic=SystemClock.monotonic)
        if effects is not None:
            self._log = getattr(effects, "log", None)
            self._replay = ReplayEffects(EffectLog(), replayed=other.name)
        replay = self._replay

        def follow() -> None:
            try:
                if replay is None:
                    other.run(program, inputs, own)
                else:
                    drive(other.start(program, inputs, own, replay))
            except Exception:  # noqa: BLE001 - `ended` has it: a path that breaks differs from one that does not
                return
            finally:
                other.finish()

        self._start(follow)

    # ------------------------------------------------------------------ going on

    @property
    def paths(self) -> dict[str, SteppedPath]:
        """Return the paths by name, Python first."""
        paths = [self.live] if self.other is None else [self.live, self.other]
        return {path.name: path for path in sorted(paths, key=lambda path: path.name, reverse=True)}

    @property
    def is_over(self) -> bool:
        """Return whether the execution has ended and its end is among the steps."""
        return bool(self.steps) and self.steps[-1].kind == "end"

    def run_on(self) -> bool:
        """Run on to the next step, or to the end; False where the execution has ended already."""
        if self.is_over:
            return False
        view = self.live.view if self._is_ahead else self.live.go_on()
        self._is_ahead = True
        views: dict[str, PathView | None] = {self.live.name: view}
        if self.other is not None:
            views[self.other.name] = self._follow(self.other, view)
        self._is_ahead = False
        differences = self._new_differences(views)
        if view.has_ended:
            self.outcome = self.result()
        self.steps.append(
            DebugStep(
                number=len(self.steps) + 1,
                kind="end" if view.has_ended else "step",
                what=view.location,
                views=views,
                transition=("", "") if view.has_ended else self._transition(view),
                differences=differences,
                violation=self._violation() if view.has_ended else "",
            )
        )
        return True

    def _follow(self, other: SteppedPath, view: PathView) -> PathView | None:
        """Run the other path up to the halt of the live one."""
        if not self._has_begun:
            return None  # the node was refused before its first step, or answered from an earlier execution
        if self._replay is not None and self._log is not None:
            for record in self._log.records[self._known_records :]:
                self._replay.learn(record)
            self._known_records = len(self._log.records)
        if self._is_held(view.location) and not view.has_ended:
            return None
        other.go_on()
        while not other.view.has_ended and (view.has_ended or self._is_held(other.view.location)):
            other.go_on()
        return other.view

    def _is_held(self, step: str) -> bool:
        """Return whether the other path waits while the live one is at this step."""
        around = (self._steps[name] for name in self.enclosing.get(step, ()))
        return not self.program.pure and any(isinstance(item, TransactionStep | ParallelStep) for item in around)

    def result(self) -> Outcome:
        """Return the outcome of an execution that has ended; a LyraError of the runtime is raised."""
        result = self._result
        if isinstance(result, LyraError) or (isinstance(result, BaseException) and not isinstance(result, Exception)):
            raise result
        if isinstance(result, Exception):
            return build_refusal("crash", f"{type(result).__name__}: {result}")
        assert result is not None
        return result

    def advance(self, count: int) -> None:
        """Move forward by a number of steps; the execution runs where it has not reached them yet."""
        for _ in range(count):
            if self.position == len(self.steps) and not self.run_on():
                return
            self.goto(self.position + 1)

    def is_inside(self, outer: str) -> bool:
        """Return whether the step at this position stands inside another one."""
        step = self.steps[self.position - 1]
        return step.kind != "end" and outer in self.enclosing.get(step.what, ())

    def leave(self) -> None:
        """End the execution, if it has not ended, before anything else is done."""
        self.live.leave()
        if self.other is not None and self._has_begun:
            self.other.leave()
        for thread in self._threads:
            thread.join()

    # ------------------------------------------------------------------ what a step shows

    def _new_differences(self, views: Mapping[str, PathView | None]) -> list[dict[str, Any]]:
        """Return in what the paths differ now, and did not a step before."""
        python, direct = views.get("python"), views.get("direct")
        if python is None or direct is None:
            return []
        if python.has_ended and direct.has_ended:
            ends = self.paths["python"].ended, self.paths["direct"].ended
            if ends[0] is None or ends[1] is None:
                return []
            rows = [] if self._replay is None else self._replay.mismatches()[self._known_mismatches :]
            return compare_ends(ends[0], ends[1]) + rows
        rows = [] if self._replay is None else self._replay.mismatches_so_far[self._known_mismatches :]
        self._known_mismatches += len(rows)
        places = [f"{view.location} (ended)" if view.has_ended else view.location for view in (python, direct)]
        if places[0] != places[1] and not self._has_parted:
            self._has_parted = True
            rows.append({"path": "location", "kind": "step_mismatch", "python": places[0], "direct": places[1]})
        for name in python.variables:
            if name in direct.variables and not is_same(python.variables[name], direct.variables[name]):
                if name not in self._differing:
                    values = {"python": python.variables[name], "direct": direct.variables[name]}
                    rows.append({"path": name, "kind": "value_mismatch", **values})
                self._differing.add(name)
            else:
                self._differing.discard(name)
        return rows

    def _transition(self, view: PathView) -> tuple[str, str]:
        """Return the move between states that the step is about to make."""
        step = self._steps[view.location]
        if not isinstance(step, TransitionStep):
            return ("", "")
        meter, values = StepMeter(self._execution, self.program.limits), dict(view.variables)
        try:
            if not all(is_true(guard.expression, values, meter) for guard in step.guards):
                return ("", "")
            return str(evaluate(step.source, values, meter)), str(evaluate(step.target, values, meter))
        except (NodeError, KeyError):
            return ("", "")

    def _violation(self) -> str:
        failure = None if self.outcome is None else self.outcome.error
        return f"{failure.code}: {failure.message}" if failure is not None and failure.code in _CONTRACTS else ""

    def evaluate(self, expression: TypedExpression, variables: Mapping[str, Any]) -> Any:
        """Return the value of an expression; a NodeError, or a KeyError, where it has none."""
        return evaluate(expression, dict(variables), StepMeter(self._execution, self.program.limits))

    def values_at(self, position: int) -> Mapping[str, Any]:
        """Return the values of the live path at a step; none before the first."""
        view = self.steps[position - 1].views[self.live.name] if 0 < position <= len(self.steps) else None
        return {} if view is None else view.variables

    def texts(self, step: TravelStep) -> Sequence[str]:
        assert isinstance(step, DebugStep)
        return (step.what, self.call_words(step.what), *step.transition)

    # ------------------------------------------------------------------ what is called next

    def call_words(self, step: str) -> str:
        """Return the operation of a step, with what the node's text says about it."""
        declared = self._declared.get(step)
        if declared is None:
            return type(self._steps[step]).__name__.removesuffix("Step").lower() if step in self._steps else ""
        values = (declared.settings[key].value for key in _SHOWN_SETTINGS if key in declared.settings)
        return " ".join([declared.operation, *(" ".join(value.split()) for value in values if isinstance(value, str))])

    def calls(self, step: DebugStep) -> dict[str, str]:
        """Return the next call of each path: a line of the generated Python, or the operation of the node."""
        calls = {}
        for name, path in self.paths.items():
            view = step.views.get(name)
            if view is None or view.has_ended:
                continue
            line = path.line_of(self.program, view.location) if name == "python" else ""
            acts = isinstance(self._steps[view.location], EffectStep | TransitionStep | TransactionStep)
            replayed = " (answered as the other path was)" if acts and path is self.other else ""
            calls[name] = (line or self.call_words(view.location)) + replayed
        return calls


# Settings of a step that say what it does, in the order in which they are shown.
_SHOWN_SETTINGS: Final = (
    "expression", "template", "query", "table", "provider", "method", "endpoint", "event_type", "node_id",
    "agent", "state_machine", "from", "to", "condition", "input",
)  # fmt: skip


def _enclosing(program: NodeProgram) -> dict[str, tuple[str, ...]]:
    """Return, for each step, the steps that it stands in."""
    outer_names: dict[str, tuple[str, ...]] = {}
    for outer in steps_by_name(program).values():
        for part in parts_of(outer):
            if isinstance(part, Step) and part is not outer:
                outer_names[part.name] = (*outer_names.get(part.name, ()), outer.name)
    return outer_names


# ---------------------------------------------------------------- breakpoints

FORMS: Final = "contract_violation, divergence, state_transition:A->B, step:NAME or an expression"
_TRANSITION: Final = re.compile(r"state_transition:\s*(\S+?)\s*->\s*(\S+)")
_WORD: Final = re.compile(r"[a-z_]+(:.*)?")


class NodeBreakpoint(msgspec.Struct, frozen=True):
    """A form, with what is in it."""

    kind: str  # contract_violation, divergence, state_transition, step, expression or watch
    step: str = ""
    states: tuple[str, str] = ("", "")
    expression: TypedExpression | None = None


class NodeBreakpoints(Breakpoints):
    """Where an execution stops: each breakpoint is judged at the steps that the travel has come to."""

    forms: ClassVar[dict[str, str]] = {
        "contract_violation": "contract_violation",
        "divergence": "divergence",
        "state_transition": "state_transition:A->B",
        "step": "step:NAME",
        "expression": "an expression such as input.amount > 10000",
    }

    def __init__(self, travel: NodeDebug) -> None:
        super().__init__(travel)
        self._debug = travel

    def add(self, text: str) -> Breakpoint:
        """Set the breakpoint that a form asks for; ConfigError where it is none of the forms."""
        return self._set(text, breakpoint_of(text, self._debug.node, self._debug.program))

    def watch(self, text: str) -> Breakpoint:
        """Stop wherever the value of an expression is another one than a step before."""
        expression = type_expression(text, self._debug.node, self._debug.program)
        return self._set(f"watch {text}", NodeBreakpoint("watch", expression=expression))

    def _set(self, text: str, value: NodeBreakpoint) -> Breakpoint:
        point = Breakpoint(self._numbers + 1, text.strip(), "")
        point.value = value
        self._numbers += 1
        self.all.append(point)
        return point

    def forward(self) -> Hit | None:
        """Continue to the next stop, and let the execution run on where it is not among the steps yet."""
        travel = self._debug
        position = travel.position
        while position < len(travel.steps) or travel.run_on():
            position += 1
            travel.goto(position)
            hit = self.stop_at(position)
            if hit is not None:
                return hit
        return None

    def _stops(self, point: Breakpoint, step: TravelStep | None, position: int) -> bool:
        if not isinstance(step, DebugStep):
            return False
        form: NodeBreakpoint = point.value
        match form.kind:
            case "step":
                return step.kind == "step" and step.what == form.step
            case "state_transition":
                return step.transition == form.states
            case "divergence":
                return bool(step.differences)
            case "contract_violation":
                return bool(step.violation)
        if step.kind != "step":
            return False
        before, now = (self.value(form.expression, place) for place in (position - 1, position))
        return not is_same(before, now) if form.kind == "watch" else now is True and before is not True

    def value(self, expression: TypedExpression | None, position: int) -> Any:
        """Return the value of an expression at a step; NO_VALUE where it has none."""
        assert expression is not None
        try:
            return self._debug.evaluate(expression, self._debug.values_at(position))
        except (NodeError, KeyError):
            return NO_VALUE


NO_VALUE: Final = object()


def breakpoint_of(text: str, node: Node, program: NodeProgram) -> NodeBreakpoint:
    """Return the breakpoint that a text asks for; ConfigError where it has none of the forms."""
    form = text.strip()
    if form in ("contract_violation", "divergence"):
        return NodeBreakpoint(form)
    transition = _TRANSITION.fullmatch(form)
    if transition is not None:
        return _at_transition((transition[1], transition[2]), program)
    if form.startswith("step:"):
        return _at_step(form.removeprefix("step:").strip(), program)
    try:
        expression = type_expression(form, node, program)
    except ConfigError as error:
        reason = "" if _WORD.fullmatch(form) else f": {error.message}"
        raise _no_place(text, reason) from None
    if without_null(expression.type) != BOOLEAN:
        raise _no_place(text, "" if _WORD.fullmatch(form) else ": it is neither true nor false")
    return NodeBreakpoint("expression", expression=expression)


def _no_place(text: str, reason: str) -> ConfigError:
    return ConfigError(f"{text!r} is no place to stop{reason}", hint=f"say {FORMS}", key="--break-on")


def _at_transition(states: tuple[str, str], program: NodeProgram) -> NodeBreakpoint:
    known = list(dict.fromkeys(state for machine in program.machines for state in machine.states))
    for state in states:
        if state not in known:
            hint = close_to(state, known) or (f"the states are {', '.join(known)}" if known else "it has no states")
            raise ConfigError(f"there is no state {state!r} in {program.node_id}", hint=hint, key="--break-on")
    return NodeBreakpoint("state_transition", states=states)


def _at_step(name: str, program: NodeProgram) -> NodeBreakpoint:
    steps = steps_by_name(program)
    if name not in steps:
        hint = close_to(name, steps) or f"the steps are {', '.join(steps)}"
        raise ConfigError(f"there is no step {name!r} in {program.node_id}", hint=hint, key="--break-on")
    return NodeBreakpoint("step", step=name)


def type_expression(text: str, node: Node, program: NodeProgram) -> TypedExpression:
    """Return an expression over the inputs and variables of a node; ConfigError where it is none."""
    inputs = {entry.name: entry.type for entry in program.inputs}
    plain = text if "input" in inputs else re.sub(r"\binput\.", "", text)
    _, state = lower_node(node)
    known = len(state.issues.items)
    scope = NameScope(names={**state.end_names, **inputs}, inputs=inputs, is_contract=True)
    try:
        expression = Typing(state).term(parse_expression(plain), scope, TextSite(("flow",)))
    except (ParseError, UndefinedName) as error:
        raise ConfigError(getattr(error, "message", "") or str(error), key="expression") from None
    problems = state.issues.items[known:]
    if problems:
        raise ConfigError(problems[0].message, hint=problems[0].hint, key="expression")
    return expression

"""A stored execution run again: its steps, the values before each, and what changes would come to.

`NodeReplay` runs the recorded inputs on the watched direct path, at the recorded time. Effects are answered from the
journal where the request is the recorded one. An edit gives a value to a variable or input before a step, or to a
parameter of that step's request. A request that is not the recorded one any more, or was never made, is refused with
`needs_live`, unless the replay is live: then it goes through the door of a runtime, under the node's rights. `changes`
compares a run with the recorded one; `text_with` writes edited parameters into the text of the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.clock import SystemClock
from lyra.errors import ConfigError
from lyra.observe.timeline.step import TravelStep
from lyra.observe.timeline.travel import Travel
from lyra.vesper.effects.replay import EffectLog, ReplayEffects, request_digest
from lyra.vesper.effects.request import EffectError, EffectRequest, Effects, TransactionBody, TransactionEnd, transact
from lyra.vesper.evidence.compare import is_same
from lyra.vesper.ir import EffectStep, NodeProgram, Step, TransactionStep, TransitionStep, ValidateStep
from lyra.vesper.nodes import Node, load
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.reference.evaluate import StepMeter, is_true
from lyra.vesper.runtime.recording import StoredTrace, trace_data
from lyra.vesper.runtime.stepping import WatchedPath, steps_by_name
from lyra.vesper.values.limits import TRACE_STEPS_MAX
from lyra.vesper.values.outcome import Execution, NodeError, Outcome, build_refusal
from lyra.vesper.values.triggers import seconds_of

if TYPE_CHECKING:
    from lyra.vesper.runtime.runtime import Runtime


class ReplayedStep(TravelStep):
    """A step of an execution, in the order of time. `what` is its name, and `error` the code that it failed with: what
    its act gave, whatever rules answer about it."""

    variables: dict[str, Any] = msgspec.field(default_factory=dict)  # before it
    is_skipped: bool = False
    effects: list[str] = msgspec.field(default_factory=list)  # how each request of the step was answered
    requests: list[EffectRequest] = msgspec.field(default_factory=list)  # as they were made, edits included
    milliseconds: float | None = None  # that its acts took, when they were performed; None: it did not act

    @property
    def mark(self) -> str:
        return "–" if self.is_skipped else "✗" if self.error else "✓"

    def to_data(self) -> dict[str, Any]:
        return {"step": self.number, "name": self.what, "mark": self.mark, "milliseconds": self.milliseconds}

    def took(self, milliseconds: float) -> None:
        """Add the time of one act."""
        self.milliseconds = (self.milliseconds or 0.0) + milliseconds

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of its request that can be edited, by name."""
        values: dict[str, Any] = {}
        for request in self.requests[-1:]:
            payload = request.payload if isinstance(request.payload, dict) else {}
            parts = [inner for key in _PARTS if isinstance(inner := payload.get(key), dict)]
            values = {name: value for part in (payload, *reversed(parts)) for name, value in part.items()}
            values = {name: value for name, value in values.items() if not isinstance(value, dict)}
            if request.timeout_s is not None:
                values["timeout"] = f"{request.timeout_s:g}s"
        return values


def trace_named(runtime: Runtime, trace_id: str) -> StoredTrace:
    """Return the stored execution; ConfigError with the nearest names for an unknown one."""
    traces = runtime.traces()
    trace = traces.get(trace_id)
    if trace is None:
        latest = list(traces)[-1:]
        hint = close_to(trace_id, traces) or (f"the latest is {latest[0]}" if latest else "no execution is stored yet")
        raise ConfigError(f"no execution {trace_id!r} is stored", hint=hint, key="TRACE")
    return trace


class NodeReplay(Travel):
    """See the module."""

    steps: list[ReplayedStep]

    def __init__(self, runtime: Runtime, trace: StoredTrace, *, is_live: bool = False) -> None:
        super().__init__()
        self._runtime = runtime
        self.trace = trace
        self.program: NodeProgram = runtime.program_of_source(trace.source)
        self.inputs, ambient, self._effects = trace_data(trace, runtime.privacy)
        self._is_live = is_live
        self._path = WatchedPath("direct", self._before)
        self._execution = Execution(
            now=datetime.fromtimestamp(trace.now, UTC),
            trace_id=trace.trace_id,
            predicates=runtime.predicates,
            ambient=ambient,
        )
        self.edits: dict[int, dict[str, Any]] = {}  # by number of step
        self.refused = ""  # the request that was not recorded, in words
        self.outcome: Outcome = self.run()
        self._recorded_run = self._summary()

    def edit(self, number: int, name: str, value: Any) -> None:
        """Edit a step: `run` then sets a variable, or a parameter of its request, to this value."""
        step = self.step(number)
        acts = isinstance(steps_by_name(self.program)[step.what], EffectStep | TransitionStep | TransactionStep)
        if name not in step.variables and not acts:
            hint = close_to(name, step.variables) or f"here are {', '.join(step.variables)}"
            raise ConfigError(f"{step.what} has no value {name!r}", hint=hint, key="NAME")
        if name in _TIMEOUTS and name not in step.variables and seconds_of(value) is None:
            raise ConfigError(f"{value!r} is no duration", hint="such as timeout=60s", key="VALUE")
        self.edits.setdefault(number, {})[name] = value

    def changes(self) -> list[tuple[str, Any, Any]]:
        """Return how the latest run differs from the recorded one: the part, before and after."""
        before, now = self._recorded_run, self._summary()
        names = dict.fromkeys((*before, *now))
        return [
            (name, before.get(name), now.get(name)) for name in names if not is_same(before.get(name), now.get(name))
        ]

    def _summary(self) -> dict[str, Any]:
        """Summarize a run: the marks of its steps, the status, the outputs and the error."""
        outcome, failure = self.outcome, self.outcome.error
        steps = {f"step {step.number} {step.what}": step.mark for step in self.steps}
        return {
            **steps,
            "status": outcome.status,
            "error": None if failure is None else failure.code,
            **outcome.outputs,
        }

    def text_with(self, node: Node) -> str:
        """Return the text of the node with all edited parameters written in; ConfigError where one is a value of this
        execution alone, or does not stand in the text."""
        text = node.document.text
        for number, edits in sorted(self.edits.items()):
            step = self.step(number)
            for name, value in edits.items():
                if name in step.variables:
                    message = f"{name} is a value of this execution: only parameters stand in the text of a node"
                    raise ConfigError(message, key="apply")
                text = _with_setting(load(text), step.what, name, value)
        if not self.edits:
            raise ConfigError("nothing is changed", hint="edit STEP NAME=VALUE, and run", key="apply")
        load(text)
        return text

    def step(self, number: int) -> ReplayedStep:
        """Return a step by its number; ConfigError for an unknown number."""
        if not 1 <= number <= len(self.steps):
            raise ConfigError(f"there is no step {number}", hint=f"1 to {len(self.steps)}", key="STEP")
        return self.steps[number - 1]

    def run(self) -> Outcome:
        """Run again, with the edits. A request that needs --live is the outcome, whatever rules make of it."""
        self.steps = []
        self.refused = ""
        if self.program.pure:
            self.outcome = self._path.run(self.program, self.inputs, self._execution)
        elif self._is_live and self.edits:
            self.outcome = self._runtime.rerun(self.trace, self.inputs, self)
        else:
            replay = _EditedEffects(self, None)
            self.outcome = self._path.run(self.program, self.inputs, self._execution, replay)
        if self.refused:
            self.outcome = build_refusal("needs_live", self.refused)
        failure = self.outcome.error
        is_of_steps = failure is not None and failure.phase not in ("input", "precondition", "postcondition")
        if self.steps and failure is not None and is_of_steps and not any(step.error for step in self.steps):
            self.steps[-1].error = failure.code  # no act failed: the last step did
        return self.outcome

    async def start(
        self,
        program: NodeProgram,
        inputs: Mapping[str, Any],
        execution: Execution,  # noqa: ARG002 (the recorded one counts)
        effects: Effects,
    ) -> Outcome:
        """Run as the direct path of a runtime: at the recorded time, with effects that may be live."""
        self.steps = []
        return await self._path.start(program, inputs, self._execution, _EditedEffects(self, effects))

    @property
    def recorded(self) -> ReplayEffects:
        return ReplayEffects(EffectLog(self._effects))

    def changes_of_request(self, request: EffectRequest) -> EffectRequest:
        """Return the request with the edits of its step that name no variable."""
        step = self.steps[-1]
        edits = {key: item for key, item in self.edits.get(step.number, {}).items() if key not in step.variables}
        payload = request.payload
        for name, value in edits.items():
            if name in _TIMEOUTS:
                request = msgspec.structs.replace(request, timeout_s=seconds_of(value))
            else:
                payload = _with_parameter(payload, name, value)
        return msgspec.structs.replace(request, payload=payload)

    def _before(self, step: Step, variables: dict[str, Any]) -> Mapping[str, Any]:
        number = len(self.steps) + 1
        if number > TRACE_STEPS_MAX:
            raise NodeError("resource_limit", f"a replay shows {TRACE_STEPS_MAX} steps")
        changes = {name: item for name, item in self.edits.get(number, {}).items() if name in variables}
        values = {**variables, **changes}
        skipped = not isinstance(step, ValidateStep) and not self._is_wanted(step, values)
        self.steps.append(
            ReplayedStep(number=number, kind="step", what=step.name, variables=values, is_skipped=skipped)
        )
        return changes

    def _is_wanted(self, step: Step, values: Mapping[str, Any]) -> bool:
        meter = StepMeter(self._execution, self.program.limits)
        try:
            return all(is_true(guard.expression, dict(values), meter) for guard in step.guards)
        except (NodeError, KeyError):
            return True


_PARTS: Final = ("parameters", "data", "values", "headers")  # of a request, that hold parameters by name
_TIMEOUTS: Final = ("timeout", "timeout_s")


def _with_setting(node: Node, step: str, name: str, value: Any) -> str:
    """Return the text of a node with another value for a setting or a parameter of a step."""
    declared = next((known for known in node.all_steps() if known.name == step), None)
    if declared is None:
        raise ConfigError(f"{node.node_id} has no step {step!r} any more", key="apply")
    if name in _TIMEOUTS:
        name = "timeout"
        value = f"{seconds_of(value):g}s"
    settings = {**declared.parameters, **declared.settings}
    if name in settings:
        return node.document.with_scalar(settings[name].path, value)
    for part in settings.values():
        if isinstance(part.value, dict) and name in part.value:
            return node.document.with_scalar((*part.path, name), value)
    raise ConfigError(f"{step} has no {name!r} in {node.file}", hint=f"write it there by hand: {name}: {value}")


def _with_parameter(payload: Any, name: str, value: Any) -> Any:
    """Return the payload with another value for a parameter, wherever a request of its kind has them."""
    for part in _PARTS:
        inner = payload.get(part)
        if isinstance(inner, dict) and name in inner:
            return {**payload, part: {**inner, name: value}}
    if name in payload:
        return {**payload, name: value}
    known = [key for part in (payload, *payload.values()) if isinstance(part, dict) for key in part]
    raise EffectError("unknown_parameter", f"the request has no parameter {name!r}, but {', '.join(known)}")


@contextmanager
def _failures_of(step: ReplayedStep) -> Iterator[None]:
    """Note with which error an act of the step fails."""
    try:
        yield
    except EffectError as error:
        step.error = error.kind
        raise


class _EditedEffects:
    """Effects that answer from the journal as far as requests are equal; other ones need a live door."""

    def __init__(self, replayer: NodeReplay, live: Effects | None, recorded: ReplayEffects | None = None) -> None:
        self._replayer = replayer
        self._live = live
        self._recorded = recorded or replayer.recorded

    async def perform(self, request: EffectRequest) -> Any:
        step = self._replayer.steps[-1]
        request, notes = self._replayer.changes_of_request(request), step.effects
        step.requests.append(request)
        if self._recorded.has(request):
            notes.append(f"{request.kind}: from the journal")
            self._take_time(step, request)
            with _failures_of(step):
                return await self._recorded.perform(request)
        if self._live is None:
            notes.append(f"{request.kind}: refused, it was not recorded")
            message = f"{request.step} asks for what was not recorded; say --live to perform it"
            self._replayer.refused = self._replayer.refused or message
            step.error = "needs_live"
            raise EffectError("needs_live", message)
        notes.append(f"{request.kind}: performed")
        began = SystemClock.monotonic()
        try:
            with _failures_of(step):
                return await self._live.perform(_with_new_key(request, None))
        finally:
            step.took(1_000 * (SystemClock.monotonic() - began))

    def _take_time(self, step: ReplayedStep, request: EffectRequest) -> None:
        """Add the time that an act took when it was performed, where that was measured."""
        record = self._recorded.record_of(request)
        if record is not None and record.milliseconds:
            step.took(record.milliseconds)

    async def transact(self, request: EffectRequest, body: TransactionBody) -> TransactionEnd:
        """Return how the steps of a transaction end: over its record as long as no edit changes it, else performed as a
        whole."""
        replayer, started = self._replayer, len(self._replayer.steps)
        request = replayer.changes_of_request(request)
        if self._recorded.has(request):
            replayer.steps[-1].effects.append(f"{request.kind}: from the journal")
            self._take_time(replayer.steps[-1], request)
            record = await self._recorded.perform(request)
            kept = _EditedEffects(replayer, None, ReplayEffects(EffectLog.from_record(record)))
            refused = replayer.refused
            end = await body(kept)
            if replayer.refused == refused or self._live is None:
                return end
            replayer.refused = refused
            del replayer.steps[started:]
        elif self._live is None:
            await self.perform(request)  # refused
        assert self._live is not None
        replayer.steps[-1].effects.append(f"{request.kind}: performed")
        keyed = _with_new_key(request, [[number, edits] for number, edits in sorted(replayer.edits.items())])
        return await transact(self._live, keyed, lambda effects: body(_EditedStatements(replayer, effects)))


def _with_new_key(request: EffectRequest, edits: Any) -> EffectRequest:
    """Return the request under a key of its own: by the key of the recorded one it would count as done."""
    digest = request_digest(msgspec.structs.replace(request, payload=[request.payload, edits]))
    return msgspec.structs.replace(request, idempotency_key=f"{request.idempotency_key}/{digest}")


class _EditedStatements:
    """The effects of a transaction that is performed, its requests edited."""

    def __init__(self, replayer: NodeReplay, live: Effects) -> None:
        self._replayer = replayer
        self._live = live

    async def perform(self, request: EffectRequest) -> Any:
        return await self._live.perform(self._replayer.changes_of_request(request))

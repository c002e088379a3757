"""A debugger of one path: it stops an execution before a step, at a transition, or at its end.

`Debugger` is a path for a `Runtime`: it runs a node on the watched path and calls `prompt` with each stop. The prompt
answers with a command: `step` goes to the next step, `continue` to the next breakpoint, `quit` ends the node with the
error `cancelled` before anything else is done. Time at the prompt does not count for the node's limits. Stops at
contract_violation and divergence are made at the end of the execution, where all values are known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.vesper.effects.replay import EffectLog, ReplayEffects
from lyra.vesper.effects.request import EffectError, EffectRequest, Effects
from lyra.vesper.evidence.compare import compare
from lyra.vesper.runtime.paths import DirectPath, PythonPath
from lyra.vesper.runtime.watching import WatchedPath
from lyra.vesper.values.outcome import NodeError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from lyra.vesper.ir import NodeProgram, Step
    from lyra.vesper.runtime.breakpoints import NodeBreakpoint
    from lyra.vesper.values.outcome import Execution, Outcome


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
            self._compared(self._differences(outcome, self._other.run(program, inputs, execution)))
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
        """The first form that asks for a stop before this step."""
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
        """An entity is about to move."""
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

    def _differences(self, outcome: Outcome, second: Outcome) -> list[dict[str, Any]]:
        return compare(outcome, second) if self._path.name == "python" else compare(second, outcome)

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

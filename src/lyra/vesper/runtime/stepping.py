"""Paths that tell of their steps: followed, measured, and where two of them part.

`WatchedPath` compiles programs for itself alone, with a call before each step. A watch on the direct path may give
values back, which the step then finds; on the Python path it can only look. `step_of_parting` follows both paths of a
pure node, `ProfiledPath` measures the steps of one, and the debugger (`runtime.debugger`) halts before them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.core.clock import SystemClock
from lyra.vesper.direct.frames import list_assigned_names, parts_of
from lyra.vesper.direct.run import DirectProgram
from lyra.vesper.effects.compiled_path import CompiledPath
from lyra.vesper.evidence.compare import compare_ends, is_same
from lyra.vesper.ir import ForEachStep, NodeProgram, Step
from lyra.vesper.python.run import PythonProgram, find_step_lines
from lyra.vesper.python.running import ABSENT
from lyra.vesper.values.limits import TRACE_STEPS_MAX

if TYPE_CHECKING:
    from lyra.vesper.effects.request import Effects
    from lyra.vesper.values.outcome import Execution, Outcome


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

    def code_lines(self, program: NodeProgram) -> dict[str, str]:
        """Return the first line of generated code for each step; nothing on the direct path."""
        compiled = self.compile(program)
        return {} if isinstance(compiled, DirectProgram) else find_step_lines(compiled.generated.tree)

    def _compile_watched(self, program: NodeProgram) -> DirectProgram | PythonProgram:
        if self.name == "direct":
            return DirectProgram(program, self._watch)
        steps = steps_by_name(program)
        names = [entry.name for entry in program.inputs] + list_assigned_names(program.steps)
        loops: dict[str, list[str]] = {}  # variables of the loops around a step
        for loop in (step for step in steps.values() if isinstance(step, ForEachStep)):
            for part in parts_of(loop.steps):
                if isinstance(part, Step):
                    loops.setdefault(part.name, []).append(loop.variable)

        def watch(step: str, variables: dict[str, Any]) -> None:
            self._watch(steps[step], _select_own_values([*names, *loops.get(step, ())], variables))

        return PythonProgram(program, watch)


def _select_own_values(names: list[str], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node's values among the local variables of generated code, where `class` is called `class_`."""
    values: dict[str, Any] = {}
    for name in names:
        python = name if name in variables else f"{name.strip('_')}_"
        if variables.get(python, ABSENT) is not ABSENT:
            values[name] = variables[python]
    return values


def _end(run: Callable[..., Outcome], *arguments: Any) -> Outcome | Exception:
    try:
        return run(*arguments)
    except Exception as error:  # noqa: BLE001 - a path that breaks differs from one that does not
        return error


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

"""Paths whose steps are watched: what a debugger and a replay run a node on.

A `WatchedPath` compiles programs with a call before each step, for itself alone; the programs that others run are
compiled without. The watch is told the step and the values of the node's inputs and variables. On the direct path it
may give values back, which the step then finds; on the Python path it can only look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lyra.vesper.direct.program import DirectProgram
from lyra.vesper.direct.walk import assigned_names, parts_of
from lyra.vesper.effects.drive import drive
from lyra.vesper.ir import NodeProgram, Step
from lyra.vesper.python.run import PythonProgram
from lyra.vesper.python.running import ABSENT

if TYPE_CHECKING:
    from lyra.vesper.effects.request import Effects
    from lyra.vesper.values.outcome import Execution, Outcome


Watch = Callable[[Step, dict[str, Any]], Mapping[str, Any]]


def steps_by_name(program: NodeProgram) -> dict[str, Step]:
    """All steps of a program, inner ones too."""
    return {part.name: part for part in parts_of(program) if isinstance(part, Step)}


class WatchedPath:
    """The path `name` (python or direct), with a watch."""

    def __init__(self, name: str, watch: Watch) -> None:
        self.name = name
        self._watch = watch
        self._compiled: dict[str, DirectProgram | PythonProgram] = {}  # by digest

    def run(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None = None
    ) -> Outcome:
        compiled = self._program(program)
        if program.pure:
            return compiled.execute(inputs, execution)
        return drive(compiled.execute_async(inputs, execution, effects))

    async def start(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None = None
    ) -> Outcome:
        compiled = self._program(program)
        if program.pure:
            return compiled.execute(inputs, execution)
        return await compiled.execute_async(inputs, execution, effects)

    def _program(self, program: NodeProgram) -> DirectProgram | PythonProgram:
        compiled = self._compiled.get(program.digest)
        if compiled is None:
            compiled = self._compiled[program.digest] = self._compile(program)
        return compiled

    def _compile(self, program: NodeProgram) -> DirectProgram | PythonProgram:
        if self.name == "direct":
            return DirectProgram(program, self._watch)
        steps = steps_by_name(program)
        names = [entry.name for entry in program.inputs] + assigned_names(program.steps)

        def watch(step: str, variables: dict[str, Any]) -> None:
            self._watch(steps[step], _own_values(names, variables))

        return PythonProgram(program, watch)


def _own_values(names: list[str], variables: Mapping[str, Any]) -> dict[str, Any]:
    """The node's values among the local variables of generated code, where `class` is called `class_`."""
    values: dict[str, Any] = {}
    for name in names:
        python = name if name in variables else f"{name.strip('_')}_"
        if variables.get(python, ABSENT) is not ABSENT:
            values[name] = variables[python]
    return values

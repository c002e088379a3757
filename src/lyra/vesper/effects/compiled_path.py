"""A path whose programs are compiled: each program is compiled once, and run with or without effects.

The two paths of Vesper share this and no evaluator: how a program is compiled and executed is each path's own. `drive`
runs a coroutine whose effects answer at once, without an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from lyra.vesper.effects.request import Effects
from lyra.vesper.ir import NodeProgram
from lyra.vesper.values.outcome import Execution, Outcome

T = TypeVar("T")
_KEPT_MAX: Final = 1024
_LAYOUTS_MAX: Final = 4  # programs of one digest: they differ in the places of their steps alone


class CompiledProgram(Protocol):
    """A program as a path runs it. Neither method raises for bad inputs: every end of a node is an Outcome."""

    def execute(self, inputs: Mapping[str, Any], execution: Execution) -> Outcome: ...

    async def execute_async(
        self, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None
    ) -> Outcome: ...


P = TypeVar("P", bound=CompiledProgram)


class CompiledPath(Generic[P]):
    """Runs programs that `compiler` compiles: `run` for pure ones, `start` for those with effects."""

    def __init__(self, compiler: Callable[[NodeProgram], P]) -> None:
        self._compiler = compiler
        self._compiled: dict[str, tuple[tuple[NodeProgram, P], ...]] = {}  # by digest, the newest first

    def compile(self, program: NodeProgram) -> P:
        """Return the compiled program; the same one for the same program."""
        kept = self._compiled.get(program.digest, ())
        for known, compiled in kept:
            if known is program:
                return compiled
        compiled = next((compiled for known, compiled in kept if known == program), None) or self._compiler(program)
        while len(self._compiled) >= _KEPT_MAX:
            self._compiled.pop(next(iter(self._compiled)), None)
        self._compiled[program.digest] = ((program, compiled), *kept[: _LAYOUTS_MAX - 1])
        return compiled

    def run(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None = None
    ) -> Outcome:
        """Return the outcome of an execution. Effects, if there are any, must answer at once."""
        compiled = self.compile(program)
        if program.pure:
            return compiled.execute(inputs, execution)
        return drive(compiled.execute_async(inputs, execution, effects))

    async def start(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None = None
    ) -> Outcome:
        """Return the outcome of an execution whose effects take time."""
        compiled = self.compile(program)
        if program.pure:
            return compiled.execute(inputs, execution)
        return await compiled.execute_async(inputs, execution, effects)


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the coroutine's result. RuntimeError if it waits for anything: its effects belong to an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("an effect did not answer at once; await this program on an event loop")

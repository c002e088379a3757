"""The two paths behind one small interface, as the runtime sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from lyra.vesper.effects.request import Effects
    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.values.outcome import Execution, Outcome


class ExecutionPath(Protocol):
    """Runs programs. `run` is for pure ones; `start` gives an awaitable for those with effects."""

    def run(self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution) -> Outcome: ...

    def start(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects
    ) -> Awaitable[Outcome]: ...


class PythonPath:
    def __init__(self) -> None:
        from lyra.vesper.python.run import run, start

        self.run = run
        self.start = start


class DirectPath:
    def __init__(self) -> None:
        from lyra.vesper.direct.run import run, start

        self.run = run
        self.start = start

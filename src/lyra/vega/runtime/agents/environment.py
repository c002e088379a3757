"""What agents and their tools use of a World.

The World makes the plans and tools of agents, so these do not import it; `World` fits the protocol AgentEnvironment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from lyra.agents.session.shared import AgentRuntime
    from lyra.core.imported_node import NodeHost
    from lyra.core.rights.capability import Grant
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.vega.machine.fiber import Fiber
    from lyra.vega.machine.link import LinkedProgram
    from lyra.vega.runtime.agents.undeclared_tools import UndeclaredTools
    from lyra.vega.runtime.programs import ProcessPrograms
    from lyra.vega.runtime.rights import Rights


class _Options(Protocol):
    model: str | None
    folder: str
    functions: dict[str, Callable[..., Any]]
    grant: Grant | None
    nodes: NodeHost | None


class _MainJob(Protocol):
    fiber: Fiber


class AgentEnvironment(Protocol):
    kernel: Kernel
    linked: LinkedProgram
    mocks: dict[str, list[tuple[str, Any]]]
    programs: ProcessPrograms
    rights: Rights
    run_id: str
    runtime: AgentRuntime
    undeclared_tools: UndeclaredTools

    @property
    def options(self) -> _Options: ...

    @property
    def main(self) -> _MainJob | None: ...

    @property
    def record(self) -> object | None: ...

    @property
    def globals(self) -> list[Any]: ...

    @property
    def is_durable(self) -> bool: ...

    def function(self, name: str) -> Callable[..., Any] | None: ...

    def read(self, value: Any) -> Any: ...

    def seed(
        self, fiber: Fiber, function: Any, arguments: list[Any], slots: list[int] | None, maker: Process | None
    ) -> Any: ...

    async def caught_up(self) -> None: ...

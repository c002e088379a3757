"""Tools that a program names and does not declare: those of MCP servers, those written in YAML, functions of the host.

    import tools from mcp "files" as files;
    agent Reader { model "…" tools [files, search, "note"] }

A name in `tools […]` is, in this order: a function of the host or an imported one; an imported server, which is all of
its tools; a tool of an imported server, by its own name or by the one that models see (`mcp__files__search`);
`AskUser`, a question to the user; a tool in YAML of the user or of the project. A server counts only where
the caller of the run gives it (`servers`), as `vega run` does with those of lyra.toml. That the program names a tool
is the rule that allows it; rules of the user that deny it still do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import Tool
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lyra.agents.session.shared import AgentRuntime
    from lyra.core.imported_node import NodeHost
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.tools.permissions.decision import Permissions
    from lyra.tools.source import ToolSource
    from lyra.vega.machine.fiber import Fiber
    from lyra.vega.machine.link import LinkedProgram
    from lyra.vega.runtime.rights import Rights


_ASK_USER: Final = "AskUser"
START_S: Final = 30.0  # for the servers of a program to be there


class UndeclaredTools:
    """What one run has of such tools. `servers` are lyra.mcp's McpServers, or None."""

    __slots__ = ("_sources", "_world", "servers")

    def __init__(self, world: AgentEnvironment, servers: Any) -> None:
        self._world = world
        self.servers = servers
        self._sources: list[ToolSource] | None = None

    @property
    def _imported(self) -> dict[str, str]:
        """The servers that the program imports tools from: the name it gives them, by their own."""
        return {target: name for kind, target, name, *_ in self._world.linked.program.imports if kind == "mcp"}

    async def start(self) -> None:
        """Have the imported servers running before the program begins."""
        names = list(self._imported)
        if not names or self.servers is None:
            return
        for state in await self.servers.start(*names, within_s=START_S):
            if state.failure is not None:
                problem = f"MCP server {state.name} is {state.state}: {state.failure.message}"
                raise ConfigError(problem, hint=f"look at it with `lyra mcp test {state.name}`", server=state.name)

    def find(self, name: str) -> list[Tool | ToolSource]:
        """Return the tools that a name represents."""
        imported = self._imported
        if imported and self.servers is None and not self._in_yaml(name):
            listed = ", ".join(imported)
            raise ConfigError(
                f"the program imports tools from MCP ({listed}), and this host gives it no servers",
                hint="`vega run` takes those of lyra.toml; from Python: vega.run(…, servers=McpServers.load())",
            )
        for server, alias in imported.items():
            connection = self.servers[server]
            if name in (alias, server):
                return [_OfServer(self.servers, connection)]
            for own, called in connection.names().items():
                if name in (own, called):
                    return [tool for tool in self.servers.__lyra_tools__() if tool.name == called]
        if name == _ASK_USER:
            from lyra.tools.builtin.ask_user import ask_tools

            return [*ask_tools(attended=self._is_attended)]
        yaml_tool = self._in_yaml(name)
        if yaml_tool is None:
            hint = (
                "declare `tool NAME(…)`, import it, write it in YAML (in the folder's .lyra/tools it counts once the "
                "folder is trusted), or give it when running"
            )
            raise ConfigError(f"there is no tool {name!r}", hint=hint)
        return [yaml_tool]

    def _in_yaml(self, name: str) -> Tool | None:
        every = (tool for source in self._yaml() for tool in source.__lyra_tools__())
        return next((tool for tool in every if tool.name == name), None)

    def _yaml(self) -> Sequence[ToolSource]:
        """Return the user's own, and those of the working folder as far as its files are trusted. These read no
        variable of the user's."""
        if self._sources is None:
            from lyra.tools.builtin.workspace import Workspace
            from lyra.tools.yaml.places import sources_here

            self._sources = list(sources_here(Workspace(self._world.options.folder)))
        return self._sources

    def rights(self, names: Iterable[Any]) -> list[Capability]:
        """Return what the named tools in YAML may do: their files say it, as a tool's `capabilities` do."""
        rights: list[Capability] = []
        for name in names:
            if name == _ASK_USER:
                rights.append(Capability("human.ask", "clarification"))
                continue
            tool = self._in_yaml(name) if isinstance(name, str) and not self._is_known(name) else None
            if tool is not None:
                rights += [*tool.needs, *getattr(tool.run, "rights", ()), *getattr(tool.run, "commands", ())]
        return rights

    def _is_known(self, name: str) -> bool:
        world = self._world
        return name in world.options.functions or any(
            name == imported for _, _, imported, *_ in world.linked.program.imports
        )

    def permissions(self, tools: Iterable[Any]) -> Permissions:
        """Return the rules for an agent with such tools: those of the user's files, and that the program names
        these."""
        from lyra.tools.permissions.settings import Layer, load_layers, permissions_of

        folder, home = self._world.options.folder, os.path.expanduser("~")
        names = [name for tool in tools for name in _rules(tool)]
        layers = [*load_layers(folder, home=home, trusted=None), Layer("flags", {"allow": names}, "the program")]
        return permissions_of(layers, workspace=folder, home=home, attended=self._is_attended)

    @property
    def _is_attended(self) -> bool:
        """A durable run waits for answers (`vega answer`) as long as it takes; any other has no user to ask."""
        return self._world.record is not None


class _OfServer:
    """One server's tools, as they are at each message."""

    __slots__ = ("_connection", "_servers")

    def __init__(self, servers: Any, connection: Any) -> None:
        self._servers = servers
        self._connection = connection

    @property
    def rules(self) -> tuple[str, ...]:
        """One for all its tools, and the names of those that are there now: one that comes later, from a server that
        may send what it is given anywhere, needs an answer."""
        return (f"mcp__{self._connection.key}__*", *self._connection.names().values())

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        own = set(self._connection.names().values())
        return tuple(tool for tool in self._servers.__lyra_tools__() if tool.name in own)


def is_undeclared(tool: Any) -> bool:
    """Return whether a rule has to allow it: it comes from a file or a server."""
    return isinstance(tool, _OfServer) or (isinstance(tool, Tool) and tool.guarded)


def _rules(tool: Any) -> Iterable[str]:
    if isinstance(tool, Tool):
        yield tool.name
    elif isinstance(tool, _OfServer):
        yield from tool.rules
    elif callable(tool):
        yield str(getattr(tool, "__name__", ""))


# The World makes the plans and tools of agents, so these do not import it; `World` fits AgentEnvironment.


class ProcessPrograms(NamedTuple):
    """The kernel programs that a run's processes run: `driver.vega_process` and `agents.agent.agent_front`. The World
    is given them, because the handlers that these programs call start further processes with the same programs."""

    process: Callable[..., Any]
    agent: Callable[..., Any]


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

    async def wait_until_caught_up(self) -> None: ...

"""All MCP servers of a program: started together when they are first needed, their tools in one list.

    async with McpServers.load() as servers:
        tools = await servers.tools()
        print([state.to_data() for state in servers.states()])

A server that cannot be started is left out, and its state has the reason; the others work. Nothing is started, and the
SDK not imported, before the first call of `tools`, `resources` or `prompts`. Closing ends every program that was
started.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from lyra.config import Config
from lyra.config.trust import trust_for
from lyra.core.checking.check import did_you_mean
from lyra.core.rights.capability import Capability
from lyra.core.tool import Tool
from lyra.core.user_folders import user_folder
from lyra.errors import ConfigError
from lyra.mcp.approvals import Approvals
from lyra.mcp.callback_routes import SharedContext
from lyra.mcp.connection import Connection
from lyra.mcp.settings import ServerSettings, describe_ignored_keys, read_file, server_keys, settings_of
from lyra.mcp.state import ServerState
from lyra.mcp.tools import list_prompts, list_resources, prompt_of, resource_of, tool_of, without_secrets
from lyra.tools.function import tool

SETTLE_S: Final = 5.0  # how long the first turn waits for servers
_STATUS_TOOL: Final = "McpStatus"
_STATUS: Final = "Says whether MCP servers that were not there have come."
# The states of a server that was started and is not there, in words for a model.
_MISSING: Final = {"connecting": "still starting", "connection_error": "did not start"}


def load_settings(
    config: Config | None = None, folder: str | None = None, env: Mapping[str, str] | None = None
) -> list[ServerSettings]:
    """Every server that lyra.toml and the folder's `.mcp.json` name; of two with one name lyra.toml's counts."""
    where = os.path.realpath(folder or os.getcwd())
    env = os.environ if env is None else env
    config = config if config is not None else Config.load(where, env)
    trust = trust_for(where, config.trust, env=env)
    servers = {
        name: settings_of(
            name,
            entry,
            origin="project" if name in config.project_servers else "user",
            folder_trusted=config.project_trusted,
            place=config.origin(f"mcp.servers.{name}.{next(iter(entry))}").place or "",
        )
        for name, entry in config.mcp_servers.items()
    }
    for settings in read_file(where, env, trust):
        servers.setdefault(settings.name, settings)
    return list(servers.values())


class McpServers:
    """`options` are those of `SharedContext`: `consent`, `reapprove`, `elicit`, `sample`, `authorize`, `supervision`,
    …"""

    notices = (_STATUS_TOOL,)  # tools that a model has to see, however many others there are

    def __init__(
        self,
        servers: Iterable[ServerSettings] = (),
        *,
        workspace: str | None = None,
        approvals: Approvals | None = None,
        deferred: bool = False,
        **options: Any,
    ) -> None:
        settings = list({server.name: server for server in servers}.values())
        keys = server_keys(server.name for server in settings)
        options.setdefault("folder", user_folder(os.environ))
        self._shared = SharedContext(
            workspace=os.path.realpath(workspace or os.getcwd()),
            approvals=approvals if approvals is not None else Approvals.of_user(),
            **options,
        )
        self._deferred = deferred
        self._began_s = 0.0  # when `begin` was called
        self._late: set[str] = set()  # servers that a turn did not wait for any longer
        self.warning = describe_ignored_keys(settings)  # about ignored keys of their file
        self._tools: dict[str, tuple[str, Tool]] = {}
        self._has: set[str] = set()
        self._resource_tool = self._tool(self._resource, "McpResource")
        self._prompt_tool = self._tool(self._prompt, "McpPrompt")
        needs = (Capability.of(f"tool.use:{_STATUS_TOOL}"),)
        self._status_tool = tool(self._status, name=_STATUS_TOOL, needs=needs, polling=True)
        self._connections = {server.name: Connection(server, keys[server.name], self._shared) for server in settings}

    @classmethod
    def load(
        cls,
        config: Config | None = None,
        folder: str | None = None,
        *,
        more: Iterable[ServerSettings] = (),
        **options: Any,
    ) -> Self:
        """Return the servers of lyra.toml, of the folder's `.mcp.json`, and `more` with other names; paths that the
        permission files deny are `denied`."""
        named = {server.name: server for server in more}
        settings = list({**named, **{server.name: server for server in load_settings(config, folder)}}.values())
        if "denied" not in options:
            options["denied"] = _list_denied(os.path.realpath(folder or os.getcwd())) if settings else ()
        return cls(settings, workspace=folder, **options)

    # ------------------------------------------------------------ life
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self, *names: str, within_s: float | None = None) -> list[ServerState]:
        """Connect these servers, or all, concurrently; returns when each is connected or has failed once.

        After `within_s` seconds it returns in any case; slower servers continue to connect.
        """
        chosen = [self[name] for name in names] or list(self._connections.values())
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.gather(*(connection.start() for connection in chosen))
        return [connection.state for connection in chosen]

    def begin(self) -> list[ServerState]:
        """Connect all servers in the background; `settle` waits for them for a while."""
        self._began_s = self._shared.clock.monotonic()
        for connection in self._connections.values():
            connection.begin()
        return self.states()

    async def settle(self) -> list[str]:
        """Wait until each server is connected or has failed once, at most `SETTLE_S` after `begin`; returns the names
        of those that are not there by then, each once. They connect in the background, and their tools come later."""
        left_s = self._began_s + SETTLE_S - self._shared.clock.monotonic()
        if left_s > 0:
            await self.start(within_s=left_s)
        late = [state.name for state in self.states() if state.state == "connecting" and state.name not in self._late]
        self._late.update(late)
        return late

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))
        await self._shared.tasks.close()

    async def reconnect(self, name: str) -> ServerState:
        """Close a server's connection, if there is one, and start it again."""
        await self[name].close()
        await self[name].start()
        return self[name].state

    # ------------------------------------------------------------ what there is
    def __len__(self) -> int:
        return len(self._connections)

    def __getitem__(self, name: str) -> Connection:
        connection = self._connections.get(name)
        if connection is None:
            near = did_you_mean(name, self._connections)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(self._connections) or 'none'}"
            raise ConfigError(f"there is no MCP server {name!r}", hint=hint, key=name)
        return connection

    def fingerprint(self, name: str) -> str:
        """Return the key of a server's consent, pins and tokens."""
        return self[name].settings.fingerprint(self._shared.workspace)

    def expected(self) -> list[ServerState]:
        """Return the states, as far as they are known without starting a server or asking a person."""
        return [_predict_state(connection) for connection in self._connections.values()]

    def states(self) -> list[ServerState]:
        return [connection.state for connection in self._connections.values()]

    async def tools(self) -> list[Tool]:
        """Return the tools of every server that can be reached, and two for resources and prompts where one has any."""
        await self.start()
        return list(self.__lyra_tools__())

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        """Return the current tools. An Agent that has the servers as a source calls this at each message."""
        offered_tools = [
            self._tool_for(connection, name, called)
            for connection in self._connections.values()
            for name, called in connection.names().items()
            if name in connection.offered
        ]
        return (*offered_tools, *self._extra(), *self._list_status_tool())

    def _tool_for(self, connection: Connection, name: str, called: str) -> Tool:
        """Return the Tool of an offered tool; the same object as long as its description does not change."""
        offered = connection.offered[name]
        known = self._tools.get(called)
        if known is None or known[0] != offered.pin:
            new_tool = tool_of(connection, offered, called, deferred=self._deferred)
            known = self._tools[called] = (offered.pin, new_tool)
        return known[1]

    @property
    def problems(self) -> tuple[str, ...]:
        """A line for each server that failed, and for each tool that is withheld."""
        lines = []
        for state in self.states():
            if state.failure is not None:
                lines.append(f"MCP server {state.name}: {state.state}: {state.failure.message}")
            lines += [f"{name} is withheld: it changed its description" for name in state.withheld]
        return tuple(lines)

    def _extra(self) -> list[Tool]:
        """Return the tools for resources and prompts. They stay once a server had any; a call reports if none can be
        read."""
        for connection in self._connections.values():
            self._has |= connection.has
        extra = []
        if "resources" in self._has:
            extra.append(self._resource_tool)
        if "prompts" in self._has:
            extra.append(self._prompt_tool)
        return extra

    def _list_status_tool(self) -> list[Tool]:
        """Return a tool whose description tells the model which servers are not there. Nothing that a server said is in
        it."""
        missing = self._missing()
        if not missing:
            return []
        description = f"{_STATUS} Not there now, with all of their tools: {', '.join(missing)}."
        if self._status_tool.description != description:
            self._status_tool = msgspec.structs.replace(self._status_tool, description=description)
        return [self._status_tool]

    def _missing(self) -> list[str]:
        """Return the servers that were started and have no tools yet, each with how it is."""
        states = ((connection, connection.state) for connection in self._connections.values())
        return [
            f"{connection.key} ({_MISSING[state.state]})"
            for connection, state in states
            if state.state in _MISSING and not connection.offered
        ]

    async def _status(self) -> str:
        """Says how the MCP servers are that are not there."""
        return ", ".join(self._missing()) or "all servers are there"

    def _tool(self, function: Any, name: str) -> Tool:
        needs = (Capability.of(f"tool.use:{name}"),)
        return tool(function, name=name, needs=needs, untrusted=True, guarded=True, deferred=self._deferred)

    async def _resource(self, server: str, uri: str = "") -> Any:
        """Read a resource of an MCP server, or list its resources.

        Args:
            server: the server's name
            uri: which resource; left out, what there is
        """
        return await (self.read_resource(server, uri) if uri else self.resources(server))

    async def _prompt(self, server: str, name: str = "", arguments: dict[str, str] | None = None) -> Any:
        """Get a prompt of an MCP server, or list its prompts.

        Args:
            server: the server's name
            name: which prompt; left out, what there is
            arguments: the prompt's own
        """
        return await (self.get_prompt(server, name, arguments) if name else self.prompts(server))

    # ------------------------------------------------------------ resources and prompts
    async def resources(self, server: str) -> list[dict[str, str]]:
        """Return the resources of a server: `uri` or `uri_template`, `name`, `description`."""
        connection = await self._ensure_started(server)
        listed: list[dict[str, str]] = await connection.ask(list_resources(connection.client()))
        return list(_without_secrets(connection, listed))

    async def read_resource(self, server: str, uri: str) -> Any:
        connection = await self._ensure_started(server)
        return _without_secrets(connection, resource_of(await connection.ask(connection.client().read_resource(uri))))

    async def prompts(self, server: str) -> list[dict[str, Any]]:
        """Return the prompts of a server: `name`, `description`, `arguments`."""
        connection = await self._ensure_started(server)
        listed: list[dict[str, Any]] = await connection.ask(list_prompts(connection.client()))
        return list(_without_secrets(connection, listed))

    async def get_prompt(self, server: str, name: str, arguments: dict[str, str] | None = None) -> str:
        connection = await self._ensure_started(server)
        result = await connection.ask(connection.client().get_prompt(name, arguments))
        return str(_without_secrets(connection, prompt_of(result)))

    async def _ensure_started(self, server: str) -> Connection:
        connection = self[server]
        if connection.state.state == "disconnected":
            await connection.start()
        return connection


def _without_secrets(connection: Connection, output: Any) -> Any:
    return without_secrets(output, connection.settings.secrets())


def _list_denied(folder: str) -> tuple[Capability, ...]:
    """Return the paths that the permission files of a folder deny."""
    from lyra.tools.permissions.settings import load_layers, permissions_of

    home = os.path.expanduser("~")
    return permissions_of(load_layers(folder, home=home), workspace=folder, home=home).denied


def _predict_state(connection: Connection) -> ServerState:
    state = connection.state
    failed = connection.unready() if state.state == "disconnected" else None
    return state if failed is None else msgspec.structs.replace(state, state=failed.state, failure=failed.failure)

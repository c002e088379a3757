"""The MCP servers of a session in an editor: those of the configuration, and those that the editor hands over.

A server that the editor names is its user's own choice, like one in the user's file: it counts as agreed to.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from lyra.agents.acp.refusals import invalid, refusal
from lyra.config import Config
from lyra.config.servers import check_server_name
from lyra.core.secrets.secret import Secret
from lyra.core.tool import Tool
from lyra.errors import ConfigError
from lyra.kernel.base.acting import acting
from lyra.sage.extensions.plugins.store import plugin_servers

if TYPE_CHECKING:
    from lyra.mcp import McpServers
    from lyra.mcp.settings import ServerSettings


def servers_for(config: Config, folder: str, given: Iterable[Any] | None, denied: Any) -> McpServers | None:
    """Return the servers, not started yet; None where there are none."""
    handed = convert_servers(given)
    added = plugin_servers(folder)
    if not handed and not added and not config.mcp_servers and not os.path.exists(os.path.join(folder, ".mcp.json")):
        return None
    from lyra.mcp import McpServers
    from lyra.mcp.servers import load_settings

    named = {settings.name: settings for settings in handed}
    try:
        known = {settings.name: settings for settings in (*added, *load_settings(config, folder))}
    except ConfigError as error:
        raise refusal(error) from None
    return McpServers(list({**known, **named}.values()), workspace=folder, denied=denied)


def convert_servers(given: Iterable[Any] | None) -> list[ServerSettings]:
    """Return the settings of the servers that an editor hands over; a request error where one cannot be used."""
    entries = [_entry(server) for server in given or ()]
    if not entries:
        return []
    from lyra.mcp.settings import settings_of

    try:
        for name, _ in entries:
            check_server_name(name)
        return [settings_of(name, entry, origin="user", place="the editor") for name, entry in entries]
    except ConfigError as error:
        raise refusal(error) from None


def _entry(server: Any) -> tuple[str, dict[str, Any]]:
    """Return the name of a server and its settings as in a file. Values are taken as they are: `env:NAME` is no
    reference."""
    if hasattr(server, "command"):
        if not server.command or any("\0" in text for text in (server.command, *(server.args or ()))):
            raise invalid(f"the MCP server {server.name[:80]!r} has no command that can be started")
        env = {variable.name: Secret(variable.value) for variable in server.env or ()}
        entry = {"command": _real_folder(server.command), "args": list(server.args or ()), "env": env}
        readable = _installation(server.command)
        return server.name, {**entry, "readable": readable} if readable else entry
    if hasattr(server, "url"):
        if getattr(server, "type", "http") == "sse":
            raise invalid(
                f"the MCP server {server.name[:80]!r} is one of SSE, which is not spoken: use streamable HTTP"
            )
        if not server.url.startswith(("https://", "http://")):
            raise invalid(f"the url of the MCP server {server.name[:80]!r} is no address of HTTP")
        headers = {header.name: Secret(header.value) for header in server.headers or ()}
        return server.name, {"url": server.url, "headers": headers, "transport": "http"}
    raise invalid("this kind of MCP server is not supported")


def _real_folder(command: str) -> str:
    """Return the path of a program with the links of its folders followed, as the sandbox has them; a link that is the
    program itself stays, because a virtual environment is known by it."""
    folder, name = os.path.split(command)
    return os.path.join(os.path.realpath(folder), name) if os.path.isabs(command) else command


def _installation(command: str) -> list[str]:
    """Return the folders that an interpreter outside the system's own folders lies in: its server in the sandbox sees
    them. `/opt/x/bin/python` and what it is a link to, each without `bin/python`; never the home folder itself."""
    whole = _real_folder(shutil.which(command) or "")
    prefixes = {os.path.dirname(os.path.dirname(path)) for path in (whole, os.path.realpath(whole)) if whole}
    home = os.path.realpath(os.path.expanduser("~"))
    return sorted(
        prefix
        for prefix in prefixes
        if prefix not in ("", "/", home) and not prefix.startswith("/usr") and not f"{home}/".startswith(f"{prefix}/")
    )


class SessionServers:
    """MCP servers that an editor hands over with a session of any agent, as tools of that session alone. `denied` gives
    the paths of a folder that its permission files deny: the servers do not see them."""

    __slots__ = ("_by_pid", "_denied")

    def __init__(self, denied: Callable[[str], Any]) -> None:
        self._denied = denied
        self._by_pid: dict[str, McpServers] = {}

    async def open(self, pid: str, folder: str, given: Iterable[Any] | None) -> None:
        """Start the servers of a session, each for as long as its `start_s` says; those that it had are closed."""
        settings = convert_servers(given)
        await self.close(pid)
        if not settings:
            return
        from lyra.mcp import McpServers

        servers = self._by_pid[pid] = McpServers(settings, workspace=folder, denied=self._denied(folder))
        await servers.start()

    async def close(self, pid: str) -> None:
        servers = self._by_pid.pop(pid, None)
        if servers is not None:
            await servers.close()

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        process = acting()
        if process is None:
            return ()
        servers = self._by_pid.get(process.pid) or self._by_pid.get(process.known_as)
        return () if servers is None else servers.__lyra_tools__()

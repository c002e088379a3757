"""SessionServers: MCP servers that an editor hands over with a session of any agent, as tools of that session alone.

They are the choice of the editor's user, as for Sage (`servers`): they count as agreed to, run in the sandbox, and each
call of theirs needs a rule or an answer. The source is one for all sessions of an agent: which session is asked for is
the process that runs. Servers live as long as their session is open; a turn that goes on before an editor has loaded
its session finds their tools gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from lyra.core.tool import Tool
from lyra.kernel.base.acting import acting
from lyra.sage.acp.servers import handed_servers

if TYPE_CHECKING:
    from lyra.mcp import McpServers


class SessionServers:
    """`denied` gives the paths of a folder that its permission files deny: the servers do not see them."""

    __slots__ = ("_by_pid", "_denied")

    def __init__(self, denied: Callable[[str], Any]) -> None:
        self._denied = denied
        self._by_pid: dict[str, McpServers] = {}

    async def open(self, pid: str, folder: str, given: Iterable[Any] | None) -> None:
        """Start the servers of a session, each for as long as its `start_s` says; those that it had are closed."""
        settings = handed_servers(given)
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

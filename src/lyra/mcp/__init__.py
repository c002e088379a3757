"""MCP: tools of external servers for agents, and Lyra's tools for external clients.

    async with McpServers.load() as servers:
        agent = Agent("assistant", model=…, tools=await servers.tools())

Start at `servers` (all of them together), then `connection` (one, from its start to its restarts). `settings` describes
a server, `state` its states, `approvals` the consent of a person. `transports` reaches a server by its pipes or over
HTTP and shortens answers as they arrive, `oauth` logs in for the second. `sdk` collects everything that imports the MCP
SDK, and answers a server's own requests; `callback_routes` finds the process that they go to. `tools` turns the
server's offer into Tools. `serve` is the other direction. Everything that a server sends is untrusted text.

The SDK is imported when a server is first connected, not before. It comes with the `mcp` extra.
"""

from __future__ import annotations

from lyra._imports import on_first_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lyra.mcp.approvals import Approvals
    from lyra.mcp.servers import McpServers, load_settings
    from lyra.mcp.settings import ServerSettings
    from lyra.mcp.state import STATES, Failure, ServerState

__all__ = ["STATES", "Approvals", "Failure", "McpServers", "ServerSettings", "ServerState", "load_settings"]

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "state": "STATES Failure ServerState",
            "approvals": "Approvals",
            "servers": "McpServers load_settings",
            "settings": "ServerSettings",
        },
    )

"""MCP: tools of external servers for agents, and Lyra's tools for external clients.

    async with McpServers.load() as servers:
        agent = Agent("assistant", model=…, tools=await servers.tools())

Start at `client.servers` (all of them together), then `client.connection` (one, from its start to its restarts).
`settings` and `client.project_file` describe a server, `client.approvals` what a person agreed to, `client.shared` what
all servers share, `state` the states of a server. `client.sdk_client` makes the SDK's client: `stdio` and `web` are the
two transports, `oauth` the login for the second, `callback` what a server may request, `callback_routes` who answers.
`listing`, `tool`, `schema`, `results` and `names` turn the server's offer into Tools. `server.serve` and `server.offer`
are the other direction. Everything that a server sends is untrusted text.

The SDK is imported when a server is first connected, not before. It comes with the `mcp` extra.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lyra.mcp.client.approvals import Approvals
    from lyra.mcp.client.servers import McpServers, load_settings
    from lyra.mcp.settings import ServerSettings
    from lyra.mcp.state import STATES, Failure, ServerState

__all__ = ["STATES", "Approvals", "Failure", "McpServers", "ServerSettings", "ServerState", "load_settings"]

_HOMES = {
    "STATES": "state",
    "Approvals": "client.approvals",
    "Failure": "state",
    "McpServers": "client.servers",
    "ServerSettings": "settings",
    "ServerState": "state",
    "load_settings": "client.servers",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lyra.mcp' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"lyra.mcp.{home}"), name)
    globals()[name] = value
    return value

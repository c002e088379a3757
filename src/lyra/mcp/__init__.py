"""MCP: other people's tools for agents, and Lyra's tools for other people's agents.

    async with McpServers.load() as servers:
        agent = Agent("assistant", model=…, tools=await servers.tools())

Start at `servers` (all of them together), then `connection` (one, from its start to its restarts). `settings` and
`file` say what a server is, `approvals` what a person agreed to, `host` what all of them share, `state` how one is.
`link` makes the SDK's client: `stdio` and `web` are the two ways to speak to a server, `oauth` the keys for the second,
`asked` what it may ask back and `askers` whom. `listing`, `tool`, `schema`, `results` and `names` turn what it offers
into Tools. `serve` and `offer` are the other direction. Everything that a server says is text from outside.

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

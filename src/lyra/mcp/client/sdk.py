"""Everything in Lyra that needs the MCP SDK: importing this module imports the SDK."""

from __future__ import annotations

from mcp import Client
from mcp_types import Implementation

from lyra.mcp.client.callback import elicitation, sampling
from lyra.mcp.client.oauth import Login, TokenStore, client_of
from lyra.mcp.client.stdio import stdio
from lyra.mcp.client.web import web

__all__ = [
    "Client",
    "Implementation",
    "Login",
    "TokenStore",
    "client_of",
    "elicitation",
    "sampling",
    "stdio",
    "web",
]

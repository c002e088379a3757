"""Everything of ours that needs the SDK, under one name: importing this imports it."""

from __future__ import annotations

from mcp import Client
from mcp_types import Implementation

from lyra.mcp.asked import elicitation, sampling
from lyra.mcp.oauth import Login, Tokens, client_of
from lyra.mcp.stdio import stdio
from lyra.mcp.web import web

__all__ = [
    "Client",
    "Implementation",
    "Login",
    "Tokens",
    "client_of",
    "elicitation",
    "sampling",
    "stdio",
    "web",
]

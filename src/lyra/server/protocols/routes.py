"""The table of what the open protocols ask."""

from __future__ import annotations

from typing import Final

from lyra.server.http.endpoint import Endpoint
from lyra.server.protocols.a2a.routes import A2A_ENDPOINTS
from lyra.server.protocols.agui.endpoint import ENDPOINTS as AGUI
from lyra.server.protocols.mcp.endpoint import ENDPOINTS as MCP

PROTOCOLS: Final[tuple[Endpoint, ...]] = (*A2A_ENDPOINTS, *AGUI, *MCP)

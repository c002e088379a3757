"""The whole site: everything that a server answers over HTTP, put together from its parts.

`http.routes` is the API; the dashboard, the open protocols and the gateway add their own tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.server.dashboard.layout import HeaderFigures
from lyra.server.dashboard.routes import PAGES
from lyra.server.dashboard.sentences import EventSentences
from lyra.server.http.endpoint import Endpoint
from lyra.server.http.routes import ENDPOINTS
from lyra.server.protocols.a2a.routes import A2A_ENDPOINTS
from lyra.server.protocols.agui.threads import ENDPOINTS as AGUI
from lyra.server.protocols.mcp.endpoint import ENDPOINTS as MCP

if TYPE_CHECKING:
    from lyra.server.http.parts import HttpParts


def site(*, gateway: bool = False) -> tuple[Endpoint, ...]:
    """Return the table of one server. With the gateway, its endpoints take the place of those with the same path."""
    table = (*ENDPOINTS, *A2A_ENDPOINTS, *AGUI, *MCP, *PAGES)
    if not gateway:
        return table
    from lyra.server.gateway.routes import GATEWAY

    replaced = {(endpoint.method, endpoint.path) for endpoint in GATEWAY}
    return (*(endpoint for endpoint in table if (endpoint.method, endpoint.path) not in replaced), *GATEWAY)


def begin_listening(parts: HttpParts) -> None:
    """Have the pages know what happens from now on, not only from their first visitor on."""
    parts.get_shared(EventSentences)
    parts.get_shared(HeaderFigures)

"""The whole site: everything that a server answers over HTTP, put together from its parts.

`http.routes` is the API; the open protocols and the gateway add their own tables. `PAGES` has the pages, their files
and their forms: a new page is a module of `dashboard.pages`, a row here, and a link in `layout.NAV`, or in another page
where its path has a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lyra.server.dashboard import layout, login
from lyra.server.dashboard.layout import HeaderFigures
from lyra.server.dashboard.pages import (
    chat,
    costs,
    inbox,
    node,
    overview,
    pipeline,
    process,
    processes,
    run,
    runs,
    services,
    settings,
    traces,
)
from lyra.server.dashboard.sentences import EventSentences
from lyra.server.http.endpoint import Endpoint
from lyra.server.http.routes import ENDPOINTS
from lyra.server.protocols.a2a.routes import A2A_ENDPOINTS
from lyra.server.protocols.agui.threads import ENDPOINTS as AGUI
from lyra.server.protocols.mcp.endpoint import ENDPOINTS as MCP

if TYPE_CHECKING:
    from lyra.server.http.parts import HttpParts


PAGES: Final[tuple[Endpoint, ...]] = (
    *layout.ENDPOINTS,
    *login.ENDPOINTS,
    *overview.ENDPOINTS,
    *processes.ENDPOINTS,
    *process.ENDPOINTS,
    *settings.ENDPOINTS,
    *traces.ENDPOINTS,
    *pipeline.ENDPOINTS,
    *node.ENDPOINTS,
    *costs.ENDPOINTS,
    *services.ENDPOINTS,
    *runs.ENDPOINTS,
    *run.ENDPOINTS,
    *inbox.ENDPOINTS,
    *chat.ENDPOINTS,
)


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

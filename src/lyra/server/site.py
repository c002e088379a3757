"""The whole site: everything that a server answers over HTTP, put together from its parts.

`http.routes` is the API; the dashboard, the open protocols and the gateway add their own tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.server.dashboard.figures import HeaderFigures
from lyra.server.dashboard.problem import problem_page
from lyra.server.dashboard.routes import PAGES
from lyra.server.dashboard.views.event_lines import EventSentences
from lyra.server.http.endpoint import Endpoint
from lyra.server.http.routes import ENDPOINTS
from lyra.server.protocols.routes import PROTOCOLS

if TYPE_CHECKING:
    from lyra.server.http.parts import HttpParts

__all__ = ["begin_listening", "problem_page", "site"]


def site(*, gateway: bool = False) -> tuple[Endpoint, ...]:
    """The table of one server. With the gateway, its endpoints take the place of those with the same path."""
    table = (*ENDPOINTS, *PROTOCOLS, *PAGES)
    if not gateway:
        return table
    from lyra.server.gateway.routes import GATEWAY

    replaced = {(endpoint.method, endpoint.path) for endpoint in GATEWAY}
    return (*(endpoint for endpoint in table if (endpoint.method, endpoint.path) not in replaced), *GATEWAY)


def begin_listening(parts: HttpParts) -> None:
    """Have the pages know what happens from now on, not only from their first visitor on."""
    parts.shared(EventSentences)
    parts.shared(HeaderFigures)

"""The whole site: everything that a server answers over HTTP, put together from its parts.

`http.routes` is the API; the dashboard, the open protocols and the gateway add their own tables.
"""

from __future__ import annotations

from lyra.server.dashboard.problem import problem_page
from lyra.server.dashboard.routes import PAGES
from lyra.server.http.endpoint import Endpoint
from lyra.server.http.routes import ENDPOINTS
from lyra.server.protocols.routes import PROTOCOLS

__all__ = ["problem_page", "site"]


def site() -> tuple[Endpoint, ...]:
    """The table of one server."""
    return (*ENDPOINTS, *PROTOCOLS, *PAGES)

"""The one table of everything that can be asked over HTTP.

The server, `/openapi.json` and the reference page are made from it. A new endpoint is a declaration in a module of
`api` or `compat`.
"""

from __future__ import annotations

from typing import Final

from lyra.server.http import compat
from lyra.server.http.api import (
    agents,
    interrupts,
    nodes,
    pipelines,
    processes,
    system,
    timelines,
    traces,
    webhooks,
)
from lyra.server.http.endpoint import Endpoint

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *system.ENDPOINTS,
    *processes.ENDPOINTS,
    *agents.ENDPOINTS,
    *timelines.ENDPOINTS,
    *pipelines.ENDPOINTS,
    *interrupts.ENDPOINTS,
    *traces.ENDPOINTS,
    *system.SERVICE_ENDPOINTS,
    *nodes.ENDPOINTS,
    *timelines.HISTORY_ENDPOINTS,
    *webhooks.ENDPOINTS,
    *compat.ENDPOINTS,
)

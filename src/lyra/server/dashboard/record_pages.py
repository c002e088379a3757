"""The pages about what is recorded and measured: traces, costs, nodes, services, pipelines. `routes` adds them."""

from __future__ import annotations

from typing import Final

from lyra.server.dashboard.pages import costs, node, nodes, pipeline, pipelines, services, trace, traces
from lyra.server.http.endpoint import Endpoint

__all__ = ["RECORD_PAGES"]

RECORD_PAGES: Final[tuple[Endpoint, ...]] = (
    *traces.ENDPOINTS,
    *trace.ENDPOINTS,
    *pipelines.ENDPOINTS,
    *pipeline.ENDPOINTS,
    *nodes.ENDPOINTS,
    *node.ENDPOINTS,
    *costs.ENDPOINTS,
    *services.ENDPOINTS,
)

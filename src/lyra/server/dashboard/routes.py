"""The table of the pages, of their files and of their forms. A new page is a module of `pages` and a row here."""

from __future__ import annotations

from typing import Final

from lyra.server.dashboard import assets, login, process_acts, welcome
from lyra.server.dashboard.pages import (
    chat,
    costs,
    figures,
    fork,
    inbox,
    node,
    nodes,
    overview,
    pipeline,
    pipelines,
    process,
    processes,
    run,
    runs,
    services,
    settings,
    trace,
    traces,
)
from lyra.server.http.endpoint import Endpoint

PAGES: Final[tuple[Endpoint, ...]] = (
    *assets.ENDPOINTS,
    *login.ENDPOINTS,
    *figures.ENDPOINTS,
    *overview.ENDPOINTS,
    *processes.ENDPOINTS,
    *process.ENDPOINTS,
    *process_acts.ENDPOINTS,
    *settings.ENDPOINTS,
    *traces.ENDPOINTS,
    *trace.ENDPOINTS,
    *pipelines.ENDPOINTS,
    *pipeline.ENDPOINTS,
    *nodes.ENDPOINTS,
    *node.ENDPOINTS,
    *costs.ENDPOINTS,
    *services.ENDPOINTS,
    *runs.ENDPOINTS,
    *run.ENDPOINTS,
    *fork.ENDPOINTS,
    *welcome.ENDPOINTS,
    *inbox.ENDPOINTS,
    *chat.ENDPOINTS,
)

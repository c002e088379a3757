"""The table of the pages, of their files and of their forms. A new page is a module of `pages`, a row
here, and a link in `layout.NAV`, or in another page where its path has a name.

It stands alone as the one table that a new page is added to.
"""

from __future__ import annotations

from typing import Final

from lyra.server.dashboard import layout, login
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
from lyra.server.http.endpoint import Endpoint

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

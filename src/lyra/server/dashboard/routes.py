"""The table of the pages, of their files and of their forms. A new page is a module of `pages` and a row here."""

from __future__ import annotations

from typing import Final

from lyra.server.dashboard import assets, login, process_acts, welcome
from lyra.server.dashboard.pages import chat, figures, inbox, overview, process, processes, run, runs, settings
from lyra.server.dashboard.record_pages import RECORD_PAGES
from lyra.server.http.endpoint import Endpoint

__all__ = ["PAGES"]

PAGES: Final[tuple[Endpoint, ...]] = (
    *assets.ENDPOINTS,
    *login.ENDPOINTS,
    *figures.ENDPOINTS,
    *overview.ENDPOINTS,
    *processes.ENDPOINTS,
    *process.ENDPOINTS,
    *process_acts.ENDPOINTS,
    *settings.ENDPOINTS,
    *RECORD_PAGES,
    *runs.ENDPOINTS,
    *run.ENDPOINTS,
    *welcome.ENDPOINTS,
    *inbox.ENDPOINTS,
    *chat.ENDPOINTS,
)

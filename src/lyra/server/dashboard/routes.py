"""The table of the pages, of their files and of their forms. A new page is a module of `pages` and a row here."""

from __future__ import annotations

from typing import Final

from lyra.server.dashboard import assets, login, welcome
from lyra.server.dashboard.pages import chat, figures, inbox, overview
from lyra.server.dashboard.record_pages import RECORD_PAGES
from lyra.server.http.endpoint import Endpoint

__all__ = ["PAGES"]

PAGES: Final[tuple[Endpoint, ...]] = (
    *assets.ENDPOINTS,
    *login.ENDPOINTS,
    *figures.ENDPOINTS,
    *overview.ENDPOINTS,
    *RECORD_PAGES,
    *welcome.ENDPOINTS,
    *inbox.ENDPOINTS,
    *chat.ENDPOINTS,
)

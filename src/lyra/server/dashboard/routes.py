"""The table of the pages."""

from __future__ import annotations

from typing import Final

from lyra.server.http.endpoint import Endpoint

__all__ = ["PAGES"]

PAGES: Final[tuple[Endpoint, ...]] = ()

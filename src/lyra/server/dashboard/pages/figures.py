"""The figures of the header alone: what a page fetches to keep them current."""

from __future__ import annotations

from typing import Final

from lyra.server.dashboard.layout import PAGE_HEADERS, figures_region
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer


async def _figures(call: HttpCall) -> RawAnswer:
    return RawAnswer(figures_region(call).encode(), "text/html; charset=utf-8", 200, PAGE_HEADERS)


ENDPOINTS: Final = (
    Endpoint(
        name="pages.figures",
        method="GET",
        path="/figures",
        summary="The figures of the header",
        handler=_figures,
        is_documented=False,
    ),
)

"""The overview: what is alive, and what happens."""

from __future__ import annotations

from typing import Final

from lyra.server.dashboard.html import tag
from lyra.server.dashboard.layout import page, region
from lyra.server.dashboard.words import empty, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer

__all__ = ["ENDPOINTS"]


async def _overview(call: HttpCall) -> RawAnswer:
    alive = [row for row in call.kernel.processes.values() if row.alive][:50]
    rows = [tag("li", row.name or row.pid, " ", state(row.state), data_key=row.pid) for row in alive]
    tree = tag("ul", rows) if rows else empty("Processes are listed here once one runs.", "lyra demo")
    return page(
        call,
        "Overview",
        region(call, "tree", ("process.created", "process.terminated"), tag("h2", "Processes"), tree),
    )


ENDPOINTS: Final = (
    Endpoint(
        name="pages.overview",
        method="GET",
        path="/",
        summary="The overview",
        handler=_overview,
        is_documented=False,
    ),
)

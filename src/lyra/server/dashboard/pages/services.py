"""The services of the kernel: how each is doing, and how much of its capacity is taken."""

from __future__ import annotations

from typing import Final

from lyra.kernel.services.service import ServiceInfo
from lyra.server.dashboard.html import Html, TableColumn, TableRow, table, tag
from lyra.server.dashboard.layout import page, region
from lyra.server.dashboard.words import empty, moment, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.work.names import is_offered

_EVENTS: Final = ("service.registered", "service.unregistered", "service.health_changed")
_WORST_FIRST: Final = ("unhealthy", "degraded", "unknown", "healthy")


async def _services(call: HttpCall) -> RawAnswer:
    seen = [info for info in call.kernel.services.list_services() if is_offered(call.kernel, info, call.caller)]
    services = sorted(seen, key=lambda info: (_WORST_FIRST.index(info.status), info.name))
    listed = region(call, "services", _EVENTS, _summary(services), _list(call, services))
    lead = "Named handlers that processes call. One that is degraded takes less work, one that is unhealthy takes none."
    return page(call, "Services", listed, lead=lead)


def _summary(services: list[ServiceInfo]) -> Html | None:
    counts = {word: sum(info.status == word for info in services) for word in _WORST_FIRST}
    parts = [tag("span", state(word, f"{count} {word}")) for word, count in counts.items() if count]
    return tag("div", parts, class_="bar") if parts else None


def _list(call: HttpCall, services: list[ServiceInfo]) -> Html:
    if not services:
        return empty(
            "Services stand here: named handlers with their health and load.",
            'kernel.register_service({"name": "search", "max_concurrent": 4})',
        )
    now = call.now
    columns: list[TableColumn | str] = [
        *("Service", "Health", "Load"),
        TableColumn("running", is_figure=True),
        TableColumn("capacity", is_figure=True),
        *("Type", "Version", "Capabilities", "Checked"),
    ]
    rows = [_row(info, now, has_handler=call.kernel.services.has_handler(info.name)) for info in services]
    return table("Services", columns, rows)


def _row(info: ServiceInfo, now: float, *, has_handler: bool) -> TableRow:
    load = tag(
        "meter",
        f"{info.current_load} of {info.max_concurrent}",
        min=0,
        max=info.max_concurrent,
        value=info.current_load,
        high=info.max_concurrent * 0.9,
        aria_label=f"Load of {info.name}",
    )
    name = tag("span", info.name, tag("span", " without a handler here", class_="note") if not has_handler else None)
    cells = (
        name,
        state(info.status),
        load,
        info.current_load,
        info.max_concurrent,
        info.service_type,
        info.version,
        ", ".join(info.capabilities),
        moment(info.last_health_check, now),
    )
    return TableRow(info.name, cells)


ENDPOINTS: Final = (Endpoint("pages.services", "GET", "/services", "The services and their health", _services),)

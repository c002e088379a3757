"""The services of the kernel: how each is doing, and how much of its capacity is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lyra.server.dashboard.gathering import PageSource, Told, gather
from lyra.server.dashboard.html import Html, TableColumn, TableRow, table, tag
from lyra.server.dashboard.layout import page, region
from lyra.server.dashboard.words import empty, moment, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.work.names import is_offered

_EVENTS: Final = ("service.registered", "service.unregistered", "service.health_changed")
_WORST_FIRST: Final = ("unhealthy", "degraded", "unknown", "healthy")


class ServiceLine(NamedTuple):
    """A service as it is shown; `shard` is the one that has it, in a cluster."""

    name: str
    status: str
    current_load: int
    max_concurrent: int
    service_type: str
    version: str
    capabilities: list[str]
    last_health_check: float | None
    has_handler: bool
    shard: str


async def _read(call: HttpCall) -> list[ServiceLine]:
    services = call.kernel.services
    return [
        ServiceLine(
            *(info.name, info.status, info.current_load, info.max_concurrent, info.service_type, info.version),
            *(list(info.capabilities), info.last_health_check, services.has_handler(info.name)),
            info.metadata.get("shard", ""),
        )
        for info in services.list_services()
        if is_offered(call.kernel, info, call.caller)
    ]


def _join(_call: HttpCall, told: Sequence[Told[list[ServiceLine]]]) -> list[ServiceLine]:
    """Return each service once: a shard also lists those that others have told it of."""
    answering = {shard for shard, _ in told}
    lines = {
        (line.name, line.shard or shard): line._replace(shard=line.shard or shard)
        for shard, lines in told
        for line in lines
        if not line.shard or line.shard not in answering
    }
    return list(lines.values())


SOURCE: Final = PageSource("services", list[ServiceLine], _read, _join)


async def _services(call: HttpCall) -> RawAnswer:
    seen = await gather(call, SOURCE)
    services = sorted(seen, key=lambda info: (_WORST_FIRST.index(info.status), info.name, info.shard))
    listed = region(call, "services", _EVENTS, _summary(services), _list(call, services))
    lead = "Named handlers that processes call. One that is degraded takes less work, one that is unhealthy takes none."
    return page(call, "Services", listed, lead=lead)


def _summary(services: list[ServiceLine]) -> Html | None:
    counts = {word: sum(info.status == word for info in services) for word in _WORST_FIRST}
    parts = [tag("span", state(word, f"{count} {word}")) for word, count in counts.items() if count]
    return tag("div", parts, class_="bar") if parts else None


def _list(call: HttpCall, services: list[ServiceLine]) -> Html:
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
    rows = [_row(info, now) for info in services]
    return table("Services", columns, rows)


def _row(info: ServiceLine, now: float) -> TableRow:
    load = tag(
        "meter",
        f"{info.current_load} of {info.max_concurrent}",
        min=0,
        max=info.max_concurrent,
        value=info.current_load,
        high=info.max_concurrent * 0.9,
        aria_label=f"Load of {info.name}",
    )
    where = f" on {info.shard}" if info.shard else "" if info.has_handler else " without a handler here"
    name = tag("span", info.name, tag("span", where, class_="note") if where else None)
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
    return TableRow(f"{info.shard}/{info.name}" if info.shard else info.name, cells)


ENDPOINTS: Final = (Endpoint("pages.services", "GET", "/services", "The services and their health", _services),)

"""The server itself: whether it lives, whether it is ready, how it is doing, its metrics, what can be asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra._version import __version__
from lyra.errors import Denied
from lyra.kernel.workers.quota import SystemUsage
from lyra.observe.metrics import attach_metrics
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.http.mounted_nodes import mounted_nodes
from lyra.server.http.openapi import openapi_bytes
from lyra.server.http.problems import HttpRefusal
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


class Alive(msgspec.Struct):
    status: str = "ok"


class StatusView(msgspec.Struct, kw_only=True):
    """How the kernel is doing; for a user, what is theirs of it."""

    version: str
    uptime_seconds: float
    total_processes: int
    process_counts: dict[str, int]
    queue_depth: int
    service_counts: dict[str, int]
    interrupts: dict[str, int]
    resources: dict[str, Any]


async def alive(call: HttpCall) -> Alive:
    del call
    return Alive()


async def ready(call: HttpCall) -> Alive:
    kernel = call.kernel
    if kernel.failure is not None or not kernel.open or kernel.stopping:
        raise HttpRefusal(503, "the kernel is not open")
    if call.parts.is_draining or kernel.draining:
        raise HttpRefusal(503, "the server is stopping")
    return Alive("ready")


async def status(call: HttpCall) -> StatusView:
    data = call.kernel.get_system_status().to_data()
    data.pop("rate_limit_usage")
    if not call.caller.is_operator:
        data.update(_figures_of(call.kernel, call.caller))
    return StatusView(version=__version__, **data)


def _figures_of(kernel: Kernel, caller: Caller) -> dict[str, Any]:
    """The figures of one user, in place of those of all."""
    counts = kernel.lifecycle.get_process_counts(caller.user_id)
    statuses = Counter(
        str(interrupt.status)
        for interrupt in kernel.interrupts.list_interrupts()
        if caller.owns(interrupt.user_id or owner_if_known(kernel, interrupt.pid))
    )
    usage = kernel.resources.get_user_usage(caller.user_id)
    used = {name: getattr(usage, name) for name in SystemUsage.__struct_fields__ if hasattr(usage, name)}
    ended = counts["terminated"] + counts["zombie"]
    return {
        "total_processes": counts.total,
        "process_counts": dict(counts),
        "queue_depth": counts.queue_depth,
        "interrupts": {status: statuses[status] for status in kernel.interrupts.get_counts()},
        "resources": {"total_processes": counts.total, "active_processes": counts.total - ended, **used},
    }


async def metrics(call: HttpCall) -> RawAnswer:
    if call.caller.is_bound:  # they tell of the agents of all users
        raise Denied("metrics are for the operator", hint="use a token that is bound to no user")
    body, media = attach_metrics(call.kernel).render()
    mounted = mounted_nodes(call.kernel)
    if mounted is not None and b"# TYPE sir_executions_total " not in body:  # the application may have added them
        body += (await asyncio.to_thread(mounted.runtime.metrics_text)).encode()
    return RawAnswer(body, media)


async def openapi(call: HttpCall) -> RawAnswer:
    return RawAnswer(openapi_bytes(call.parts.endpoints))


ENDPOINTS: Final = (
    Endpoint(
        name="system.alive",
        method="GET",
        path="/healthz",
        summary="Whether the server runs",
        handler=alive,
        answer=Alive,
        is_open=True,
    ),
    Endpoint(
        name="system.ready",
        method="GET",
        path="/readyz",
        summary="Whether it takes requests: 503 while it starts or stops, or when its store is lost",
        handler=ready,
        answer=Alive,
        is_open=True,
        statuses=(503,),
    ),
    Endpoint(
        name="system.openapi",
        method="GET",
        path="/openapi.json",
        summary="This API as an OpenAPI document",
        handler=openapi,
        is_open=True,
    ),
    Endpoint(
        name="system.status",
        method="GET",
        path="/api/system",
        summary="How the kernel is doing",
        handler=status,
        answer=StatusView,
    ),
    Endpoint(
        name="system.metrics",
        method="GET",
        path="/metrics",
        summary="Metrics for Prometheus; for the operator",
        handler=metrics,
        answer=str,
        media="text/plain; version=0.0.4; charset=utf-8",
        statuses=(403,),
    ),
)

"""Traces and costs: what the agents of the caller did, also before the server began, and what all that came to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from itertools import islice
from typing import Any, Final

import msgspec

from lyra.core.limits import SERVER_PAGE_ITEMS
from lyra.observe.spans import Span, SpanNode, span_tree
from lyra.server.http.api.processes import Limit
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestQuery
from lyra.server.http.past.records import CostSum
from lyra.server.http.problems import HttpRefusal


class TraceView(msgspec.Struct, kw_only=True):
    """One trace in a line."""

    trace_id: str
    name: str
    status: str
    started_at: float
    latency_ms: int
    span_count: int
    cost_usd: float


class TraceList(msgspec.Struct):
    traces: list[TraceView]


class SpanView(msgspec.Struct, kw_only=True):
    """A piece of work and those inside it; `data` is its whole record."""

    span_id: str
    kind: str
    name: str
    agent: str
    pid: str
    status: str
    started_at: float
    latency_ms: int
    data: dict[str, Any]
    children: list[SpanView]


class TraceDetail(msgspec.Struct, kw_only=True):
    trace_id: str
    spans: list[SpanView]


class TraceQuery(RequestQuery):
    limit: Limit = SERVER_PAGE_ITEMS


class Grouping(StrEnum):
    AGENT = "agent"
    MODEL = "model"
    DAY = "day"
    KEY = "key"
    USER = "user"


class CostQuery(RequestQuery):
    by: Grouping = Grouping.AGENT


class CostGroup(msgspec.Struct, kw_only=True):
    """The calls of one group; `unpriced_calls` have a cost that is not known."""

    key: str
    calls: int = 0
    errors: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0


class CostReport(msgspec.Struct, kw_only=True):
    by: Grouping
    groups: list[CostGroup]
    total_usd: float


async def list_own_spans(call: HttpCall) -> list[Span]:
    """Return the spans of the caller's processes, also of the time before the server began, the oldest first."""
    await call.parts.records.load_past()
    return list_spans(call)


def list_spans(call: HttpCall) -> list[Span]:
    """Return the spans, as far as the time before the server began has been read."""
    return [span for owner, span in call.parts.records.spans() if call.caller.owns(owner)]


async def list_traces(call: HttpCall) -> TraceList:
    by_trace = spans_by_trace(await list_own_spans(call))
    return TraceList([trace_line(trace_id, spans) for trace_id, spans in islice(by_trace.items(), call.query.limit)])


def spans_by_trace(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """Return the spans of each trace, the trace whose last span ended last before the others."""
    by_trace: dict[str, list[Span]] = {}
    for span in spans:
        of_trace = by_trace.pop(span.trace_id, None) or []
        of_trace.append(span)
        by_trace[span.trace_id] = of_trace
    return dict(reversed(by_trace.items()))


def trace_line(trace_id: str, spans: list[Span]) -> TraceView:
    """Return a trace in a line, from its spans."""
    began = min(span.started for span in spans)
    roots = span_tree(spans)
    return TraceView(
        trace_id=trace_id,
        name=_name(roots[0].span),
        status=next((root.span.status for root in roots if root.span.status != "ok"), "ok"),
        started_at=began,
        latency_ms=round((max(span.time for span in spans) - began) * 1000),
        span_count=len(spans),
        cost_usd=sum(span.model_call.cost_usd or 0.0 for span in spans if span.kind == "model"),
    )


def _name(root: Span) -> str:
    """Return what a trace is called: by the agent, also while its turn is under way and only calls in it have ended."""
    return root.agent or root.name if root.kind in ("model", "tool") else root.name


async def get_trace(call: HttpCall) -> TraceDetail:
    trace_id = call.path["trace_id"]
    spans = [span for span in await list_own_spans(call) if span.trace_id == trace_id]
    if not spans:
        raise HttpRefusal(404, f"no trace {trace_id[:80]!r}", hint="GET /api/traces lists those that are kept")
    return TraceDetail(trace_id=trace_id, spans=[_render_node(node) for node in span_tree(spans)])


def _render_node(node: SpanNode) -> SpanView:
    span = node.span
    return SpanView(
        span_id=span.span_id,
        kind=span.kind,
        name=span.name,
        agent=span.agent,
        pid=span.pid,
        status=span.status,
        started_at=span.started,
        latency_ms=span.latency_ms,
        data=span.data,
        children=[_render_node(child) for child in node.children],
    )


_KEYS: Final[dict[Grouping, Callable[[CostSum], str]]] = {
    Grouping.AGENT: lambda total: total.agent,
    Grouping.MODEL: lambda total: total.model,
    Grouping.DAY: lambda total: total.day,
    Grouping.KEY: lambda total: total.key,
    Grouping.USER: lambda total: total.owner,
}


async def get_costs(call: HttpCall) -> CostReport:
    await call.parts.records.load_past()
    key_of = _KEYS[call.query.by]
    micro_usd: dict[str, int] = {}
    groups: dict[str, CostGroup] = {}
    for total in call.parts.records.sums():
        if not call.caller.owns(total.owner):
            continue
        key = key_of(total)
        group = groups.setdefault(key, CostGroup(key=key))
        for name in ("calls", "errors", "input_tokens", "output_tokens", "cached_tokens", "unpriced_calls"):
            setattr(group, name, getattr(group, name) + getattr(total, name))
        micro_usd[key] = micro_usd.get(key, 0) + total.cost_micro_usd
    for key, group in groups.items():
        group.cost_usd = micro_usd[key] / 1_000_000
    ordered = [groups[key] for key in sorted(groups)]
    return CostReport(by=call.query.by, groups=ordered, total_usd=sum(micro_usd.values()) / 1_000_000)


ENDPOINTS: Final = (
    Endpoint(
        "traces.list",
        "GET",
        "/api/traces",
        "The last traces, the newest first",
        list_traces,
        query=TraceQuery,
        answer=TraceList,
    ),
    Endpoint(
        "traces.get",
        "GET",
        "/api/traces/{trace_id}",
        "One trace as a tree of spans",
        get_trace,
        answer=TraceDetail,
        statuses=(404,),
    ),
    Endpoint(
        "costs.get",
        "GET",
        "/api/costs",
        "What the calls of models came to, by agent, model, day, gateway key or user",
        get_costs,
        query=CostQuery,
        answer=CostReport,
    ),
)

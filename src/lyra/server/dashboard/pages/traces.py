"""The traces: what the agents did, each in a line, with filters."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Final

import msgspec

from lyra.core.checking.check import one_of
from lyra.observe.spans import Span
from lyra.server.dashboard.first_step import nothing_yet
from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.layout import link, page, region
from lyra.server.dashboard.table import TableColumn, TableRow, table
from lyra.server.dashboard.views.past import past_note
from lyra.server.dashboard.words import copied_id, duration, empty, moment, money, state
from lyra.server.http.api.traces import TraceView, known_spans, spans_by_trace, trace_line
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery

_EVENTS: Final = ("agent.answered", "agent.ended", "vesper.executed")
_ORDERS: Final = ("newest", "slowest", "dearest")


class TracePageQuery(RequestQuery):
    """`agent` and `text` narrow by words, `errors` shows failed traces alone."""

    agent: str = ""
    text: str = ""
    errors: str = ""
    order: str = "newest"
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


def _fits(query: TracePageQuery, trace_id: str, spans: list[Span]) -> bool:
    if query.agent and all(span.agent != query.agent for span in spans):
        return False
    if query.errors and all(span.status in ("ok", "paused") for span in spans):
        return False
    wanted = query.text.lower()
    return not wanted or trace_id.startswith(wanted) or any(wanted in span.name.lower() for span in spans)


async def _traces(call: HttpCall) -> RawAnswer:
    query: TracePageQuery = call.query
    one_of(query.order, _ORDERS, "order")
    note = await past_note(call)
    by_trace = spans_by_trace(known_spans(call))
    agents = sorted({span.agent for spans in by_trace.values() for span in spans if span.agent})
    fitting = {trace_id: spans for trace_id, spans in by_trace.items() if _fits(query, trace_id, spans)}
    shown = _ordered(fitting, query)
    return page(
        call,
        "Traces",
        _filters(call, query, agents),
        region(
            call, "traces", _EVENTS, note, _list(call, shown, fitting, len(by_trace)), every_ms=1_000, data_hold=True
        ),
        tag("p", f"{len(fitting) - len(shown):,} more fit.", class_="note") if len(fitting) > len(shown) else None,
        lead="What agents did: one line for each turn, with its model and tool calls. Open one to see where its time "
        "and money went.",
    )


def _ordered(fitting: dict[str, list[Span]], query: TracePageQuery) -> list[TraceView]:
    """The lines to show. Those of all traces are made only where they are needed to tell the order."""
    if query.order == "newest":
        return [trace_line(trace_id, spans) for trace_id, spans in islice(fitting.items(), query.limit)]
    lines = [trace_line(trace_id, spans) for trace_id, spans in fitting.items()]
    lines.sort(key=lambda line: -line.latency_ms if query.order == "slowest" else -line.cost_usd)
    return lines[: query.limit]


def _filters(call: HttpCall, query: TracePageQuery, agents: list[str]) -> Html:
    options = [tag("option", "all agents", value="")]
    options += [tag("option", name, value=name, selected=name == query.agent) for name in agents]
    orders = [tag("option", f"{word} first", value=word, selected=word == query.order) for word in _ORDERS]
    return tag(
        "form",
        tag("label", "Agent ", tag("select", options, name="agent")),
        tag("label", "Name or id ", tag("input", type="search", name="text", value=query.text)),
        tag("label", "Order ", tag("select", orders, name="order")),
        tag(
            "label",
            tag("input", type="checkbox", name="errors", value="1", checked=bool(query.errors)),
            " errors only",
        ),
        tag("button", "Show"),
        method="get",
        action=link(call, "traces"),
        class_="bar",
        role="search",
    )


def _list(call: HttpCall, lines: list[TraceView], spans: dict[str, list[Span]], total: int) -> Html:
    if not lines:
        if call.parts.records.is_reading:
            return Html("")
        if total:
            return empty("No trace fits.")
        return nothing_yet(call, "A trace of each conversation stands here: turns, model calls, tool calls.")
    now = call.now
    columns: list[TableColumn | str] = [
        *("Trace", "Agent", "State", "Began"),
        *(TableColumn(name, is_figure=True) for name in ("took", "spans", "errors", "cost")),
    ]
    rows = [_row(call, line, spans[line.trace_id], now) for line in lines]
    return table("Traces", columns, rows, name="traces-table")


def _row(call: HttpCall, line: TraceView, spans: list[Span], now: float) -> TableRow:
    errors = sum(span.status not in ("ok", "paused") for span in spans)
    agents = ", ".join(dict.fromkeys(span.agent for span in spans if span.agent))
    cells = (
        tag("span", tag("a", line.name, href=link(call, "traces", line.trace_id)), " ", copied_id(line.trace_id)),
        agents,
        state("failed", line.status) if line.status not in ("ok", "paused") else state("ok"),
        moment(line.started_at, now),
        duration(line.latency_ms / 1000),
        line.span_count,
        errors or "",
        money(round(line.cost_usd * 1_000_000)),
    )
    return TableRow(line.trace_id, cells)


ENDPOINTS: Final = (
    Endpoint(
        name="pages.traces",
        method="GET",
        path="/traces",
        summary="The traces",
        handler=_traces,
        query=TracePageQuery,
        is_documented=False,
    ),
)

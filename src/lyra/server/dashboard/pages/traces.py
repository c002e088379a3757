"""The traces: what the agents did, each in a line, with filters."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from lyra.core.checking.check import one_of
from lyra.core.codec import decode, to_plain
from lyra.core.event import Event
from lyra.errors import LyraError
from lyra.kernel.base.tasks import BlockingCalls
from lyra.observe.history.call_contents import CallContent, ContentHistory, ContentPart, Pause, PauseHistory
from lyra.observe.spans import Span
from lyra.server.dashboard.gathering import PageSource, Told, gather
from lyra.server.dashboard.html import Child, Html, TableColumn, TableRow, facts_row, join, table, tag
from lyra.server.dashboard.layout import link, nothing_yet, page, past_note, region
from lyra.server.dashboard.waterfall import WATERFALL_SCRIPT, span_cost, waterfall
from lyra.server.dashboard.words import duration, empty, moment, money, render_copyable_id, state
from lyra.server.http.api.traces import TraceView, list_own_spans, list_spans, spans_by_trace, trace_line
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery
from lyra.server.http.problems import HttpRefusal

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.http.parts import HttpParts
    from lyra.server.http.past.history import History
    from lyra.store.protocol import Record, Store


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


class TraceLine(NamedTuple):
    """A trace as it is shown."""

    trace: TraceView
    agents: str
    errors: int
    shard: str = ""  # of a cluster: the one that has it


class Traces(msgspec.Struct):
    """The lines to show, of how many that fit; all agents, and whether there is any trace, or may be."""

    lines: list[TraceLine]
    fitting: int
    agents: list[str]
    is_any: bool
    is_reading: bool


async def _read(call: HttpCall) -> Traces:
    query: TracePageQuery = call.query
    by_trace = spans_by_trace(list_spans(call))
    agents = sorted({span.agent for spans in by_trace.values() for span in spans if span.agent})
    fitting = {trace_id: spans for trace_id, spans in by_trace.items() if _fits(query, trace_id, spans)}
    lines = [_describe_line(line, fitting[line.trace_id]) for line in _order_lines(fitting, query)]
    return Traces(lines, len(fitting), agents, bool(by_trace), call.parts.records.is_reading)


def _describe_line(line: TraceView, spans: list[Span]) -> TraceLine:
    agents = ", ".join(dict.fromkeys(span.agent for span in spans if span.agent))
    return TraceLine(line, agents, sum(span.status not in ("ok", "paused") for span in spans))


def _join(call: HttpCall, told: Sequence[Told[Traces]]) -> Traces:
    lines = [line._replace(shard=shard) for shard, traces in told for line in traces.lines]
    lines.sort(key=lambda line: -_ORDER_KEYS[call.query.order](line.trace))
    return Traces(
        lines[: call.query.limit],
        sum(traces.fitting for _, traces in told),
        sorted({name for _, traces in told for name in traces.agents}),
        any(traces.is_any for _, traces in told),
        any(traces.is_reading for _, traces in told),
    )


_ORDER_KEYS: Final[dict[str, Callable[[TraceView], float]]] = {
    "newest": lambda line: line.started_at + line.latency_ms / 1000,
    "slowest": lambda line: line.latency_ms,
    "dearest": lambda line: line.cost_usd,
}
SOURCE: Final = PageSource("traces", Traces, _read, _join, TracePageQuery)


async def _traces(call: HttpCall) -> RawAnswer:
    query: TracePageQuery = call.query
    one_of(query.order, _ORDERS, "order")
    note = await past_note(call) if call.parts.whole is None else None
    traces = await gather(call, SOURCE)
    more = traces.fitting - len(traces.lines)
    return page(
        call,
        "Traces",
        _filters(call, query, traces.agents),
        region(call, "traces", _EVENTS, note, _list(call, traces), every_ms=1_000, data_hold=True),
        tag("p", f"{more:,} more fit.", class_="note") if more > 0 else None,
        lead="What agents did: one line for each turn, with its model and tool calls. Open one to see where its time "
        "and money went.",
    )


def _order_lines(fitting: dict[str, list[Span]], query: TracePageQuery) -> list[TraceView]:
    """Return the lines to show. Those of all traces are made only where they are needed to tell the order."""
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


def _list(call: HttpCall, traces: Traces) -> Html:
    if not traces.lines:
        if traces.is_reading:
            return Html("")
        if traces.is_any:
            return empty("No trace fits.")
        return nothing_yet(call, "A trace of each conversation stands here: turns, model calls, tool calls.")
    now = call.now
    columns: list[TableColumn | str] = [
        *("Trace", "Agent", "State", "Began"),
        *(TableColumn(name, is_figure=True) for name in ("took", "spans", "errors", "cost")),
    ]
    rows = [_row(call, line, now) for line in traces.lines]
    return table("Traces", columns, rows, name="traces-table")


def _row(call: HttpCall, told: TraceLine, now: float) -> TableRow:
    line = told.trace
    there = f"shards/{told.shard}/traces" if told.shard else "traces"
    cells = (
        tag(
            "span",
            tag("a", line.name, href=link(call, there, line.trace_id)),
            " ",
            render_copyable_id(line.trace_id),
        ),
        told.agents,
        state("failed", line.status) if line.status not in ("ok", "paused") else state("ok"),
        moment(line.started_at, now),
        duration(line.latency_ms / 1000),
        line.span_count,
        told.errors or "",
        money(round(line.cost_usd * 1_000_000)),
    )
    return TableRow(line.trace_id, cells)


# ---------------------------------------------------------------- trace
# One trace: its waterfall, and what one call of it asked and got.

_COMMAND_TOOL: Final = "Bash"
_SANDBOX_NOTE: Final = re.compile(r"\[exit code [^\n]*?· sandbox ([^·\n]+?)(?: ·[^\n]*)?\]\Z")
_TRACE_EVENTS: Final = ("model.called", "tool.called", "agent.answered", "agent.ended")
_SHOWN_ELSEWHERE: Final = frozenset(
    {"trace_id", "span_id", "parent_span", "agent", "status", "latency_ms", "input_tokens", "output_tokens", "cost_usd"}
)


class SpanQuery(RequestQuery):
    """`span` is the one whose call is shown."""

    span: str = ""


async def _trace(call: HttpCall) -> RawAnswer:
    trace_id = call.path["trace_id"]
    spans = [span for span in await list_own_spans(call) if span.trace_id == trace_id]
    if not spans:
        raise HttpRefusal(404, f"no trace {trace_id[:80]!r}", hint="the page Traces lists those that are kept")
    contents = call.parts.get_shared(TraceContents)
    chosen = next((span for span in spans if span.span_id == call.query.span), None)
    content = None if chosen is None else await contents.read_call(chosen)
    line = trace_line(trace_id, spans)

    def href(span: Span) -> str:
        return link(call, "traces", trace_id, query={"span": span.span_id}) + "#call"

    rows = waterfall(spans, await contents.pauses(spans), href=href, chosen=call.query.span)
    return page(
        call,
        f"Trace of {line.name}",
        region(
            call,
            "spans",
            _TRACE_EVENTS,
            _facts(call, trace_id, spans, line.status),
            rows,
            every_ms=1_000,
            class_="trace",
        ),
        region(call, "call", (), _call(call, chosen, content)),
        scripts=(WATERFALL_SCRIPT,),
        wide=True,
    )


def _facts(call: HttpCall, trace_id: str, spans: Sequence[Span], status: str) -> Html:
    began = min(span.started for span in spans)
    took_s = max(span.time for span in spans) - began
    errors = sum(span.status not in ("ok", "paused") for span in spans)
    pids = list(dict.fromkeys(span.pid for span in spans if span.pid))[:8]
    calls = [span.model_call for span in spans if span.kind == "model"]
    tokens = sum(model_call.input_tokens + model_call.output_tokens for model_call in calls)
    facts: list[tuple[str, Child]] = [
        ("State", state("ok") if status in ("ok", "paused") else state("failed", status)),
        ("Began", moment(began, call.now)),
        ("Took", duration(took_s)),
        ("Spans", f"{len(spans):,}" + (f", {errors} failed" if errors else "")),
        ("Tokens", f"{tokens:,}"),
        ("Cost", money(span_cost(spans))),
        ("Processes", [[tag("a", pid, href=link(call, "processes", pid)), " "] for pid in pids]),
        ("Id", render_copyable_id(trace_id)),
    ]
    return facts_row(facts)


# ---------------------------------------------------------------- one call
def _call(call: HttpCall, span: Span | None, content: CallContent | None) -> Html:
    if span is None:
        return join(tag("h2", "Call"), tag("p", "Choose a row to see what the call asked and got.", class_="note"))
    facts: list[tuple[str, Child]] = [
        ("State", state("ok") if span.status in ("ok", "paused") else state("failed", span.status)),
        ("Took", duration(span.latency_ms / 1000)),
        ("Agent", span.agent),
        ("Process", tag("a", span.pid, href=link(call, "processes", span.pid)) if span.pid else "–"),
    ]
    facts += [(_words(name), _render_value(value)) for name, value in span.data.items() if name not in _SHOWN_ELSEWHERE]
    if span.kind == "model":
        facts.append(("Cache", _cache_words(span, content)))
    if content is not None and content.decision:
        facts += [(f"Permission: {name}", _render_value(value)) for name, value in content.decision.items()]
    elif span.kind == "tool" and content is not None:
        facts.append(("Permission", "no rule was asked: the agent has no permissions"))
    sandbox = "" if content is None else _sandbox_words(span, content)
    if sandbox:
        facts.append(("Sandbox", sandbox))
    return join(tag("h2", f"{span.kind} {span.name}"), facts_row(facts), _parts(span, content))


def _parts(span: Span, content: CallContent | None) -> Html | None:
    if span.kind not in ("model", "tool"):
        return None
    if content is None:
        note = "Request and answer are kept by a kernel with a store: lyra serve --db lyra.db"
        return tag("p", note, class_="note")
    answer = [*content.answer, *([ContentPart("error", content.error)] if content.error else [])]
    return tag(
        "div",
        tag("div", tag("h3", "Request"), _texts(content.request)),
        tag("div", tag("h3", "Answer"), _texts(answer)),
        class_="call-parts",
    )


def _texts(parts: Sequence[ContentPart]) -> Html:
    if not parts:
        return tag("p", "nothing", class_="note")
    return join(*([tag("p", part.role, class_="note"), tag("pre", part.text, tabindex="0")] for part in parts))


def _cache_words(span: Span, content: CallContent | None) -> str:
    called = span.model_call
    counts = {"cache_read_tokens": called.cache_read_tokens, "cache_write_tokens": called.cache_write_tokens}
    counts |= {} if content is None else content.cache
    words = [f"{count:,} tokens {name.split('_')[1]}" for name, count in counts.items() if count]
    return ", ".join(words) or "not used"


def _sandbox_words(span: Span, content: CallContent) -> str:
    """Return what the note at the end of a command's result says about its sandbox; "" where there is none."""
    texts = [content.error, *(part.text for part in content.answer)]
    if span.name != _COMMAND_TOOL or not any(texts):
        return ""
    notes = [_SANDBOX_NOTE.search(text.rstrip()) for text in texts]
    return next((note[1] for note in notes if note is not None), "")


def _words(name: str) -> str:
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def _render_value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


ENDPOINTS: Final = (
    Endpoint("pages.traces", "GET", "/traces", "The traces", _traces, query=TracePageQuery),
    Endpoint("pages.trace", "GET", "/traces/{trace_id}", "One trace", _trace, query=SpanQuery, statuses=(404,)),
)


# ---------------------------------------------------------------- call contents
# What one call of a trace asked and got, and where its processes stood still: read for a person who looks at it.

_ROWS_MAX: Final = 50_000  # that one request reads of a process, or of the last events
_PAUSE_KINDS: Final = frozenset(
    {
        *("effect.retried", "interrupt.created", "interrupt.resolved", "interrupt.expired", "interrupt.cancelled"),
        *("pcb.interrupt_created", "pcb.interrupt_ended"),
    }
)


class TraceContents:
    """See the module. One for each server: `call.parts.get_shared(TraceContents)`."""

    def __init__(self, parts: HttpParts) -> None:
        self._kernel: Kernel = parts.kernel
        self._history: History = parts.history
        self._threads = BlockingCalls("lyra-contents")
        self._pauses = PauseHistory()
        self._seq = 0  # of the last row whose pause is known
        self._reading = asyncio.Lock()
        parts.kernel.parts["server.contents"] = self

    async def close(self) -> None:
        """Called with the kernel."""
        self._threads.close()

    async def pauses(self, spans: Iterable[Span]) -> list[Pause]:
        """Return where the processes of these spans waited, in order."""
        async with self._reading:  # rows that were read before are not read again
            store = self._kernel.open_reader()
            if store is not None:
                self._seq = await self._threads.call(_add_pauses, store, self._pauses, self._seq)
            else:
                page = await self._history.page(self._seq, _ROWS_MAX, pid=None, kind=None)
                self._pauses.add_all(event for event in page.events if event.kind in _PAUSE_KINDS)
                self._seq = page.last_seq
        pids = {span.pid for span in spans}
        return [pause for pause in self._pauses.pauses if pause.pid in pids]

    async def read_call(self, span: Span) -> CallContent | None:
        """Return what a call of a model or a tool asked and got; None where that is not known."""
        if span.kind not in ("model", "tool"):
            return None
        call_id = str(span.data.get("call_id") or "")
        store = self._kernel.open_reader()
        if store is not None:
            history = await self._threads.call(_read_contents, store, span.pid)
            return history.nearest(span.kind, span.name, span.time, call_id)
        return _in_conversation(self._kernel, span, call_id)


def _add_pauses(store: Store, history: PauseHistory, after: int) -> int:
    """Add the pauses that the rows after one tell; gives the last row."""
    last = after
    try:
        for row in store.read(after=after):
            last = row.seq
            if row.kind in _PAUSE_KINDS:
                history.add(_event(row))
    finally:
        store.close()
    return last


def _read_contents(store: Store, pid: str) -> ContentHistory:
    def message_at(seq: int) -> Any:
        row = next(iter(store.read(after=seq - 1, upto=seq, kind="message.sent")), None)
        return None if row is None else decode(row.data).get("message")

    history = ContentHistory(message_at)
    try:
        for row in list(islice(store.read(pid=pid), _ROWS_MAX)):
            history.add(_event(row))
    finally:
        store.close()
    return history


def _event(row: Record) -> Event:
    return Event(row.seq, row.time, row.pid, row.kind, decode(row.data))


def _in_conversation(kernel: Kernel, span: Span, call_id: str) -> CallContent | None:
    """Return a call of a tool as its agent's conversation has it; the call of a model cannot be told from others
    there."""
    if not call_id:
        return None
    try:
        messages = kernel.agent(span.pid).messages
    except (LyraError, KeyError):
        return None
    content = CallContent("", span.kind, span.name, span.started, span.time, call_id)
    for message in messages:
        for asked in message.tool_calls:
            if asked.id == call_id:
                content.request = [ContentPart("arguments", _text(asked.arguments))]
        for result in message.tool_results:
            if result.id == call_id:
                content.answer = [ContentPart("result", _text(result.output))]
    return content if content.request or content.answer else None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=to_plain), indent=2).decode()

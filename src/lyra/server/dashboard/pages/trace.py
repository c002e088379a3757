"""One trace: its waterfall, and what one call of it asked and got."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from lyra.observe.history.call_contents import CallContent, ContentPart
from lyra.observe.spans import Span
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.layout import link, page, region
from lyra.server.dashboard.views.facts import facts_row
from lyra.server.dashboard.views.waterfall import WATERFALL_SCRIPT, span_cost, waterfall
from lyra.server.dashboard.words import copied_id, duration, moment, money, state
from lyra.server.http.api.traces import own_spans, trace_line
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery
from lyra.server.http.past.call_contents import TraceContents
from lyra.server.http.problems import HttpRefusal

_COMMAND_TOOL: Final = "Bash"
_SANDBOX_NOTE: Final = re.compile(r"\[exit code [^\n]*?· sandbox ([^·\n]+?)(?: ·[^\n]*)?\]\Z")
_EVENTS: Final = ("model.called", "tool.called", "agent.answered", "agent.ended")
_SHOWN_ELSEWHERE: Final = frozenset(
    {"trace_id", "span_id", "parent_span", "agent", "status", "latency_ms", "input_tokens", "output_tokens", "cost_usd"}
)


class SpanQuery(RequestQuery):
    """`span` is the one whose call is shown."""

    span: str = ""


async def _trace(call: HttpCall) -> RawAnswer:
    trace_id = call.path["trace_id"]
    spans = [span for span in await own_spans(call) if span.trace_id == trace_id]
    if not spans:
        raise HttpRefusal(404, f"no trace {trace_id[:80]!r}", hint="the page Traces lists those that are kept")
    contents = call.parts.shared(TraceContents)
    chosen = next((span for span in spans if span.span_id == call.query.span), None)
    content = None if chosen is None else await contents.of(chosen)
    line = trace_line(trace_id, spans)

    def href(span: Span) -> str:
        return link(call, "traces", trace_id, query={"span": span.span_id}) + "#call"

    rows = waterfall(spans, await contents.pauses(spans), href=href, chosen=call.query.span)
    return page(
        call,
        f"Trace of {line.name}",
        region(
            call, "spans", _EVENTS, _facts(call, trace_id, spans, line.status), rows, every_ms=1_000, class_="trace"
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
        ("Id", copied_id(trace_id)),
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
    facts += [(_words(name), _plain(value)) for name, value in span.data.items() if name not in _SHOWN_ELSEWHERE]
    if span.kind == "model":
        facts.append(("Cache", _cache_words(span, content)))
    if content is not None and content.decision:
        facts += [(f"Permission: {name}", _plain(value)) for name, value in content.decision.items()]
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
    """What the note at the end of a command's result says about its sandbox; "" where there is none."""
    texts = [content.error, *(part.text for part in content.answer)]
    if span.name != _COMMAND_TOOL or not any(texts):
        return ""
    notes = [_SANDBOX_NOTE.search(text.rstrip()) for text in texts]
    return next((note[1] for note in notes if note is not None), "")


def _words(name: str) -> str:
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def _plain(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


ENDPOINTS: Final = (
    Endpoint(
        name="pages.trace",
        method="GET",
        path="/traces/{trace_id}",
        summary="One trace",
        handler=_trace,
        query=SpanQuery,
        is_documented=False,
        statuses=(404,),
    ),
)

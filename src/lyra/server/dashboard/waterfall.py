"""The waterfall of a trace: one row a span, its time as a bar, tokens and cost at the right.

`waterfall(spans, pauses)` is a table. A bar has hatched parts where the span waited: for the next try of a call, or for
a person. The critical path, the chain of spans that the end of the trace waited for, is stronger (`critical_path`). A
row leads to what is known about its call: `href(span)` gives its address. Shows spans; `pages.traces` and the page of a
process read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from lyra.observe.history.call_contents import Pause
from lyra.observe.spans import Span, SpanNode, span_tree
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.words import duration, money, state

WATERFALL_SCRIPT: Final = "waterfall.js"
_ROWS_MAX: Final = 500
_WIDTH: Final = 1_000  # of the time axis, in units of its pictures
_HEIGHT: Final = 16
_DEPTH_MAX: Final = 12  # deeper spans are not indented further
_HATCHES: Final = {"retry": "M0 6 L6 0", "wait": "M0 3 H6"}


def waterfall(
    spans: Iterable[Span],
    pauses: Sequence[Pause] = (),
    *,
    href: Callable[[Span], str] | None = None,
    chosen: str = "",
    name: str = "waterfall",
) -> Html:
    """Return a table of spans; `chosen` is the id of the span that is looked at."""
    known = list(spans)
    if not known:
        return tag("p", "No span is recorded.", class_="note")
    roots = span_tree(known)
    rows = _walk(roots)
    frame = _TimeFrame(known)
    strong = critical_path(roots)
    waits: dict[str, list[Pause]] = {}
    for pause in pauses:
        waits.setdefault(pause.pid, []).append(pause)
    heads = (("Span", False), ("Time", False), ("Took", True), ("Tokens", True), ("Cost", True))
    body = [
        _row(
            depth,
            span,
            frame,
            waits.get(span.pid, ()),
            href,
            is_critical=span.span_id in strong,
            is_chosen=span.span_id == chosen,
        )
        for depth, span in rows[:_ROWS_MAX]
    ]
    table = tag(
        "table",
        tag("caption", "Spans of the trace in the order of their start", class_="unseen"),
        tag(
            "thead",
            tag(
                "tr",
                [
                    tag("th", word, scope="col", class_="figure-cell" if is_figure else None)
                    for word, is_figure in heads
                ],
            ),
        ),
        tag("tbody", body),
        class_="waterfall",
        id=name,
    )
    left_out = len(rows) - _ROWS_MAX
    return join(
        _legend(),
        tag("div", table, class_="scroll", role="region", tabindex="0", aria_label="Waterfall"),
        tag("p", f"{left_out:,} more spans are not shown.", class_="note") if left_out > 0 else None,
    )


class _TimeFrame:
    """The time that the picture covers."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.start = min(span.started for span in spans)
        self.length_s = max(max(span.time for span in spans) - self.start, 0.001)

    def x(self, time: float) -> float:
        return min(max((time - self.start) / self.length_s, 0.0), 1.0) * _WIDTH


def _walk(roots: Sequence[SpanNode]) -> list[tuple[int, Span]]:
    """Return the spans with their depth, those inside a span behind it."""
    rows: list[tuple[int, Span]] = []
    todo = [(0, root) for root in reversed(roots)]
    while todo:
        depth, node = todo.pop()
        rows.append((depth, node.span))
        todo += [(depth + 1, child) for child in reversed(_one_after_another(node.children))]
    return rows


def _one_after_another(nodes: Sequence[SpanNode]) -> list[SpanNode]:
    """Spans in the order of their start. One that began when another had ended stands behind it, although its start,
    which is known by whole milliseconds, may seem to be the earlier one."""
    ordered: list[SpanNode] = []
    for node in nodes:
        place = len(ordered)
        while (
            place
            and node.span.time < ordered[place - 1].span.time
            and (node.span.time <= ordered[place - 1].span.started + _TICK_S)
        ):
            place -= 1
        ordered.insert(place, node)
    return ordered


# ---------------------------------------------------------------- one row
def _row(
    depth: int,
    span: Span,
    frame: _TimeFrame,
    pauses: Sequence[Pause],
    href: Callable[[Span], str] | None,
    *,
    is_critical: bool,
    is_chosen: bool,
) -> Html:
    failed = span.status not in ("ok", "paused")
    label: Child = span.name or span.kind
    if href is not None:
        label = tag("a", label, href=href(span), class_="span-link", aria_current="true" if is_chosen else None)
    own = [pause for pause in pauses if _belongs(pause, span)]
    retries = span.model_call.retries if span.kind == "model" else 0
    return tag(
        "tr",
        tag(
            "td",
            tag("span", class_=f"indent depth-{min(depth, _DEPTH_MAX)}"),
            tag("span", span.kind, class_="span-kind"),
            " ",
            label,
            " ",
            state("failed", span.status) if failed else None,
            tag("span", f" {retries} retries" if retries > 1 else " 1 retry", class_="note") if retries else None,
        ),
        tag("td", _bar(span, frame, own, is_critical=is_critical, failed=failed), class_="span-time"),
        tag("td", duration(span.latency_ms / 1000), class_="figure-cell"),
        tag("td", _tokens(span), class_="figure-cell"),
        tag("td", _cost(span), class_="figure-cell"),
        class_="critical" if is_critical else None,
        data_key=span.span_id,
        data_kind=span.kind,
    )


def _belongs(pause: Pause, span: Span) -> bool:
    if span.kind == "session":
        return False
    is_kind = span.kind == "model" if pause.kind == "retry" else span.kind in ("tool", "turn", "node")
    return is_kind and pause.started_at < span.time and (pause.ended_at is None or pause.ended_at > span.started)


def _bar(span: Span, frame: _TimeFrame, pauses: Sequence[Pause], *, is_critical: bool, failed: bool) -> Html:
    kinds = f"bar-{span.kind}" + (" critical" if is_critical else "") + (" failed" if failed else "")
    start, end = frame.x(span.started), frame.x(span.time)
    began = duration(max(span.started - frame.start, 0.0))
    words = f"{span.kind} {span.name}: {duration(span.latency_ms / 1000)} from {began} on"
    if is_critical:
        words += ", on the critical path"
    waits = [f", {_pause_words(pause)}" for pause in pauses]
    thick = _HEIGHT - 4 if is_critical else _HEIGHT - 8
    return tag(
        "svg",
        tag("title", words + "".join(waits)),
        _rect(start, end, thick, class_=f"span-bar {kinds}"),
        [_hatch(pause, span, frame, thick) for pause in pauses],
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        class_="span-picture",
    )


def _hatch(pause: Pause, span: Span, frame: _TimeFrame, thick: int) -> Html:
    start = frame.x(max(pause.started_at, span.started))
    end = frame.x(min(pause.ended_at if pause.ended_at is not None else span.time, span.time))
    return _rect(start, end, thick, class_=f"pause pause-{pause.kind}", fill=f"url(#hatch-{pause.kind})")


def _rect(start: float, end: float, thick: int, **attributes: str) -> Html:
    width = max(end - start, 2.0)
    return tag(
        "rect",
        x=f"{min(start, _WIDTH - width):.1f}",
        y=(_HEIGHT - thick) / 2,
        width=f"{width:.1f}",
        height=thick,
        **attributes,
    )


def _pause_words(pause: Pause) -> str:
    length = "" if pause.ended_at is None else f" {duration(max(pause.ended_at - pause.started_at, 0.0))}"
    what = "before the next try" if pause.kind == "retry" else "for a person"
    return f"waited{length} {what}: {pause.why[:200]}"


def _tokens(span: Span) -> str:
    cost = span.cost
    return "" if cost is None else f"{cost.input_tokens:,} + {cost.output_tokens:,}"


def _cost(span: Span) -> str:
    cost = span.cost
    if cost is None:
        return ""
    return money(None if cost.cost_usd is None else round(cost.cost_usd * 1_000_000))


def span_cost(spans: Iterable[Span]) -> int:
    """Return what the calls of models among these spans cost, in micro-dollars."""
    return sum(span.model_call.micro_usd for span in spans if span.kind == "model")


def _legend() -> Html:
    patterns = [
        tag(
            "pattern",
            tag("rect", width=6, height=6, class_="hatch-back"),
            tag("path", d=path, class_="hatch-line"),
            id=f"hatch-{kind}",
            width=6,
            height=6,
            patternUnits="userSpaceOnUse",
        )
        for kind, path in _HATCHES.items()
    ]
    entries = (
        ("critical", "span-bar critical", "critical path: what the end waited for", None),
        ("retry", "pause pause-retry", "wait before the next try", "url(#hatch-retry)"),
        ("wait", "pause pause-wait", "wait for a person", "url(#hatch-wait)"),
    )
    items = [
        tag(
            "li",
            tag(
                "svg",
                tag("rect", x=0, y=2, width=24, height=12, class_=kind, fill=fill),
                viewBox="0 0 24 16",
                width=24,
                height=16,
                aria_hidden="true",
            ),
            words,
        )
        for _, kind, words, fill in entries
    ]
    defs = tag("svg", tag("defs", patterns), width=0, height=0, aria_hidden="true", class_="hatches")
    return join(defs, tag("ul", items, class_="legend"))


# ---------------------------------------------------------------- the critical path
def critical_path(roots: Sequence[SpanNode]) -> set[str]:
    """Return the ids of the spans that the end of the trace waited for: from the end backwards, at each moment the
    child that ended last."""
    ids: set[str] = set()
    if not roots:
        return ids
    todo = [max(roots, key=lambda node: node.span.time)]
    while todo:
        node = todo.pop()
        ids.add(node.span.span_id)
        cursor = float("inf")
        for child in sorted(node.children, key=lambda child: child.span.time, reverse=True):
            if child.span.time <= cursor + _TICK_S:
                todo.append(child)
                cursor = child.span.started
    return ids


_TICK_S: Final = 0.0015  # latencies are whole milliseconds, so two calls in a row may seem to overlap by one

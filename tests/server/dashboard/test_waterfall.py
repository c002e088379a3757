"""The waterfall: a row a span, the critical path, hatched waits; hostile names are text."""

from __future__ import annotations

from typing import Any

from lyra.observe.history.call_contents import Pause
from lyra.observe.spans import Span, span_tree
from lyra.server.dashboard.waterfall import critical_path, span_cost, waterfall
from tests.server.dashboard.support import elements, texts


def span(span_id: str, kind: str, start: float, end: float, parent: str | None = None, **data: Any) -> Span:
    name = data.pop("name", f"{kind}-{span_id}")
    status = data.pop("status", "ok")
    milliseconds = round((end - start) * 1000)
    return Span("t", span_id, parent, kind, name, "agent", status, milliseconds, end, "p1", data)


TRACE = [
    span("turn", "turn", 0.0, 10.0),
    span("first", "model", 0.0, 3.0, "turn", cost_usd=0.5, input_tokens=10, output_tokens=2, retries=1),
    span("quick", "tool", 3.0, 4.0, "turn"),
    span("slow", "tool", 3.0, 7.0, "turn", status="error"),
    span("last", "model", 7.0, 10.0, "turn", cost_usd=0.25),
]


def test_the_critical_path_is_what_the_end_waited_for() -> None:
    assert critical_path(span_tree(TRACE)) == {"turn", "first", "slow", "last"}
    assert critical_path([]) == set()


def test_each_span_is_a_row_with_tokens_cost_and_its_bar() -> None:
    html = waterfall(TRACE, href=lambda row: f"?span={row.span_id}", chosen="slow")
    rows = [row["data-key"] for row in elements(html, "tr") if "data-key" in row]
    assert rows == ["turn", "first", "quick", "slow", "last"]
    critical = [row["data-key"] for row in elements(html, "tr") if row.get("class") == "critical"]
    assert critical == ["turn", "first", "slow", "last"]
    text = texts(html)
    assert "10 + 2" in text
    assert "$0.50" in text
    assert "1 retry" in text
    (chosen,) = [link for link in elements(html, "a") if link.get("aria-current")]
    assert chosen["href"] == "?span=slow"
    bars = [bar for bar in elements(html, "rect") if "bar-tool" in (bar.get("class") or "")]
    assert (bars[1]["x"], bars[1]["width"]) == ("300.0", "400.0")
    assert "failed" in (bars[1]["class"] or "")
    assert span_cost(TRACE) == 750_000


def test_waits_are_hatched_inside_the_span_that_waited() -> None:
    pauses = [
        Pause("p1", "retry", 1.0, 2.0, "overloaded"),
        Pause("p1", "wait", 4.0, 6.0, "may I?"),
        Pause("other", "retry", 1.0, 2.0, "not of this process"),
    ]
    html = waterfall(TRACE, pauses)
    hatched = [bar for bar in elements(html, "rect") if (bar.get("fill") or "").startswith("url(") and "x" in bar]
    drawn = {(bar["fill"], bar["x"], bar["width"]) for bar in hatched}
    assert ("url(#hatch-retry)", "100.0", "100.0") in drawn
    assert ("url(#hatch-wait)", "400.0", "200.0") in drawn
    assert "waited 1.0 s before the next try: overloaded" in texts(html)
    assert "not of this process" not in html


def test_hostile_names_are_text_and_a_large_trace_is_bounded() -> None:
    hostile = '"><script>alert(1)</script>'
    html = waterfall([span("x", "tool", 0.0, 1.0, name=hostile)], [Pause("p1", "wait", 0.1, 0.2, hostile)])
    assert "<script>" not in html
    assert hostile in texts(html)
    many = [span(str(number), "tool", float(number), number + 1.0) for number in range(3_000)]
    html = waterfall(many)
    assert len([row for row in elements(html, "tr") if "data-key" in row]) == 500
    assert "2,500 more spans are not shown" in texts(html)


def test_a_deep_trace_does_not_exhaust_the_stack() -> None:
    deep = [span(str(n), "turn", 0.0, 1.0, str(n - 1) if n else None) for n in range(5_000)]
    assert "4999" not in waterfall(deep)
    assert "No span" in waterfall([])


def test_short_calls_stand_in_the_order_in_which_they_were_made() -> None:
    """Latencies are whole milliseconds: the start of a later call may seem to lie before that of an earlier one."""
    first = span("first", "model", 1.0004, 1.0004, "turn")
    second = span("second", "tool", 1.0002, 1.0012, "turn")
    third = span("third", "model", 1.0000, 1.0030, "turn")
    html = waterfall([span("turn", "turn", 1.0, 1.003), first, second, third])
    rows = [row["data-key"] for row in elements(html, "tr") if "data-key" in row]
    assert rows == ["turn", "first", "second", "third"]

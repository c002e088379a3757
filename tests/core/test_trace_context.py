"""The trace context: `traceparent` read and written, spans that are open around code, and borders without a bridge."""

from __future__ import annotations

import contextvars

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.trace_context import (
    OpenSpan,
    TraceSpan,
    continued,
    current_span,
    enclosing_span,
    enter_span,
    format_traceparent,
    outgoing,
    parse_traceparent,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f" 00-{TRACE}-{SPAN}-01 ", True),
        (f"cc-{TRACE}-{SPAN}-01-what-later-versions-add", True),
    ],
)
def test_a_header_is_read(text, sampled):
    """Trace, span and whether the caller samples; later versions may add to it."""
    assert parse_traceparent(text) == TraceSpan(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "00", f"00-{TRACE}-{SPAN}", f"ff-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-more"),
        *(f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01"),
        *(f"00-{TRACE}-{SPAN}-0x", f"00-{TRACE}-{SPAN}-01\n00", "cc-" + "a" * 10_000),
    ],
)
def test_a_malformed_header_is_no_span(text):
    """And no error: it comes from outside."""
    assert parse_traceparent(text) is None


@given(st.text(max_size=100))
def test_any_text_is_taken(text):
    """Whatever a client sends, reading it gives a span or nothing."""
    span = parse_traceparent(text)
    assert span is None or parse_traceparent(format_traceparent(span)) == span


def test_spans_nest_and_close():
    """Inside a block its span is open, behind it the one from before."""
    outer, inner = TraceSpan(TRACE, SPAN), TraceSpan(TRACE, "1" * 16)
    assert enclosing_span() is None
    with OpenSpan(outer):
        with OpenSpan(inner):
            assert enclosing_span() == inner
        with continued("nonsense"):
            assert enclosing_span() == outer
        with continued(f"00-{TRACE}-{'2' * 16}-00"):
            assert enclosing_span() == TraceSpan(TRACE, "2" * 16, False)
        assert enclosing_span() == outer
    assert enclosing_span() is None


def test_a_block_that_ends_in_another_context_leaves_that_one_alone():
    """A program that is closed ends in the context of the code that closes it."""

    def program():
        with OpenSpan(TraceSpan(TRACE, SPAN)):
            yield enclosing_span()

    running = program()
    contextvars.copy_context().run(next, running)
    enter_span(TraceSpan(TRACE, "3" * 16))
    try:
        running.close()
        assert enclosing_span() == TraceSpan(TRACE, "3" * 16)
    finally:
        current_span.set(None)


def test_nothing_is_told_to_others_without_a_bridge():
    """No exporter, no headers."""
    headers = {"accept": "*/*"}
    with OpenSpan(TraceSpan(TRACE, SPAN)):
        outgoing(headers)
    assert headers == {"accept": "*/*"}

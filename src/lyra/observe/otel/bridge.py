"""Connects Lyra's trace context with OpenTelemetry's: the open span of one is the open span of the other.

Inside a tool, libraries with instrumentation of their own make spans below Lyra's; an agent that is asked inside a span
of the application belongs to that span. Which headers name a span is the business of OpenTelemetry's propagators
(`OTEL_PROPAGATORS`). Holds no state.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from lyra.core.trace_context import TraceSpan


def parent_context(trace_id: int, span_id: int, *, sampled: bool, is_remote: bool = False) -> otel_context.Context:
    """A context in which this span is the parent of the next one."""
    span = SpanContext(trace_id, span_id, is_remote, TraceFlags(TraceFlags.SAMPLED if sampled else 0))
    return trace.set_span_in_context(NonRecordingSpan(span), otel_context.Context())


class OtelBridge:
    """See the module."""

    def current(self) -> TraceSpan | None:
        span = trace.get_current_span().get_span_context()
        if not span.is_valid:
            return None
        return TraceSpan(f"{span.trace_id:032x}", f"{span.span_id:016x}", span.trace_flags.sampled)

    def attach(self, span: TraceSpan | None) -> Any:
        if span is None or not span.span_id:
            return otel_context.attach(trace.set_span_in_context(trace.INVALID_SPAN))
        flags = TraceFlags(0 if span.sampled is False else TraceFlags.SAMPLED)
        inner = NonRecordingSpan(SpanContext(int(span.trace_id, 16), int(span.span_id, 16), False, flags))
        return otel_context.attach(trace.set_span_in_context(inner))

    def detach(self, token: Any) -> None:
        otel_context.detach(token)

    def inject(self, headers: MutableMapping[str, str]) -> None:
        propagate.inject(headers)

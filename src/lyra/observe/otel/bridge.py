"""Connects Lyra's trace context with OpenTelemetry's: the open span of one is the open span of the other.

Inside a tool, libraries with instrumentation of their own make spans below Lyra's; an agent that is asked inside a span
of the application belongs to that span. Which headers name a span is the business of OpenTelemetry's propagators
(`OTEL_PROPAGATORS`). Holds no state.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry._logs import LoggerProvider, LogRecord, SeverityNumber
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from lyra.core.trace_context import TraceSpan, enclosing_span
from lyra.observe.logs import LEVELS, log_fields


def parent_context(trace_id: int, span_id: int, *, sampled: bool, is_remote: bool = False) -> otel_context.Context:
    """Return a context in which this span is the parent of the next one."""
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


# ---------------------------------------------------------------- log records
# Exports the log of Lyra as OpenTelemetry log records, with the trace that each belongs to.

CONTENT_EVENT: Final = "gen_ai.client.inference.operation.details"
_SEVERITIES: Final = {
    "error": SeverityNumber.ERROR,
    "warn": SeverityNumber.WARN,
    "info": SeverityNumber.INFO,
    "debug": SeverityNumber.DEBUG,
    "trace": SeverityNumber.TRACE,
}


class LogRecords:
    """A logger of OpenTelemetry as this part uses it."""

    __slots__ = ("_logger",)

    def __init__(self, provider: LoggerProvider, version: str) -> None:
        self._logger = provider.get_logger("lyra", version)

    def emit_event(self, name: str, attributes: Mapping[str, Any], place: otel_context.Context, time_s: float) -> None:
        moment = int(time_s * 1_000_000_000)
        self._logger.emit(
            LogRecord(
                timestamp=moment,
                observed_timestamp=moment,
                context=place,
                severity_number=SeverityNumber.INFO,
                attributes=dict(attributes),
                event_name=name,
            )
        )

    def emit(self, record: logging.LogRecord) -> None:
        fields = log_fields(record)
        level = fields.pop("level")
        moment = int(record.created * 1_000_000_000)
        body = fields.pop("message")
        fields.pop("time")
        self._logger.emit(
            LogRecord(
                timestamp=moment,
                observed_timestamp=moment,
                context=_place(fields),
                severity_text=level.upper(),
                severity_number=_SEVERITIES[level],
                body=body,
                attributes={
                    f"lyra.{name}" if name != "logger" else "logger.name": value for name, value in fields.items()
                },
            )
        )


def _place(fields: dict[str, Any]) -> otel_context.Context:
    """Return the trace of a record: its own fields, else the span that is open around the code that logs."""
    trace_id, span_id = fields.pop("trace_id", ""), fields.pop("span_id", "")
    span = enclosing_span()
    if not trace_id and span is not None:
        trace_id, span_id = span.trace_id, span.span_id
    if len(trace_id) != 32 or len(span_id) != 16:
        return otel_context.Context()
    return parent_context(int(trace_id, 16), int(span_id, 16), sampled=True)


class OtelLogHandler(logging.Handler):
    """A handler of the logger `lyra`."""

    def __init__(self, records: LogRecords) -> None:
        super().__init__(min(LEVELS.values()))
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._records.emit(record)
        except Exception:  # noqa: BLE001 - as every handler of `logging`: the program that logs continues
            self.handleError(record)

"""Makes OpenTelemetry spans of Events: each Event that reports a piece of work becomes one span with its own ids.

A span is made when its work is over, with the times that the Event reports, so nothing is open while agents work and a
turn may be exported after its calls. Ids are Lyra's: the same as in the journal's records and in `traceparent`. The
provider's sampler, limits and processors are used as for any other span. Nothing here exports by itself.

Lyra's trace context and OpenTelemetry's are connected here, too: the open span of one is the open span of the other. So
libraries with instrumentation of their own make spans below Lyra's inside a tool, and an agent that is asked inside a
span of the application belongs to that span.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry._logs import LoggerProvider, LogRecord, SeverityNumber
from opentelemetry.sdk.trace import Tracer
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from lyra.core.event import Event
from lyra.core.secrets.redact import redact
from lyra.core.trace_context import TraceSpan, enclosing_span
from lyra.observe.logs import LEVELS, log_fields
from lyra.observe.otel.conventions import SHAPES, CallDetails, content_attributes, detail_attributes, error_type, hex_id

_NOTES_SPANS_MAX: Final = 1_000  # open spans of programs whose notes are held
_NOTES_MAX: Final = 100  # of one span
_TEXT_CHARS_MAX: Final = 1_000


class _GivenIds(IdGenerator):
    """Gives the ids of the Event that this thread is about to make a span of; random ones to other code."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.given = threading.local()

    def generate_span_id(self) -> int:
        return int(getattr(self.given, "span_id", 0)) or self._random.generate_span_id()

    def generate_trace_id(self) -> int:
        return int(getattr(self.given, "trace_id", 0)) or self._random.generate_trace_id()


def event_spans(
    provider: trace.TracerProvider, version: str, details: CallDetails, events: LogRecords | None = None
) -> EventSpans | None:
    """Return the listener for a provider; None for one that is no TracerProvider of the SDK, as its ids cannot be
    given."""
    tracer = provider.get_tracer("lyra", version)
    return EventSpans(tracer, details, events) if isinstance(tracer, Tracer) else None


class EventSpans:
    """A listener. `details` has what records of calls leave out, `events` takes content that is wanted as events."""

    # A session has a span from its beginning on: its turns are exported while it lasts, which may be for days.
    KINDS: Final = frozenset({*SHAPES, "agent.began", "trace.event"} - {"agent.ended"})

    def __init__(self, tracer: Tracer, details: CallDetails, events: LogRecords | None = None) -> None:
        self._tracer = tracer
        self._details = details
        self._events = events
        self._notes: OrderedDict[str, list[tuple[str, int]]] = OrderedDict()
        if not isinstance(tracer.id_generator, _GivenIds):
            tracer.id_generator = _GivenIds()  # of Lyra's own tracer; others have the provider's
        self._ids: _GivenIds = tracer.id_generator

    def __call__(self, event: Event) -> None:
        if event.kind == "trace.event":
            self._note(event)
            return
        shape, data = SHAPES[event.kind], event.data
        if event.kind == "agent.began":
            data = {**data, "latency_ms": 0, "status": "began"}
        if not data["span_id"]:
            return  # a session of a helper has no span of its own
        trace_id, span_id = hex_id(data["trace_id"], 16), hex_id(data["span_id"], 8)
        attributes = shape.attributes(data, event.pid)
        details = self._details.take(data["span_id"])
        content: dict[str, Any] = {}
        if details is not None:
            attributes |= detail_attributes(details)
            content = content_attributes(details)
        if "event" in self._details.content and content and self._events is not None:
            place = parent_context(trace_id, span_id, sampled=data.get("sampled") is not False)
            self._events.emit_event(CONTENT_EVENT, {**attributes, **content}, place, event.time)
        if "span" in self._details.content:
            attributes |= content
        failure = error_type(event.kind, data)
        if failure:
            attributes["error.type"] = failure
        ended_ns = int(event.time * 1_000_000_000)
        given = self._ids.given
        given.trace_id, given.span_id = trace_id, span_id
        try:
            span = self._tracer.start_span(
                shape.name(data),
                context=self._parent(trace_id, data),
                kind=SpanKind.CLIENT if shape.client else SpanKind.INTERNAL,
                attributes=attributes,
                start_time=ended_ns - data["latency_ms"] * 1_000_000,
            )
        finally:
            given.trace_id = given.span_id = 0
        for text, noted_ns in self._notes.pop(data["span_id"], ()):
            span.add_event(text, timestamp=noted_ns)
        if data.get("sir.divergence"):
            span.add_event("divergence_detected", timestamp=ended_ns)
        if failure:
            span.set_status(Status(StatusCode.ERROR, failure))
        span.end(end_time=ended_ns)

    def _parent(self, trace_id: int, data: Mapping[str, Any]) -> otel_context.Context:
        """Return the context of the span that this one belongs to. A parent of Lyra's own may not be made yet: whether
        it will be sampled is what the sampler says of a trace with this id."""
        parent = data["parent_span"]
        if not parent:
            return otel_context.Context()
        sampled = data.get("sampled")
        if sampled is None:
            decision = self._tracer.sampler.should_sample(None, trace_id, "lyra").decision
            sampled = decision is Decision.RECORD_AND_SAMPLE
        return parent_context(trace_id, hex_id(parent, 8), sampled=sampled)

    def _note(self, event: Event) -> None:
        """Hold what a program noted until its span ends."""
        span_id = event.data.get("span_id")
        if not span_id:
            return
        notes = self._notes.setdefault(span_id, [])
        if len(notes) < _NOTES_MAX:
            notes.append((redact(str(event.data["text"]))[:_TEXT_CHARS_MAX], int(event.time * 1_000_000_000)))
        while len(self._notes) > _NOTES_SPANS_MAX:
            self._notes.popitem(last=False)


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

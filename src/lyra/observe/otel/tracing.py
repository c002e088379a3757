"""Makes OpenTelemetry spans of Events: each Event that reports a piece of work becomes one span with its own ids.

A span is made when its work is over, with the times that the Event reports, so nothing is open while agents work and a
turn may be exported after its calls. Ids are Lyra's: the same as in the journal's records and in `traceparent`. The
provider's sampler, limits and processors are used as for any other span. Nothing here exports by itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import Tracer
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import SpanKind, Status, StatusCode

from lyra.core.event import Event
from lyra.core.secrets.redact import redact
from lyra.observe.otel.bridge import CONTENT_EVENT, LogRecords, parent_context
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

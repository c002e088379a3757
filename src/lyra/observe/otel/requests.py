"""The span of a request to a server: it continues the trace of the client, and the work of the request belongs to it.

    with request_span("POST /api/agents/{name}/chat", headers, {"http.request.method": "POST"}) as span:
        …
        span.end_with({"http.response.status_code": 200})

Without OpenTelemetry the block still continues the `traceparent` of the client. Holds no state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from lyra._version import __version__
from lyra.core.trace_context import OpenSpan, TraceSpan, continued, parse_traceparent
from lyra.observe.otel.environment import has_own_provider, is_disabled


class RequestSpan:
    """What the server can say about its request; without OpenTelemetry it is dropped."""

    __slots__ = ("_span", "place")

    def __init__(self, span: Any = None, place: TraceSpan | None = None) -> None:
        self._span = span
        self.place = place  # the trace and the span, for logs

    def end_with(self, attributes: Mapping[str, Any], error: str = "") -> None:
        """Set what is known at the end: the status code; `error` is why the request failed, by the server's fault."""
        if self._span is None:
            return
        for name, value in attributes.items():
            self._span.set_attribute(name, value)
        if error:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR, error))


_NO_TRACE: Final = nullcontext(RequestSpan())


def request_span(
    name: str, headers: Mapping[str, str], attributes: Mapping[str, Any] | None = None
) -> AbstractContextManager[RequestSpan]:
    """Open a block that is one request. `headers` are the client's, or the metadata of a call, with names in lower
    case."""
    if has_own_provider() and not is_disabled():
        return _export_span(name, headers, attributes)
    traceparent = headers.get("traceparent")
    return _NO_TRACE if traceparent is None else _continue_span(traceparent)


@contextmanager
def _continue_span(traceparent: str) -> Iterator[RequestSpan]:
    with continued(traceparent):
        yield RequestSpan(None, parse_traceparent(traceparent))


@contextmanager
def _export_span(name: str, headers: Mapping[str, str], attributes: Mapping[str, Any] | None) -> Iterator[RequestSpan]:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context

    tracer = trace.get_tracer("lyra.server", __version__)
    around = propagate.extract(dict(headers), context=Context())
    span = tracer.start_span(name, context=around, kind=trace.SpanKind.SERVER, attributes=dict(attributes or {}))
    own = span.get_span_context()
    place = TraceSpan(f"{own.trace_id:032x}", f"{own.span_id:016x}", own.trace_flags.sampled)
    request = RequestSpan(span, place)
    try:
        with OpenSpan(place):
            yield request
    except Exception as error:
        request.end_with({}, error=getattr(error, "code", "") or type(error).__name__)
        raise
    finally:
        span.end()


def grpc_span(method: str, traceparent: str) -> AbstractContextManager[RequestSpan]:
    """`request_span` of a gRPC call, its method written as `Service/Method`; `traceparent` is "" where none came."""
    headers = {"traceparent": traceparent} if traceparent else {}
    return request_span(method, headers, {"rpc.system.name": "grpc", "rpc.method": method})

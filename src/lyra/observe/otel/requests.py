"""The span of a request to a server: it continues the trace of the client, and the work of the request belongs to it.

    with request_span("POST /api/agents/{name}/chat", headers, {"http.request.method": "POST"}) as span:
        …
        span.end_with({"http.response.status_code": 200})

Without OpenTelemetry the block still continues the `traceparent` of the client. Whether to export, what, and by which
protocol is read from the standard `OTEL_*` variables. Holds no state.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from lyra._version import __version__
from lyra.core.trace_context import OpenSpan, TraceSpan, continued, parse_traceparent
from lyra.errors import ConfigError

SIGNALS: Final = ("traces", "metrics", "logs")
_ASKS: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    *(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT" for signal in SIGNALS),
    *(f"OTEL_{signal.upper()}_EXPORTER" for signal in SIGNALS),
)
_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CONTENT_WORDS: Final = {
    **dict.fromkeys(("true", "1", "span_only", "span"), frozenset({"span"})),
    **dict.fromkeys(("event_only", "event"), frozenset({"event"})),
    "span_and_event": frozenset({"span", "event"}),
}
_HTTP_PORT: Final = ":4318"
_HINT: Final = "pip install 'lyra-agents[otel]'"


def is_disabled(env: Mapping[str, str] = os.environ) -> bool:
    return env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def is_wanted(env: Mapping[str, str] = os.environ) -> bool:
    """Return whether the variables, or a provider that the application has set, ask for an export."""
    return not is_disabled(env) and (any(env.get(name) for name in _ASKS) or has_own_provider())


def has_own_provider() -> bool:
    """Return whether the application has set a TracerProvider or a MeterProvider. Imports nothing: it could not have
    then."""
    trace, metrics = sys.modules.get("opentelemetry.trace"), sys.modules.get("opentelemetry.metrics._internal")
    if getattr(trace, "_TRACER_PROVIDER", None) is not None:
        return True
    return getattr(metrics, "_METER_PROVIDER", None) is not None


def read_content_places(env: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Return where the content of prompts goes: `span`, `event`, both, or nowhere, which is the default."""
    return _CONTENT_WORDS.get(env.get(_CONTENT, "").strip().lower(), frozenset())


def exporter_for(signal: str, env: Mapping[str, str] = os.environ) -> Any:
    """Return the exporter of a signal; None where the variables say `none`, or name no endpoint and no exporter."""
    word = env.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower()
    asked = env.get("OTEL_EXPORTER_OTLP_ENDPOINT") or env.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    if word in ("", "none") and (word == "none" or not asked):
        return None
    names = [name.strip() for name in (word or "otlp").split(",")]
    if len(names) != 1 or names[0] not in ("otlp", "console"):
        raise ConfigError(
            f"OTEL_{signal.upper()}_EXPORTER={word} is not known", hint="otlp, console or none", key=signal
        )
    return _console(signal) if names[0] == "console" else _otlp(signal, _protocol(signal, env))


def _protocol(signal: str, env: Mapping[str, str]) -> str:
    name = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL"
    word = (env.get(name) or env.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "").strip().lower()
    if not word:
        asked = env.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT") or env.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
        return "http/protobuf" if f"{_HTTP_PORT}/" in f"{asked}/" else "grpc"  # as the SDK for Python does
    if word not in ("grpc", "http/protobuf"):
        raise ConfigError(f"the OTLP protocol {word!r} is not known", hint="grpc or http/protobuf", key=name)
    return word


def _otlp(signal: str, protocol: str) -> Any:
    folder = "grpc" if protocol == "grpc" else "http"
    module, name = {
        "traces": ("trace_exporter", "OTLPSpanExporter"),
        "metrics": ("metric_exporter", "OTLPMetricExporter"),
        "logs": ("_log_exporter", "OTLPLogExporter"),
    }[signal]
    return getattr(import_extra(f"opentelemetry.exporter.otlp.proto.{folder}.{module}"), name)()


def _console(signal: str) -> Any:
    """Exporters that write to stderr: stdout has the results of commands."""
    module, name = {
        "traces": ("opentelemetry.sdk.trace.export", "ConsoleSpanExporter"),
        "metrics": ("opentelemetry.sdk.metrics.export", "ConsoleMetricExporter"),
        "logs": ("opentelemetry.sdk._logs.export", "ConsoleLogRecordExporter"),
    }[signal]
    return getattr(import_extra(module), name)(out=sys.stderr)


def import_extra(module: str) -> Any:
    """Return a module of OpenTelemetry; without the extra, one sentence."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"exporting to OpenTelemetry needs {error.name or module}", hint=_HINT) from None


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

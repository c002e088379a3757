"""OpenTelemetry: spans, metrics and log records of Lyra, by the GenAI semantic conventions.

Owns the way from Events to OTLP. `attach` is where to start: `attach_otel(kernel)` exports what a kernel does, through
the providers that the application has set, or through exporters that the standard `OTEL_*` variables name
(`requests`). `conventions` says what each span is called and which attributes it has, and counts; `tracing` makes
spans and connects Lyra's trace context with OpenTelemetry's, and `requests` gives a request to a server its span. Needs
the extra `otel`; nothing of it is imported before it is used.
"""

from lyra.observe.otel.attach import attach_from_environment, attach_otel
from lyra.observe.otel.requests import RequestSpan, grpc_span, request_span

__all__ = ["RequestSpan", "attach_from_environment", "attach_otel", "grpc_span", "request_span"]

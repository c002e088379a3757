"""Observing: records of what happened, made from Events, for people and programs. Nothing here changes a kernel.

    observe(kernel, "trace.jsonl")   one line a model call
    observe(kernel, "trace.db")      the same in SQLite, with every span, to be queried
    attach_audit(kernel, "audit.jsonl")   what was decided, refused, asked and answered
    attach_metrics(kernel).render()  figures for Prometheus
    attach_otel(kernel)              spans, metrics and log records to OpenTelemetry
    configure_logs("info", "json")   the log, with the trace and the pid of each record

`spans` reads Events as spans and shows them as a tree, `writers` connects a kernel with a file and writes
them down. `audit` is the log of decisions, `chain` the hash chain that makes changes to it visible. `metrics`
counts for Prometheus, `logs` is the log, `otel` the way to OpenTelemetry. A listener is any function of an
Event: `kernel.on_event(Spans())`.
"""

from __future__ import annotations

from lyra._imports import on_first_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lyra.observe.audit import AuditLog, attach_audit
    from lyra.observe.chain import verify
    from lyra.observe.exports import export_as_configured
    from lyra.observe.logs import EventLog, attach_log, configure_logs
    from lyra.observe.metrics import PrometheusMetrics, attach_metrics
    from lyra.observe.otel import RequestSpan, attach_from_environment, attach_otel, grpc_span, request_span
    from lyra.observe.spans import Span, SpanNode, Spans, span_of, span_tree
    from lyra.observe.writers import JsonLines, SqliteRecords, observe

__all__ = [
    "AuditLog",
    "EventLog",
    "JsonLines",
    "PrometheusMetrics",
    "RequestSpan",
    "Span",
    "SpanNode",
    "Spans",
    "SqliteRecords",
    "attach_audit",
    "attach_from_environment",
    "attach_log",
    "attach_metrics",
    "attach_otel",
    "configure_logs",
    "export_as_configured",
    "grpc_span",
    "observe",
    "request_span",
    "span_of",
    "span_tree",
    "verify",
]

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "audit": "AuditLog attach_audit",
            "logs": "EventLog attach_log configure_logs",
            "writers": "JsonLines SqliteRecords observe",
            "metrics": "PrometheusMetrics attach_metrics",
            "otel": "RequestSpan attach_from_environment attach_otel grpc_span request_span",
            "spans": "Span SpanNode Spans span_of span_tree",
            "exports": "export_as_configured",
            "chain": "verify",
        },
    )

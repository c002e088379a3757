"""Observing: records of what happened, made from Events, for people and programs. Nothing here changes a kernel.

    observe(kernel, "trace.jsonl")   one line a model call
    observe(kernel, "trace.db")      the same in SQLite, with every span, to be queried
    attach_audit(kernel, "audit.jsonl")   what was decided, refused, asked and answered
    attach_metrics(kernel).render()  figures for Prometheus

`spans` reads Events as spans and shows them as a tree, `lines` and `database` write them down, `attach` connects a
kernel with a file. `audit` is the log of decisions, `chain` the hash chain that makes changes to it visible. `metrics`
counts what `metric_table` lists. A listener is any function of an Event: `kernel.on_event(Spans())`.
"""

from lyra.observe.attach import observe
from lyra.observe.audit import AuditLog, attach_audit
from lyra.observe.chain import verify
from lyra.observe.database import SqliteRecords
from lyra.observe.lines import JsonLines
from lyra.observe.metrics import PrometheusMetrics, attach_metrics
from lyra.observe.spans import Span, SpanNode, Spans, span_of, span_tree

__all__ = [
    "AuditLog",
    "JsonLines",
    "PrometheusMetrics",
    "Span",
    "SpanNode",
    "Spans",
    "SqliteRecords",
    "attach_audit",
    "attach_metrics",
    "observe",
    "span_of",
    "span_tree",
    "verify",
]

"""Observing: folds over Events. What happened, for people and for other programs; nothing here changes anything.

    observe(kernel, "trace.jsonl")   one line a model call
    observe(kernel, "trace.db")      the same in SQLite, with every span, to be queried
    attach_audit(kernel, "audit.jsonl")   what was decided, refused, asked and answered

`spans` reads Events as spans and shows them as a tree, `lines` and `database` write them down, `attach` ties a kernel
and a file together. `audit` is the log of what was decided, `chain` what makes it tell when it was touched. A listener
is any function of an Event: `kernel.on_event(Spans())`.
"""

from lyra.observe.attach import observe
from lyra.observe.audit import AuditLog, attach_audit
from lyra.observe.chain import verify
from lyra.observe.database import SqliteRecords
from lyra.observe.lines import JsonLines
from lyra.observe.spans import Span, SpanNode, Spans, span_of, span_tree

__all__ = [
    "AuditLog",
    "JsonLines",
    "Span",
    "SpanNode",
    "Spans",
    "SqliteRecords",
    "attach_audit",
    "observe",
    "span_of",
    "span_tree",
    "verify",
]

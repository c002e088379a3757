"""The audit rows of nodes, kept in the journal: who was executed, and how it ended.

A node says how much with `security.audit_level`: `none` writes nothing, `basic` a row with ids and the outcome,
`detailed` also the inputs and outputs, without sensitive values. A node that acts outside and says nothing has `basic`;
a pure node that says nothing is only counted, because a row would cost more than its execution. The journal keeps all
rows; the state keeps the latest of them to be shown.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from lyra.vesper.ir import NodeProgram
from lyra.vesper.values.limits import AUDIT_ROWS_KEPT

AUDIT_LEVELS: Final[dict[str, str]] = {
    "none": "no row",
    "basic": "the node, the trace, the path, the mode and the outcome",
    "detailed": "also inputs and outputs, without sensitive values",
}


def audit_level(program: NodeProgram) -> str:
    """The level that counts for a node."""
    return program.audit or ("none" if program.pure else "basic")


class AuditState:
    """The durable state: the latest rows, one for each execution."""

    NAME: ClassVar[str] = "vesper-audit"
    KINDS: ClassVar[frozenset[str]] = frozenset({"vesper.audited"})

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}  # by trace id, the newest last

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        for row in data["rows"]:
            # An execution that a crash interrupts at its end writes its row a second time; it is the same one.
            self.rows.setdefault(row["trace_id"], {"time": time, **row})
        while len(self.rows) > AUDIT_ROWS_KEPT:
            del self.rows[next(iter(self.rows))]

    def dump(self) -> Any:
        return list(self.rows.values())

    def load(self, data: Any) -> None:
        self.rows = {str(row["trace_id"]): dict(row) for row in data}

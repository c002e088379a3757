"""Stored executions: what `vesper replay` needs to run one again without acting outside.

A `StoredTrace` holds the text of the node, its inputs, the time, and what its effects gave; the steps follow from them,
since a node has no other source of values. Executions that act outside are always stored, pure ones where the caller
asks for it. Of a private node the data is sealed, and a copy without sensitive values is there to be shown. The state
keeps the latest executions within limits of number and size.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from lyra.vesper.values.limits import TRACES_BYTES_MAX, TRACES_KEPT


class StoredTrace(msgspec.Struct):
    """One execution that can be replayed."""

    trace_id: str
    node: str
    source: str
    now: float
    mode: str
    path: str
    status: str
    code: str  # of the error; empty for a success
    inputs: Any  # as `values.tagged` writes them, without sensitive values
    data: Any  # [inputs, ambient, effects]; or, sealed, a text
    hidden: list[str] = []
    size: int = 0  # bytes of the row


class TraceState:
    """The durable state: the latest executions, by trace id."""

    NAME: ClassVar[str] = "vesper-traces"
    KINDS: ClassVar[frozenset[str]] = frozenset({"vesper.traced"})

    __slots__ = ("_bytes", "traces")

    def __init__(self) -> None:
        self.traces: dict[str, StoredTrace] = {}
        self._bytes = 0

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        trace = msgspec.convert(data, StoredTrace)
        if trace.trace_id in self.traces:
            return  # written again by an execution that went on after a crash
        self._add(trace)

    def _add(self, trace: StoredTrace) -> None:
        self.traces[trace.trace_id] = trace
        self._bytes += trace.size
        while len(self.traces) > TRACES_KEPT or self._bytes > TRACES_BYTES_MAX:
            self._bytes -= self.traces.pop(next(iter(self.traces))).size

    def dump(self) -> Any:
        return list(self.traces.values())

    def load(self, data: Any) -> None:
        self.traces, self._bytes = {}, 0
        for trace in msgspec.convert(data, list[StoredTrace]):
            self._add(trace)

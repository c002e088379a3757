"""Records of calls read back from a journal: the Events that a listener would have heard, made from rows of a store.

Model calls, tool calls and the processes around them, with the times, tokens and costs that the rows tell. Ids are made
from the store's id, the process and the call, so that each export of a store gives the same ones; the trace of a root
process has the id that its session had when it ran. What only listeners hear (turns) is not in a journal, and not here.
Reads Events, opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

from lyra.core.event import Event, ModelCalled
from lyra.observe.history.calls import CallHistory, CallRecord, key_of_agent
from lyra.observe.history.processes import ProcessRecord, ProcessTable

_KINDS: Final = {"model": "model.called", "tool": "tool.called"}
_DEPTH_MAX: Final = 1_000  # parents above a process; a damaged journal may have a circle


def read_stored_records(events: Iterable[Event], store_id: str) -> Iterator[Event]:
    """Finished calls in the order of their end, each process after those inside it. `seq` is the row that ended a call,
    and of a process the last call in it."""
    calls, processes = CallHistory(), ProcessTable()
    for event in events:
        calls.add(event)
        processes.add(event)
    ended = [call for call in calls.records.values() if call.ended_at is not None and call.kind in _KINDS]
    ended.sort(key=lambda call: call.ended_seq)
    spans = _StoredSpans(store_id, processes.records)
    for call in ended:
        yield spans.make_event(call)
    yield from spans.make_process_spans()


class _StoredSpans:
    """Makes the Events of one store, and notes which processes have some."""

    def __init__(self, store_id: str, processes: dict[str, ProcessRecord]) -> None:
        self._store_id = store_id
        self._processes = processes
        self._agents: dict[str, str] = {}  # by pid: the agent that asked a model
        self._last: dict[str, float] = {}  # by pid: when its last call ended
        self._last_seq: dict[str, int] = {}

    def make_event(self, call: CallRecord) -> Event:
        ended_at = call.ended_at or 0.0
        for pid in self._line(call.pid):
            self._last[pid] = max(self._last.get(pid, 0.0), ended_at)
            self._last_seq[pid] = call.ended_seq
        trace_id, span_id = self._trace(call.pid), self._id(8, f"{call.pid}:{call.key}")
        agent, parent_span = call.agent or self._agents.get(call.pid, ""), self._id(8, call.pid)
        if call.kind == "model":
            self._agents[call.pid] = call.agent
            data = ModelCalled(
                trace_id=trace_id,
                span_id=span_id,
                agent=agent,
                model=call.model,
                input_tokens=call.input_tokens,
                output_tokens=call.output_tokens,
                cost_usd=call.micro_usd / 1_000_000,
                latency_ms=call.latency_ms or 0,
                status=call.status,
                retries=call.tries - 1,
                parent_span=parent_span,
                cache_read_tokens=call.cached_tokens,
                key=key_of_agent(call.agent),
            ).to_data()
        else:
            failed = call.status != "ok"
            data = {
                "trace_id": trace_id,
                "span_id": span_id,
                "agent": agent,
                "tool": call.name,
                "latency_ms": call.latency_ms or 0,
                "status": "error" if failed else "ok",
                "parent_span": parent_span,
                **({"error": call.status} if failed else {}),
            }
        return Event(call.ended_seq, ended_at, call.pid, _KINDS[call.kind], data)

    def make_process_spans(self) -> Iterator[Event]:
        """Yield the processes that have calls in them or below them, the inner ones first."""
        for pid in sorted(self._last, key=lambda pid: (-len(self._line(pid)), self._last_seq[pid])):
            process = self._processes.get(pid) or ProcessRecord(pid, created_at=self._last[pid])
            ended_at = process.ended_at or self._last[pid]
            status = "paused" if process.is_live else "error" if process.error else "ok"
            data = {
                "trace_id": self._trace(pid),
                "span_id": self._id(8, pid),
                "agent": self._agents.get(pid) or process.name or process.program or pid,
                "root": not process.parent,
                "parent_span": self._id(8, process.parent) if process.parent else None,
                "latency_ms": max(int((ended_at - process.created_at) * 1000), 0),
                "status": status,
            }
            yield Event(self._last_seq[pid], ended_at, pid, "agent.ended", data)

    def _line(self, pid: str) -> list[str]:
        """Return a process and those above it."""
        line = [pid]
        while len(line) < _DEPTH_MAX:
            process = self._processes.get(line[-1])
            if process is None or not process.parent or process.parent in line:
                break
            line.append(process.parent)
        return line

    def _trace(self, pid: str) -> str:
        return self._id(16, self._line(pid)[-1])

    def _id(self, size_bytes: int, name: str) -> str:
        return blake2b(f"{self._store_id}:{name}".encode(), digest_size=size_bytes).hexdigest()

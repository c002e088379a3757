"""The effects of processes as the journal tells them: what was called, for how long, with what result and cost.

An effect is a `model` call (`model:AGENT:MODEL`), a `tool` call (`tool:NAME`) or another `effect`. Readings of the
clock and the like, which are not performed, are left out. A call that the gateway makes for a key has `key/NAME` in the
place of the agent; agents that were asked with a key are below the process that represents it.

`read_stored_records` makes the Events of a store's calls and processes again, with the times, tokens and costs that its
rows tell, as a listener would have heard them. Their ids are the same at each reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

import msgspec

from lyra.core.checking.check import one_of
from lyra.core.event import Event, ModelCalled
from lyra.core.naming import GATEWAY_KEY
from lyra.observe.history.processes import ProcessRecord, ProcessTable

KEY_AGENT: Final = "key/"  # begins what stands in the place of the agent in the records of a gateway key

_CALLS_MAX: Final = 200_000  # kept by one fold; older ones are dropped first


class CallRecord(msgspec.Struct):
    """One effect of one process. `status` is running, ok or the code of its error."""

    pid: str
    key: str
    kind: str
    name: str
    agent: str = ""
    model: str = ""
    status: str = "running"
    error: str = ""
    started_at: float = 0.0
    ended_at: float | None = None
    ended_seq: int = 0  # the row of its end: the order of time, whatever the clock did
    micro_usd: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tries: int = 1
    cached_tokens: int = 0  # of the input, from the provider's cache
    paid_by: str = ""  # the name of the gateway key, where one pays

    @property
    def latency_ms(self) -> int | None:
        """Return how long it took, rounded down: else it would seem to begin before the call in front of it ended."""
        return None if self.ended_at is None else max(0, int((self.ended_at - self.started_at) * 1000))

    def to_data(self) -> dict[str, Any]:
        data = msgspec.to_builtins(self)
        del data["ended_seq"]
        return {**data, "latency_ms": self.latency_ms, "cost_usd": self.micro_usd / 1_000_000}


class CallHistory:
    """The fold. `records` has the calls in the order of their start."""

    __slots__ = ("_key_names", "dropped", "records", "seq")

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], CallRecord] = {}
        self.seq = 0
        self.dropped = 0
        self._key_names: dict[str, str] = {}  # by the pids of keys, and of processes below them

    def add(self, event: Event) -> None:
        self.seq = max(self.seq, event.seq)
        if event.kind == "process.created":
            self._on_created(event, event.data)
        elif event.kind == "process.terminated":
            self._key_names.pop(event.pid, None)
        elif event.kind == "effect.started":
            self._on_started(event, event.data)
        elif event.kind == "effect.finished":
            self._on_finished(event, event.data)
        elif event.kind == "effect.retried":
            record = self.records.get((event.pid, str(event.data.get("key"))))
            if record is not None:
                record.tries += 1

    def add_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def list_for(self, pid: str) -> list[CallRecord]:
        return [record for (caller, _), record in self.records.items() if caller == pid]

    def _on_created(self, event: Event, data: Mapping[str, Any]) -> None:
        name = self._key_names.get(data.get("parent") or "", "")
        if data.get("program") == GATEWAY_KEY:
            args = data.get("args")
            settings = args[0] if isinstance(args, list) and args and isinstance(args[0], Mapping) else {}
            name = str(settings.get("name", "")) if settings.get("hash") != "" else ""  # "": a token
        if name:
            self._key_names[event.pid] = name

    def _on_started(self, event: Event, data: Mapping[str, Any]) -> None:
        key = str(data["key"])
        kind, agent, model = _parts(data["name"])
        name = model or (data["name"].partition(":")[2] if kind == "tool" else data["name"])
        self.records[event.pid, key] = CallRecord(
            event.pid, key, kind, name, agent=agent, model=model, started_at=event.time
        )
        self.records[event.pid, key].paid_by = key_of_agent(agent) or self._key_names.get(event.pid, "")
        if len(self.records) > _CALLS_MAX:
            del self.records[next(iter(self.records))]
            self.dropped += 1

    def _on_finished(self, event: Event, data: Mapping[str, Any]) -> None:
        record = self.records.get((event.pid, str(data["key"])))
        if record is None:
            return
        if data.get("recorded") is not None:  # a fork took the answer over from another run: it made no call
            del self.records[event.pid, str(data["key"])]
            return
        usage, error = data.get("usage") or {}, data.get("error")
        record.ended_at, record.ended_seq = event.time, event.seq
        record.micro_usd += usage.get("usd", 0)
        record.input_tokens += usage.get("input_tokens", 0)
        record.output_tokens += usage.get("output_tokens", 0)
        record.cached_tokens += _read_cached(data.get("value"))
        record.status = "ok" if error is None else str(error.get("code", "error"))
        record.error = "" if error is None else str(error.get("message", ""))


def key_of_agent(agent: str) -> str:
    """Return the gateway key that stands in the place of an agent in records of its calls; "" for an agent."""
    return agent.removeprefix(KEY_AGENT) if agent.startswith(KEY_AGENT) else ""


def _read_cached(value: Any) -> int:
    """Return the tokens that an answer of a model took from the provider's cache."""
    usage = value.get("usage") if isinstance(value, Mapping) else None
    tokens = usage.get("cache_read_tokens") if isinstance(usage, Mapping) else None
    return tokens if isinstance(tokens, int) else 0


def _parts(name: str) -> tuple[str, str, str]:
    """Return the kind, agent and model that the name of an effect tells."""
    kind, _, rest = name.partition(":")
    if kind == "model":
        agent, _, model = rest.partition(":")
        return "model", agent, model
    return ("tool" if kind == "tool" else "effect"), "", ""


# ---------------------------------------------------------------- costs
# What calls cost, summed by agent, model, day, process, gateway key or any of these together.

GROUPINGS: Final = ("agent", "model", "day", "pid", "key")


class CostRow(msgspec.Struct):
    """The sum of the model calls that share a value of each grouping."""

    group: tuple[str, ...]
    calls: int = 0
    errors: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    micro_usd: int = 0

    def to_data(self, by: Sequence[str]) -> dict[str, Any]:
        figures = {name: getattr(self, name) for name in ("calls", "errors", "input_tokens", "output_tokens")}
        return {**dict(zip(by, self.group, strict=True)), **figures, "cost_usd": self.micro_usd / 1_000_000}


def costs(calls: Iterable[CallRecord], by: Sequence[str] = ("agent", "model")) -> list[CostRow]:
    """Return a row for each group, the dearest first; all together without a grouping."""
    for grouping in by:
        one_of(grouping, GROUPINGS, "a grouping of costs")
    rows: dict[tuple[str, ...], CostRow] = {}
    for call in calls:
        if call.kind != "model" and not call.micro_usd:
            continue
        group = tuple(_value(call, grouping) for grouping in by)
        row = rows.setdefault(group, CostRow(group))
        row.calls += 1
        row.errors += call.status not in ("ok", "running")
        row.input_tokens += call.input_tokens
        row.output_tokens += call.output_tokens
        row.micro_usd += call.micro_usd
    return sorted(rows.values(), key=lambda row: (-row.micro_usd, row.group))


def _value(call: CallRecord, grouping: str) -> str:
    if grouping == "day":
        return datetime.fromtimestamp(call.started_at, UTC).date().isoformat()
    return str(call.paid_by if grouping == "key" else getattr(call, grouping)) or "-"


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

"""The process table as the journal tells it: who started whom, in which state each is, how each ended.

`Processes.add` takes Events in order. A process with a program runs until its end is told; while a question of it is
open, it waits. An entry that programs outside the kernel drive has the states that they move it through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from lyra.core.event import Event

_ENDED: Final = ("terminated", "zombie")


class ProcessRecord(msgspec.Struct):
    """One process. `state` is running, waiting or terminated, or a state of an entry; times are wall-clock seconds."""

    pid: str
    program: str = ""
    name: str = ""
    parent: str = ""
    user_id: str = ""
    state: str = "running"
    reason: str = ""
    error: str = ""
    stage: str = ""
    created_at: float = 0.0
    ended_at: float | None = None
    micro_usd: int = 0
    tokens: int = 0
    calls: int = 0
    restarts: int = 0
    attempts: dict[str, int] = {}  # of calls that crashes cut off and that are not over, by key: how often so far
    messages: int = 0  # that wait in its mailbox
    budget_micro_usd: int | None = None
    questions: dict[str, str] = {}  # open ones, by id

    @property
    def is_live(self) -> bool:
        return self.state not in _ENDED

    def to_data(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self), "cost_usd": self.micro_usd / 1_000_000}


class Processes:
    """The fold. `records` has the processes by pid, in the order of their start."""

    __slots__ = ("records", "seq")

    def __init__(self) -> None:
        self.records: dict[str, ProcessRecord] = {}
        self.seq = 0

    def add(self, event: Event) -> None:
        self.seq = max(self.seq, event.seq)
        handle = _HANDLERS.get(event.kind)
        if handle is not None:
            handle(self, event, event.data)

    def add_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def children(self, pid: str) -> list[ProcessRecord]:
        return [record for record in self.records.values() if record.parent == pid]

    def roots(self) -> list[ProcessRecord]:
        """Those without a parent that is known."""
        return [record for record in self.records.values() if record.parent not in self.records]

    def walk(self) -> Iterator[tuple[int, ProcessRecord]]:
        """Each process with its depth, parents before their children."""
        below: dict[str, list[ProcessRecord]] = {}
        for record in self.records.values():
            below.setdefault(record.parent, []).append(record)
        todo = [(0, record) for record in reversed(self.roots())]
        while todo:
            depth, record = todo.pop()
            yield depth, record
            todo += [(depth + 1, child) for child in reversed(below.get(record.pid, ())) if child is not record]

    # ------------------------------------------------------------------ one handler a kind

    def _created(self, event: Event, data: Mapping[str, Any]) -> None:
        limits = (data.get("budget") or {}).get("limits") or {}
        parent = self.records.get(data.get("parent") or "")
        self.records[event.pid] = ProcessRecord(
            event.pid,
            program=data.get("program", ""),
            name=data.get("name") or "",
            parent=data.get("parent") or "",
            user_id=parent.user_id if parent is not None else "",
            created_at=event.time,
            budget_micro_usd=limits.get("usd"),
        )

    def _submitted(self, event: Event, data: Mapping[str, Any]) -> None:
        record = self.records.setdefault(event.pid, ProcessRecord(event.pid, created_at=event.time))
        record.user_id, record.parent = data.get("user_id") or "", data.get("parent_pid") or record.parent
        if not record.program:
            record.state = "new"

    def _owned(self, event: Event, data: Mapping[str, Any]) -> None:
        record = self.records.get(event.pid)
        if record is not None:
            record.user_id = data.get("user_id") or ""

    def _moved(self, event: Event, data: Mapping[str, Any]) -> None:
        record = self.records.get(event.pid)
        if record is None:
            return
        record.state = data["new_state"]
        if record.state == "terminated":
            record.reason, record.ended_at = data.get("reason") or "", event.time

    def _noted(self, event: Event, data: Mapping[str, Any]) -> None:
        record = self.records.get(event.pid)
        if record is not None:
            record.stage = data.get("current_stage") or record.stage

    def _used(self, event: Event, data: Mapping[str, Any]) -> None:
        record = self.records.get(event.pid)
        if record is not None:
            record.tokens += data.get("tokens_in", 0) + data.get("tokens_out", 0)
            record.calls += data.get("llm_calls", 0) + data.get("tool_calls", 0)

    def _terminated(self, event: Event, data: Mapping[str, Any]) -> None:
        record = self.records.setdefault(event.pid, ProcessRecord(event.pid, created_at=event.time))
        record.state, record.reason, record.ended_at = "terminated", data.get("reason") or "", event.time
        record.error = str((data.get("error") or {}).get("message", ""))
        record.questions, record.attempts = {}, {}

    def _forgotten(self, event: Event, _data: Mapping[str, Any]) -> None:
        self.records.pop(event.pid, None)

    def _finished(self, event: Event, data: Mapping[str, Any]) -> None:
        record, usage = self.records.get(event.pid), data.get("usage")
        if record is None:
            return
        key, error = str(data.get("key")), data.get("error")
        if error and error.get("crash"):
            record.attempts = {**record.attempts, key: record.attempts.get(key, 0) + 1}
        elif key in record.attempts and not (error and error.get("code") == "cut_off"):
            record.attempts = {other: count for other, count in record.attempts.items() if other != key}
        if usage:
            record.micro_usd += usage.get("usd", 0)
            record.tokens += usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
            record.calls += usage.get("llm_calls", 0) + usage.get("tool_calls", 0)

    def _asked(self, event: Event, data: Mapping[str, Any]) -> None:
        record = self.records.get(event.pid)
        if record is not None:
            record.questions = {
                **record.questions,
                data.get("id", ""): data.get("question") or data.get("message") or "",
            }
            if record.state == "running":
                record.state = "waiting"

    def _answered(self, event: Event, data: Mapping[str, Any]) -> None:
        record = self.records.get(event.pid)
        if record is not None:
            record.questions = {id_: text for id_, text in record.questions.items() if id_ != data.get("id")}
            if record.state == "waiting" and record.program and not record.questions:
                record.state = "running"

    def _sent(self, _event: Event, data: Mapping[str, Any]) -> None:
        record = self.records.get(data.get("to", ""))
        if record is not None and not data.get("dropped"):
            record.messages += 1

    def _received(self, event: Event, data: Mapping[str, Any]) -> None:
        record = self.records.get(event.pid)
        if record is not None and data.get("message"):
            record.messages = max(0, record.messages - 1)

    def _restarting(self, event: Event, data: Mapping[str, Any]) -> None:
        record = self.records.get(data.get("pid") or event.pid)
        if record is not None:
            record.restarts += 1


_HANDLERS: Final[dict[str, Callable[[Processes, Event, Mapping[str, Any]], None]]] = {
    "process.created": Processes._created,
    "process.terminated": Processes._terminated,
    "pcb.submitted": Processes._submitted,
    "pcb.owned": Processes._owned,
    "pcb.moved": Processes._moved,
    "pcb.noted": Processes._noted,
    "pcb.used": Processes._used,
    "pcb.forgotten": Processes._forgotten,
    "pcb.interrupt_created": Processes._asked,
    "pcb.interrupt_ended": Processes._answered,
    "effect.finished": Processes._finished,
    "interrupt.created": Processes._asked,
    "interrupt.resolved": Processes._answered,
    "interrupt.expired": Processes._answered,
    "interrupt.cancelled": Processes._answered,
    "message.sent": Processes._sent,
    "message.received": Processes._received,
    "child.restarting": Processes._restarting,
}

"""The one fold of Events into a table of processes: who started whom, in which state each is, how each ended.

`ProcessTable.add` takes Events in order; `CHANGES` has what each kind changes. `lyra ps`, the exported records, the
moments of a timeline, the live tree of a server and the demo read this table and add what only they show. A
process with a program runs until its end is told; while a question of it is open, it waits. An entry that programs
outside the kernel drive has the states that they move it through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from lyra.core.event import Event
from lyra.core.naming import PORTION, to_fixed_name

ENDED: Final = ("terminated", "zombie")


class ProcessRecord(msgspec.Struct):
    """One process. `state` is running, waiting, stopping or terminated, or a state of an entry; times are wall-clock
    seconds. `spent` is its own by the names of `Usage`, and the part of it in `lent` was spent by processes on other
    shards; `recorded` is what the run that it was forked from had paid."""

    pid: str
    program: str = ""
    name: str = ""
    parent: str = ""
    parent_elsewhere: str = ""  # the address of the process that started it, where that is on another shard
    user_id: str = ""
    state: str = "running"
    reason: str = ""
    error: str = ""
    stage: str = ""
    created_at: float = 0.0
    ended_at: float | None = None
    limits: dict[str, Any] | None = None  # of its own budget
    spent: dict[str, int] = {}
    lent: dict[str, int] = {}
    recorded: dict[str, int] = {}
    held: dict[str, dict[str, int]] = {}  # set aside for effects under way, by key
    under_way: dict[str, str] = {}  # names of effects, by key
    answers: int = 0  # effects that ended well
    retries: int = 0
    restarts: int = 0
    attempts: dict[str, int] = {}  # of calls that crashes cut off and that are not over, by key: how often so far
    mailbox: dict[int, Mapping[str, Any]] = {}  # rows of the messages that wait, by their number
    questions: dict[str, str] = {}  # open ones, by id

    @property
    def is_live(self) -> bool:
        return self.state not in ENDED

    @property
    def is_agent(self) -> bool:
        return self.program.startswith("agent:")

    @property
    def micro_usd(self) -> int:
        return self.spent.get("usd", 0)

    @property
    def tokens(self) -> int:
        return self.spent.get("input_tokens", 0) + self.spent.get("output_tokens", 0)

    @property
    def calls(self) -> int:
        return self.spent.get("llm_calls", 0) + self.spent.get("tool_calls", 0)

    @property
    def messages(self) -> int:
        """Return how many wait in its mailbox."""
        return len(self.mailbox)

    @property
    def budget_micro_usd(self) -> int | None:
        return (self.limits or {}).get("usd")

    def to_data(self) -> dict[str, Any]:
        """Return what `lyra ps --json` tells of it."""
        return {**{name: getattr(self, name) for name in _TOLD}, "cost_usd": self.micro_usd / 1_000_000}


_TOLD: Final = (
    *("pid", "program", "name", "parent", "user_id", "state", "reason", "error", "stage", "created_at", "ended_at"),
    *("micro_usd", "tokens", "calls", "restarts", "attempts", "messages", "budget_micro_usd", "questions"),
)


class ProcessTable:
    """See the module. `records` has the processes by pid, in the order of their start."""

    def __init__(self) -> None:
        self.records: dict[str, ProcessRecord] = {}
        self.seq = 0
        self._parents_elsewhere: dict[str, str] = {}  # of processes that are about to start

    def add(self, event: Event) -> None:
        self.seq = max(self.seq, event.seq)
        change = CHANGES.get(event.kind)
        if change is None:
            return
        record = self.records.get(event.pid)
        if record is None and event.kind in _ABOUT_NEW:
            record = self.records[event.pid] = ProcessRecord(event.pid, created_at=event.time)
        if record is not None or event.kind in _ABOUT_OTHERS:
            change(self, event, event.data, record)

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


def record_from_row(pid: str, created: Mapping[str, Any], created_at: float) -> ProcessRecord:
    """Return the record of a process that the row of its start describes."""
    budget = created.get("budget")
    return ProcessRecord(
        pid,
        program=to_fixed_name(str(created.get("program") or "")),
        name=str(created.get("name") or ""),
        parent=str(created.get("parent") or ""),
        created_at=created_at,
        limits=None if budget is None else dict(budget.get("limits") or {}),
    )


def sum_into(total: dict[str, int], usage: Mapping[str, int] | None) -> None:
    """Add amounts to a total, name by name."""
    for name, amount in (usage or {}).items():
        total[name] = total.get(name, 0) + amount


# ---------------------------------------------------------------- one change a kind


def _apply_created(table: ProcessTable, event: Event, data: Mapping[str, Any], _: Any) -> None:
    record = table.records[event.pid] = record_from_row(event.pid, data, event.time)
    record.parent_elsewhere = table._parents_elsewhere.pop(event.pid, "")
    if not record.parent and "/" in event.pid:  # rows of all shards, whose processes are named by their addresses
        record.parent = record.parent_elsewhere
    parent = table.records.get(record.parent)
    record.user_id = "" if parent is None else parent.user_id


def _apply_noted_by_shard(table: ProcessTable, event: Event, data: Mapping[str, Any], _: Any) -> None:
    noted = data["data"] if data.get("part") == "spawns" else {}
    if noted.get("parent"):
        table._parents_elsewhere[event.pid] = str(noted["parent"])
    elif "parent" in noted:  # it did not start, or is forgotten
        table._parents_elsewhere.pop(event.pid, None)


def _apply_noted(_: ProcessTable, event: Event, data: Mapping[str, Any], record: ProcessRecord) -> None:
    """Take over what an entry says of itself, or of a process of its pid."""
    if event.kind != "pcb.noted":
        record.user_id = data.get("user_id") or ""
    record.parent = data.get("parent_pid") or record.parent
    record.stage = data.get("current_stage") or record.stage
    if event.kind == "pcb.submitted" and not record.program:
        record.state = "new"


def _apply_moved(_: ProcessTable, event: Event, data: Mapping[str, Any], record: ProcessRecord) -> None:
    record.state = data["new_state"]
    if record.state == "terminated":
        record.reason, record.ended_at = data.get("reason") or "", event.time


def _apply_used(_: ProcessTable, _event: Event, data: Mapping[str, Any], record: ProcessRecord) -> None:
    sum_into(record.spent, {name: data.get(told, 0) for told, name in _OF_ENTRY.items()})


def _stopping(_: ProcessTable, _event: Event, data: Mapping[str, Any], record: ProcessRecord) -> None:
    record.state, record.reason = "stopping", str(data.get("reason") or "")


def _apply_terminated(_: ProcessTable, event: Event, data: Mapping[str, Any], record: ProcessRecord) -> None:
    record.state, record.reason, record.ended_at = "terminated", str(data.get("reason") or ""), event.time
    error = data.get("error") or {}
    record.error = str(error.get("message") or error.get("code") or "")
    record.questions, record.attempts, record.mailbox, record.under_way, record.held = {}, {}, {}, {}, {}


def _effect_began(_: ProcessTable, _event: Event, data: Mapping[str, Any], record: ProcessRecord) -> None:
    key = str(data.get("key"))
    record.under_way[key] = str(data.get("name") or "")
    if data.get("cost"):
        record.held[key] = dict(data["cost"])


def _effect_retried(_: ProcessTable, _event: Event, _data: Mapping[str, Any], record: ProcessRecord) -> None:
    record.retries += 1


def _effect_ended(_: ProcessTable, _event: Event, data: Mapping[str, Any], record: ProcessRecord) -> None:
    key, error = str(data.get("key")), data.get("error")
    record.under_way.pop(key, None)
    record.held.pop(key, None)
    sum_into(record.spent, data.get("usage"))
    if data.get("name") == PORTION:
        sum_into(record.lent, data.get("usage"))
    sum_into(record.recorded, data.get("recorded"))
    if error and error.get("crash"):
        record.attempts[key] = record.attempts.get(key, 0) + 1
    elif not (error and error.get("code") == "cut_off"):
        record.attempts.pop(key, None)
    if not error and (data.get("form") or "do") == "do":
        record.answers += 1


def _on_question(_: ProcessTable, _event: Event, data: Mapping[str, Any], record: ProcessRecord) -> None:
    record.questions[str(data.get("id") or "")] = str(data.get("question") or data.get("message") or "")
    if record.state == "running":
        record.state = "waiting"


def _apply_answered(_: ProcessTable, _event: Event, data: Mapping[str, Any], record: ProcessRecord) -> None:
    record.questions.pop(str(data.get("id")), None)
    if record.state == "waiting" and record.program and not record.questions:
        record.state = "running"


def _apply_sent(table: ProcessTable, event: Event, data: Mapping[str, Any], _: Any) -> None:
    receiver = table.records.get(str(data.get("to")))
    if receiver is not None and not data.get("dropped"):
        receiver.mailbox[event.seq] = data


def _restarting(table: ProcessTable, event: Event, data: Mapping[str, Any], _: Any) -> None:
    record = table.records.get(data.get("pid") or event.pid)
    if record is not None:
        record.restarts += 1


_OF_ENTRY: Final = {  # amounts that an entry is charged with, by their names in `Usage`
    "tokens_in": "input_tokens",
    "tokens_out": "output_tokens",
    "llm_calls": "llm_calls",
    "tool_calls": "tool_calls",
}
_ABOUT_NEW: Final = frozenset({"pcb.submitted", "process.terminated"})  # they make a record where there is none
_ABOUT_OTHERS: Final = frozenset(
    {"process.created", "message.sent", "child.restarting", "remote.noted"}
)  # the pid's may be missing
CHANGES: Final[dict[str, Callable[[ProcessTable, Event, Mapping[str, Any], Any], Any]]] = {
    "process.created": _apply_created,
    "process.state_changed": _apply_moved,
    "process.stopping": _stopping,
    "process.terminated": _apply_terminated,
    "pcb.submitted": _apply_noted,
    "pcb.owned": _apply_noted,
    "pcb.moved": _apply_moved,
    "pcb.noted": _apply_noted,
    "pcb.used": _apply_used,
    "pcb.forgotten": lambda table, event, *_: table.records.pop(event.pid),
    "pcb.interrupt_created": _on_question,
    "pcb.interrupt_ended": _apply_answered,
    "effect.started": _effect_began,
    "effect.retried": _effect_retried,
    "effect.finished": _effect_ended,
    "interrupt.created": _on_question,
    "interrupt.resolved": _apply_answered,
    "interrupt.expired": _apply_answered,
    "interrupt.cancelled": _apply_answered,
    "message.sent": _apply_sent,
    "message.received": lambda _, _event, data, record: record.mailbox.pop(data.get("message") or 0, None),
    "child.restarting": _restarting,
    "remote.noted": _apply_noted_by_shard,
}

"""Entries of the process table: their durable form, and the form that callers see.

`Entry` is what the kernel keeps of a process that an outside worker drives, `LifecycleState` is the fold of their rows
with the queue of ready entries, and `ProcessControlBlock` is the view of a process that callers get. `lifecycle`
decides when an entry changes its state.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from enum import StrEnum
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from lyra.kernel.journal.rows import DurableValue
from lyra.kernel.process.process import TRANSITIONS
from lyra.kernel.workers.usage import ResourceQuota, ResourceUsage

STATES: Final = tuple(TRANSITIONS)
TERMINAL: Final = frozenset({"terminated", "zombie"})


class ProcessState(StrEnum):
    """The states of the table, as words."""

    NEW = "new"
    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    BLOCKED = "blocked"
    TERMINATED = "terminated"
    ZOMBIE = "zombie"


class SchedulingPriority(StrEnum):
    """The priorities, as words."""

    REALTIME = "realtime"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    IDLE = "idle"


class ProcessControlBlock(DurableValue, msgspec.Struct, frozen=True, dict=True):
    """One process as the table shows it. Times are wall-clock seconds; `pending_interrupt` is the kind of the oldest
    unanswered question and `interrupt_data` says which (or, for a blocked one, why it is blocked)."""

    pid: str
    state: str
    priority: str
    quota: ResourceQuota
    usage: ResourceUsage
    request_id: str = ""
    user_id: str = ""
    session_id: str = ""
    created_at: float | None = None
    started_at: float | None = None
    completed_at: float | None = None
    last_scheduled_at: float | None = None
    current_stage: str = ""
    current_service: str = ""
    pending_interrupt: str | None = None
    interrupt_data: Any = None
    parent_pid: str = ""
    child_pids: tuple[str, ...] = ()
    termination_reason: str = ""

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    def to_data(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


class ProcessCounts(dict[str, int]):
    """How many processes there are in each state, and besides: `total` of them, and `queue_depth`, the entries that
    are in line for a worker."""

    def __init__(self, by_state: dict[str, int], queue_depth: int) -> None:
        super().__init__(by_state)
        self.total = sum(by_state.values())
        self.queue_depth = queue_depth


class Owner(NamedTuple):
    """The owner of a process, and its state."""

    state: str
    request_id: str = ""
    user_id: str = ""
    session_id: str = ""

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL


class Entry(msgspec.Struct):
    request_id: str
    user_id: str
    session_id: str
    priority: int
    created_at: float
    parent_pid: str
    order: int  # its place in the queue: counted when it is submitted, or becomes ready again
    state: str = "new"
    started_at: float | None = None
    completed_at: float | None = None
    last_scheduled_at: float | None = None
    current_stage: str = ""
    current_service: str = ""
    reason: str = ""  # of its last change of state
    child_pids: list[str] = msgspec.field(default_factory=list)
    waited_s: float = 0.0  # in `waiting`, until the last time it left that
    waiting_since: float | None = None
    pipeline: bool = False  # made for a pipeline without a submitted process, and removed with it

    def is_ahead_of(self, now: float) -> bool:
        """Return whether its time seems to begin in the future: the clock was wrong then, or is now."""
        return max(self.started_at or 0.0, self.waiting_since or 0.0) > now

    def set_back_to(self, now: float) -> None:
        """None of its times is in the future any more."""
        if self.started_at is not None:
            self.started_at = min(self.started_at, now)
        if self.waiting_since is not None:
            self.waiting_since = min(self.waiting_since, now)

    def measure_elapsed_s(self, now: float) -> float:
        """Seconds from its first run until its end or now, without the time in `waiting`."""
        if self.started_at is None:
            return 0.0
        until = now if self.completed_at is None else self.completed_at
        waited_s = self.waited_s + (max(0.0, until - self.waiting_since) if self.waiting_since is not None else 0.0)
        return max(0.0, until - self.started_at - waited_s)


class LifecycleState:
    """The entries, the queue of ready ones and the owners of programs: a fold of these kinds of rows."""

    NAME: ClassVar[str] = "lifecycle"
    KINDS: ClassVar[frozenset[str]] = frozenset(
        {"pcb.submitted", "pcb.moved", "pcb.noted", "pcb.forgotten", "pcb.set_back", "pcb.owned", "pcb.disowned"}
    )

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.counts: dict[str, int] = dict.fromkeys(STATES, 0)
        self.ended: OrderedDict[str, None] = OrderedDict()  # in the order of their end; the first is removed in O(1)
        self.orders = 0
        self.adopted: dict[str, dict[str, None]] = {}  # pid of a program process → the entries that are its children
        self.owners: dict[str, str] = {}  # pid of a program process → the user whose it is
        self.line: list[tuple[int, int, str]] = []  # a heap of (priority, order, pid); stale ones are skipped

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        del time  # rows have their own
        if kind == "pcb.submitted":
            if pid in self.entries:
                raise ValueError(f"{pid} is submitted a second time")
            self.orders += 1
            self.entries[pid] = msgspec.convert({**data, "order": self.orders}, Entry)
            self.counts["new"] += 1
            parent = self.entries.get(data["parent_pid"])
            if parent is not None:
                parent.child_pids.append(pid)
            else:
                self._adopt(pid, data["parent_pid"])
        elif kind == "pcb.moved":
            self._apply_moved(pid, self.entries[pid], data)
        elif kind == "pcb.noted":
            entry = self.entries[pid]
            entry.current_stage = data.get("current_stage", entry.current_stage)
            entry.current_service = data.get("current_service", entry.current_service)
        elif kind == "pcb.set_back":
            self.entries[pid].set_back_to(data["at"])
        elif kind == "pcb.owned":
            self.owners[pid] = data["user_id"]
        elif kind == "pcb.disowned":
            del self.owners[pid]
        else:
            self._forgotten(pid)

    def _adopt(self, pid: str, parent_pid: str) -> None:
        if parent_pid and parent_pid not in self.entries:
            self.adopted.setdefault(parent_pid, {})[pid] = None

    def _apply_moved(self, pid: str, entry: Entry, data: dict[str, Any]) -> None:
        state, old, moved_at = data["new_state"], entry.state, data["at"]
        if state not in TRANSITIONS[old]:
            raise ValueError(f"{pid} cannot go from {old} to {state}")
        self.counts[old] -= 1
        self.counts[state] += 1
        entry.state = state
        if old != "terminated":  # a zombie keeps the reason of its end
            entry.reason = data["reason"]
        if entry.waiting_since is not None:
            entry.waited_s += max(0.0, moved_at - entry.waiting_since)
            entry.waiting_since = None
        if state == "waiting":
            entry.waiting_since = moved_at
        if state == "ready":
            if old != "new":  # to the end of the queue of its priority
                self.orders += 1
                entry.order = self.orders
            self._queue(pid, entry)
        elif state == "running":
            entry.started_at = moved_at if entry.started_at is None else entry.started_at
            entry.last_scheduled_at = moved_at
        elif state == "terminated":
            entry.completed_at = moved_at
            self.ended[pid] = None

    def _forgotten(self, pid: str) -> None:
        entry = self.entries.pop(pid)
        self.ended.pop(pid, None)
        self.counts[entry.state] -= 1
        parent = self.entries.get(entry.parent_pid)
        if parent is not None and pid in parent.child_pids:
            parent.child_pids.remove(pid)
        siblings = self.adopted.get(entry.parent_pid)
        if siblings is not None:
            siblings.pop(pid, None)
            if not siblings:
                del self.adopted[entry.parent_pid]

    def queue_again(self, pid: str) -> None:
        """Put an entry that was passed over back at its old place."""
        entry = self.entries.get(pid)
        if entry is not None and entry.state == "ready":
            self._queue(pid, entry)

    def pass_over(self, pid: str) -> None:
        """Remove an entry from the queue which has an open question and cannot run."""
        if self.line and self.line[0][2] == pid:
            heapq.heappop(self.line)
        else:
            self.line = [place for place in self.line if place[2] != pid]
            heapq.heapify(self.line)

    def _queue(self, pid: str, entry: Entry) -> None:
        heapq.heappush(self.line, (entry.priority, entry.order, pid))
        if len(self.line) > 64 + 2 * self.counts["ready"]:  # most of its items are stale
            self._line_up()

    def _line_up(self) -> None:
        self.line = [
            (entry.priority, entry.order, pid) for pid, entry in self.entries.items() if entry.state == "ready"
        ]
        heapq.heapify(self.line)

    def first_of(self, user_id: str) -> str | None:
        """Return the pid of the next entry of a user to run."""
        for _, order, pid in sorted(self.line):
            entry = self.entries.get(pid)
            if entry is not None and entry.state == "ready" and entry.order == order and entry.user_id == user_id:
                return pid
        return None

    def first(self) -> str | None:
        """Return the pid of the next entry to run."""
        while self.line:
            _, order, pid = self.line[0]
            entry = self.entries.get(pid)
            if entry is not None and entry.state == "ready" and entry.order == order:
                return pid
            heapq.heappop(self.line)
        return None

    def dump(self) -> Any:
        return {"entries": self.entries, "orders": self.orders, "ended": list(self.ended), "owners": self.owners}

    def load(self, data: Any) -> None:
        self.entries = msgspec.convert(data["entries"], dict[str, Entry])
        self.orders = data["orders"]
        self.ended = OrderedDict.fromkeys(data["ended"])
        self.owners = dict(data.get("owners") or {})  # snapshots of earlier versions have none
        for pid, entry in self.entries.items():
            self.counts[entry.state] += 1
            self._adopt(pid, entry.parent_pid)
        self._line_up()

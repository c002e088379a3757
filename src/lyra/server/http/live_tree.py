"""The processes of a kernel as rows of a tree: what each is, what it does now, how often it was started again.

`LiveTree` listens to the kernel, one for each server. It keeps for live processes what the process table does not
tell (the effect that is under way, the restarts) and which of them changed since when, so that a reader fetches all
rows once and from then on only those that changed. A guard and the run that it represents are one row, under the
guard's pid. A caller sees the rows of its own processes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.core.event import Event
from lyra.core.naming import SUPERVISE
from lyra.observe.history.processes import ProcessRecord, ProcessTable
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.kernel.workers.entry import Entry
    from lyra.server.http.parts import HttpParts
    from lyra.server.identity import Caller


_CHANGES_KEPT: Final = 50_000
_ENDED: Final = frozenset({"terminated", "zombie"})
_END_WORDS: Final = {"normal": "", "shutdown": "stopped", "linked": "ended with another", "error": "crashed"}

# What the first word of an effect's name says about a process.
_DOING: Final[dict[str, str]] = {"model": "asking model", "tool": "running tool", "sleep": "sleeping", "ask": "asking"}

_BUSY: Final = frozenset({"effect.started", "effect.finished", "process.terminated"})
_SHAPING: Final = frozenset({"process.created", "process.terminated"})
TREE_EVENTS: Final = (
    *("process.created", "process.terminated", "process.stopping", "process.dormant", "child.restarting"),
    *("supervisor.gave_up", "effect.started", "effect.finished", "agent.began", "agent.answered"),
    *("interrupt.created", "interrupt.resolved", "interrupt.expired", "interrupt.cancelled", "pcb.submitted"),
    *("pcb.moved", "pcb.forgotten"),
)


class ProcessRow(NamedTuple):
    """One row. `state` is a word of the dashboard's table of states; `doing` says more where more is known."""

    pid: str
    parent: str
    name: str
    program: str
    state: str
    doing: str
    strategy: str  # of a supervisor
    restarts: int
    cost_micro_usd: int
    children: int
    created_at: float


class LiveTree:
    """See the module."""

    def __init__(self, parts: HttpParts) -> None:
        self._kernel: Kernel = parts.kernel
        self.version = 0  # counts changes
        self._changed: OrderedDict[str, int] = OrderedDict()  # pid → the version of its last change, the oldest first
        self._forgotten = 0  # changes up to this version are not known any more
        self._table = ProcessTable()  # of processes with effects under way
        self._busy = self._table.records
        self._restarts: dict[str, int] = {}  # by pid, worked out once for each version
        self._restarts_version = -1
        self._shape = 0  # counts processes that came or went
        self._tops_shape = -1
        self._all_tops: list[Process] = []  # at that shape
        self._epoch = self._kernel.entropy.text(8)  # of this server: versions of another mean nothing here
        self._kernel.on_event(self._hear, kinds=TREE_EVENTS)

    # ------------------------------------------------------------------ listening

    def _hear(self, event: Event) -> None:
        kind, pid = event.kind, event.pid
        if kind == "effect.started" and pid not in self._busy:
            self._busy[pid] = ProcessRecord(pid)
        if kind in _BUSY and pid in self._busy:
            record = self._busy[pid]
            self._table.add(event)
            if not record.under_way:
                del self._busy[pid]
        if kind in _SHAPING:
            self._shape += 1
        self._mark(pid)
        process = self._kernel.processes.get(pid)
        if process is not None:
            if process.known_as != pid:
                self._mark(process.known_as)
            if process.parent is not None and kind in _SHAPING:
                self._mark(process.parent.known_as)

    def _mark(self, pid: str) -> None:
        self.version += 1
        self._changed.pop(pid, None)
        self._changed[pid] = self.version
        if len(self._changed) > _CHANGES_KEPT:
            self._forgotten = self._changed.popitem(last=False)[1]

    # ------------------------------------------------------------------ reading

    @property
    def mark(self) -> str:
        """The version as readers give it back."""
        return f"{self._epoch}.{self.version}"

    def rows(self, caller: Caller, *, ended: bool = False) -> Iterator[ProcessRow]:
        """All rows that a caller may see, parents before their children."""
        kernel = self._kernel
        for pid, entry in kernel.lifecycle.state.entries.items():
            if caller.owns(entry.user_id) and (ended or entry.state not in _ENDED):
                yield self._entry_row(pid, entry)
        for process in list(kernel.processes.values()):
            if self._is_shown(process, caller) and (ended or process.alive):
                yield self._row(process)

    def walk(self, caller: Caller) -> Iterator[tuple[int, ProcessRow]]:
        """Yield the live rows with their depth, each below its parent. A row is made when it is reached."""
        for pid, entry in self._kernel.lifecycle.state.entries.items():
            if caller.owns(entry.user_id) and entry.state not in _ENDED:
                yield 0, self._entry_row(pid, entry)
        todo = [(0, process) for process in reversed(self._tops(caller))]
        while todo:
            depth, process = todo.pop()
            yield depth, self._row(process)
            todo += [(depth + 1, child) for child in reversed(self._below(process, caller))]

    def count(self, caller: Caller) -> int:
        """Return how many live rows a caller may see."""
        kernel = self._kernel
        entries = sum(
            1 for row in kernel.lifecycle.state.entries.values() if caller.owns(row.user_id) and row.state not in _ENDED
        )
        if caller.is_operator:  # the run of a guard has no row of its own
            return entries + kernel.live - sum(plan.guards for plan in kernel.supervisors.plans.values())
        return entries + sum(1 for row in kernel.processes.values() if row.alive and self._is_shown(row, caller))

    def row(self, pid: str, caller: Caller) -> ProcessRow | None:
        """One row; None where there is none that the caller may see."""
        kernel = self._kernel
        entry = kernel.lifecycle.state.entries.get(pid)
        if entry is not None:
            return self._entry_row(pid, entry) if caller.owns(entry.user_id) else None
        process = kernel.processes.get(pid)
        return self._row(process) if process is not None and self._is_shown(process, caller) else None

    def since(self, mark: str, caller: Caller) -> tuple[list[ProcessRow], list[str]] | None:
        """Return the rows that changed after a mark, and the pids that are gone; None where that is not known any
        more."""
        epoch, _, number = mark.partition(".")
        version = int(number) if epoch == self._epoch and number.isdigit() and len(number) < 16 else -1
        if version < self._forgotten or version > self.version:
            return None
        rows: list[ProcessRow] = []
        gone: list[str] = []
        for pid, changed in reversed(self._changed.items()):
            if changed <= version:
                break
            row = self.row(pid, caller)
            if row is not None and row.state not in ("ended", "failed"):
                rows.append(row)
            else:
                gone.append(pid)
        rows.reverse()
        return rows, gone

    def roots(self, caller: Caller, most: int) -> tuple[list[ProcessRow], int]:
        """Return the live processes at the top, at most so many, and how many there are. Of more, those that do
        something come first."""
        tops = self._tops(caller)
        shown = tops if len(tops) <= most else sorted(tops, key=lambda process: not self._is_busy(process))[:most]
        return [self._row(process) for process in shown], len(tops)

    def _tops(self, caller: Caller) -> list[Process]:
        """Live processes without a parent that is shown. Those of all are worked out once for each change of shape."""
        if not caller.is_operator:
            return self._find_tops(caller)
        if self._tops_shape != self._shape:
            self._tops_shape = self._shape
            self._all_tops = self._find_tops(caller)
        return self._all_tops

    def _find_tops(self, caller: Caller) -> list[Process]:
        tops = []
        for process in self._kernel.processes.values():
            if process.exit is None:
                parent = process.parent
                is_top = parent is None or parent.exit is not None or not self._is_known(parent, caller)
                if is_top and self._is_shown(process, caller):
                    tops.append(process)
        return tops

    def _is_known(self, process: Process, caller: Caller) -> bool:
        return caller.is_operator or caller.owns(owner_if_known(self._kernel, process.pid))

    def children(self, pid: str, caller: Caller, most: int | None = None) -> list[ProcessRow]:
        """Return the live processes that one started. Of more than `most`, only those that do something, wait for a
        person or started others."""
        process = self._kernel.processes.get(pid)
        below = [] if process is None else self._below(process, caller)
        if most is not None and len(below) > most:
            below = [child for child in below if self._is_busy(child)][:most]
        return [self._row(child) for child in below]

    def _is_busy(self, process: Process) -> bool:
        run = process.stands_for or process
        if run.pid in self._busy or run.children:
            return True
        return self._kernel.interrupts.get_pending_interrupt(run.pid) is not None

    def _below(self, process: Process, caller: Caller) -> list[Process]:
        inner = process.stands_for or process
        children = () if inner.children is None else inner.children.values()
        return [child for child in children if child.alive and self._is_shown(child, caller)]

    def _is_shown(self, process: Process, caller: Caller) -> bool:
        if process.known_as != process.pid:  # the run of a guard
            return False
        return self._is_known(process, caller)

    # ------------------------------------------------------------------ rows

    def _row(self, process: Process) -> ProcessRow:
        inner = process.stands_for or process
        parent = process.parent
        plan = self._kernel.supervisors.plans.get(process.pid)
        is_guard = plan is not None and plan.guards
        state, doing = self._state(process, inner)
        return ProcessRow(
            pid=process.pid,
            parent=self._find_parent_elsewhere(process) if parent is None else parent.known_as,
            name=process.name or inner.name or inner.program.partition("agent:")[2],
            program=inner.program,
            state=state,
            doing=doing,
            strategy=_strategy(plan) if plan is not None and not is_guard else "",
            restarts=self._restarts_of(process),
            cost_micro_usd=int(process.spent.usd),
            children=len(inner.children or ()),
            created_at=process.created_at or 0.0,
        )

    def _find_parent_elsewhere(self, process: Process) -> str:
        """Return the address of the process on another shard that started this one; "" where none did."""
        remote = self._kernel.core.remote
        return "" if remote is None else str(remote.acts.parents.get(process.pid, ""))

    def _restarts_of(self, process: Process) -> int:
        """Of a supervisor: of all its children; of a child: how often it was started again."""
        if self._restarts_version != self.version:
            self._restarts_version = self.version
            self._restarts = self._count_restarts()
        return self._restarts.get(process.pid, 0)

    def _count_restarts(self) -> dict[str, int]:
        """Return the restarts by pid, as the tables of the supervisors have them."""
        restarts: dict[str, int] = {}
        for pid, table in self._kernel.supervisors.tables.items():
            total = 0
            for row in table.rows:
                if row.starts > 1:
                    total += row.starts - 1
                    if row.pid is not None:
                        restarts[row.pid] = row.starts - 1
            if total:
                restarts[pid] = total
        return restarts

    def _state(self, process: Process, inner: Process) -> tuple[str, str]:
        """Return the state as a word of the table of states, and what it does."""
        if not process.alive:
            ended = process.exit
            reason = "" if ended is None else ended.reason
            return ("failed" if process.has_failed else "ended"), _END_WORDS.get(reason, reason)
        if self._kernel.missing_program(process) is not None:
            return "dormant", "its program is not known here"
        asked = self._kernel.interrupts.get_pending_interrupt(inner.pid)
        if asked is not None:
            return "blocked", "waits for a person"
        busy = self._busy.get(inner.pid)
        if busy is not None:
            return "working", _doing(next(reversed(busy.under_way.values())))
        if inner.program == SUPERVISE:
            return "running", "supervises"
        return ("idle", "") if inner.state in ("waiting", "blocked") else ("running", "")

    def _entry_row(self, pid: str, entry: Entry) -> ProcessRow:
        state = "ended" if entry.state in _ENDED else entry.state
        return ProcessRow(
            pid=pid,
            parent=entry.parent_pid,
            name="",
            program=entry.current_service or "worker",
            state=state,
            doing=entry.current_stage,
            strategy="",
            restarts=0,
            cost_micro_usd=0,
            children=len(entry.child_pids),
            created_at=entry.created_at,
        )


def _strategy(plan: Any) -> str:
    words = {"restart": "one_for_one", "restart_all": "one_for_all"}
    return "simple_one_for_one" if plan.template is not None else words.get(plan.strategy, plan.strategy)


def _doing(effect: str) -> str:
    """Return an effect in words: `model:helper:sim` is a model that is asked."""
    first, _, rest = effect.partition(":")
    words = _DOING.get(first)
    if words is None:
        return f"performs {effect}"
    return f"{words} {rest}" if first == "tool" and rest else words

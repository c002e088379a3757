"""The lifecycle of processes that somebody outside drives: submitted, scheduled, taken, moved, ended.

A `ProcessControlBlock` is an entry of the process table without a program: a worker takes it with `get_next_runnable`,
does its work elsewhere and reports. `TRANSITIONS` (in `process`) is the whole state machine. Among ready entries the
higher priority always goes first, and inside a level the one that has waited longest: since it was submitted, or since
it became ready again. Program processes share the pids and are shown here as blocks too, but move by themselves.

What callers get is a value, a picture of the entry at that moment (`pcb`). Quotas are kept by `resources`, questions by
`interrupts`; this module only joins them into the picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lyra.core import codec
from lyra.core.check import one_of, sendable_text, short_text
from lyra.core.limits import ENDED_PROCESSES_KEPT, NAME_LENGTH_MAX
from lyra.errors import (
    ConfigError,
    InvalidTransition,
    LimitExceeded,
    NameTaken,
    NoSuchProcess,
    Overloaded,
    ProcessError,
)
from lyra.kernel.pcb import STATES, TERMINAL, Entry, LifecycleState, Owner, ProcessControlBlock
from lyra.kernel.process import PRIORITIES, TRANSITIONS, Process
from lyra.kernel.resources import ResourceQuota

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

__all__ = ["STATES", "TERMINAL", "LifecycleManager", "LifecycleState", "ProcessControlBlock"]


class LifecycleManager:
    __slots__ = ("_kernel", "closed", "state")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.state = LifecycleState()
        self.closed = False  # `shutdown` began: nothing new is taken

    # ------------------------------------------------------------------ entering

    def submit(
        self,
        pid: str,
        *,
        request_id: str = "",
        user_id: str = "",
        session_id: str = "",
        priority: str = "normal",
        quota: ResourceQuota | Mapping[str, Any] | None = None,
        parent_pid: str = "",
    ) -> ProcessControlBlock:
        """Put an entry in the table, as `new`. A pid that is there already gives what is there, unchanged."""
        kernel = self._kernel
        kernel._raise_if_closed()
        if self.closed or kernel.draining:
            raise ProcessError("the kernel is shutting down and takes no process", pid=pid)
        self.checked_pid(pid)
        if self.find(pid) is not None:
            return self.get_process(pid)
        if pid in kernel.names:
            raise NameTaken(f"{pid!r} is the name of another process", pid=pid)
        level = PRIORITIES.index(one_of(_lower(priority), PRIORITIES, "priority"))
        limits = kernel.resources.resolve(quota)
        if parent_pid:
            self.must_exist(parent_pid)
        if kernel.live + self.active >= kernel.processes_max:
            raise Overloaded("there are as many processes as there may be", limit=kernel.processes_max)
        row = {
            "request_id": sendable_text(request_id, "request_id"),
            "user_id": short_text(sendable_text(user_id, "user_id"), "user_id", most=NAME_LENGTH_MAX),
            "session_id": sendable_text(session_id, "session_id"),
            "priority": level,
            "created_at": kernel.clock.now(),
            "parent_pid": parent_pid,
        }
        kernel.fact(self.state, pid, "pcb.submitted", row)
        kernel.resources.close(pid)  # counted before it was submitted, under nobody's name
        kernel.resources.open(pid, limits, user_id=user_id)
        if user_id and (limits.rate_limit_rpm or limits.rate_limit_rph or limits.rate_limit_burst):
            kernel.rate_limiter.tighten_user(
                user_id, rpm=limits.rate_limit_rpm, rph=limits.rate_limit_rph, burst=limits.rate_limit_burst
            )
        kernel.publish(pid, "process.created", {**row, "priority": PRIORITIES[level], "state": "new"})
        return self.get_process(pid)

    @staticmethod
    def checked_pid(pid: Any) -> str:
        fits = isinstance(pid, str) and 0 < len(pid) <= NAME_LENGTH_MAX and pid.isprintable()
        if not fits or pid.startswith("~"):
            hint = f"use 1 to {NAME_LENGTH_MAX} printable characters, the first not ~"
            raise ConfigError(f"pid is {pid!r}", hint=hint)
        return str(pid)

    # ------------------------------------------------------------------ moving

    def schedule(self, pid: str) -> ProcessControlBlock:
        """Put a new entry in line. One that has used up its quota is refused."""
        self._kernel._raise_if_closed()
        entry = self._own(pid)
        if entry.state != "new":
            raise InvalidTransition(
                f"cannot schedule {pid}: its state is {entry.state}, not new", pid=pid, old_state=entry.state
            )
        checked = self._kernel.resources.check_quota(pid)
        if not checked.within_bounds:
            raise LimitExceeded(
                f"process {pid} has used up its quota: {checked.exceeded_reason}",
                hint="adjust_quota raises it",
                pid=pid,
                reason=checked.exceeded_reason,
            )
        self._move(pid, entry, "ready", "scheduled")
        return self.get_process(pid)

    def get_next_runnable(self) -> ProcessControlBlock | None:
        """Take the entry whose turn it is; it is `running` now. None when nobody waits."""
        self._kernel._raise_if_closed()
        pid = self.state.first()
        if pid is None:
            return None
        self._move(pid, self.state.entries[pid], "running", "its turn")
        return self.get_process(pid)

    def transition_state(self, pid: str, state: str, reason: str = "") -> ProcessControlBlock:
        """Move an entry, if the table allows it."""
        self._kernel._raise_if_closed()
        entry = self._own(pid)
        word = _lower(state)
        if word not in STATES:
            one_of(word, STATES, "a process's state")
        if word not in TRANSITIONS[entry.state]:
            raise InvalidTransition(
                f"process {pid} cannot go from {entry.state} to {word}",
                pid=pid,
                old_state=entry.state,
                new_state=word,
            )
        self._move(pid, entry, word, sendable_text(reason, "a reason"))
        return self.get_process(pid)

    def terminate(self, pid: str, reason: str = "", *, force: bool = False) -> ProcessControlBlock:
        """End a process; one that has ended stays as it is, one that runs is only ended by force."""
        kernel = self._kernel
        kernel._raise_if_closed()
        sendable_text(reason, "a reason")
        block = self.get_process(pid)
        if block.terminal:
            return block
        if block.state == "running" and not force:
            raise InvalidTransition(
                f"process {pid} is running", hint="force=True ends it", pid=pid, old_state="running"
            )
        entry = self.state.entries.get(pid)
        if entry is None:
            kernel.life.stop_tree(kernel.processes[pid], reason or "killed")
        else:
            self._move(pid, entry, "terminated", reason or "terminated")
        return self.get_process(pid)

    def _move(self, pid: str, entry: Entry, state: str, reason: str) -> None:
        """The one place where an entry changes its state."""
        kernel, old = self._kernel, entry.state
        row = {"old_state": old, "new_state": state, "reason": reason}
        kernel.fact(self.state, pid, "pcb.moved", {**row, "at": kernel.clock.now()})
        kernel.publish(pid, "process.state_changed", row)
        if state == "running":
            kernel.time_limits.watch(pid)
        elif state == "terminated":
            kernel.time_limits.forget(pid)
            kernel.interrupts.cancel_all(pid, "its process ended")
            event = {"reason": reason, "user_id": entry.user_id, "request_id": entry.request_id, "error": None}
            kernel.publish(pid, "process.terminated", event)
            while len(self.state.ended) > ENDED_PROCESSES_KEPT:  # tidied up by hand, they go sooner
                self.cleanup_process(next(iter(self.state.ended)))

    # ------------------------------------------------------------------ questions

    def asked(self, pid: str) -> None:
        """A question about it waits for a human: one that runs waits with it."""
        entry = self.state.entries.get(pid)
        if entry is not None and entry.state == "running":
            self._move(pid, entry, "waiting", "interrupt")

    def answered(self, pid: str) -> None:
        """A question of it ended: if that was the last, it may go on."""
        entry = self.state.entries.get(pid)
        if entry is not None and entry.state == "waiting" and not self._kernel.interrupts.has_pending(pid):
            self._move(pid, entry, "ready", "interrupt over")

    def note(self, pid: str, *, current_stage: str | None = None, current_service: str | None = None) -> None:
        """Where its work is at the moment: shown, and nothing else."""
        self._kernel._raise_if_closed()
        entry = self._own(pid)
        given = {"current_stage": current_stage, "current_service": current_service}
        row = {
            name: sendable_text(value, name)
            for name, value in given.items()
            if value is not None and value != getattr(entry, name)
        }
        if row:
            self._kernel.fact(self.state, pid, "pcb.noted", row)

    # ------------------------------------------------------------------ looking

    def get_process(self, pid: str) -> ProcessControlBlock:
        entry = self._entry(pid)
        if entry is not None:
            return self._block(pid, entry)
        process = self._kernel.processes.get(pid) if _is_text(pid) else None
        if process is None:
            raise _unknown(pid)
        return self._view(process)

    def owner(self, pid: str) -> Owner:
        """Whose it is and how it stands: what many ask, without the rest of the picture."""
        entry = self._entry(pid)
        if entry is not None:
            return Owner(entry.state, entry.request_id, entry.user_id, entry.session_id)
        process = self._kernel.processes.get(pid) if _is_text(pid) else None
        if process is None:
            raise _unknown(pid)
        return Owner(process.state)

    def list_processes(self, state: str | None = None, user_id: str | None = None) -> list[ProcessControlBlock]:
        """Entries and program processes, the oldest first; of one state, of one user, or all."""
        word = None if not state else one_of(_lower(state), STATES, "a process's state")
        entries = [
            self._block(pid, entry)
            for pid, entry in self.state.entries.items()
            if (word is None or entry.state == word) and (not user_id or entry.user_id == user_id)
        ]
        if user_id:  # programs belong to no user
            return entries
        programs = self._kernel.processes.values()
        return entries + [self._view(process) for process in programs if word is None or process.state == word]

    def get_process_counts(self) -> dict[str, int]:
        """How many processes there are in each state; every state is there."""
        counts = dict(self.state.counts)
        for process in self._kernel.processes.values():
            counts[process.state] += 1
        return counts

    @property
    def total(self) -> int:
        return len(self.state.entries) + len(self._kernel.processes)

    @property
    def queue_depth(self) -> int:
        """Entries in line for a worker."""
        return self.state.counts["ready"]

    @property
    def active(self) -> int:
        """Entries that have not ended."""
        return len(self.state.entries) - self.state.counts["terminated"] - self.state.counts["zombie"]

    def find(self, pid: Any) -> Entry | Process | None:
        return self.state.entries.get(pid) or self._kernel.processes.get(pid)

    def must_exist(self, pid: Any) -> None:
        if not (_is_text(pid) and (self.find(pid) is not None or self._is_used(pid))):
            raise _unknown(pid)

    def _is_used(self, pid: str) -> bool:
        """A pid without an entry: somebody counts its usage, or drives a pipeline under it."""
        return self._kernel.resources.is_tracked(pid) or pid in self._kernel.orchestrator.state.sessions

    def elapsed_s(self, pid: str) -> float:
        """Since it first ran, until it ended or now."""
        entry = self.state.entries.get(pid)
        if entry is None or entry.started_at is None:
            return 0.0
        until = self._kernel.clock.now() if entry.completed_at is None else entry.completed_at
        return max(0.0, until - entry.started_at)

    def is_timed(self, pid: str) -> bool:
        """Whether its time runs: it has been given to a worker and has not ended."""
        entry = self.state.entries.get(pid)
        return entry is not None and entry.started_at is not None and entry.state not in TERMINAL

    def _entry(self, pid: Any) -> Entry | None:
        return self.state.entries.get(pid) if isinstance(pid, str) else None

    def _own(self, pid: Any) -> Entry:
        """An entry that is moved from outside."""
        entry = self._entry(pid)
        if entry is not None:
            return entry
        if _is_text(pid) and pid in self._kernel.processes:
            raise InvalidTransition(
                f"process {pid} runs a program and moves by itself", hint="terminate it, or send it a message", pid=pid
            )
        raise _unknown(pid)

    def _block(self, pid: str, entry: Entry) -> ProcessControlBlock:
        resources = self._kernel.resources
        kind, data = self._question(pid)
        if kind is None and entry.state == "blocked":
            data = {"block_reason": entry.reason}
        return ProcessControlBlock(
            pid,
            entry.state,
            PRIORITIES[entry.priority],
            resources.get_quota(pid),
            resources.get_usage(pid),
            request_id=entry.request_id,
            user_id=entry.user_id,
            session_id=entry.session_id,
            created_at=entry.created_at,
            started_at=entry.started_at,
            completed_at=entry.completed_at,
            last_scheduled_at=entry.last_scheduled_at,
            current_stage=entry.current_stage,
            current_service=entry.current_service,
            pending_interrupt=kind,
            interrupt_data=data,
            parent_pid=entry.parent_pid,
            child_pids=tuple(entry.child_pids),
            termination_reason=entry.reason if entry.state in TERMINAL else "",
        )

    def _view(self, process: Process) -> ProcessControlBlock:
        """A program process, shown as a block. It starts with its creation: no worker has to take it."""
        resources = self._kernel.resources
        kind, data = self._question(process.pid)
        return ProcessControlBlock(
            process.pid,
            process.state,
            PRIORITIES[process.priority],
            resources.get_quota(process.pid),
            resources.get_usage(process.pid),
            created_at=process.created_at,
            started_at=process.created_at,
            completed_at=process.ended_at,
            current_service=process.program,
            pending_interrupt=kind,
            interrupt_data=data,
            parent_pid=process.parent.pid if process.parent is not None else "",
            child_pids=tuple(process.children or ()),
            termination_reason=process.exit.reason if process.exit is not None else "",
        )

    def _question(self, pid: str) -> tuple[str | None, Any]:
        pending = self._kernel.interrupts.get_pending_interrupt(pid)
        if pending is None:
            return None, None
        asked = {"id": pending.id, "question": pending.question, "message": pending.message, "data": pending.data}
        return pending.kind, codec.decode(codec.encode(asked))

    # ------------------------------------------------------------------ leaving

    def cleanup_process(self, pid: str) -> None:
        """Forget an ended process with its books and its questions. What it used stays in the totals; an ended
        program stays in the table for as long as its journal is kept, because its pid still means that process."""
        kernel = self._kernel
        kernel._raise_if_closed()
        block = self.get_process(pid)
        if not block.terminal:
            raise InvalidTransition(f"process {pid} is {block.state} and not over", pid=pid, old_state=block.state)
        kernel.interrupts.cleanup_process_interrupts(pid)
        kernel.resources.close(pid)
        if pid in self.state.entries:
            kernel.fact(self.state, pid, "pcb.forgotten", {})
        elif kernel.journal is None:
            kernel.life.forget(pid)


def _lower(word: Any) -> Any:
    return word.lower() if isinstance(word, str) else word


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _unknown(pid: Any) -> NoSuchProcess:
    return NoSuchProcess(f"no process {pid!r}", hint="list_processes shows them", pid=pid)

"""The lifecycle of processes that outside workers drive: submitted, scheduled, taken, moved, ended.

A `ProcessControlBlock` is an entry of the process table without a program: a worker takes it with `get_next_runnable`,
does its work elsewhere and reports. `TRANSITIONS` (in `process`) is the whole state machine. Among ready entries the
higher priority always goes first, and inside a level the one that has waited longest: since it was submitted, or since
it became ready again. Program processes share the pids and are shown here as blocks too, but move by themselves.

Callers get a value, a view of the entry at that moment (`entry.ProcessControlBlock`). `usage` keeps quotas and
`interrupts` questions; `blocks` joins them into the view.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from lyra.core.checking.check import one_of, sendable_text, short_text
from lyra.core.envelope import ANONYMOUS
from lyra.core.limits import ENDED_PROCESSES_KEPT, NAME_LENGTH_MAX
from lyra.errors import InvalidTransition, LimitExceeded, NameTaken, Overloaded, ProcessError
from lyra.kernel.base.acting import require, require_signal
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.journal.rows import durable_value
from lyra.kernel.process.process import PRIORITIES, TRANSITIONS, Process
from lyra.kernel.programs.context import require_send
from lyra.kernel.programs.lifetime import Lifetimes, check_word
from lyra.kernel.workers.blocks import Blocks, unknown_process
from lyra.kernel.workers.entry import STATES, TERMINAL, Entry, LifecycleState, Owner, ProcessControlBlock, ProcessCounts
from lyra.kernel.workers.usage import ResourceQuota, ResourceTracker

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.interrupts.service import InterruptService
    from lyra.kernel.workers.rate_limits import RateLimiter
    from lyra.kernel.workers.time_limits import TimeLimits

__all__ = ["STATES", "TERMINAL", "LifecycleManager", "LifecycleState", "ProcessControlBlock"]

_ASKED: Final = "interrupt"  # the reason of entries that the kernel moved to `waiting` for a question


class Pipelines(Protocol):
    """The pipelines, which are above, as worker entries need them."""

    @property
    def state(self) -> Any: ...

    def entry_ended(self, pid: str, reason: str) -> None: ...

    def forget_session(self, pid: str) -> Any: ...


class LifecycleManager(Subsystem):
    __slots__ = (
        "_blocks",
        "_core",
        "_interrupts",
        "_lifetimes",
        "closed",
        "pipelines",
        "rate_limiter",
        "resources",
        "state",
        "time_limits",
    )

    def __init__(self, core: Core[Process], lifetimes: Lifetimes, interrupts: InterruptService) -> None:
        self._core = core
        self._lifetimes = lifetimes
        self._interrupts = interrupts
        interrupts.owner_of = self.owner
        interrupts.on_asked.append(self.pause_entry)
        interrupts.on_answered.append(self.resume_entry)
        # Filled in by the parts beside and above when they are made:
        self.resources: ResourceTracker
        self.rate_limiter: RateLimiter
        self.time_limits: TimeLimits
        self.pipelines: Pipelines
        self.state = LifecycleState()
        self._blocks = Blocks(core, self, lifetimes, interrupts)
        self.closed = False  # `shutdown` has begun: new processes are refused

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
        core = self._core
        core.raise_if_closed()
        self.raise_if_closing("process")
        self.check_pid(pid)
        if self.find(pid) is None:
            require("process.spawn", pid)
            given = {"request_id": request_id, "user_id": user_id, "session_id": session_id, "parent_pid": parent_pid}
            level = PRIORITIES.index(one_of(_lower(priority), PRIORITIES, "priority"))
            self._enter(pid, level, self.resources.resolve(quota), given)
        return durable_value(core, self.get_process(pid))

    def enter_with_pipeline(self, pid: str, *, request_id: str, user_id: str, session_id: str) -> None:
        """Enter a pipeline that begins under a pid that was not submitted: its entry is at work at once and never
        queued."""
        core = self._core
        self.check_pid(pid)
        given = {"request_id": request_id, "user_id": user_id, "session_id": session_id, "pipeline": True}
        with core.listeners.act:
            self._enter(pid, PRIORITIES.index("normal"), self.resources.default_quota, given)
            for state in ("ready", "running"):
                self._move(pid, self.state.entries[pid], state, "its pipeline began")

    def _enter(self, pid: str, level: int, limits: ResourceQuota, given: dict[str, Any]) -> None:
        core = self._core
        if pid in core.names:
            raise NameTaken(f"{pid!r} is the name of another process", hint="use another pid", pid=pid)
        parent_pid = sendable_text(given.get("parent_pid", ""), "parent_pid")
        if parent_pid:
            self.must_exist(parent_pid)
        if core.live + self.active >= core.processes_max:
            raise Overloaded(
                "there are as many processes as there may be",
                hint="end some, or raise kernel.processes_max",
                limit=core.processes_max,
            )
        user_id = short_text(sendable_text(given["user_id"], "user_id"), "user_id", most=NAME_LENGTH_MAX)
        row = {
            **given,
            "request_id": sendable_text(given["request_id"], "request_id"),
            "user_id": user_id,
            "session_id": sendable_text(given["session_id"], "session_id"),
            "parent_pid": parent_pid,
            "priority": level,
            "created_at": core.now(),
        }
        core.taint.pass_on_from_here(pid, "an entry of")
        with core.listeners.act:
            core.fact(self.state, pid, "pcb.submitted", row)
            self.resources.open(pid, limits, user_id=user_id)  # what was counted before it was submitted stays
            self._tell(pid, "process.created", {**row, "priority": PRIORITIES[level], "state": "new"})

    def raise_if_closing(self, what: str) -> None:
        """Raise if the kernel goes down: then it takes nothing new."""
        if self.closed or self._core.draining:
            raise ProcessError(f"the kernel is shutting down and takes no {what}", hint="open the store again")

    def raise_if_ended(self, pid: Any) -> None:
        """Raise InvalidTransition for the pid of an ended process that is not cleaned up; an entry made for a pipeline
        may be replaced by another pipeline."""
        entry = self._entry(pid)
        if entry is not None and entry.state in TERMINAL and not entry.pipeline:
            raise InvalidTransition(
                f"process {pid} has ended", hint="cleanup_process frees its pid", pid=pid, old_state=entry.state
            )

    def _tell(self, pid: str, kind: str, data: dict[str, Any]) -> None:
        core = self._core
        if core.listening:
            if core.listeners_want_states:
                data["pcb"] = msgspec.to_builtins(self._blocks.picture(pid))
            core.listeners.tell(pid, kind, data)

    @staticmethod
    def check_pid(pid: Any) -> str:
        return check_word("pid", pid)

    # ------------------------------------------------------------------ moving

    def schedule(self, pid: str) -> ProcessControlBlock:
        """Put a new entry in line. One that has used up its quota is refused."""
        self._core.raise_if_closed()
        require_signal(pid)
        entry = self._find_own(pid)
        if entry.state != "new":
            raise InvalidTransition(
                f"cannot schedule {pid}: its state is {entry.state}, not new",
                hint="transition_state moves one that is on its way",
                pid=pid,
                old_state=entry.state,
            )
        checked = self.resources.check_quota(pid)
        if not checked.within_bounds:
            raise LimitExceeded(
                f"process {pid} has used up its quota: {checked.exceeded_reason}",
                hint="adjust_quota raises it",
                pid=pid,
                reason=checked.exceeded_reason,
            )
        with self._core.listeners.act:
            self._move(pid, entry, "ready", "scheduled")
            return durable_value(self._core, self.get_process(pid))

    def get_next_runnable(self, user_id: str | None = None) -> ProcessControlBlock | None:
        """Take the entry whose turn it is, of one user or of all; it is `running` now. None when no entry waits. One
        with a question that is open keeps its place and is passed over until it is answered."""
        core = self._core
        core.raise_if_closed()
        first = self.state.first if user_id is None else partial(self.state.first_of, user_id)
        with core.listeners.act:
            while (pid := first()) is not None and self._interrupts._oldest(pid) is not None:
                self.state.pass_over(pid)
            if pid is None:
                return None
            self._move(pid, self.state.entries[pid], "running", "its turn")
            return durable_value(core, self.get_process(pid))

    def transition_state(self, pid: str, state: str, reason: str = "") -> ProcessControlBlock:
        """Move an entry, if the table allows it."""
        self._core.raise_if_closed()
        require_signal(pid)
        entry = self._find_own(pid)
        self._may_move(pid)
        word = _lower(state)
        if word not in STATES:
            one_of(word, STATES, "a process's state")
        if word == entry.state == "terminated" and pid in self.pipelines.state.sessions:
            return durable_value(self._core, self.get_process(pid))  # its pipeline was quicker
        if word not in TRANSITIONS[entry.state]:
            raise InvalidTransition(
                f"process {pid} cannot go from {entry.state} to {word}",
                pid=pid,
                hint=f"from {entry.state}: {', '.join(TRANSITIONS[entry.state]) or 'nowhere'}",
                old_state=entry.state,
                new_state=word,
            )
        with self._core.listeners.act:
            asked = self._interrupts._oldest(pid) if word in ("ready", "running") else None
            if asked is not None and entry.state in ("waiting", "ready"):
                raise InvalidTransition(
                    f"process {pid} waits for an answer and cannot go to {word}",
                    hint=f"resolve_interrupt or cancel {asked.id}",
                    pid=pid,
                    old_state=entry.state,
                    new_state=word,
                )
            reason = sendable_text(reason, "a reason")
            self._take_mark(pid, reason)
            self._move(pid, entry, word, reason)
            return durable_value(self._core, self.get_process(pid))

    def terminate(self, pid: str, reason: str = "", *, force: bool = False) -> ProcessControlBlock:
        """End a process; one that has ended stays as it is, one that runs is only ended by force. A program is told to
        end and tidies up first: until then its block has the reason and not yet the state."""
        core = self._core
        core.raise_if_closed()
        reason = sendable_text(reason, "a reason")
        block = durable_value(core, self.get_process(pid))
        self._may_move(pid)
        if block.terminal:
            return block
        if block.state == "running" and not force:
            raise InvalidTransition(
                f"process {pid} is running", hint="force=True ends it", pid=pid, old_state="running"
            )
        entry = self.state.entries.get(pid)
        if entry is None:
            self._lifetimes.stop_tree(core.processes[pid], reason or "killed")
        else:
            self._take_mark(pid, reason)
            self._move(pid, entry, "terminated", reason or "terminated")
        return durable_value(core, self.get_process(pid))

    def _take_mark(self, pid: str, text: str) -> None:
        """Mark an entry that is given text by a marked process."""
        if text:
            self._core.taint.pass_on_from_here(pid, "a reason of")

    def _may_move(self, pid: str) -> None:
        """Check the right of the process that runs here, if one does, to send signals to another."""
        process = self._core.processes.get(pid)
        if process is None:
            require("process.send", pid)
        else:
            require_send(process)

    def put_back(self, pid: str, reason: str) -> None:
        """Put a running entry back in the queue when the kernel shuts down, for the next opening of the store; an entry
        made for a pipeline was never in the queue."""
        entry = self.state.entries.get(pid)
        if entry is not None and entry.state == "running" and not entry.pipeline:
            self._move(pid, entry, "ready", sendable_text(reason, "a reason"))

    def pipeline_over(self, pid: str, reason: str) -> None:
        """End an entry whose pipeline has ended."""
        entry = self.state.entries.get(pid)
        if entry is not None and entry.state in ("ready", "running", "waiting", "blocked"):
            self._move(pid, entry, "terminated", sendable_text(reason, "a reason"), stopped=False)

    def came_with_pipeline(self, pid: str) -> bool:
        entry = self.state.entries.get(pid)
        return entry is not None and entry.pipeline

    def forget_with_pipeline(self, pid: str) -> None:
        """Remove the entry that was made for a pipeline which is forgotten."""
        if self.came_with_pipeline(pid):
            entry = self.state.entries[pid]
            if entry.state not in TERMINAL:
                self._move(pid, entry, "terminated", "its pipeline was forgotten")
            self.cleanup_process(pid)

    def make_way(self, pid: str) -> None:
        """Remove the entry of a pipeline that a process of this kernel takes over, under the same pid."""
        if not self.came_with_pipeline(pid):
            return
        with self._core.listeners.act:
            entry = self.state.entries[pid]
            if entry.state not in TERMINAL:
                self._record_move(pid, entry, "terminated", "a process of this kernel took its pipeline over")
            self._core.fact(self.state, pid, "pcb.forgotten", {})

    def _move(self, pid: str, entry: Entry, state: str, reason: str, *, stopped: bool = True) -> None:
        """Change the state of an entry; its end ends all that is its own. `stopped`: it ends because a caller ends it,
        and not because its pipeline has."""
        core = self._core
        with core.listeners.act:
            self._record_move(pid, entry, state, reason)
            if state == "terminated":
                self.rate_limiter.loosen(pid, entry.user_id)
                self.pipelines.entry_ended(pid, reason)
                self._interrupts.cancel_all(pid, "its process ended")
                owner = {"user_id": entry.user_id, "request_id": entry.request_id}
                event = {"reason": reason, **owner, "error": None, "stopped": stopped}
                self._tell(pid, "process.terminated", event)
                while len(self.state.ended) > ENDED_PROCESSES_KEPT:  # cleanup_process may remove them earlier
                    self.cleanup_process(next(iter(self.state.ended)))

    def _record_move(self, pid: str, entry: Entry, state: str, reason: str) -> None:
        """Record that an entry changes its state; this is the one place where it does."""
        core = self._core
        row = {"old_state": entry.state, "new_state": state, "reason": reason}
        core.fact(self.state, pid, "pcb.moved", {**row, "at": core.now()})
        self._tell(pid, "process.state_changed", row)
        self.time_limits.on_moved(pid)

    # ------------------------------------------------------------------ questions

    def has_name(self, word: str) -> bool:
        return self.find(word) is not None

    def pause_entry(self, pid: str) -> None:
        """Move a running entry to `waiting` when a question about it is open."""
        entry = self.state.entries.get(pid)
        if entry is not None and entry.state == "running":
            self._move(pid, entry, "waiting", _ASKED)

    def resume_entry(self, pid: str) -> None:
        """Let an entry continue after its last question has ended, unless it waits for another reason."""
        entry = self.state.entries.get(pid)
        if entry is None or self._interrupts.has_pending(pid):
            return
        if entry.state == "waiting" and entry.reason == _ASKED:
            self._move(pid, entry, "ready", "interrupt over")
            if entry.pipeline:  # its pipeline drives it, without the queue
                self._move(pid, entry, "running", "interrupt over")
        elif entry.state == "ready":
            self.state.queue_again(pid)

    def note(self, pid: str, *, current_stage: str | None = None, current_service: str | None = None) -> None:
        """Note where its work is at the moment: it is shown, and nothing else."""
        self._core.raise_if_closed()
        entry = self._find_own(pid)
        given = {"current_stage": current_stage, "current_service": current_service}
        row = {
            name: sendable_text(value, name)
            for name, value in given.items()
            if value is not None and value != getattr(entry, name)
        }
        if row:
            self._take_mark(pid, "".join(row.values()))
            self._core.fact(self.state, pid, "pcb.noted", row)

    # ------------------------------------------------------------------ reading

    def get_process(self, pid: str) -> ProcessControlBlock:
        return self._blocks.read(self._blocks.picture(pid))

    def owner(self, pid: str) -> Owner:
        """Return the owner and state of a process, without the rest of its block."""
        entry = self._entry(pid)
        if entry is not None:
            self._core.taint.pass_on_to_here(pid, "the ids of")
            return Owner(entry.state, entry.request_id, entry.user_id, entry.session_id)
        process = self._core.processes.get(pid) if _is_text(pid) else None
        if process is None:
            raise unknown_process(pid)
        return Owner(process.state, user_id=self.user_of(pid))

    def user_of(self, pid: Any) -> str:
        """Return the user whose process it is: of an entry its own, of a program that of the user who started it, of
        its pipeline or of the process above it; "" where it is no user's."""
        entry = self._entry(pid)
        if entry is not None:
            return entry.user_id
        process = self._core.processes.get(pid) if _is_text(pid) else None
        return self._user_of_trace(pid) if process is None else self.user_of_program(process)

    def user_of_program(self, process: Process) -> str:
        """Return the user who started a program, or one above it; else that of the pipeline that it or one above it
        runs."""
        owners, sessions = self.state.owners, self.pipelines.state.sessions
        above: Process | None = process
        while above is not None:
            pid = above.pid
            user_id = owners.get(pid) or (self._user_of_pipeline(pid) if pid in sessions else "")
            if user_id:
                return user_id
            above = above.parent
        return ""

    def _user_of_pipeline(self, pid: str) -> str:
        session = self.pipelines.state.sessions.get(pid)
        user_id = session.envelope.user_id if session is not None else ""
        return "" if user_id == ANONYMOUS else user_id

    def _user_of_trace(self, pid: Any) -> str:
        """Of a pid without a process, which has a pipeline or whose usage is counted."""
        self.must_exist(pid)
        account = self.resources.state.accounts.get(pid)
        return self._user_of_pipeline(pid) or (account.user_id if account is not None else "")

    def set_owner(self, pid: str, user_id: str) -> None:
        """Make a program process a user's from now on; what it starts is, too."""
        if self.state.owners.get(pid) != user_id:
            self._core.fact(self.state, pid, "pcb.owned", {"user_id": user_id})

    def forgotten(self, process: Process) -> None:
        if process.pid in self.state.owners:
            self._core.fact(self.state, process.pid, "pcb.disowned", {})

    def list_processes(self, state: str | None = None, user_id: str | None = None) -> list[ProcessControlBlock]:
        """Entries and program processes, the oldest first; of one state, of one user, or all."""
        word = None if not state else one_of(_lower(state), STATES, "a process's state")
        entries = [
            self._blocks.from_entry(pid, entry)
            for pid, entry in self.state.entries.items()
            if (word is None or entry.state == word) and (not user_id or entry.user_id == user_id)
        ]
        programs = [
            process for process in self._core.processes.values() if not user_id or self._is_of(process, user_id)
        ]
        blocks = entries + [
            self._blocks.from_program(process) for process in programs if word is None or process.state == word
        ]
        return [self._blocks.read(block) for block in sorted(blocks, key=lambda block: block.created_at or 0.0)]

    def get_process_counts(self, user_id: str | None = None) -> ProcessCounts:
        """Return how many processes there are in each state; every state is there. Of one user, or all."""
        if user_id is not None:
            counts = dict.fromkeys(STATES, 0)
            for entry in self.state.entries.values():
                counts[entry.state] += entry.user_id == user_id
            queue_depth = counts["ready"]
            for process in self._core.processes.values():
                counts[process.state] += self._is_of(process, user_id)
            return ProcessCounts(counts, queue_depth)
        counts = dict(self.state.counts)
        for state in self._core.processes.states():
            counts[state] += 1
        return ProcessCounts(counts, self.queue_depth)

    def _is_of(self, process: Process, user_id: str) -> bool:
        return self.user_of(process.pid) == user_id

    @property
    def total(self) -> int:
        return len(self.state.entries) + len(self._core.processes)

    @property
    def queue_depth(self) -> int:
        """Entries in line for a worker."""
        return self.state.counts["ready"]

    @property
    def active(self) -> int:
        """Entries that have not ended."""
        return len(self.state.entries) - self.state.counts["terminated"] - self.state.counts["zombie"]

    def find(self, pid: Any) -> Entry | Process | None:
        return self.state.entries.get(pid) or self._core.processes.get(pid)

    def must_exist(self, pid: Any) -> None:
        if not (_is_text(pid) and (self.find(pid) is not None or self._is_used(pid))):
            raise unknown_process(pid)

    def _is_used(self, pid: str) -> bool:
        """Return a pid without an entry whose usage is counted, or under which a pipeline is driven."""
        return self.resources.is_tracked(pid) or pid in self.pipelines.state.sessions

    def is_live(self, pid: str) -> bool:
        """Return whether it is a process that has not ended."""
        entry = self.state.entries.get(pid)
        if entry is not None:
            return entry.state not in TERMINAL
        process = self._core.processes.get(pid)
        return process is not None and process.exit is None

    def measure_elapsed_s(self, pid: str) -> float:
        """Since it first ran, until it ended or now; an entry's time in `waiting` does not count."""
        entry = self.state.entries.get(pid)
        if entry is not None:
            return entry.measure_elapsed_s(self._core.now())
        process = self._core.processes.get(pid)
        return 0.0 if process is None else self.measure_elapsed_of_program(process)

    def measure_elapsed_of_program(self, process: Process) -> float:
        """Since a program was started, until it ended or now."""
        return max(0.0, (self._core.now() if process.ended_at is None else process.ended_at) - process.created_at)

    def is_timed(self, pid: str) -> bool:
        """Return whether its time runs: a worker has taken it, and it is neither waiting nor ended."""
        entry = self.state.entries.get(pid)
        stopped = entry is None or entry.state in TERMINAL or entry.state == "waiting"
        return entry is not None and not stopped and entry.started_at is not None

    def _entry(self, pid: Any) -> Entry | None:
        return self.state.entries.get(pid) if isinstance(pid, str) else None

    def _find_own(self, pid: Any) -> Entry:
        """Return the entry of a pid; InvalidTransition for a program process, which changes its state itself."""
        entry = self._entry(pid)
        if entry is not None:
            return entry
        if _is_text(pid) and pid in self._core.processes:
            raise InvalidTransition(
                f"process {pid} runs a program, which decides its state itself",
                hint="terminate it, or send it a message",
                pid=pid,
            )
        raise unknown_process(pid)

    # ------------------------------------------------------------------ leaving

    def cleanup_process(self, pid: str) -> None:
        """Forget an ended process with its books, its questions and its pipeline. What it used stays in the totals. An
        ended program stays in the table for as long as its journal is kept: its pid still means that process."""
        core = self._core
        core.raise_if_closed()
        block = self._blocks.picture(pid)
        if not block.terminal:
            raise InvalidTransition(
                f"process {pid} is {block.state} and not over", hint="terminate ends it", pid=pid, old_state=block.state
            )
        with core.listeners.act:
            if pid in self.state.entries or core.journal is None:  # else its pid still means that run
                self.pipelines.forget_session(pid)
            self._interrupts.cleanup_process_interrupts(pid)
            self.resources.close(pid)
            if pid in self.state.entries:
                core.fact(self.state, pid, "pcb.forgotten", {})
                core.taint.forget(pid)
            elif core.journal is None:
                self._lifetimes.forget(pid)


def _lower(word: Any) -> Any:
    return word.lower() if isinstance(word, str) else word


def _is_text(value: Any) -> bool:
    return isinstance(value, str)

"""The start and end of processes: how one begins, how it is told to end, and the one place where it does.

Owns the changes to the table (`core.processes`, `core.names`, parents and children) and the rows that say so. A
process ends normally, by an error, by `ctx.exit`, by being killed (with everything it spawned), by its time limit, or
without a row when its program no longer fits its journal. What it waits for meanwhile is other modules' business; how
long it may run is in `scopes.ScopeDeadlines`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context as ContextVars
from contextvars import copy_context
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from lyra.core import codec, faultpoint, limits
from lyra.core.budgets.budget import Budget
from lyra.core.budgets.early_calls import JoinableBudget
from lyra.core.checking.check import sendable_text
from lyra.core.faultpoint import point
from lyra.core.naming import program_names
from lyra.core.rights.capability import Grant
from lyra.errors import ConfigError, DeadlineExceeded, Divergence, LyraError, NameTaken, Overloaded, ProcessError
from lyra.kernel.base.acting import acting, check_right
from lyra.kernel.base.tasks import thread_id
from lyra.kernel.base.waiting import consume_error, resume
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_to_row
from lyra.kernel.process.process import (
    NORMAL,
    PLAIN_ENDS,
    PRIORITIES,
    TIME_IS_UP,
    Exit,
    Process,
    enter_task,
    leave_task,
)
from lyra.kernel.process.replay import Diverged
from lyra.kernel.programs.context import Context, ExitProgram
from lyra.kernel.programs.scopes import ScopeDeadlines

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.base.core import Core
    from lyra.kernel.process.links import Links
    from lyra.kernel.process.mailbox import Mailboxes
    from lyra.kernel.programs.registry import Programs


_log: Final = logging.getLogger("lyra.kernel")
_NUMBERED: Final = re.compile(r"p[0-9]+x*\Z").match  # pids that the kernel gives

_KILL_GRACE_S: Final = 5.0
_CLEANUPS_MAX: Final = 100  # awaits in the clean-up of a program that is closed
_ENDED: Final = ContextVars()


class Pids(Protocol):
    """Another way to number processes than by the rows of the journal: see `Seams`."""

    def pid_of(self, parent: Process, key: rows.Key) -> str:
        """Return the pid of the child that a call of its parent makes."""
        ...

    def is_given(self, pid: str) -> bool:
        """Return whether a pid was made like that, and not chosen by a caller."""
        ...


class Lifetimes:
    def __init__(
        self, core: Core[Process], programs: Programs, mailboxes: Mailboxes, links: Links, pids: Pids | None = None
    ) -> None:
        self._core = core
        self._programs = programs
        self._mailboxes = mailboxes
        self._links = links
        core.finish = self.finish
        core.fail = self.fail
        core.branch_began = self.branch_began
        core.stop_process = self.stop
        core.stop_tree = self.stop_tree
        core.after_abort.append(self._store_lost)
        self._branches: dict[Process, dict[asyncio.Task[Any], None]] = {}
        self._causes: dict[Process, LyraError] = {}  # the error of the linked process whose end stops this one
        self._ended: deque[str] = deque()
        self._chosen: dict[str, None] = {}  # ended processes in the table whose pids were chosen, the oldest first
        self._numbered = self._lives = 0
        self._pids = pids
        self.deadlines = ScopeDeadlines(core, self._out_of_time)
        # Processes that were told to end: when each is ended, and why, unless it has ended by then. One timer for all.
        self._overdue: dict[Process, tuple[float, str]] = {}
        self._overdue_timer: Timer | None = None
        self._overdue_due_s = 0.0
        core.subsystems.stop.append(self._cancel_timer)

    # ------------------------------------------------------------------ the beginning

    def start(
        self,
        program: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        parent: Process | None,
        key: rows.Key | None = None,
        digest: bytes = b"",
        pid: str | None = None,
        name: str | None = None,
        budget: Any = None,
        grant: Any = None,
        priority: str | None = None,
        guarded: bool = False,
        tainted: bool = False,
        fork: dict[str, Any] | None = None,
        recovery_attempts: int | None = None,
    ) -> Process:
        core = self._core
        if thread_id() != core.thread:
            core.raise_if_elsewhere()
        if (
            not core.open
            or core.live >= core.processes_max
            or parent is not None
            or pid is not None
            or name is not None
        ):
            pid, name = self._may_start(parent, pid, name)
        journal = core.journal
        level = _priority(priority) if priority is not None else (parent.priority if parent is not None else NORMAL)
        scope, right = (core.budget, core.grant) if parent is None else (parent.budget, parent.grant)
        if budget is None and parent is None and scope.seconds is not None:
            budget = {}  # the root's seconds are each root process's own, counted from its start
        own_scope = scope if budget is None else _make_scope(scope, budget)
        maker, own_right = acting() if parent is None else parent, right
        if grant is not None or (maker is not None and not maker.grant.is_all):
            own_right = self._narrow_right(right, maker, program, args, grant)
        chosen, pid = pid is not None, self.next_pid(parent, key) if pid is None else pid
        process = Process(core, pid, self._programs.name(program), parent, own_scope, own_right, level, copy_context())
        process.name, process.recovery_attempts = name, recovery_attempts
        if guarded and parent is not None:
            process.known_as = parent.pid
        row = None
        if journal is not None:
            if key is not None and parent is not None:
                process.line = f"{parent.line}.{key}"
            data = codec.encode(args)
            limited = None if budget is None else own_scope
            row = _make_created_row(process, data, key, digest, limited, right, guarded, chosen, fork)
            args = tuple(self._programs.reread_arguments(program, args, data))
        # Begun before anything is written: a call that does not fit its program leaves no trace.
        process.coroutine = self._programs.begin(program, Context(process), args)
        if maker is not None and maker.core is core:
            for started in core.subsystems.process_started:
                started(maker, process)
        if tainted:
            core.taint.mark_new(process, "its arguments")
        if row is not None and journal is not None:
            journal.write(pid, "process.created", rows.encode(row))
            process.created_at = journal.time
        else:
            process.created_at = core.now()
            if core.listening:
                core.publish(pid, "process.created", {"program": process.program, "name": name or ""})
        process.life = self._next_life() if chosen else 0
        self.enter(process)
        if own_scope.seconds is not None:
            self.deadlines.limit(own_scope, own_scope.seconds)
        if core.listeners_want_states:
            process.move("ready")
        else:  # the same move, on the hot path
            process.state = "ready"
        core.scheduler.push(process)
        if faultpoint.hook is not None:
            point("process.spawned")
        return process

    def _narrow_right(
        self, right: Grant, maker: Process | None, program: Callable[..., Any], args: tuple[Any, ...], grant: Any
    ) -> Grant:
        """Return the Grant of a process that `maker` starts (None: the outside), if it may: no wider than that
        one's."""
        if maker is not None and not maker.grant.is_all:
            for names in self.list_spawned(program, args):
                check_right(maker, "process.spawn", names)
            right = right.narrow(maker.grant)
        return right if grant is None else right.narrow(Grant.of(grant))

    def list_spawned(self, program: Callable[..., Any], args: Any) -> Iterable[tuple[str, ...]]:
        """Return the programs that start with this one, each by the names that a right may call it. Lyra's own programs
        say for whom they stand (`__lyra_spawns__`): a supervisor for its children, Vega's process for a function."""
        own = getattr(program, "__lyra_spawns__", None)
        return (program_names(self._programs.name(program)),) if own is None else own(self._core.face, args)

    def _next_life(self) -> int:
        """Return the number of the row that has just made a process; without a journal, its own."""
        self._lives += 1
        return self._lives if self._core.journal is None else self._core.journal.seq

    def next_pid(self, parent: Process | None = None, key: rows.Key | None = None) -> str:
        """Numbered by the journal: unique in a store, and short enough to read aloud."""
        journal = self._core.journal
        self._numbered += 1
        if self._pids is not None and parent is not None and key is not None:
            pid = self._pids.pid_of(parent, key)
        else:
            pid = f"p{self._numbered if journal is None else journal.seq + 1}"
        while dict.__contains__(self._core.processes, pid):  # a caller chose this very pid; guests are numbered here
            pid += "x"
        return pid

    def adopt(
        self,
        program: Callable[..., Any],
        args: tuple[Any, ...] | None,
        *,
        pid: str,
        budget: Budget,
        grant: Grant,
        context: ContextVars,
        created_at: float,
    ) -> Process:
        """Make a process of a guest (see `Guests`), which is counted already; without arguments, of one that has ended.
        It is neither in line nor waiting: the layer that ran it as a guest puts it where it belongs."""
        name = self._programs.name(program)
        process = Process(self._core, pid, name, None, budget, grant, NORMAL, context)
        process.created_at = created_at
        process.state = "ready"
        if args is not None:
            process.coroutine = self._programs.begin(program, Context(process), args)
        self._core.processes[pid] = process
        return process

    def _may_start(self, parent: Process | None, pid: str | None, name: str | None) -> tuple[str | None, str | None]:
        """Raise where the process must not start; gives its pid and name as the rows hold them."""
        self._core.raise_if_failed()
        # A program's own spawn is journaled and continues after the next start; to refuse it would change what it does.
        if (self._core.stopping or self._core.draining) and (parent is None or self._core.journal is None):
            raise ProcessError("the kernel is stopping and starts no process")
        if not self._core.started:
            raise ProcessError("the kernel is not open", hint="use `async with Kernel(…) as kernel:`")
        if self._core.live >= self._core.processes_max:
            raise Overloaded(
                f"{self._core.live} processes are alive, the most there may be", limit=self._core.processes_max
            )
        if parent is not None and parent.depth + 1 > limits.SPAWN_DEPTH_MAX:
            raise Overloaded(f"processes nest {limits.SPAWN_DEPTH_MAX} deep at most", limit=limits.SPAWN_DEPTH_MAX)
        if pid is not None:
            pid = check_word("pid", pid)
            if self._is_taken(pid):
                raise NameTaken(f"there is a process {pid!r} already", pid=pid)
        if name is not None:
            name = check_word("name", name)
            if self._is_taken(name):
                raise NameTaken(f"the name {name!r} belongs to another process", name=name)
        return pid, name

    def _is_taken(self, word: str) -> bool:
        return word in self._core.names or any(has_name(word) for has_name in self._core.subsystems.has_name)

    def enter(self, process: Process) -> None:
        """Put it in the table, under its parent and its name."""
        core = self._core
        core.processes[process.pid] = process
        core.live += 1
        if process.budget.seconds is not None:
            self.deadlines.enter(process)
        if process.name is not None:
            core.names[process.name] = process
        parent = process.parent
        if parent is not None:
            if parent.children is None:
                parent.children = {}
            parent.children[process.pid] = process

    def branch_began(self, process: Process) -> None:
        """Note that a parallel branch of a program made a call: it ends with its process at the latest."""
        task = asyncio.current_task()
        branches = self._branches.setdefault(process, {})
        if task is None or task in branches:
            return
        branches[task] = None
        task.add_done_callback(lambda done: branches.pop(done, None))

    def stop_branches(self, process: Process) -> None:
        """Parallel branches end with their process."""
        for task in self._branches.pop(process, ()):
            task.cancel()

    def _out_of_time(self, process: Process) -> None:
        """Raise DeadlineExceeded in the program where it waits; it gets a little time to tidy up."""
        if process.kill_reason is not None:
            return
        self._tell_to_end(process, TIME_IS_UP)
        if self._core.remote is not None:
            self._core.remote.ties.stop_children(process, TIME_IS_UP, _KILL_GRACE_S, None)
        if process.coroutine is None:
            self.finish_stopped(process, TIME_IS_UP)
        else:
            process.throw_deadline(_too_long(process))

    def fail(self, process: Process, error: BaseException) -> None:
        if isinstance(error, ExitProgram):
            self.finish(process, error.reason, error=error.error)
        elif isinstance(error, Divergence):
            self._stop_diverged(process, error)
        else:
            self.finish(process, "error", error=error)

    def finish(self, process: Process, reason: str, *, result: Any = None, error: BaseException | None = None) -> None:
        """End a process; this is the one place where that happens."""
        if process.replay is not None and process.kill_reason is None:
            if isinstance(process.replay, Diverged):
                self._stop_diverged(process, process.replay.error)
                return
            if reason == "normal" and self._has_stopped_early(process):
                return
        if self._causes and error is None and reason == process.kill_reason:
            error = self._causes.get(process)
        journal = self._core.journal
        if journal is not None and not journal.frozen:
            row = rows.Terminated(reason, status=process.result_status)
            if process.kill_reason is not None:
                row.stopped = process.is_stopped_for(reason)
            if error is not None:
                row.error = error_to_row(error)
            elif result is not None:
                try:
                    data = codec.encode(result)
                except LyraError as unkept:
                    reason, result, error = "error", None, unkept
                    row = rows.Terminated(reason, error=error_to_row(unkept))
                else:
                    row.blob = self._core.put_blob_now(data) if len(data) > limits.BLOB_INLINE_BYTES_MAX else ""
                    if not row.blob:
                        row.value = rows.Raw(data)
                    if type(result) not in codec.UNCHANGED:
                        result = self._programs.result(process.program, codec.decode(data))
            self._end(process, Exit(reason, result, error))
            process.exit_seq = journal.write(process.pid, "process.terminated", rows.encode(row))
            process.ended_at = journal.time
        else:
            self._end(process, Exit(reason, result, error))
            process.ended_at = self._core.now()
            if self._core.listening:
                self._core.publish(
                    process.pid,
                    "process.terminated",
                    {
                        "reason": reason,
                        "error": error_to_row(error) if error is not None else None,
                        "stopped": process.is_stopped_for(reason),
                    },
                )
        if faultpoint.hook is not None:
            point("process.exiting")
        if process.exit is not None and self._links.has_any:
            self._links.notify_end(process, process.exit)
        self._tell(process)

    def _end(self, process: Process, ended: Exit) -> None:
        for ending in self._core.subsystems.process_ending:
            ending(process)
        process.exit = ended
        for tell_ended in self._core.subsystems.process_ended:
            tell_ended(process, ended)
        process.move("terminated")
        process.coroutine = None
        process.replay = None
        process.rng = None
        if self._core.is_before_id:
            self._core.is_before_id.discard(process.pid)
        process.context = _ENDED  # it holds the process: without this, only the garbage collector frees it
        if self._branches:
            self.stop_branches(process)
        if process.kill_reason is not None:
            self._causes.pop(process, None)
            self._overdue.pop(process, None)
        self._core.live -= 1
        if process.budget.seconds is not None:
            self.deadlines.leave(process)
        if process.name is not None and self._core.names.get(process.name) is process:
            del self._core.names[process.name]
        parent = process.parent
        if parent is not None and parent.children is not None:
            parent.children.pop(process.pid, None)
        # Orphans go to the root, as in Unix: a crash stops another process only through a link or a supervisor.
        children, process.children = process.children or {}, None
        for child in children.values():
            is_given_up = child.is_early and child.is_dormant  # since a restart: its program did not come to it again
            child.parent = None
            if is_given_up:
                self.stop(child, "shutdown")
        if process.inbox or process.senders:
            self._mailboxes.close(process)
        process.inbox = process.senders = None
        self.keep_ended(process)

    def keep_ended(self, process: Process) -> None:
        """Keep an ended process in the table for a while; the oldest are let go.

        One whose pid was chosen by its user stays until the store can be asked for it: that pid has to give that
        process.
        """
        self._core.processes[process.pid] = process
        if not (_NUMBERED(process.pid) if self._pids is None else self._pids.is_given(process.pid)):
            self._chosen[process.pid] = None
            return
        self._ended.append(process.pid)
        while len(self._ended) > limits.ENDED_PROCESSES_KEPT:
            self.forget(self._ended.popleft())

    def let_go_of_archived(self, seq: int) -> None:
        """Take the oldest processes with chosen pids out of the table: a snapshot has those that ended up to row
        `seq`."""
        for pid in list(islice(self._chosen, max(0, len(self._chosen) - limits.ENDED_PROCESSES_KEPT))):
            process = dict.get(self._core.processes, pid)
            if process is not None and process.exit_seq > seq:
                return
            del self._chosen[pid]
            if process is not None:
                self.forget(pid)

    def is_numbered(self, pid: str) -> bool:
        """Return whether the kernel gave this pid; others are chosen by the caller."""
        return _NUMBERED(pid) is not None if self._pids is None else self._pids.is_given(pid)

    def forget(self, pid: str) -> None:
        process = dict.get(self._core.processes, pid)
        self._chosen.pop(pid, None)
        if process is not None and process.exit is not None:
            del self._core.processes[pid]
            self._core.forks.pop(pid, None)
            for forgotten in self._core.subsystems.forgotten:
                forgotten(process)

    def _tell(self, process: Process) -> None:
        watchers, process.watchers = process.watchers, None
        for watcher in watchers or ():
            if isinstance(watcher, tuple):
                callback, context = watcher
                self._core.loop.call_soon(callback, process, context=context)
            else:
                resume(watcher)

    def _has_stopped_early(self, process: Process) -> bool:
        """It returned although its journal has more: the program changed."""
        left = sorted(key for key in process.replay or () if isinstance(key, int))
        if not left:
            return False
        held = (process.replay or {})[left[0]]
        error = Divergence(
            f"process {process.pid} ended where its journal goes on with {held.kind} {held.name}".rstrip(),
            hint="the program changed under its journal; run the old one to its end, or start a new process",
            expected=f"{held.kind} {held.name}".strip(),
            actual="end",
            at=str(left[0]),
            pid=process.pid,
        )
        self._stop_diverged(process, error)
        return True

    def _stop_diverged(self, process: Process, error: Divergence) -> None:
        """Stop it without a row: with the right program it can still continue from the same journal."""
        self._core.publish(process.pid, "process.diverged", {"message": error.message, "at": error.fields.get("at")})
        _log.warning("%s", error.message)
        for diverged in self._core.subsystems.process_diverged:
            diverged(process)
        process.exit = Exit("divergence", None, error)
        process.move("terminated")
        process.coroutine = None
        self._core.live -= 1
        self._tell(process)

    def stop_tree(
        self, process: Process, reason: str, *, grace_s: float | None = _KILL_GRACE_S, overdue: str | None = None
    ) -> None:
        """Cancel a process and all below it, children first; one that is still there after its grace ends `overdue`."""
        rest, tree = [process], []
        while rest:
            member = rest.pop()
            tree.append(member)
            if member.children:
                rest.extend(member.children.values())
        for member in reversed(tree):
            if reason not in PLAIN_ENDS and member.exit is None and member.kill_reason is None:
                self._core.taint.pass_on_from_here(member.pid, "the reason of")
            if self._core.remote is not None and member.exit is None:
                self._core.remote.ties.stop_children(member, reason, grace_s, overdue)
            self.stop(member, reason, grace_s=grace_s, overdue=overdue)

    def stop(
        self,
        process: Process,
        reason: str,
        *,
        grace_s: float | None = _KILL_GRACE_S,
        overdue: str | None = None,
        cause: LyraError | None = None,
    ) -> None:
        """Cancel a process; what it spawned lives on under the root. `cause` is its error, if it ends of that."""
        if process.exit is not None:
            return
        if process.kill_reason is not None:  # already stopping: the shorter grace period counts
            self._insist_after(process, grace_s, overdue or reason)
            return
        self._tell_to_end(process, reason, grace_s=grace_s, overdue=overdue, cause=cause)
        if process.coroutine is None:  # dormant: there is nothing to cancel
            self.finish_stopped(process, reason)
        else:
            process.cancel()

    def _tell_to_end(
        self,
        process: Process,
        reason: str,
        *,
        grace_s: float | None = _KILL_GRACE_S,
        overdue: str | None = None,
        cause: LyraError | None = None,
    ) -> None:
        """From here on it may tidy up for a while; it does not come back after a restart."""
        why = None if cause is None else error_to_row(cause)
        self._core.record(process.pid, "process.stopping", rows.Stopping(reason, why))
        process.kill_reason = reason
        if cause is not None:
            self._causes[process] = cause
        if process.replay is not None:  # what it does now is no part of the replay: its keys begin above all journaled
            process.keys = 1 + max((key for key in process.replay if isinstance(key, int)), default=process.keys)
            process.branches += len(process.replay)
            process.replay = None
            for dropped in self._core.subsystems.replay_dropped:
                dropped(process)
        self._insist_after(process, grace_s, overdue or reason)

    def _insist_after(self, process: Process, grace_s: float | None, reason: str) -> None:
        """End a program that still tidies up by then; None waits for ever. The shorter of two periods counts."""
        if grace_s == 0:
            self._core.loop.call_soon(self._insist, process, reason)
        elif grace_s is not None:
            due_s = self._core.clock.monotonic() + grace_s
            before = self._overdue.get(process)
            if before is None or due_s < before[0]:
                self._overdue[process] = (due_s, reason)
                self._wake_by(due_s)

    def _insist(self, process: Process, reason: str) -> None:
        if process.exit is None and not self._core.stopping:
            self.close_program(process)
            if process.exit is None:
                self.finish_stopped(process, reason)

    def _wake_by(self, due_s: float) -> None:
        """Make sure that the timer of those that are told to end rings by then. It may ring when all have ended."""
        if self._overdue_timer is None or due_s < self._overdue_due_s:
            self._cancel_timer()
            self._overdue_due_s = due_s
            self._overdue_timer = self._core.clock.call_at(due_s, self._end_overdue)

    def _cancel_timer(self) -> None:
        timer, self._overdue_timer = self._overdue_timer, None
        if timer is not None:
            timer.cancel()

    def _end_overdue(self) -> None:
        self._overdue_timer = None
        now_s = self._core.clock.monotonic()
        late = [(process, reason) for process, (due_s, reason) in self._overdue.items() if due_s <= now_s]
        for process, reason in late:
            self._overdue.pop(process, None)
            self._insist(process, reason)
        if self._overdue:
            self._wake_by(min(due_s for due_s, _ in self._overdue.values()))

    def finish_stopped(self, process: Process, reason: str, *, cause: BaseException | None = None) -> None:
        """It was told to end and did not do so itself."""
        if reason == TIME_IS_UP:
            self.finish(process, "error", error=_too_long(process))
        else:
            self.finish(process, reason, error=cause)

    def close_program(self, process: Process) -> None:
        program = process.coroutine
        process.coroutine = None
        if program is None:
            return
        waiter, process._fut_waiter = process._fut_waiter, None
        if waiter is not None:
            waiter.add_done_callback(consume_error)
            waiter.cancel()
        loop = self._core.loop
        outside = asyncio.current_task() if asyncio._get_running_loop() is loop else None
        if outside is not None:
            leave_task(loop, outside)
        enter_task(loop, process)  # type: ignore[arg-type]  # its clean-up must take no other task for its own
        process.cancelling_count += 1  # a tool or provider must not take the cancellation for one of its own
        try:
            # Raise CancelledError in a program, and again wherever its clean-up awaits: there is nothing left to wait
            # with. `close` alone would leave async generators that it awaits half open, and the loop would fail to
            # close them later.
            try:
                with suppress(StopIteration, asyncio.CancelledError, ExitProgram, ProcessError):
                    program.throw(asyncio.CancelledError())
                    with suppress(RuntimeError):
                        for _ in range(_CLEANUPS_MAX):
                            program.throw(asyncio.CancelledError())
            finally:
                with suppress(RuntimeError, ProcessError):
                    program.close()
        except Exception as error:  # noqa: BLE001 - a program's clean-up may fail; closing continues
            loop.call_exception_handler(
                {"message": f"process {process.pid} failed while it was closed", "exception": error}
            )
        finally:
            leave_task(loop, process)  # type: ignore[arg-type]  # a task type of our own
            if outside is not None:
                enter_task(loop, outside)

    def _store_lost(self, error: LyraError) -> None:
        for process in self._core.processes.present():
            self.let_go(process, error)

    @staticmethod
    def let_go(process: Process, error: LyraError) -> None:
        """Raise `error` in callers outside that wait for its end or for room in its mailbox: neither will come."""
        for waiter in [*(process.watchers or ()), *[turn.waker for turn in process.senders or ()]]:
            if isinstance(waiter, asyncio.Future):
                resume(waiter, error)


def _too_long(process: Process) -> DeadlineExceeded:
    seconds = process.budget.seconds
    return DeadlineExceeded(f"the process ran longer than {seconds:g} s", pid=process.pid, limit_s=seconds)


def _make_created_row(
    process: Process,
    args: bytes,
    key: rows.Key | None,
    digest: bytes,
    budget: Budget | None,
    inherited: Grant,
    guarded: bool,
    chosen: bool,
    fork: dict[str, Any] | None,
) -> rows.Created:
    """Return the first row of a process, from which the next kernel starts it again; `budget` where it has its own."""
    blob = process.core.put_blob_now(args) if len(args) > limits.BLOB_INLINE_BYTES_MAX else ""
    own_right = None if process.grant is inherited else process.grant.to_data()
    return rows.Created(
        process.program,
        rows.NIL if blob else rows.Raw(args),
        "" if process.parent is None else process.parent.pid,
        key,
        digest,
        process.name or "",
        process.priority,
        None if budget is None else budget.to_data(),
        own_right,
        blob,
        guarded,
        rights=0 if own_right is None else rows.RIGHTS,
        chosen=chosen,
        recovery_attempts=process.recovery_attempts,
        fork=fork,
    )


def _make_scope(scope: Budget, budget: Any) -> Budget:
    """Return the budget of a process that has one of its own, inside `scope`."""
    if isinstance(budget, JoinableBudget):  # charged above when the early call is taken
        return budget
    return scope.child(Budget.of(budget))


def _priority(word: str) -> int:
    try:
        return PRIORITIES.index(word)
    except ValueError:
        raise ConfigError(f"priority is {word!r}", hint=f"one of {', '.join(PRIORITIES)}") from None


def check_word(what: str, word: Any) -> str:
    """Return a pid or name as rows hold it: plain text of printable characters."""
    fits = isinstance(word, str) and 0 < len(word) <= limits.NAME_LENGTH_MAX and word.isprintable()
    if not fits or word.startswith("~"):
        hint = f"use 1 to {limits.NAME_LENGTH_MAX} printable characters, the first not ~"
        raise ConfigError(f"{what} is {word!r}", hint=hint)
    return sendable_text(word, what)

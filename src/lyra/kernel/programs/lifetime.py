"""The life of a process: how it begins, how it is told to end, and the one place where it does.

Owns the changes to the table (`kernel.processes`, `kernel.names`, parents and children) and the rows that say so. A
process ends normally, by an error, by `ctx.exit`, by being killed (with everything it spawned), by its time limit, or
without a row when its program no longer fits its journal. What it waits for meanwhile is other modules' business.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as ContextVars
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from lyra.core import codec, limits
from lyra.core.budgets.budget import Budget
from lyra.core.budgets.early_budget import JoinableBudget
from lyra.core.faultpoint import point
from lyra.core.rights.capability import Grant
from lyra.errors import (
    ConfigError,
    DeadlineExceeded,
    Divergence,
    LyraError,
    NameTaken,
    Overloaded,
    ProcessError,
    StoreFull,
)
from lyra.kernel.effects.door import Diverged
from lyra.kernel.journal import rows
from lyra.kernel.journal.error_rows import error_to_row
from lyra.kernel.process.process import NORMAL, PRIORITIES, TIME_IS_UP, Exit, Process, looked_at, resume
from lyra.kernel.programs.context import Context, ExitProgram

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.kernel import Kernel

__all__ = ["Life"]

_log: Final = logging.getLogger("lyra.kernel")
_NUMBERED: Final = re.compile(r"p[0-9]+x*\Z").match  # pids that the kernel gives

_KILL_GRACE_S: Final = 5.0


class Life:
    __slots__ = (
        "_branches",
        "_causes",
        "_deadlines",
        "_due",
        "_ended",
        "_kernel",
        "_members",
        "_numbered",
        "is_given",
        "pid_of",
    )

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._branches: dict[Process, dict[asyncio.Task[Any], None]] = {}
        self._causes: dict[Process, LyraError] = {}  # whose end was the cause that these were told to end
        self._ended: deque[str] = deque()
        self._numbered = 0
        # How whoever runs the kernel names children by their makers and keys, and tells such a pid from a chosen one.
        self.pid_of: Callable[[Process, rows.Key], str] | None = None
        self.is_given: Callable[[str], Any] = _NUMBERED
        self._deadlines: dict[Budget, Timer] = {}
        self._due: dict[Budget, float] = {}  # when each of them rings
        self._members: dict[Budget, int] = {}  # live processes in each scope that has a deadline

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
    ) -> Process:
        kernel = self._kernel
        if (
            not kernel.open
            or kernel.live >= kernel.processes_max
            or parent is not None
            or pid is not None
            or name is not None
        ):
            self._may_start(parent, pid, name)
        journal = kernel.journal
        level = _priority(priority) if priority is not None else (parent.priority if parent is not None else NORMAL)
        scope = parent.budget if parent is not None else kernel.budget
        if budget is None and parent is None and scope.seconds is not None:
            budget = {}  # the root's seconds are each root process's own, counted from its start
        if isinstance(budget, JoinableBudget):  # its own already: whoever made it says when it counts above
            own_scope: Budget = budget
        else:
            own_scope = scope if budget is None else scope.child(Budget.of(budget))
        right = parent.grant if parent is not None else kernel.grant
        own_right = right if grant is None else right.narrow(Grant.of(grant))
        if pid is None:
            pid = self.next_pid(parent, key)
        process = Process(
            kernel, pid, kernel.programs.name(program), parent, own_scope, own_right, level, copy_context()
        )
        process.name = name
        if guarded and parent is not None:
            process.known_as = parent.pid
        row = None
        if journal is not None:
            if key is not None and parent is not None:
                process.line = f"{parent.line}.{key}"
            data = codec.encode(args)
            blob = self.blob(data) if len(data) > limits.BLOB_INLINE_BYTES_MAX else ""
            row = rows.Created(
                process.program,
                rows.NIL if blob else rows.Raw(data),
                parent.pid if parent is not None else "",
                key,
                digest,
                name or "",
                level,
                None if budget is None else own_scope.to_data(),
                None if grant is None else own_right.to_data(),
                blob,
                guarded,
            )
            args = tuple(kernel.programs.taken(program, args, data))
        # Begun before anything is written: a call that does not fit its program leaves no trace.
        process.coroutine = kernel.programs.begin(program, Context(process), args)
        if parent is not None and kernel.labels.state.pids:
            kernel.labels.pass_on(parent.pid, pid, "its parent")
        if row is not None and journal is not None:
            journal.write(pid, "process.created", rows.encode(row))
            process.created_at = journal.time
        else:
            process.created_at = kernel.clock.now()
            if kernel.listening:
                kernel.publish(pid, "process.created", {"program": process.program, "name": name or ""})
        self.enter(process)
        if own_scope.seconds is not None:
            self.limit_time(own_scope, own_scope.seconds)
        if kernel.listeners_want_states:
            process.move("ready")
        else:  # the same move, on the hot path
            process.state = "ready"
        kernel.scheduler.push(process)
        point("process.spawned")
        return process

    def next_pid(self, parent: Process | None = None, key: rows.Key | None = None) -> str:
        """Numbered by the journal: unique in a store, and short enough to read aloud."""
        journal = self._kernel.journal
        self._numbered += 1
        if self.pid_of is not None and parent is not None and key is not None:
            pid = self.pid_of(parent, key)
        else:
            pid = f"p{self._numbered if journal is None else journal.seq + 1}"
        while dict.__contains__(self._kernel.processes, pid):  # somebody chose this very pid; guests are numbered here
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
        """Make a process of what has run as somebody's guest, and is counted already; without arguments, of one that
        has ended. Whoever adopts it says what it does: it is neither in line nor waiting yet."""
        name = self._kernel.programs.name(program)
        process = Process(self._kernel, pid, name, None, budget, grant, NORMAL, context)
        process.created_at = created_at
        process.state = "ready"
        if args is not None:
            process.coroutine = self._kernel.programs.begin(program, Context(process), args)
        self._kernel.processes[pid] = process
        return process

    def _may_start(self, parent: Process | None, pid: str | None, name: str | None) -> None:
        self._kernel.raise_if_failed()
        # A program's own spawn is journaled and goes on after the next start; to refuse it would change what it does.
        if (self._kernel.stopping or self._kernel.draining) and (parent is None or self._kernel.journal is None):
            raise ProcessError("the kernel is stopping and starts no process")
        if not self._kernel.started:
            raise ProcessError("the kernel is not open", hint="use `async with Kernel(…) as kernel:`")
        if self._kernel.live >= self._kernel.processes_max:
            raise Overloaded(
                f"{self._kernel.live} processes are alive, the most there may be", limit=self._kernel.processes_max
            )
        if parent is not None and parent.depth + 1 > limits.SPAWN_DEPTH_MAX:
            raise Overloaded(f"processes nest {limits.SPAWN_DEPTH_MAX} deep at most", limit=limits.SPAWN_DEPTH_MAX)
        if pid is not None:
            _check_word("pid", pid)
            if pid in self._kernel.names or self._kernel.lifecycle.find(pid) is not None:
                raise NameTaken(f"there is a process {pid!r} already", pid=pid)
        if name is not None:
            _check_word("name", name)
            if name in self._kernel.names or self._kernel.lifecycle.find(name) is not None:
                raise NameTaken(f"the name {name!r} belongs to another process", name=name)

    def enter(self, process: Process) -> None:
        """Put it in the table, under its parent and its name."""
        kernel = self._kernel
        kernel.processes[process.pid] = process
        kernel.live += 1
        if process.budget.seconds is not None:
            for scope in _scopes(process):
                self._members[scope] = self._members.get(scope, 0) + 1
        if process.name is not None:
            kernel.names[process.name] = process
        parent = process.parent
        if parent is not None:
            if parent.children is None:
                parent.children = {}
            parent.children[process.pid] = process

    def branch_began(self, process: Process) -> None:
        """A parallel branch of a program made a call: it ends with its process at the latest."""
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

    def limit_time(self, scope: Budget, seconds: float) -> None:
        """When a scope's seconds have passed, whoever spends from it or from a scope inside it is told to end."""
        if scope in self._deadlines:
            return

        def over() -> None:
            self._deadlines.pop(scope, None)
            self._due.pop(scope, None)
            if not self._kernel.stopping:
                for process in list(self._kernel.processes.present()):  # guests have no time limit
                    if process.exit is None and scope in _scopes(process):
                        self._out_of_time(process)

        clock = self._kernel.clock
        self._due[scope] = clock.monotonic() + seconds
        self._deadlines[scope] = clock.call_at(self._due[scope], over)

    def due(self, scope: Budget) -> float | None:
        """When a scope's seconds will have passed, on the monotonic clock; None without such a limit."""
        return self._due.get(scope)

    def _out_of_time(self, process: Process) -> None:
        """The program gets DeadlineExceeded where it waits, and a little time to tidy up."""
        if process.kill_reason is not None:
            return
        self._tell_to_end(process, TIME_IS_UP)
        if process.coroutine is None:
            self.stopped(process, TIME_IS_UP)
        else:
            process.throw_deadline(_too_long(process))

    def _leave_scopes(self, process: Process) -> None:
        """The last to leave a scope takes its deadline along."""
        for scope in _scopes(process):
            if scope.seconds is not None and scope in self._members:
                self._members[scope] -= 1
                if not self._members[scope]:
                    del self._members[scope]
                    self._due.pop(scope, None)
                    timer = self._deadlines.pop(scope, None)
                    if timer is not None:
                        timer.cancel()

    def _until_it_ends(self, process: Process, seconds: float, ring: Callable[[], None]) -> None:
        """A timer that goes with its process: nothing of the dead is kept waiting."""
        timer = self._kernel.clock.call_at(self._kernel.clock.monotonic() + seconds, ring)
        process.watch((lambda _process: timer.cancel(), None))

    def fail(self, process: Process, error: BaseException) -> None:
        if isinstance(error, ExitProgram):
            self.finish(process, error.reason, error=error.error)
        elif isinstance(error, Divergence):
            self._diverged(process, error)
        else:
            self.finish(process, "error", error=error)

    def finish(self, process: Process, reason: str, *, result: Any = None, error: BaseException | None = None) -> None:
        """The one place where a process ends."""
        if process.recall is not None and process.kill_reason is None:
            if isinstance(process.recall, Diverged):
                self._diverged(process, process.recall.error)
                return
            if reason == "normal" and self._asked_less(process):
                return
        if self._causes and error is None and reason == process.kill_reason:
            error = self._causes.get(process)
        journal = self._kernel.journal
        if journal is not None and not journal.frozen:
            row = rows.Terminated(reason)
            if error is not None:
                row.error = error_to_row(error)
            elif result is not None:
                try:
                    data = codec.encode(result)
                except LyraError as unkept:
                    reason, result, error = "error", None, unkept
                    row = rows.Terminated(reason, error=error_to_row(unkept))
                else:
                    row.blob = self.blob(data) if len(data) > limits.BLOB_INLINE_BYTES_MAX else ""
                    if not row.blob:
                        row.value = rows.Raw(data)
                    if type(result) not in codec.UNCHANGED:
                        result = codec.decode(data)
            self._end(process, Exit(reason, result, error))
            process.exit_seq = journal.write(process.pid, "process.terminated", rows.encode(row))
            process.ended_at = journal.time
        else:
            self._end(process, Exit(reason, result, error))
            process.ended_at = self._kernel.clock.now()
            if self._kernel.listening:
                self._kernel.publish(
                    process.pid,
                    "process.terminated",
                    {"reason": reason, "error": error_to_row(error) if error is not None else None},
                )
        point("process.exiting")
        if process.exit is not None:
            self._kernel.links.ended(process, process.exit)
        self._tell(process)

    def _end(self, process: Process, ended: Exit) -> None:
        self._kernel.interrupts.cancel_all(process.pid, "its process ended")
        self._kernel.groups.left(process.pid)
        process.exit = ended
        self._kernel.orchestrator.process_ended(process, ended)
        process.move("terminated")
        process.coroutine = None
        process.recall = None
        process.rng = None
        self.stop_branches(process)
        self._causes.pop(process, None)
        self._kernel.live -= 1
        if process.budget.seconds is not None:
            self._leave_scopes(process)
        if process.name is not None and self._kernel.names.get(process.name) is process:
            del self._kernel.names[process.name]
        parent = process.parent
        if parent is not None and parent.children is not None:
            parent.children.pop(process.pid, None)
        # Orphans go to the root, as in Unix: a crash stops another process only through a link or a supervisor.
        for child in (process.children or {}).values():
            child.parent = None
        process.children = None
        self._kernel.mailboxes.close(process)
        self.keep_ended(process)

    def blob(self, data: bytes) -> str:
        """Where a large value went; empty when it belongs in the row after all (there is no room for a blob: the row
        waits for room with all the others)."""
        journal = self._kernel.journal
        assert journal is not None
        try:
            return str(self._kernel.call_now(journal.store.put_blob, data))
        except StoreFull:
            return ""

    def keep_ended(self, process: Process) -> None:
        """An ended process stays in the table for a while; the oldest are let go.

        One whose pid was chosen by its user stays until the store forgets it: that pid has to give that process.
        """
        self._kernel.processes[process.pid] = process
        if self.is_given(process.pid) is None:
            return
        self._ended.append(process.pid)
        while len(self._ended) > limits.ENDED_PROCESSES_KEPT:
            self.forget(self._ended.popleft())

    def forget(self, pid: str) -> None:
        found = self._kernel.processes.get(pid)
        if found is not None and found.exit is not None:
            del self._kernel.processes[pid]
            if pid in self._kernel.labels.state.pids:
                if found.parent is not None and found.parent.exit is None:  # it may still ask what came of it
                    self._kernel.labels.pass_on(pid, found.parent.pid, "what came of")
                self._kernel.labels.forget(pid)

    def _tell(self, process: Process) -> None:
        watchers, process.watchers = process.watchers, None
        for watcher in watchers or ():
            if isinstance(watcher, tuple):
                callback, context = watcher
                self._kernel.loop.call_soon(callback, process, context=context)
            else:
                resume(watcher)

    def _asked_less(self, process: Process) -> bool:
        """It returned although its journal has more: the program changed."""
        left = sorted(key for key in process.recall or () if isinstance(key, int))
        if not left:
            return False
        held = (process.recall or {})[left[0]]
        error = Divergence(
            f"process {process.pid} ended where its journal goes on with {held.kind} {held.name}".rstrip(),
            hint="the program changed under its journal; run the old one to its end, or start a new process",
            expected=f"{held.kind} {held.name}".strip(),
            actual="end",
            at=str(left[0]),
            pid=process.pid,
        )
        self._diverged(process, error)
        return True

    def _diverged(self, process: Process, error: Divergence) -> None:
        """Stop it without a row: with the right program it can still go on from the same journal."""
        self._kernel.publish(process.pid, "process.diverged", {"message": error.message, "at": error.fields.get("at")})
        _log.warning("%s", error.message)
        self._kernel.interrupts.forget(process.pid)
        process.exit = Exit("divergence", None, error)
        process.move("terminated")
        process.coroutine = None
        self._kernel.live -= 1
        self._tell(process)

    def stop_tree(
        self, process: Process, reason: str, *, grace_s: float | None = _KILL_GRACE_S, overdue: str | None = None
    ) -> None:
        """Cancel a process and all below it, children first; one that is still there after its grace ends `overdue`."""
        rest, found = [process], []
        while rest:
            one = rest.pop()
            found.append(one)
            rest.extend((one.children or {}).values())
        for one in reversed(found):
            self.stop(one, reason, grace_s=grace_s, overdue=overdue)

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
        if process.kill_reason is not None:  # told before; who has less patience wins
            self._insist_after(process, grace_s, overdue or reason)
            return
        self._tell_to_end(process, reason, grace_s=grace_s, overdue=overdue, cause=cause)
        if process.coroutine is None:  # dormant: there is nothing to cancel
            self.stopped(process, reason)
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
        self._kernel.record(process.pid, "process.stopping", rows.Stopping(reason, why))
        process.kill_reason = reason
        if cause is not None:
            self._causes[process] = cause
        if process.recall is not None:  # what it does now is no part of the replay: its keys begin above all journaled
            process.keys = 1 + max((key for key in process.recall if isinstance(key, int)), default=process.keys)
            process.branches += len(process.recall)
            process.recall = None
            self._kernel.interrupts.cancel_unasked(process.pid, "its process was told to end")
        self._insist_after(process, grace_s, overdue or reason)

    def _insist_after(self, process: Process, grace_s: float | None, reason: str) -> None:
        """End a program that still tidies up by then; None waits for ever."""

        def insist() -> None:
            if process.exit is None and not self._kernel.stopping:
                self.close_program(process)
                if process.exit is None:
                    self.stopped(process, reason)

        if grace_s == 0:
            self._kernel.loop.call_soon(insist)
        elif grace_s is not None:
            self._until_it_ends(process, grace_s, insist)

    def stopped(self, process: Process, reason: str, *, cause: BaseException | None = None) -> None:
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
            waiter.add_done_callback(looked_at)
            waiter.cancel()
        try:
            program.throw(asyncio.CancelledError())
        except (StopIteration, asyncio.CancelledError, ExitProgram, ProcessError):
            pass  # ended, or asked for something when nothing is performed any more
        except Exception as error:  # noqa: BLE001 - a program's clean-up may fail; closing goes on
            self._kernel.loop.call_exception_handler(
                {"message": f"process {process.pid} failed while it was closed", "exception": error}
            )
        with suppress(RuntimeError, ProcessError):  # it awaits inside its clean-up; there is nothing left to wait with
            program.close()

    @staticmethod
    def let_go(process: Process, error: LyraError) -> None:
        """Tell those outside who wait for its end, or for room in its mailbox, that neither will come."""
        for waiter in [*(process.watchers or ()), *[turn.waker for turn in process.senders or ()]]:
            if isinstance(waiter, asyncio.Future):
                resume(waiter, error)


def _scopes(process: Process) -> list[Budget]:
    scopes, scope = [], process.budget
    while True:
        scopes.append(scope)
        if scope.parent is None:
            return scopes
        scope = scope.parent


def _too_long(process: Process) -> DeadlineExceeded:
    seconds = process.budget.seconds
    return DeadlineExceeded(f"process {process.pid} ran longer than {seconds:g} s", pid=process.pid, limit_s=seconds)


def _priority(word: str) -> int:
    try:
        return PRIORITIES.index(word)
    except ValueError:
        raise ConfigError(f"priority is {word!r}", hint=f"one of {', '.join(PRIORITIES)}") from None


def _check_word(what: str, word: Any) -> None:
    fits = isinstance(word, str) and 0 < len(word) <= limits.NAME_LENGTH_MAX and word.isprintable()
    if not fits or word.startswith("~"):
        hint = f"use 1 to {limits.NAME_LENGTH_MAX} printable characters, the first not ~"
        raise ConfigError(f"{what} is {word!r}", hint=hint)

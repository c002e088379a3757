"""The kernel: one table of processes, one loop, one door, no locks.

    async with Kernel("run.db", programs=[review]) as kernel:
        handle = kernel.spawn(review, "https://…", budget="$0.50")
        print((await handle.wait()).result)

Everything here happens on one event loop. This module holds the table and the life of a process (start, finish,
kill); the door (`door`), the order of steps (`scheduler`), the journal (`journal`), mailboxes (`mailbox`),
questions (`interrupts`), coming back (`recovery`) and owning the store (`ownership`) each have a module, and
ARCHITECTURE.md walks one effect through them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from lyra.core import codec, limits
from lyra.core.budget import Budget
from lyra.core.capability import Grant
from lyra.core.clock import Clock, SystemClock
from lyra.core.effect import Effect
from lyra.core.event import Event
from lyra.core.faultpoint import point
from lyra.core.ids import Entropy, seeded
from lyra.errors import (
    ConfigError,
    DeadlineExceeded,
    Divergence,
    LyraError,
    NameTaken,
    NoSuchProcess,
    Overloaded,
    ProcessError,
    ProcessExit,
    StoreError,
    StoreFull,
)
from lyra.kernel import rows
from lyra.kernel.context import Context, ExitProgram
from lyra.kernel.door import Diverged, Door
from lyra.kernel.faults import error_to_row
from lyra.kernel.gates import Gate
from lyra.kernel.interrupts import Answer, Interrupts
from lyra.kernel.journal import Journal
from lyra.kernel.mailbox import Mailboxes
from lyra.kernel.ownership import Ownership, owner_name
from lyra.kernel.process import PRIORITIES, Exit, Process, looked_at, resume, suspend
from lyra.kernel.programs import Programs
from lyra.kernel.recovery import Recovery
from lyra.kernel.scheduler import Scheduler
from lyra.kernel.tasks import Tasks, Writer
from lyra.store.protocol import Store, open_store

if TYPE_CHECKING:
    from lyra.config import Config
    from lyra.kernel.recall import Entry

__all__ = ["Handle", "Kernel"]

_KILL_GRACE_S: Final = 5.0
_DRAIN_S: Final = 5.0
TIME_IS_UP: Final = "deadline_exceeded"  # the reason in `process.stopping` when a budget's seconds have passed


class Kernel:
    def __init__(
        self,
        store: str | Store = "memory",
        clock: Clock | None = None,
        programs: Iterable[Callable[..., Any]] = (),
        *,
        durability: str = "process",
        budget: Any = None,
        grant: Any = None,
        seed: int | None = None,
        lease_s: float = limits.LEASE_S,
        snapshot_every_events: int = limits.SNAPSHOT_EVERY_EVENTS,
        retention_s: float = limits.RETENTION_S,
        mailbox_messages_max: int = limits.MAILBOX_MESSAGES_MAX,
        processes_max: int = limits.PROCESSES_MAX,
    ) -> None:
        self._target = store
        self._durability = durability
        self._lease_s = lease_s
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.entropy = Entropy(seed)
        self.rng = seeded(self.entropy.bits())
        self.budget = Budget.of(budget)
        self.grant = Grant.of(grant)
        self.processes_max = processes_max
        self.snapshot_every_events = snapshot_every_events
        self.retention_s = retention_s
        self.processes: dict[str, Process] = {}
        self.names: dict[str, Process] = {}
        self.live = 0
        self.journal: Journal | None = None
        self.scheduler = Scheduler(self)
        self.door = Door(self)
        self.mailboxes = Mailboxes(self, limit=mailbox_messages_max)
        self.interrupts = Interrupts(self)
        self.tasks = Tasks()
        self.held: list[Any] = []  # processes stopped at the door while the kernel drains
        self._open = False
        self.draining = False
        self.stopping = False
        self.failure: LyraError | None = None
        self.listening = False
        self.listeners_want_states = False
        self._listeners: list[Callable[[Event], Any]] = []
        self._gates: dict[str, Gate] = {}
        self._branches: dict[Process, dict[asyncio.Task[Any], None]] = {}
        self._effects: dict[Any, Effect] = {}
        self._ended: deque[str] = deque()
        self._numbered = 0
        self._ownership: Ownership | None = None
        self._recovery: Recovery | None = None
        self._writer: Writer | None = None
        self._drained: asyncio.Future[None] | None = None
        self.programs = Programs(self, programs)
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # set by start()

    @classmethod
    def from_config(cls, config: Config, **overrides: Any) -> Kernel:
        """A kernel as the configuration files, the environment and the flags describe it."""
        kernel, budget = config.kernel, config.budget
        settings: dict[str, Any] = {
            "store": kernel.store.reveal(),
            "durability": kernel.durability,
            "lease_s": kernel.lease_s,
            "snapshot_every_events": kernel.snapshot_every_events,
            "retention_s": kernel.retention_s,
            "mailbox_messages_max": kernel.mailbox_messages_max,
            "processes_max": kernel.processes_max,
            "budget": {"usd": budget.usd, "seconds": budget.seconds, "on_exceed": budget.on_exceed},
            "grant": config.grant,
        }
        return cls(**{**settings, **overrides})

    # ------------------------------------------------------------------ opening and closing

    async def __aenter__(self) -> Kernel:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Own the store, bring its processes back, begin to run."""
        self.loop = asyncio.get_running_loop()
        self._open = True
        store = self._store()
        if store is None:
            return
        try:
            self._ownership = Ownership(self, store, lease_s=self._lease_s)
            lease = await self._ownership.take(owner_name(self.entropy.text(8)))
            self._recovery = Recovery(self, store)
            self.journal = Journal(self, store, epoch=lease.epoch, seq=0)
            await self._recovery.load()
        except BaseException:
            if self._ownership is not None:
                self._ownership.give_up()
            self._release_store(store)
            raise
        self._ownership.keep()
        self.scheduler.poke()
        point("recovery.done")

    def _store(self) -> Store | None:
        """`"memory"` is a kernel without a journal; a Store object of any kind is one with."""
        if isinstance(self._target, str):
            return None if self._target == "memory" else open_store(self._target, durability=self._durability)
        return self._target

    def _release_store(self, store: Store) -> None:
        if self._writer is not None:
            self._writer.close()
        if isinstance(self._target, str):  # a Store that was handed in belongs to whoever made it
            store.close()

    @property
    def writer(self) -> Writer:
        if self._writer is None:
            self._writer = Writer(self.loop)
        return self._writer

    async def call(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """A call to the store: on the loop if it is quick, else in the writer's thread."""
        assert self.journal is not None
        if self.journal.store.inline:
            return fn(*args, **kwargs)
        return await self.writer.submit(fn, *args, **kwargs)

    async def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """Stop in order: let effects in flight finish, write the rest, keep the processes for next time.

        With a store, processes do not end here: they go on when it is opened again. Without one they end as
        `shutdown`.
        """
        if self.stopping:
            return
        if self.failure is None:
            await self._drain(drain_s)
        self.stopping = True
        self.interrupts.stop()
        if self._recovery is not None:
            self._recovery.stop()
        journal = self.journal
        try:
            if journal is not None and self.failure is None:
                await self._last_commit(journal)
        finally:  # also when the last rows find no room: nobody was told that they are kept
            await self._shut(journal)

    async def _shut(self, journal: Journal | None) -> None:
        self.scheduler.stopped = True
        if journal is not None:
            journal.frozen = True
        self._stop_programs()
        await self.tasks.close()
        if self._ownership is not None and journal is not None:
            self._ownership.stop()
            with suppress(StoreError):  # lost with the store, or somebody else's by now
                self._ownership.give_up()
            self._release_store(journal.store)

    async def _drain(self, drain_s: float) -> None:
        self.draining = True
        self._open = False
        if self.door.in_flight == 0:
            return
        self._drained = self.loop.create_future()
        timer = self.clock.call_at(self.clock.monotonic() + drain_s, self.drained)
        await self._drained
        timer.cancel()

    def drained(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def _last_commit(self, journal: Journal) -> None:
        await journal.acknowledged(journal.seq)
        if self._recovery is not None and self.failure is None:
            await self._recovery.snapshot_at_close()

    def _stop_programs(self) -> None:
        """Each live program sees CancelledError once; nothing it still does is performed or written."""
        for process in list(self.processes.values()):
            if process.exit is not None:
                continue
            if self.journal is None:
                process.kill_reason = "shutdown"
            self._close_program(process)
            if self.journal is None and process.exit is None:
                self.finish(process, "shutdown")
            self._let_go(process, self.failure or _stopped(process.pid))

    def _close_program(self, process: Process) -> None:
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
            self.loop.call_exception_handler(
                {"message": f"process {process.pid} failed while it was closed", "exception": error}
            )
        with suppress(RuntimeError, ProcessError):  # it awaits inside its clean-up; there is nothing left to wait with
            program.close()

    def abort(self, error: LyraError) -> None:
        """The store is lost to us (fenced, damaged, gone): stop at once and tell everybody who waits."""
        if self.failure is not None or self.stopping:
            return
        self.failure = error
        self._open = False
        self.scheduler.stopped = True
        if self.journal is not None:
            self.journal.frozen = True
            self.journal.answer(error)
        self.publish("", "store.fenced" if error.code == "conflict" else "store.failed", {"message": error.message})
        for process in self.processes.values():
            self._let_go(process, error)
        self.drained()

    @staticmethod
    def _let_go(process: Process, error: LyraError) -> None:
        """Tell those outside who wait for its end, or for room in its mailbox, that neither will come."""
        for waiter in [*(process.watchers or ()), *[turn.waker for turn in process.senders or ()]]:
            if isinstance(waiter, asyncio.Future):
                resume(waiter, error)

    def abort_on_error(self, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, LyraError) and not isinstance(error, StoreFull):
            self.abort(error)

    def raise_if_failed(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _raise_if_closed(self) -> None:
        self.raise_if_failed()
        if self.stopping:
            raise ProcessError("the kernel is closed", hint="open the store again")

    # ------------------------------------------------------------------ processes, from outside

    def spawn(
        self,
        program: Callable[..., Any],
        *args: Any,
        pid: str | None = None,
        name: str | None = None,
        budget: Any = None,
        grant: Any = None,
        priority: str | None = None,
    ) -> Handle:
        """Start a process; awaiting the handle waits until it is durable. An existing pid gives that process."""
        if pid is not None and pid in self.processes:
            self.programs.name(program)
            return Handle(self, self.processes[pid])
        process = self.start_process(
            program, args, parent=None, pid=pid, name=name, budget=budget, grant=grant, priority=priority
        )
        return Handle(self, process)

    async def run(self, program: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Spawn, wait, and give the result or raise the error."""
        ended = await self.spawn(program, *args, **options).wait()
        if ended.error is not None:
            raise ended.error
        if ended.reason != "normal":
            raise ProcessExit(f"the process ended: {ended.reason}", reason=ended.reason)
        return ended.result

    def process(self, pid: str) -> Handle:
        return Handle(self, self.find(pid))

    def whereis(self, name: str) -> Handle | None:
        found = self.names.get(name)
        return Handle(self, found) if found is not None else None

    def send(self, to: str | Handle, message: Any) -> Ack:
        """Put a message in a mailbox; awaiting it waits for room and until the message is durable."""
        self._raise_if_closed()
        receiver = self.find(to if isinstance(to, str) else to.pid)
        if self.mailboxes.must_wait(receiver):
            return Ack(self, self.mailboxes.send_in_turn(receiver, message))
        return Ack(self, self.mailboxes.deliver(receiver, message))

    def kill(self, pid: str | Handle, reason: str = "killed") -> Ack:
        """Stop a process and everything it spawned; a dead one stays dead."""
        self._raise_if_closed()
        self.stop_tree(self.find(pid if isinstance(pid, str) else pid.pid), reason)
        return Ack(self, self.journal.seq if self.journal is not None else 0)

    def resolve_interrupt(self, interrupt_id: str, response: Answer | Mapping[str, Any]) -> Ack:
        """Answer a question; awaiting it waits until the answer is durable."""
        self._raise_if_closed()
        return Ack(self, self.interrupts.resolve(interrupt_id, response))

    def on_event(self, listener: Callable[[Event], Any]) -> Callable[[], None]:
        """Be called with every Event, after it is durable; gives a callable that ends it."""
        self._listeners.append(listener)
        self._listen()

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)
                self._listen()

        return stop

    def _listen(self) -> None:
        self.listening = bool(self._listeners)
        self.listeners_want_states = self.listening

    # ------------------------------------------------------------------ the table

    def lookup(self, pid_or_name: str) -> Process | None:
        return self.processes.get(pid_or_name) or self.names.get(pid_or_name)

    def find(self, pid_or_name: str) -> Process:
        found = self.lookup(pid_or_name)
        if found is None:
            raise NoSuchProcess(f"no process {pid_or_name!r}", hint="kernel.processes lists them", pid=pid_or_name)
        return found

    def start_process(
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
    ) -> Process:
        if (
            not self._open
            or self.live >= self.processes_max
            or parent is not None
            or pid is not None
            or name is not None
        ):
            self._may_start(parent, pid, name)
        journal = self.journal
        level = _priority(priority) if priority is not None else (parent.priority if parent is not None else 2)
        scope = parent.budget if parent is not None else self.budget
        own_scope = scope if budget is None else scope.child(Budget.of(budget))
        right = parent.grant if parent is not None else self.grant
        own_right = right if grant is None else right.narrow(Grant.of(grant))
        if pid is None:
            # Numbered by the journal: unique in a store, and short enough to read aloud.
            self._numbered += 1
            pid = f"p{self._numbered if journal is None else journal.seq + 1}"
        process = Process(self, pid, self.programs.name(program), parent, own_scope, own_right, level, copy_context())
        process.name = name
        row = None
        if journal is not None:
            data = codec.encode(args)
            blob = journal.store.put_blob(data) if len(data) > limits.BLOB_INLINE_BYTES_MAX else ""
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
            )
            args = tuple(self.programs.arguments(program, data))
        # Begun before anything is written: a call that does not fit its program leaves no trace.
        process.coroutine = self.programs.begin(program, Context(process), args)
        if row is not None and journal is not None:
            journal.write(pid, "process.created", rows.encode(row))
        elif self.listening:
            self.publish(pid, "process.created", {"program": process.program, "name": name or ""})
        self.enter(process)
        if own_scope.seconds is not None and (budget is not None or parent is None):
            self.limit_time(process, own_scope.seconds)
        process.move("ready")
        self.scheduler.push(process)
        point("process.spawned")
        return process

    def _may_start(self, parent: Process | None, pid: str | None, name: str | None) -> None:
        self.raise_if_failed()
        # A program's own spawn is journaled and goes on after the next start; to refuse it would change what it does.
        if (self.stopping or self.draining) and (parent is None or self.journal is None):
            raise ProcessError("the kernel is stopping and starts no process")
        if self.loop is None:
            raise ProcessError("the kernel is not open", hint="use `async with Kernel(…) as kernel:`")
        if self.live >= self.processes_max:
            raise Overloaded(f"{self.live} processes are alive, the most there may be", limit=self.processes_max)
        if parent is not None and parent.depth + 1 > limits.SPAWN_DEPTH_MAX:
            raise Overloaded(f"processes nest {limits.SPAWN_DEPTH_MAX} deep at most", limit=limits.SPAWN_DEPTH_MAX)
        if pid is not None:
            _check_word("pid", pid)
            if pid in self.processes:
                raise NameTaken(f"there is a process {pid!r} already", pid=pid)
        if name is not None:
            _check_word("name", name)
            if name in self.names or name in self.processes:
                raise NameTaken(f"the name {name!r} belongs to another process", name=name)

    def enter(self, process: Process) -> None:
        """Put it in the table, under its parent and its name."""
        self.processes[process.pid] = process
        self.live += 1
        if process.name is not None:
            self.names[process.name] = process
        parent = process.parent
        if parent is not None:
            if parent.children is None:
                parent.children = {}
            parent.children[process.pid] = process

    def branch_began(self, process: Process, task: asyncio.Task[Any]) -> None:
        """A parallel branch of a program made its first call: it ends with its process at the latest."""
        branches = self._branches.setdefault(process, {})
        branches[task] = None
        task.add_done_callback(lambda done: branches.pop(done, None))

    def limit_time(self, process: Process, seconds: float) -> None:
        """After so long the program gets DeadlineExceeded where it waits, and a little time to tidy up."""

        def over() -> None:
            if process.exit is not None or self.stopping or process.kill_reason is not None:
                return
            self._tell_to_end(process, TIME_IS_UP)
            if process.coroutine is None:
                self.stopped(process, TIME_IS_UP)
            else:
                process.throw_deadline(_too_long(process))

        self.clock.call_at(self.clock.monotonic() + seconds, over)

    # ------------------------------------------------------------------ the end of a process

    def fail(self, process: Process, error: BaseException) -> None:
        if isinstance(error, ExitProgram):
            self.finish(process, error.reason)
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
        journal = self.journal
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
                    if len(data) > limits.BLOB_INLINE_BYTES_MAX and journal.store.inline:
                        row.blob = journal.store.put_blob(data)
                    else:
                        row.value = rows.Raw(data)
                    result = codec.decode(data)
            self._end(process, Exit(reason, result, error))
            process.exit_seq = journal.write(process.pid, "process.terminated", rows.encode(row))
        else:
            self._end(process, Exit(reason, result, error))
            if self.listening:
                self.publish(
                    process.pid,
                    "process.terminated",
                    {"reason": reason, "error": error_to_row(error) if error is not None else None},
                )
        point("process.exiting")
        self._tell(process)

    def _end(self, process: Process, ended: Exit) -> None:
        self.interrupts.cancel_all(process.pid, "its process ended")
        process.exit = ended
        process.move("terminated")
        process.coroutine = None
        process.recall = None
        process.rng = None
        for task in self._branches.pop(process, ()):
            task.cancel()
        self.live -= 1
        if process.name is not None and self.names.get(process.name) is process:
            del self.names[process.name]
        parent = process.parent
        if parent is not None and parent.children is not None:
            parent.children.pop(process.pid, None)
        # Orphans go to the root, as in Unix: a crash stops another process only through a link or a supervisor.
        for child in (process.children or {}).values():
            child.parent = None
        process.children = None
        self.mailboxes.close(process)
        self.keep_ended(process)

    def keep_ended(self, process: Process) -> None:
        """An ended process stays in the table for a while; the oldest are let go."""
        self.processes[process.pid] = process
        self._ended.append(process.pid)
        while len(self._ended) > limits.ENDED_PROCESSES_KEPT:
            self.processes.pop(self._ended.popleft(), None)

    def _tell(self, process: Process) -> None:
        watchers, process.watchers = process.watchers, None
        for watcher in watchers or ():
            if isinstance(watcher, tuple):
                callback, context = watcher
                self.loop.call_soon(callback, process, context=context)
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
        self.publish(process.pid, "process.diverged", {"message": error.message, "at": error.fields.get("at")})
        self.interrupts.forget(process.pid)
        process.exit = Exit("divergence", None, error)
        process.move("terminated")
        process.coroutine = None
        self.live -= 1
        self._tell(process)

    def stop_tree(self, process: Process, reason: str) -> None:
        """Cancel a process and all below it, children first."""
        for child in list((process.children or {}).values()):
            self.stop_tree(child, reason)
        if process.exit is not None:
            return
        if process.kill_reason is not None:
            return
        self._tell_to_end(process, reason)
        if process.coroutine is None:  # dormant: there is nothing to cancel
            self.stopped(process, reason)
        else:
            process.cancel()

    def _tell_to_end(self, process: Process, reason: str) -> None:
        """From here on it may tidy up for a while; it does not come back after a restart."""
        self.record(process.pid, "process.stopping", rows.Stopping(reason))
        process.kill_reason = reason
        if process.recall is not None:  # what it does now is no part of the replay: its keys begin above all journaled
            process.keys = 1 + max((key for key in process.recall if isinstance(key, int)), default=process.keys)
            process.branches += len(process.recall)
            process.recall = None
            self.interrupts.cancel_unasked(process.pid, "its process was told to end")

        def insist() -> None:
            if process.exit is None and not self.stopping:
                self._close_program(process)
                self.stopped(process, reason)

        self.clock.call_at(self.clock.monotonic() + _KILL_GRACE_S, insist)

    def stopped(self, process: Process, reason: str) -> None:
        """It was told to end and did not do so itself."""
        if reason == TIME_IS_UP:
            self.finish(process, "error", error=_too_long(process))
        else:
            self.finish(process, reason)

    # ------------------------------------------------------------------ what the other modules need

    def register(self, program: Callable[..., Any]) -> None:
        """Make a program known by name; processes that waited for it go on."""
        self.programs.name(program)

    def start_dormant(self, name: str) -> None:
        if self._recovery is not None:
            self._recovery.revive(name)

    def effect(self, act: Any, options: dict[str, Any]) -> tuple[Effect, dict[str, Any]]:
        """The declared effect behind a function and options, and the keywords that are the function's own."""
        if not options:
            found = self._effects.get(act)
            if found is None:
                found = Effect.of(act)
                self._keep_effect(act, found)
            return found, _NO_KEYWORDS
        declared, keywords = Effect.split(options)
        key = (act, *sorted(declared.items(), key=_first)) if declared else act
        try:
            found = self._effects.get(key)
        except TypeError:  # an option without a hash (a mapping, say): build it each time
            return Effect.of(act, **declared), keywords
        if found is None:
            found = Effect.of(act, **declared)
            self._keep_effect(key, found)
        return found, keywords

    def _keep_effect(self, key: Any, effect: Effect) -> None:
        if len(self._effects) >= limits.EFFECTS_KEPT:  # functions made anew for each call must not pile up
            self._effects.clear()
        self._effects[key] = effect

    def gate(self, effect: Effect) -> Gate:
        found = self._gates.get(effect.name)
        if found is None:
            found = self._gates[effect.name] = Gate(self, effect)
        return found

    async def pause(self, process: Process, seconds: float) -> None:
        """Wait on the kernel's clock; not journaled."""
        waiters: list[Any] = []

        def ring() -> None:
            if waiters:
                resume(waiters.pop())

        timer = self.clock.call_at(self.clock.monotonic() + seconds, ring)
        try:
            await suspend(process, waiters)
        finally:
            timer.cancel()

    async def outside_pause(self, seconds: float) -> None:
        done = self.loop.create_future()
        self.clock.call_at(self.clock.monotonic() + seconds, lambda: resume(done))
        await done

    async def value_of(self, entry: Entry) -> bytes:
        """A journaled value's bytes, from the row or from its blob."""
        if not entry.blob:
            return bytes(entry.value)
        assert self.journal is not None
        data: bytes = await self.call(self.journal.store.get_blob, entry.blob)
        return data

    # ------------------------------------------------------------------ events

    def record(self, pid: str, kind: str, row: rows.Row) -> int:
        """A fact: into the journal if there is one (and published from there), else published now."""
        if self.journal is not None:
            return self.journal.write(pid, kind, rows.encode(row))
        if self.listening:
            self.publish(pid, kind, codec.decode(rows.encode(row)))
        return 0

    def publish(self, pid: str, kind: str, data: dict[str, Any]) -> None:
        """Tell listeners something that is not in the journal (its seq is 0)."""
        if self._listeners:
            self._tell_listeners(Event(0, self.clock.now(), pid, kind, data))

    def committed(self, batch: list[tuple[int, float, str, str, bytes]]) -> None:
        """A batch is durable: publish it, and think of a snapshot."""
        if self._listeners:
            for seq, time, pid, kind, data in batch:
                self._tell_listeners(Event(seq, time, pid, kind, codec.decode(data)))
        if self._recovery is not None:
            self._recovery.rows_written(batch[-1][0])

    def _tell_listeners(self, event: Event) -> None:
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a listener's mistake is its own; the kernel goes on
                self.loop.call_exception_handler(
                    {"message": f"an event listener failed on {event.kind}", "exception": error}
                )


_NO_KEYWORDS: dict[str, Any] = {}


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]


def _too_long(process: Process) -> DeadlineExceeded:
    seconds = process.budget.seconds
    return DeadlineExceeded(f"process {process.pid} ran longer than {seconds:g} s", pid=process.pid, limit_s=seconds)


def _stopped(pid: str) -> ProcessExit:
    return ProcessExit(
        f"the kernel stopped before process {pid} ended",
        hint="open the store again and it goes on",
        pid=pid,
    )


def _priority(word: str) -> int:
    try:
        return PRIORITIES.index(word)
    except ValueError:
        raise ConfigError(f"priority is {word!r}", hint=f"one of {', '.join(PRIORITIES)}") from None


def _check_word(what: str, word: Any) -> None:
    if not isinstance(word, str) or not word or len(word) > limits.NAME_LENGTH_MAX or not word.isprintable():
        raise ConfigError(f"{what} is {word!r}", hint=f"use 1 to {limits.NAME_LENGTH_MAX} printable characters")


class Ack:
    """A promise of the kernel: await it to know that the act is durable (and, for a send, that there was room)."""

    __slots__ = ("_kernel", "_seq")

    def __init__(self, kernel: Kernel, seq: int | Any) -> None:
        self._kernel = kernel
        self._seq = seq

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        seq = self._seq if isinstance(self._seq, int) else await self._seq
        if self._kernel.journal is not None:
            await self._kernel.journal.acknowledged(seq)


class Handle:
    """A process as the outside holds it."""

    __slots__ = ("_kernel", "_process")

    def __init__(self, kernel: Kernel, process: Process) -> None:
        self._kernel = kernel
        self._process = process

    def __await__(self) -> Generator[Any, None, Handle]:
        return self._durable().__await__()

    async def _durable(self) -> Handle:
        journal = self._kernel.journal
        if journal is not None:
            await journal.acknowledged(journal.seq)
        return self

    def __repr__(self) -> str:
        return f"<Handle {self._process!r}>"

    @property
    def pid(self) -> str:
        return self._process.pid

    @property
    def name(self) -> str | None:
        return self._process.name

    @property
    def state(self) -> str:
        return self._process.state

    @property
    def alive(self) -> bool:
        return self._process.alive

    @property
    def budget(self) -> Budget:
        return self._process.budget

    @property
    def grant(self) -> Grant:
        return self._process.grant

    @property
    def children(self) -> list[str]:
        return list(self._process.children or ())

    @property
    def parent(self) -> str | None:
        return self._process.parent.pid if self._process.parent is not None else None

    def send(self, message: Any) -> Ack:
        return self._kernel.send(self, message)

    def kill(self, reason: str = "killed") -> Ack:
        return self._kernel.kill(self, reason)

    async def wait(self) -> Exit:
        """How it ended, once that is durable."""
        kernel, process = self._kernel, self._process
        kernel.raise_if_failed()
        if process.exit is None:
            if kernel.stopping:
                raise _stopped(process.pid)
            future: asyncio.Future[None] = kernel.loop.create_future()
            process.watch(future)
            await future
        if kernel.journal is not None:
            await kernel.journal.acknowledged(process.exit_seq)
        assert process.exit is not None
        return process.exit

"""The ground floor of the kernel: what every part needs and no part owns.

`Core` has the clock and the loop, the table of processes, the journal while a store is open, publishing, and whether
the kernel is open, draining, stopping or lost its store. `Kernel` makes one and hands it to each part; no part below
the face knows `Kernel` itself. What a part needs of a part below it is an argument of its constructor. What a part has
to tell the parts above it goes one of two ways: through the moments of a `Subsystem` (see `subsystem`), or through a
callback of `Core` that the part above fills in when it is made (see the end of `Core.__init__`).
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar
from weakref import WeakSet

import msgspec

from lyra.core import codec
from lyra.core.checking.check import sendable_text
from lyra.core.clock import Clock, counts_suspension
from lyra.core.faultpoint import point
from lyra.core.ids import Entropy, make_random, unique_id
from lyra.core.limits import RECOVERY_ATTEMPTS
from lyra.errors import LyraError, NoSuchProcess, ProcessError, StoreFull
from lyra.kernel.base.listeners import Listeners
from lyra.kernel.base.subsystem import State, Subsystems
from lyra.kernel.base.tasks import Flight, Tasks, Writer, thread_id
from lyra.kernel.base.waiting import AnyProcess, Table, resume, suspend

if TYPE_CHECKING:
    from lyra.core.budgets.budget import Budget
    from lyra.core.rights.capability import Grant
    from lyra.store.protocol import Store


P = TypeVar("P", bound=AnyProcess)

_encode_row = msgspec.msgpack.Encoder(enc_hook=codec.to_plain).encode  # as `journal.rows` does


_FORKED: Final = -1  # the `thread` of a kernel in a forked child: no thread there owns it
_LIFE: Final = re.compile(r"~\d+:")  # in an idempotency key, behind a pid that a caller chose
_ASKED: Final = re.compile(r":[0-9a-f]{24}$")  # at its end: the digest of what is asked


class AnyJournal(Protocol):
    """The journal, as the parts write to it and wait for it."""

    store: Store
    epoch: int
    seq: int
    thread: int
    durable_seq: int
    elapsed_s: float
    pending: list[Any]
    waiters: list[Any]
    callers: list[Any]
    commits: int
    stuck: StoreFull | None
    frozen: bool

    @property
    def awaited(self) -> bool: ...

    @property
    def time(self) -> float: ...

    def write(self, pid: str, kind: str, data: bytes) -> int: ...

    def flush(self) -> None: ...

    def retry(self) -> None: ...

    async def durable(self, process: Any, seq: int) -> None: ...

    async def wait_until_durable(self, seq: int) -> None: ...

    def answer(self, error: LyraError | None) -> None: ...


class AnyScheduler(Protocol):
    """The scheduler, as the parts below it call it."""

    running: bool
    stopped: bool

    def poke(self) -> None: ...

    def push(self, process: Any) -> None: ...

    def give_way(self, process: Any) -> None: ...

    def wake_all(self, wakers: list[Any]) -> None: ...


class AnyEntry(Protocol):
    """A journaled answer, as far as its value is concerned."""

    blob: str
    value: Any


class Core(Generic[P]):
    """See the module. `P` is the type of a process, which is defined a layer above."""

    def __init__(
        self, clock: Clock, *, entropy: Entropy, budget: Budget, grant: Grant, processes_max: int, face: Any
    ) -> None:
        self.clock = clock
        self.elapsed: Callable[[], float] = counts_suspension(clock)
        self.wall_zero = clock.now() - self.elapsed()
        self.entropy = entropy
        self.rng = make_random(entropy.bits())
        self.budget = budget  # of the whole kernel: every root process's lies inside it
        self.grant = grant
        self.processes_max, self.recovery_attempts = processes_max, RECOVERY_ATTEMPTS
        # The Kernel: what Handles are given, and what the layers above reach from a process by `process.kernel`.
        self.face = face
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # set when the kernel starts
        self.processes: Table[P] = Table()
        self.names: dict[str, P] = {}
        self.live = 0  # processes that have not ended
        self.journal: AnyJournal | None = None  # None without a store
        self.states: dict[str, State] = {}  # what the subsystems remember, by name
        self.subsystems = Subsystems(self.states)
        self.tasks = Tasks()
        self.flight = Flight(self.came_to_its_end)
        self.forks: dict[str, dict[str, Any]] = {}  # processes that are forks of others: `Created.fork`, by pid
        # Effects at work, and those of them that are journaled and idempotent: cut off, they are made again.
        self.in_flight = self.in_flight_repeatable = 0
        self.held: list[Any] = []  # processes stopped at the door while the kernel drains
        self._not_started()
        self.listening = False
        self.listeners_want_states = False
        self.agents_heard: frozenset[str] = frozenset()  # the kinds of Events about agents that are heard
        self.listeners = Listeners(self)
        self.publish = self.listeners.publish
        self.store_id = unique_id()  # of the store once it is open; without a store of this kernel alone
        self.generation = ""  # of the store: another one where a copy of it may have gone on since; see `journal.lease`
        self.is_before_id: set[str] = set()  # live processes from before their store had an id
        self.lease_until = math.inf  # by `elapsed`: when the lease on the store ends unless it is renewed
        self._writer: Writer | None = None
        self._early_settings: list[tuple[State, str, dict[str, Any]]] = []  # made before the kernel was opened
        self._drained: asyncio.Future[None] | None = None
        self._flights_left = 0  # work of callers outside that draining does not wait for
        self._repeatable_left = False  # draining no longer waits for repeatable effects
        # Parts of the process layer, which every process reaches through its core:
        self.scheduler: AnyScheduler
        self.mailboxes: Any
        # Callbacks of the parts above, for the parts below:
        self.finish: Callable[..., None]  # Lifetimes.finish: the program of a process returned or was cancelled
        self.fail: Callable[[Any, BaseException], None]  # Lifetimes.fail: it raised
        self.branch_began: Callable[[Any], None]  # Lifetimes.branch_began: a task of a program makes a call
        self.stop_process: Callable[..., None]  # Lifetimes.stop: a linked process ended
        self.stop_tree: Callable[..., None]  # Lifetimes.stop_tree: a process is killed with all that it spawned
        self.calls: Any  # what `ctx` calls: programs.context.Calls
        self.remote: Any = None  # remote.posts.Remote of a shard: processes abroad
        self.taint: Any  # shared.taint.Taint: marks travel with messages, spawns and results
        self.find_replayed: Callable[[str], P | None] = lambda _: None  # Recovery: a child that came back
        self.confirm_lease: Callable[[Any], Awaitable[None]]  # Ownership.confirm: wait until the lease is renewed
        self.after_abort: list[Callable[[LyraError], None]] = []  # called when the store is lost
        self.after_commit: list[Callable[[int], None]] = []  # called with the last row of each durable batch

    def _not_started(self) -> None:
        self.thread = 0  # that runs the loop; 0 before the kernel starts
        self.started = False
        self.started_s = 0.0  # on the monotonic clock
        self.open = False
        self.draining = False
        self.stopping = False
        self.failure: LyraError | None = None

    def now(self) -> float:
        """Return the wall clock as it stood when the kernel was made, and as much later as has passed since.

        Rows are stamped with it and durations counted by it, so that no change of the clock, and no single wrong
        reading of it, reaches them.
        """
        return self.wall_zero + self.elapsed()

    # ------------------------------------------------------------------ open or not

    def begin(self) -> None:
        """Belong to the running loop and its thread from now on."""
        self.loop = asyncio.get_running_loop()
        self.thread = thread_id()
        self.started = self.open = True
        self.started_s = self.clock.monotonic()
        _begun.add(self)

    def raise_if_failed(self) -> None:
        if self.failure is not None:
            raise self.failure

    def raise_if_elsewhere(self) -> None:
        """Refuse a call from another thread than the loop's, or in a forked child, before anything has changed."""
        if thread_id() != self.thread and self.thread:
            if self.thread == _FORKED:
                raise ProcessError(
                    "the kernel belongs to the process that forked this one",
                    hint="make a kernel after the fork, or start a new process in place of forking",
                )
            raise ProcessError(
                "the kernel belongs to another thread",
                hint="call it in the thread of its loop: kernel.loop.call_soon_threadsafe(…)",
            )

    def raise_if_closed(self) -> None:
        if self.started and not self.stopping and self.failure is None and thread_id() == self.thread:
            return
        self.raise_if_elsewhere()
        self.raise_if_failed()
        if not self.started:
            raise ProcessError("the kernel is not open", hint="use `async with Kernel(…) as kernel:`")
        if self.stopping:
            raise ProcessError("the kernel is closed", hint="open the store again")

    def abort(self, error: LyraError) -> None:
        """Stop at once and tell every waiting caller: the store is lost to this kernel (fenced, damaged, gone)."""
        if self.failure is not None or self.stopping:
            return
        self.failure = error
        self.lease_until = -math.inf  # no effect begins any more
        self.open = False
        self.scheduler.stopped = True
        if self.journal is not None:
            self.journal.frozen = True
            self.journal.answer(error)
        self.publish("", "store.fenced" if error.code == "conflict" else "store.failed", {"message": error.message})
        for aborted in self.after_abort:
            aborted(error)
        self.mark_drained()

    def abort_on_error(self, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, LyraError) and not isinstance(error, StoreFull):
            self.abort(error)

    def idempotency_key(
        self, pid: str, call: int | str, life: int = 0, *, generation: str = "", asked: bytes = b""
    ) -> str:
        """Return the key of a call: unlike that of any other request, also in another store, and the same in every
        life.

        `life` tells processes apart that had one pid after the other. `generation` is that of the store when the call
        began, and `asked` the digest of what it asks for: without both it is the key that earlier versions made. A
        process that began before its store had an id keeps the keys without it, which the outside has seen.
        """
        if pid in self.is_before_id:
            return f"{pid}:{call}"
        name = f"{pid}~{life}" if life else pid
        if not generation:
            return f"{self.store_id}:{name}:{call}"
        return f"{self.store_id}.{generation}:{name}:{call}:{asked.hex()}"

    def call_named(self, idempotency_key: str) -> tuple[str, str]:
        """Return the generation and the `pid:call` in an idempotency key of this store; an earlier version named no
        generation."""
        generation, call = "", idempotency_key
        if idempotency_key.startswith(self.store_id):
            rest = idempotency_key.removeprefix(self.store_id)
            if rest[0] in ":.":
                generation, _, call = rest[1:].partition(":") if rest[0] == "." else ("", "", rest[1:])
                call = _ASKED.sub("", call)
        return generation, _LIFE.sub(":", call, count=1) if "~" in call else call

    # ------------------------------------------------------------------ draining

    async def drain(self, drain_s: float, *, repeatable_s: float | None = None, outside: bool = False) -> None:
        """Take nothing new and wait, for so long, until effects in flight have ended; with `outside` also dispatches
        and messages on the bus, except those that the caller itself is part of. Repeatable effects are waited for only
        `repeatable_s` long, where that is named."""
        self._flights_left = self.flight.mine if outside else self.flight.count
        self.draining = True
        self.open = False
        if self.in_flight == 0 and self.flight.count <= self._flights_left:
            return
        if self._drained is None:
            self._drained = self.loop.create_future()
            now_s = self.clock.monotonic()
            timers = [self.clock.call_at(now_s + drain_s, self.mark_drained)]
            if repeatable_s is not None and repeatable_s < drain_s:
                timers.append(self.clock.call_at(now_s + repeatable_s, self._leave_repeatable))
            for timer in timers:
                self._drained.add_done_callback(lambda _, timer=timer: timer.cancel())  # type: ignore[misc]
        await asyncio.shield(self._drained)  # a second caller waits for the same end

    def came_to_its_end(self) -> None:
        """Note that an effect, a dispatch or a message on the bus has ended."""
        waited_for = self.in_flight - self.in_flight_repeatable if self._repeatable_left else self.in_flight
        if self.draining and waited_for == 0 and self.flight.count <= self._flights_left:
            self.mark_drained()

    def _leave_repeatable(self) -> None:
        self._repeatable_left = True
        self.came_to_its_end()

    def mark_drained(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # ------------------------------------------------------------------ processes

    def lookup(self, pid_or_name: str) -> P | None:
        process = dict.get(self.processes, pid_or_name) or self.names.get(pid_or_name)
        if process is None and self.remote is not None and (own := self.remote.find_own(pid_or_name)) is not None:
            return self.lookup(own)
        return self.processes.get(pid_or_name) if process is None else process

    def find(self, pid_or_name: Any) -> P:
        process = self.lookup(pid_or_name) if isinstance(pid_or_name, str) else None
        if process is None:
            raise NoSuchProcess(f"no process {pid_or_name!r}", hint="kernel.processes lists them", pid=pid_or_name)
        return process

    def find_process(self, process: Any) -> P:
        """By pid, by name or by anything that has a `pid`, such as a handle."""
        pid = process if isinstance(process, str) else getattr(process, "pid", process)
        known = dict.get(self.processes, pid) if isinstance(pid, str) else None
        return self.find(pid) if known is None else known

    def find_again(self, pid: str) -> P:
        """For a replay: also processes that the table has let go since."""
        replayed = self.find_replayed(pid)
        process = self.processes.get(pid) or replayed
        return process if process is not None else self.find(pid)

    async def pause(self, process: P, seconds: float) -> None:
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
        """Pause a caller that is no process."""
        done = self.loop.create_future()
        timer = self.clock.call_at(self.clock.monotonic() + seconds, lambda: resume(done))
        try:
            await done
        finally:
            timer.cancel()

    # ------------------------------------------------------------------ the store

    @property
    def writer(self) -> Writer:
        if self._writer is None:
            self._writer = Writer(self.loop)
        return self._writer

    def close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def call(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call the store: on the loop if it is quick, else in the writer's thread."""
        assert self.journal is not None
        if self.journal.store.inline:
            return fn(*args, **kwargs)
        return await self.writer.submit(fn, *args, **kwargs)

    def call_now(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Call the store from code that cannot await: a slow store blocks the loop for this one call."""
        assert self.journal is not None
        if self.journal.store.inline:
            return fn(*args)
        return self.writer.wait_for(fn, *args)

    def put_blob_now(self, data: bytes) -> str:
        """Keep a large value beside the journal; gives its digest, or "" where the disk is full: then the value goes
        into the row, which waits for room with all the others."""
        assert self.journal is not None
        try:
            return str(self.call_now(self.journal.store.put_blob, data))
        except StoreFull:
            return ""

    async def value_of(self, entry: AnyEntry) -> bytes:
        """Return a journaled value's bytes, from the row or from its blob."""
        if not entry.blob:
            return bytes(entry.value)
        assert self.journal is not None
        data: bytes = await self.call(self.journal.store.get_blob, entry.blob)
        return data

    # ------------------------------------------------------------------ what happened

    def record(self, pid: str, kind: str, row: msgspec.Struct) -> int:
        """Write a row to the journal, which publishes it once it is durable; without a journal publish it now. Gives
        its number, 0 without a journal."""
        if thread_id() != self.thread:
            self.raise_if_elsewhere()
        if self.journal is not None:
            return self.journal.write(pid, kind, _encode_row(row))
        if self.listening:
            self.publish(pid, kind, codec.decode(_encode_row(row)) if self.listeners_want_states else {})
        return 0

    def fact(self, state: State, pid: str, kind: str, data: dict[str, Any]) -> int:
        """Change a subsystem's state: apply the fact, journal it if there is a journal, publish it. Gives its seq."""
        assert kind in state.KINDS, kind
        if thread_id() != self.thread:
            self.raise_if_elsewhere()
        if type(pid) is not str or not pid.isascii():  # ASCII text can always be sent
            pid = sendable_text(pid, "a pid")
        if self.journal is None:
            state.apply(kind, pid, self.now(), data)
            self.publish(pid, kind, data)
            return 0
        raw = codec.encode(data)
        state.apply(kind, pid, self.now(), codec.decode(raw))  # what a restart will apply
        seq = self.journal.write(pid, kind, raw)
        point("fact.written")
        return seq

    def setting(self, state: State, kind: str, data: dict[str, Any]) -> None:
        """Write a fact that may be made before the kernel is open: then it is written when it opens."""
        self.raise_if_elsewhere()
        if not self.started:
            self._early_settings.append((state, kind, data))
        self.fact(state, "", kind, data)

    def write_early_settings(self) -> None:
        for state, kind, data in self._early_settings:
            self.fact(state, "", kind, data)

    def on_commit(self, batch: list[tuple[int, float, str, str, bytes]]) -> None:
        """Publish a batch of rows that is durable, and tell the parts that count rows."""
        listeners = self.listeners
        if listeners.watchers or listeners._listeners or listeners._untold:
            listeners.on_commit(batch)
        for committed in self.after_commit:
            committed(batch[-1][0])


_begun: Final[WeakSet[Core[Any]]] = WeakSet()  # kernels that have a loop


def _disown_in_child() -> None:
    """Take the kernels of the parent from a forked child, which has copies of their objects and connections."""
    for core in _begun:
        core.thread = _FORKED
        if core.journal is not None:
            core.journal.thread = _FORKED


os.register_at_fork(after_in_child=_disown_in_child)

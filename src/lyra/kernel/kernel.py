"""The kernel: one table of processes, one loop, one door, no locks.

    async with Kernel("run.db", programs=[review]) as kernel:
        handle = kernel.spawn(review, "https://…", budget="$0.50")
        print((await handle.wait()).result)

Everything here happens on one event loop. This module is the face: opening and closing, what callers ask for, what
listeners hear. The life of a process (`life`), the door (`door`), the order of steps (`scheduler`), the journal
(`journal`), mailboxes (`mailbox`), questions (`interrupts`), coming back (`recovery`) and owning the store
(`ownership`) each have a module, and ARCHITECTURE.md walks one effect through them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from lyra.core import codec, limits
from lyra.core.budgets.budget import Budget
from lyra.core.checking.check import sendable_text
from lyra.core.clock import Clock, SystemClock
from lyra.core.event import Event
from lyra.core.faultpoint import point
from lyra.core.ids import Entropy, seeded
from lyra.core.rights.capability import Grant
from lyra.errors import (
    LyraError,
    NoSuchProcess,
    ProcessError,
    ProcessExit,
    StoreError,
    StoreFull,
)
from lyra.kernel.base.listeners import EventHandler, Listeners, Watchers
from lyra.kernel.base.subsystem import State
from lyra.kernel.base.tasks import Flight, Tasks, Writer
from lyra.kernel.bus.bus import CommBus
from lyra.kernel.cleanup import Rounds
from lyra.kernel.effects.door import Door
from lyra.kernel.effects.gates import GateState
from lyra.kernel.effects.registry import Declared
from lyra.kernel.health import HealthMonitor
from lyra.kernel.interrupts.service import InterruptService
from lyra.kernel.journal import rows
from lyra.kernel.journal.journal import Journal
from lyra.kernel.journal.lease import Ownership, owner_name
from lyra.kernel.pipelines.orchestrator import Orchestrator
from lyra.kernel.pipelines.runner import run_pipeline
from lyra.kernel.process.links import Links
from lyra.kernel.process.mailbox import Mailboxes
from lyra.kernel.process.process import Process, resume, suspend
from lyra.kernel.process.scheduler import Scheduler
from lyra.kernel.process.table import Table
from lyra.kernel.programs.handle import Ack, Handle, stopped_before
from lyra.kernel.programs.lifetime import Life
from lyra.kernel.programs.registry import Programs, Spawnable, dormant_process, program_of
from lyra.kernel.recovery import Recovery
from lyra.kernel.services.registry import ServiceRegistry
from lyra.kernel.shared.groups import Groups
from lyra.kernel.shared.memories import Memories
from lyra.kernel.shared.taint import Labels
from lyra.kernel.supervision.handle import SupervisorHandle, Supervisors
from lyra.kernel.supervision.supervisor import supervise
from lyra.kernel.worker_api import DRAIN_S, Requests
from lyra.kernel.workers.lifecycle import LifecycleManager
from lyra.kernel.workers.rate_limits import RateLimiter
from lyra.kernel.workers.time_limits import TimeLimits
from lyra.kernel.workers.usage import (
    ResourceTracker,
)
from lyra.store import open_store
from lyra.store.protocol import Store

if TYPE_CHECKING:
    from lyra.config import Config
    from lyra.kernel.journal.history import Entry

__all__ = ["Kernel"]

H = TypeVar("H", bound=Handle)
_REPLAY_LOOK_S: Final = 0.01  # between two looks whether a replay has registered a program
_REPLAY_LOOKS: Final = 500


class Kernel(Requests):
    def __init__(  # noqa: PLR0915 (one line a part)
        self,
        store: str | os.PathLike[str] | Store = "memory",
        clock: Clock | None = None,
        programs: Iterable[Any] = (),  # async functions, and Agents
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
        self._target: str | Store = os.fspath(store) if isinstance(store, os.PathLike) else store
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
        self.parts: dict[str, Any] = {}  # what the layers above keep for this kernel, by name
        self.config: Config | None = None  # that it was made from, for the layers above
        self.processes = Table()
        self.names: dict[str, Process] = {}
        self.live = 0
        self.journal: Journal | None = None
        self.scheduler = Scheduler(self)
        self.door = Door(self)
        self.life = Life(self)
        self.declared = Declared(self)
        self.links = Links(self)
        self.states: dict[str, State] = {}  # what the subsystems remember, by name
        self.mailboxes = Mailboxes(self, limit=mailbox_messages_max)
        self._make_subsystems()
        self.supervisors = Supervisors(self)
        self.tasks = Tasks()
        self.services = ServiceRegistry(self)
        self.states[self.services.state.NAME] = self.services.state
        self.groups = Groups(self)
        self.states[self.groups.state.NAME] = self.groups.state
        self.memories = Memories(self)
        self.states[self.memories.state.NAME] = self.memories.state
        self.labels = Labels(self)
        self.states[self.labels.state.NAME] = self.labels.state
        self.orchestrator = Orchestrator(self)
        self.states[self.orchestrator.state.NAME] = self.orchestrator.state
        self.bus = CommBus(self)
        self.health = HealthMonitor(self)
        self.held: list[Any] = []  # processes stopped at the door while the kernel drains
        self.open = False
        self.draining = False
        self.stopping = False
        self.failure: LyraError | None = None
        self.listening = False
        self.listeners_want_states = False
        self.agents_heard = False
        self.listeners = Listeners(self)
        self.publish = self.listeners.publish
        self._early: list[tuple[State, str, dict[str, Any]]] = []  # settings from before it was opened
        self.flight = Flight(self.came_to_its_end)
        self._left = 0  # of that, what nobody waits for when it closes
        self._ownership: Ownership | None = None
        self._recovery: Recovery | None = None
        self._writer: Writer | None = None
        self._drained: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self.programs = Programs(self, programs)
        self.programs.name(supervise)
        self.programs.name(run_pipeline)
        self.started = False
        self.started_s = 0.0  # on the monotonic clock
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # set by start()

    def _make_subsystems(self) -> None:
        """What keeps its facts in a State: made here, remembered by name."""
        self.interrupts = InterruptService(self)
        self.lifecycle = LifecycleManager(self)
        self.resources = ResourceTracker(self)
        self.rate_limiter = RateLimiter(self)
        self.gate_state = GateState()
        for state in (
            self.interrupts.state,
            self.lifecycle.state,
            self.resources.state,
            self.rate_limiter.state,
            self.gate_state,
        ):
            self.states[state.NAME] = state
        self.time_limits = TimeLimits(self)
        self._rounds = Rounds(self)

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
        made = cls(**{**settings, **overrides})
        made.config = config
        return made

    # ------------------------------------------------------------------ opening and closing

    async def __aenter__(self) -> Kernel:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self, *, owned: Callable[[], object] | None = None) -> None:
        """Own the store, bring its processes back, begin to run.

        `owned` is called once the store is this kernel's and nothing has been read from it: what it finds there nobody
        else can change, and where it raises, the store is given back as it was.
        """
        if self.started or self.stopping:
            raise ProcessError("a kernel is opened once", hint="make a new one: Kernel(…)")
        self.loop = asyncio.get_running_loop()
        self.started = self.open = True
        self.started_s = self.clock.monotonic()
        store = self._store()
        if store is None:
            return
        try:
            self._ownership = Ownership(self, store, lease_s=self._lease_s)
            lease = await self._ownership.take(owner_name(self.entropy.text(8)))
            if owned is not None:
                owned()
            self._recovery = Recovery(self, store)
            self.journal = Journal(self, store, epoch=lease.epoch, seq=0)
            await self._recovery.load()
            self.interrupts.restored()
            self.time_limits.restored()
            self.services.restored()
            self.rate_limiter.restored()
            self.groups.restored()
        except BaseException:
            self.started = self.open = False
            self.journal = None
            if self._ownership is not None:
                self._ownership.give_up()
            self._release_store(store)
            raise
        for state, kind, data in self._early:
            self.fact(state, "", kind, data)
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

    def call_now(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """The same where nothing can wait: a slow store holds the loop up for one call, and is never used by two."""
        assert self.journal is not None
        if self.journal.store.inline:
            return fn(*args)
        return self.writer.wait_for(fn, *args)

    async def call(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """A call to the store: on the loop if it is quick, else in the writer's thread."""
        assert self.journal is not None
        if self.journal.store.inline:
            return fn(*args, **kwargs)
        return await self.writer.submit(fn, *args, **kwargs)

    async def close(self, *, drain_s: float = DRAIN_S, snapshot: bool = True) -> None:
        """Stop in order: let effects in flight finish, write the rest, keep the processes for next time.

        Without a `snapshot` the next opening takes longer; right where there will be none.

        With a store, processes do not end here: they go on when it is opened again. Without one they end as
        `shutdown`.
        """
        if self._closing is not None:
            await asyncio.shield(self._closing)
            return
        self._closing = asyncio.get_running_loop().create_future()
        try:
            await self._close(drain_s, snapshot=snapshot)
        finally:
            self._closing.set_result(None)

    async def _close(self, drain_s: float, *, snapshot: bool) -> None:
        if not self.started:
            self.stopping = True
            return
        if self.failure is None:
            await self.drain(drain_s)
        self.stopping = True
        self.interrupts.stop()
        self.time_limits.stop()
        self.services.stop()
        self.health.stop()
        self.bus.stop()
        self._rounds.stop()
        if self._recovery is not None:
            self._recovery.stop()
        journal = self.journal
        try:
            if journal is not None and self.failure is None:
                await self._last_commit(journal, snapshot=snapshot)
        finally:  # also when the last rows find no room: nobody was told that they are kept
            await self._shut(journal)

    async def _shut(self, journal: Journal | None) -> None:
        self.scheduler.stopped = True
        if journal is not None:
            journal.frozen = True
        self._stop_programs()
        for part in self.parts.values():
            await part.close()
        await self.tasks.close()
        if self._ownership is not None and journal is not None:
            self._ownership.stop()
            with suppress(StoreError):  # lost with the store, or somebody else's by now
                self._ownership.give_up()
            self._release_store(journal.store)

    async def drain(self, drain_s: float, *, outside: bool = False) -> None:
        """Take nothing new and let effects in flight come to their end, for so long; with `outside` also dispatches and
        messages on the bus."""
        self._left = self.flight.mine if outside else self.flight.count
        self.draining = True
        self.open = False
        if self.door.in_flight == 0 and self.flight.count <= self._left:
            return
        if self._drained is None:
            self._drained = self.loop.create_future()
            timer = self.clock.call_at(self.clock.monotonic() + drain_s, self.drained)
            self._drained.add_done_callback(lambda _: timer.cancel())
        await asyncio.shield(self._drained)  # whoever asks a second time waits for the same end

    def came_to_its_end(self) -> None:
        """An effect, a dispatch or a message on the bus."""
        if self.draining and self.door.in_flight == 0 and self.flight.count <= self._left:
            self.drained()

    def drained(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def _last_commit(self, journal: Journal, *, snapshot: bool) -> None:
        await journal.acknowledged(journal.seq)
        if snapshot and self._recovery is not None and self.failure is None:
            await self._recovery.snapshot_at_close()

    def _stop_programs(self) -> None:
        """Each live program sees CancelledError once; nothing it still does is performed or written."""
        for guests in self.processes.guests:
            guests.stop()
        for process in list(self.processes.present()):
            if process.exit is not None:
                continue
            if self.journal is None:
                process.kill_reason = "shutdown"
            self.life.close_program(process)
            self.life.stop_branches(process)
            if self.journal is None and process.exit is None:
                self.life.finish(process, "shutdown")
            self.life.let_go(process, self.failure or stopped_before(process.pid))

    def abort(self, error: LyraError) -> None:
        """The store is lost to us (fenced, damaged, gone): stop at once and tell everybody who waits."""
        if self.failure is not None or self.stopping:
            return
        self.failure = error
        self.open = False
        self.scheduler.stopped = True
        if self.journal is not None:
            self.journal.frozen = True
            self.journal.answer(error)
        self.publish("", "store.fenced" if error.code == "conflict" else "store.failed", {"message": error.message})
        for process in self.processes.present():
            self.life.let_go(process, error)
        self.drained()

    def abort_on_error(self, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, LyraError) and not isinstance(error, StoreFull):
            self.abort(error)

    def raise_if_failed(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _raise_if_closed(self) -> None:
        self.raise_if_failed()
        if not self.started:
            raise ProcessError("the kernel is not open", hint="use `async with Kernel(…) as kernel:`")
        if self.stopping:
            raise ProcessError("the kernel is closed", hint="open the store again")

    # ------------------------------------------------------------------ processes, from outside

    @overload
    def spawn(self, program: Spawnable[H], *args: Any, **options: Any) -> H: ...

    @overload
    def spawn(self, program: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **options: Any) -> Handle: ...

    def spawn(
        self,
        program: Any,
        *args: Any,
        pid: str | None = None,
        name: str | None = None,
        supervision: Any = None,
        budget: Any = None,
        grant: Any = None,
        priority: str | None = None,
    ) -> Any:
        """Start a process; awaiting the handle waits until it is durable. An existing pid gives that process.

        With `supervision`, crashes are met as it says, and the handle stands for the process across its restarts.
        """
        handle_of = getattr(program, "__lyra_handle__", Handle)
        if pid is not None and pid in self.processes:
            self.programs.name(program)
            return handle_of(self, self.processes[pid])
        if supervision is None:
            supervision = getattr(program, "supervision", None)
        if budget is None:
            budget = getattr(program, "budget", None)
        if supervision is not None:
            program, args = self.supervisors.guard(program, args, supervision)
        process = self.life.start(
            program_of(program), args, parent=None, pid=pid, name=name, budget=budget, grant=grant, priority=priority
        )
        return handle_of(self, process)

    def supervise(
        self,
        children: Iterable[Any] = (),
        *,
        strategy: str = "one_for_one",
        max_restarts: int = 3,
        window_s: float = 60.0,
        auto_shutdown: str = "never",
        backoff: Any = None,
        name: str | None = None,
        pid: str | None = None,
        budget: Any = None,
        grant: Any = None,
        priority: str | None = None,
    ) -> SupervisorHandle:
        """Start a supervisor; awaiting it waits until its children are started. An existing pid gives that one."""
        return self.supervisors.begin(
            children,
            pid=pid,
            name=name,
            options={"budget": budget, "grant": grant, "priority": priority},
            strategy=strategy,
            max_restarts=max_restarts,
            window_s=window_s,
            auto_shutdown=auto_shutdown,
            backoff=backoff,
        )

    def supervisor(self, pid_or_name: str | Handle) -> SupervisorHandle:
        """A supervisor that runs, or ran, by pid or name."""
        return self.supervisors.get(pid_or_name)

    async def run(self, program: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Spawn, wait, and give the result or raise the error."""
        ended = await self.spawn(program, *args, **options).wait()
        if ended.error is not None:
            raise ended.error
        if ended.reason != "normal":
            raise ProcessExit(f"the process ended: {ended.reason}", reason=ended.reason)
        return ended.result

    def process(self, pid: str | Handle) -> Handle:
        return Handle(self, self._find(pid))

    def whereis(self, name: str) -> Handle | None:
        found = self.names.get(name)
        return Handle(self, found) if found is not None else None

    def send(self, to: str | Handle, message: Any) -> Ack:
        """Put a message in a mailbox; awaiting it waits for room and until the message is durable."""
        self._raise_if_closed()
        return Ack(self, self.send_to(self._find(to), message))

    def send_to(self, receiver: Process, message: Any) -> int | Awaitable[int]:
        """The same for who has the process and does not wait: the seq of its row, or what gives it after a wait."""
        if receiver.senders or self.mailboxes.full(receiver):  # no room, or others were here first
            return self.mailboxes.send_in_turn(receiver, message)
        return self.mailboxes.deliver(receiver, message)

    def kill(self, pid: str | Handle, reason: str = "killed") -> Ack:
        """Stop a process and everything it spawned; a dead one stays dead."""
        self._raise_if_closed()
        self.life.stop_tree(self._find(pid), sendable_text(reason, "a reason to kill"))
        return Ack(self, self.journal.seq if self.journal is not None else 0)

    def link(self, one: str | Handle, other: str | Handle) -> Ack:
        """Tie two processes together: if one ends abnormally, the other ends too, or is told if it traps exits."""
        self._raise_if_closed()
        self.links.link(self._find(one), self._find(other))
        return self._acknowledge()

    def unlink(self, one: str | Handle, other: str | Handle) -> Ack:
        self._raise_if_closed()
        self.links.unlink(self._find(one), self._find(other))
        return self._acknowledge()

    def _find(self, process: Any) -> Process:
        return self.find(process if isinstance(process, str) else getattr(process, "pid", process))

    def durable(self) -> Ack:
        """Await it to know that everything that happened so far is kept: for calls that give a value, not an Ack."""
        self._raise_if_closed()
        return self._acknowledge()

    def _acknowledge(self) -> Ack:
        return Ack(self, self.journal.seq if self.journal is not None else 0)

    # ------------------------------------------------------------------ events, for listeners

    def on_event(self, listener: EventHandler, kinds: Iterable[str] | None = None) -> Callable[[], None]:
        """Be called with every Event (or those of some kinds), after it is durable; gives a callable that ends it.

        A plain function is called at once and must be quick; an async one is run beside the kernel.
        """
        return self.listeners.add(listener, kinds)

    def emit_event(self, event: Event | Mapping[str, Any]) -> None:
        """Tell all listeners of an Event from outside: its kind is one of the known ones, and nothing is kept."""
        self._raise_if_closed()
        self.listeners.emit(event)

    def watch(self, watchers: Watchers) -> None:
        """For the health monitor: have a function a kind called with the pid and the data (or the row's bytes), which
        costs less than an Event each. The steps of programs are in `scheduler.stepped` meanwhile."""
        self.scheduler.stepped = {} if watchers else None
        self.listeners.watch(watchers)

    # ------------------------------------------------------------------ the table

    def find_again(self, pid: str) -> Process:
        """For a replay: also processes that the table has let go since."""
        found = self.processes.get(pid) or (self._recovery.recalled(pid) if self._recovery is not None else None)
        return found if found is not None else self.find(pid)

    def lookup(self, pid_or_name: str) -> Process | None:
        try:
            return self.processes[pid_or_name]
        except KeyError:
            return self.names.get(pid_or_name)

    def find(self, pid_or_name: Any) -> Process:
        found = self.lookup(pid_or_name) if isinstance(pid_or_name, str) else None
        if found is None:
            raise NoSuchProcess(f"no process {pid_or_name!r}", hint="kernel.processes lists them", pid=pid_or_name)
        return found

    # ------------------------------------------------------------------ what the other modules need

    def register(self, program: Any) -> None:
        """Make a program known by name; processes that waited for it go on."""
        self.programs.name(program)

    def missing_program(self, process: Process) -> str | None:
        """The program that a process cannot go on without and that this kernel does not know; a guard's is that of the
        process it stands for."""
        if self._recovery is None or not (self._recovery.dormant or self.supervisors.waiting):
            return None
        run = process.stands_for or process
        name = run.program if run.is_dormant else self.supervisors.missing_program(process.pid)
        return name if name is not None and self.programs.get(name) is None else None

    async def until_known(self, process: Process) -> None:
        """Return when the process can go on; ConfigError if it is dormant. While other processes replay, the spawn that
        registers its program may still come, so this waits for them, for a limited time."""
        for _ in range(_REPLAY_LOOKS):
            program = self.missing_program(process)
            if program is None:
                return
            if not self.may_become_known(program):
                break
            await self.outside_pause(_REPLAY_LOOK_S)
        else:
            program = self.missing_program(process)
        if program is not None:
            raise dormant_process(process.pid, program)

    def may_become_known(self, program: str) -> bool:
        """Whether the replay of another process is about to register a program."""
        return self._recovery is not None and self._recovery.may_become_known(program)

    def start_dormant(self, name: str) -> None:
        self.supervisors.known(name)
        if self._recovery is not None:
            self._recovery.revive(name)

    def hold_back(self) -> None:
        """Dormant processes whose programs become known from now on wait for `let_go`."""
        if self._recovery is not None:
            self._recovery.hold_back()

    def let_go(self, but: Collection[str] = ()) -> None:
        """They go on, but these: those wait for another `let_go`."""
        if self._recovery is not None:
            self._recovery.let_go(but)

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
            self.publish(pid, kind, codec.decode(rows.encode(row)) if self.listeners_want_states else {})
        return 0

    def fact(self, state: State, pid: str, kind: str, data: dict[str, Any]) -> int:
        """A subsystem's state changes: applied, journaled if there is a journal, and published. Gives the row's seq."""
        assert kind in state.KINDS, kind
        if self.journal is None:
            state.apply(kind, pid, self.clock.now(), data)
            self.publish(pid, kind, data)
            return 0
        raw = codec.encode(data)
        state.apply(kind, pid, self.clock.now(), codec.decode(raw))  # what a restart will apply
        seq = self.journal.write(pid, kind, raw)
        point("fact.written")
        return seq

    def setting(self, state: State, kind: str, data: dict[str, Any]) -> None:
        """A fact that may be set before the kernel is open: then it is written when it opens."""
        if not self.started:
            self._early.append((state, kind, data))
        self.fact(state, "", kind, data)

    def committed(self, batch: list[tuple[int, float, str, str, bytes]]) -> None:
        """A batch is durable: publish it, and think of a snapshot."""
        self.listeners.committed(batch)
        if self._recovery is not None:
            self._recovery.rows_written(batch[-1][0])

"""The kernel: one table of processes, one loop, one door, no locks.

    async with Kernel("run.db", programs=[review]) as kernel:
        handle = kernel.spawn(review, "https://…", budget="$0.50")
        print((await handle.wait()).result)

Everything here happens on one event loop. This module is the face: it has what callers ask for. The parts behind it are
made in `assembly`, where a new subsystem is added. The ground floor (`base.core`), the start and end of processes
(`programs.lifetime`), the door (`effects.door`), the order of steps (`process.scheduler`), the journal
(`journal.journal`), mailboxes (`process.mailbox`), questions (`interrupts`), opening and closing (`opening`), coming
back (`recovery`) and owning the store (`journal.lease`) each have a module, and ARCHITECTURE.md walks one effect
through them. No module below this one knows it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, overload

from lyra.core import limits
from lyra.core.budgets.budget import Budget, Limits
from lyra.core.checking.check import check_integer, sendable_text
from lyra.core.clock import Clock, loop_clock
from lyra.core.event import Event
from lyra.core.hints import Taken
from lyra.core.ids import Entropy
from lyra.core.naming import give_name
from lyra.core.rights.capability import Grant, Rights
from lyra.core.rights.scope import EVERYTHING
from lyra.errors import ConfigError, LyraError, NameTaken, ProcessError, ProcessExit
from lyra.kernel.as_user import UserKernel
from lyra.kernel.assembly import KernelParts
from lyra.kernel.base.acting import acting, as_registered, require, require_signal
from lyra.kernel.base.core import AnyJournal, Core
from lyra.kernel.base.listeners import EventHandler, Watchers, words
from lyra.kernel.effects.door import Door
from lyra.kernel.journal.history import ProcessState
from lyra.kernel.journal.rows import text_of
from lyra.kernel.opening import StoreTarget
from lyra.kernel.pipelines.runner import run_pipeline
from lyra.kernel.process.links import Down
from lyra.kernel.process.process import Process
from lyra.kernel.programs.context import Context, require_send
from lyra.kernel.programs.handle import Ack, Handle, acknowledge
from lyra.kernel.programs.lifetime import check_word
from lyra.kernel.programs.registry import Programs, Spawnable, SpawnOptions, dormant_process, program_of
from lyra.kernel.seams import Seams
from lyra.kernel.services.registry import ServiceRegistry
from lyra.kernel.shared.taint import Taint
from lyra.kernel.supervision.handle import SupervisorHandle
from lyra.kernel.supervision.supervisor import supervise
from lyra.kernel.worker_api import DRAIN_S, WorkerApi, forward
from lyra.kernel.workers.envelope_table import EnvelopeTable
from lyra.kernel.workers.lifecycle import LifecycleManager
from lyra.kernel.workers.rate_limits import RateLimiter
from lyra.kernel.workers.usage import ResourceTracker
from lyra.store import KeyedStore
from lyra.store.protocol import Store

if TYPE_CHECKING:
    from typing import Unpack

    from lyra.config import Config

H = TypeVar("H", bound=Handle)
T = TypeVar("T")


class KernelOptions(TypedDict, total=False):
    """The options of a Kernel besides its budget, and their types: `lyra.run` passes them on."""

    store: str | os.PathLike[str] | KeyedStore | Store
    clock: Clock | None
    programs: Iterable[Any]
    durability: str
    grant: Rights | None
    seed: int | None
    lease_s: float
    lease_wait_s: float | None
    snapshot_every_events: int
    retention_s: float
    mailbox_messages_max: int
    processes_max: int
    recovery_attempts: int
    seams: Seams


class Kernel(KernelParts):
    """See the module. The parts are attributes; the door, the programs and `kill` are the kernel's for good: other ones
    are handed in when it is made (`seams`)."""

    __slots__ = ("__weakref__", "_kills", "config")

    def __init__(
        self,
        store: str | os.PathLike[str] | KeyedStore | Store = "memory",
        clock: Clock | None = None,
        programs: Iterable[Any] = (),  # async functions, and Agents
        *,
        durability: str = "process",
        budget: Limits | None = None,
        grant: Rights | None = None,
        seed: int | None = None,
        lease_s: float = limits.LEASE_S,
        lease_wait_s: float | None = None,
        snapshot_every_events: int = limits.SNAPSHOT_EVERY_EVENTS,
        retention_s: float = limits.RETENTION_S,
        mailbox_messages_max: int = limits.MAILBOX_MESSAGES_MAX,
        processes_max: int = limits.PROCESSES_MAX,
        recovery_attempts: int = limits.RECOVERY_ATTEMPTS,
        seams: Seams = Seams(),  # noqa: B008 (unchanging)
    ) -> None:
        core: Core[Process] = Core(
            loop_clock() if clock is None else clock,
            entropy=Entropy(seed),
            budget=Budget.of(budget),
            grant=Grant.of(grant),
            processes_max=processes_max,
            face=self,
        )
        core.recovery_attempts = check_integer(recovery_attempts, "recovery_attempts")
        target = os.fspath(store) if isinstance(store, os.PathLike) else store
        wait_s = max(limits.LEASE_WAIT_S, lease_s + 1.0) if lease_wait_s is None else lease_wait_s
        super().__init__(
            core,
            seams,
            StoreTarget(target, durability, lease_s, wait_s),
            mailbox_messages_max=mailbox_messages_max,
            snapshot_every_events=snapshot_every_events,
            retention_s=retention_s,
            close=lambda drain_s: self.close(drain_s=drain_s),
        )
        self.config: Config | None = None  # that it was made from, for the layers above
        self._kills = seams.kills
        for program in (*programs, supervise, run_pipeline):
            self._programs.name(program)

    @classmethod
    def from_config(cls, config: Config, **overrides: Any) -> Kernel:
        """Return a kernel as the configuration files, the environment and the flags describe it."""
        kernel, budget = config.kernel, config.budget
        settings: dict[str, Any] = {
            "store": overrides["store"] if "store" in overrides else config.store_target(),
            "durability": kernel.durability,
            "lease_s": kernel.lease_s,
            "lease_wait_s": kernel.lease_wait_s,
            "snapshot_every_events": kernel.snapshot_every_events,
            "retention_s": kernel.retention_s,
            "mailbox_messages_max": kernel.mailbox_messages_max,
            "processes_max": kernel.processes_max,
            "recovery_attempts": kernel.recovery_attempts,
            "budget": {"usd": budget.usd, "seconds": budget.seconds, "on_exceed": budget.on_exceed},
            "grant": config.grant,
        }
        configured = cls(**{**settings, **overrides})
        configured.config = config
        return configured

    # ------------------------------------------------------------------ what cannot be assigned over

    @property
    def door(self) -> Door:
        return self._door

    @property
    def programs(self) -> Programs:
        return self._programs

    @property
    def labels(self) -> Taint:
        """`taint`, by its earlier name."""
        return self.taint

    @property
    def schedules(self) -> Any:
        """The programs that this shard of a cluster starts at set times (`remote.schedules.Schedules`): `add`, `remove`
        and `list_kept`."""
        if self.core.remote is None:
            raise ConfigError(
                "schedules are kept by a cluster, and this kernel is in none",
                hint="start hosts with `lyra cluster start`, which may be one",
            )
        return self.core.remote.schedules

    # ------------------------------------------------------------------ the state of the ground floor

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.core.loop

    @property
    def journal(self) -> AnyJournal | None:
        return self.core.journal

    @property
    def live(self) -> int:
        """Processes that have not ended."""
        return self.core.live

    @property
    def processes_max(self) -> int:
        return self.core.processes_max

    @processes_max.setter
    def processes_max(self, most: int) -> None:
        self.core.raise_if_elsewhere()
        self.core.processes_max = most

    @property
    def started(self) -> bool:
        return self.core.started

    @property
    def open(self) -> bool:
        return self.core.open

    @property
    def draining(self) -> bool:
        return self.core.draining

    @property
    def stopping(self) -> bool:
        return self.core.stopping

    @property
    def failure(self) -> LyraError | None:
        return self.core.failure

    @property
    def listening(self) -> bool:
        return self.core.listening

    @property
    def listeners_want_states(self) -> bool:
        return self.core.listeners_want_states

    @property
    def agents_heard(self) -> frozenset[str]:
        return self.core.agents_heard

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

        `owned` is called once the store is this kernel's and nothing has been read from it: no other kernel can
        change what it reads there, and where it raises, the store is given back as it was.
        """
        await self._opening.start(owned)

    def open_reader(self) -> Store | None:
        """Return a connection of its own to this kernel's store, for reading beside it; the caller closes it. None for
        a kernel without a store, or with one that was handed in."""
        return self._opening.target.open_own()

    async def close(
        self, *, drain_s: float = DRAIN_S, repeatable_drain_s: float | None = None, snapshot: bool = True
    ) -> None:
        """Stop in order: let effects in flight finish, write the rest, keep the processes for next time.

        With `repeatable_drain_s`, idempotent effects of a kernel with a store are waited for only so long: they are
        made again when it is opened the next time.

        Without a `snapshot` the next opening takes longer; right where there will be none.

        With a store, processes do not end here: they continue when it is opened again. Without one they end as
        `shutdown`.
        """
        require_signal("kernel")
        await self._opening.close(drain_s, repeatable_drain_s, snapshot=snapshot)

    # ------------------------------------------------------------------ processes, from outside

    @overload
    def spawn(self, program: Spawnable[H], *task: Any, **options: Unpack[SpawnOptions]) -> H: ...

    @overload
    def spawn(
        self,
        program: Callable[[Context, *Taken], Coroutine[Any, Any, T]],
        *args: *Taken,
        **options: Unpack[SpawnOptions],
    ) -> Handle[T]: ...

    def spawn(  # type: ignore[misc]  # *args is any *Taken
        self,
        program: Any,
        *args: Any,
        pid: str | None = None,
        name: str | None = None,
        supervision: Any = None,
        budget: Any = None,
        grant: Any = None,
        priority: str | None = None,
        recovery_attempts: int | None = None,
    ) -> Any:
        """Start a process; awaiting the handle waits until it is durable. An existing pid gives that process.

        A process that has ended is forgotten `retention_s` later (7 days by default; a live parent that may still ask
        for it keeps it), and its pid with it: from then on the same `pid` starts the program again.

        With `supervision`, crashes are met as it says, and the handle represents the process across its restarts.
        `recovery_attempts` is how often a call that crashes of the kernel cut off is made again before the process
        stops; processes that it starts have the same, unless they say otherwise.
        """
        task = program_of(program)
        handle_of = getattr(task, "__lyra_handle__", Handle)
        if pid is not None:
            self.core.raise_if_elsewhere()
            if type(pid) is not str:
                pid = check_word("pid", pid)
            if pid in self.processes:
                process = self.processes[pid]
                self._raise_if_other(process, self.programs.name(task))
                return handle_of(self, process)
        if supervision is None:
            supervision = getattr(program, "supervision", None)
        if budget is None:
            budget = getattr(program, "budget", None)
        if recovery_attempts is not None:
            recovery_attempts = check_integer(recovery_attempts, "recovery_attempts")
        if supervision is not None:
            self.core.raise_if_elsewhere()
            task, args = self.supervisors.guard(program, args, supervision)
        process = self.lifetimes.start(
            task,
            args,
            parent=None,
            pid=pid,
            name=name,
            budget=budget,
            grant=grant,
            priority=priority,
            recovery_attempts=recovery_attempts,
        )
        return handle_of(self, process)

    def _raise_if_other(self, process: Process, program: str) -> None:
        """Refuse to take a live process for one of another program, such as an agent that has another name by now."""
        run = process.stands_for or process
        kept = run.program
        if process.exit is None and kept != program and kept != self._programs.name(supervise):
            raise NameTaken(
                f"process {process.pid} runs {kept}, not {program}",
                hint="take another pid, or spawn the program that it runs",
                pid=process.pid,
                program=kept,
            )

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
            pid=None if pid is None else check_word("pid", pid),
            name=name,
            options={"budget": budget, "grant": grant, "priority": priority},
            strategy=strategy,
            max_restarts=max_restarts,
            window_s=window_s,
            auto_shutdown=auto_shutdown,
            backoff=backoff,
        )

    def supervisor(self, pid_or_name: str | Handle) -> SupervisorHandle:
        """Return a supervisor that runs, or ran, by pid or name."""
        return self.supervisors.get(pid_or_name)

    @overload
    async def run(self, program: Spawnable[Handle[T]], *task: Any, **options: Unpack[SpawnOptions]) -> T: ...

    @overload
    async def run(
        self,
        program: Callable[[Context, *Taken], Coroutine[Any, Any, T]],
        *args: *Taken,
        **options: Unpack[SpawnOptions],
    ) -> T: ...

    async def run(self, program: Any, *args: Any, **options: Unpack[SpawnOptions]) -> Any:  # type: ignore[misc]  # *args is any *Taken
        """Spawn, wait, and give the result or raise the error. An agent's result is its answer to the task."""
        ended = await self.spawn(program, *args, **options).wait()
        if ended.error is not None:
            raise ended.error
        if ended.reason != "normal":
            raise ProcessExit(f"the process ended: {ended.reason}", reason=ended.reason)
        return ended.result

    def process(self, pid: str | Handle) -> Handle:
        """Return a handle on a process, by its pid or name, or by its address on another shard of the cluster."""
        if self.core.remote is not None and (address := self.core.remote.address_named(pid)) is not None:
            abroad: Handle = self.core.remote.handle_of(self, address)
            return abroad
        return Handle(self, self.core.find_process(pid))

    def agent(self, pid: str | Handle) -> Any:
        """Return the AgentProcess of a pid or name, as `spawn` gave it. ConfigError, if the process runs something
        else, or this kernel does not know its agent. An address on another shard gives an AgentAbroad."""
        if self.core.remote is not None and (address := self.core.remote.address_named(pid)) is not None:
            return self.core.remote.agent_of(self, address)
        process = self.core.find_process(pid)
        run = process.stands_for or process
        missing = self.missing_program(process)
        if missing is not None:
            raise dormant_process(process.pid, missing)
        handle_of = getattr(self.programs.get(run.program), "__lyra_handle__", None)
        if handle_of is None:
            raise ConfigError(f"process {process.pid} runs {run.program}, and no agent", pid=process.pid)
        return handle_of(self, process)

    def whereis(self, name: str) -> Handle | None:
        """Return the process of that name, if there is one; `shard/name` names one on another shard, and whether it is
        there is found out when it is used."""
        remote = self.core.remote
        if remote is not None:
            if remote.knows(name):
                abroad: Handle = remote.handle_of(self, name)
                return abroad
            name = remote.find_own(name) or name
        process = self.names.get(sendable_text(name, "a name"))
        return Handle(self, process) if process is not None else None

    def send(self, to: str | Handle, message: Any) -> Ack:
        """Put a message in a mailbox; awaiting it waits for room and until the message is durable."""
        core = self.core
        core.raise_if_closed()
        if core.remote is not None and (address := core.remote.address_named(to)) is not None:
            require("process.send", address)
            return Ack(core, core.remote.messages.send_from_outside(address, message))
        receiver = core.find_process(to)
        require_send(receiver)
        return Ack(core, self.mailboxes.send(receiver, message))

    def send_to(self, receiver: Process, message: Any) -> int | Awaitable[int]:
        """Send to a process for the layers above, without an Ack and without asking for a right: the seq of the
        message's row, or what gives it after a wait for room."""
        return self.mailboxes.send(receiver, message)

    def kill(self, pid: str | Handle, reason: str = "killed") -> Ack:
        """Stop a process and everything it spawned; a dead one stays dead."""
        if self._kills:
            core = self.core
            core.raise_if_closed()
            if core.remote is not None and (address := core.remote.address_named(pid)) is not None:
                require("process.send", address)
                core.remote.ties.kill(address, sendable_text(reason, "a reason to kill"), acting())
                return acknowledge(core)
            process = core.find_process(pid)
            require_send(process)
            self.lifetimes.stop_tree(process, sendable_text(reason, "a reason to kill"))
        return acknowledge(self.core)

    def end(self, pid: str | Handle, reason: str = "killed") -> Ack:
        """`kill` for the layers above: what a process has started, it may end without a right to."""
        if self._kills:
            self.core.raise_if_closed()
            process = self.core.find_process(pid)
            above = acting()
            parent = process.parent
            while parent is not None and parent is not above:
                parent = parent.parent
            if not (above is None or parent is above):
                require_send(process)
            self.lifetimes.stop_tree(process, sendable_text(reason, "a reason to kill"))
        return acknowledge(self.core)

    def link(self, one: str | Handle, other: str | Handle) -> Ack:
        """Tie two processes together: if one ends abnormally, the other ends too, or is told if it traps exits."""
        self.core.raise_if_closed()
        if self.core.remote is None or not self._tie_abroad("link", one, other):
            self.links.link(*self._ends(one, other))
        return acknowledge(self.core)

    def unlink(self, one: str | Handle, other: str | Handle) -> Ack:
        self.core.raise_if_closed()
        if self.core.remote is None or not self._tie_abroad("unlink", one, other):
            self.links.unlink(*self._ends(one, other))
        return acknowledge(self.core)

    def _tie_abroad(self, what: str, first: str | Handle, second: str | Handle) -> bool:
        """Tie or untie two processes of which one is on another shard; False where both are here."""
        remote = self.core.remote
        addresses = remote.address_named(first), remote.address_named(second)
        if addresses == (None, None):
            return False
        if None not in addresses:
            raise ConfigError(
                f"neither {addresses[0]} nor {addresses[1]} is on shard {remote.shard}",
                hint="a link is made on the shard of one of its ends",
            )
        address = addresses[0] or addresses[1]
        process = self.core.find_process(second if addresses[0] is not None else first)
        require_send(process)
        require("process.send", address)
        remote.ties.tie(process, what, address, {})
        return True

    def _ends(self, first: str | Handle, second: str | Handle) -> tuple[Process, Process]:
        """Return the two ends of a link, which a process that ties them must be allowed to send to."""
        ends = self.core.find_process(first), self.core.find_process(second)
        for process in ends:
            require_send(process)
        return ends

    def monitor(self, process: str | Handle, callback: Callable[[Down], Any]) -> Callable[[], None]:
        """Call `callback` once with a Down (`.pid`, `.reason`, `.message`) when a process has ended and that is
        durable; at once, if it has ended before. Gives a callable that ends the watch.

        A plain function must be quick; an async one is run beside the kernel. The watch ends with this kernel; a
        program watches another process across restarts by `ctx.monitor`.
        """
        self.core.raise_if_closed()
        watched = self.process(process)
        require("events.subscribe", "process.terminated")
        if not callable(callback):
            raise ConfigError(f"monitor calls a function of one Down, not {callback!r}", key="callback")
        work = self._report_end(watched, as_registered(callback))
        task = self.core.tasks.start(work, name=f"lyra-monitor {watched.pid}")
        return lambda: (task.cancel(), None)[1]

    async def _report_end(self, handle: Handle, callback: Callable[[Down], Any]) -> None:
        try:
            ended = await handle.wait()
            message = text_of(ended.error) if ended.error is not None else ""
            answer = callback(Down("", handle.pid, ended.reason, message))
            if inspect.isawaitable(answer):
                await answer
        except Exception as error:  # noqa: BLE001 - the mistake of a callback is its own; the kernel continues
            if self.core.stopping and isinstance(error, ProcessExit):
                return  # the watch ends with its kernel
            context = {"message": f"the monitor of process {handle.pid} failed", "exception": error}
            self.core.loop.call_exception_handler(context)

    def as_user(self, user_id: str) -> UserKernel:
        """This kernel as one user may use it: each call is checked to be about what is theirs."""
        return UserKernel(self, user_id)

    def durable(self) -> Ack:
        """Await it to know that everything that happened so far is kept: for calls that give a value, not an Ack."""
        self.core.raise_if_closed()
        return acknowledge(self.core)

    # ------------------------------------------------------------------ events, for listeners

    def on_event(self, listener: EventHandler, kinds: Iterable[str] | None = None) -> Callable[[], None]:
        """Be called with every Event (or those of some kinds), after it is durable; gives a callable that ends it.

        A plain function is called at once and must be quick; an async one is run beside the kernel.
        """
        self.core.raise_if_elsewhere()
        wanted = None if kinds is None else words(kinds)
        for kind in (EVERYTHING,) if wanted is None else wanted:
            require("events.subscribe", kind)
        if callable(listener):  # any other is refused below
            listener = as_registered(self.taint.listener(listener))
        return self.listeners.add(listener, wanted)

    def emit_event(self, event: Event | Mapping[str, Any]) -> None:
        """Tell all listeners of an Event from outside: its kind is one of the known ones, and nothing is kept."""
        self.core.raise_if_closed()
        kind = event.get("kind") if isinstance(event, Mapping) else getattr(event, "kind", None)
        if isinstance(kind, str) and kind:  # any other is refused below
            require("events.publish", kind)
        self.listeners.emit(event)

    def watch(self, watchers: Watchers) -> None:
        """Have a function a kind called with the pid and the data: see `HealthMonitor.watch`."""
        self.health.watch(watchers)

    # ------------------------------------------------------------------ what the other modules need

    def register(self, program: Any) -> None:
        """Make a program known by name; processes that waited for it continue."""
        self.core.raise_if_elsewhere()
        self.programs.name(program)

    def missing_program(self, process: Process) -> str | None:
        """Return the program that a process cannot continue without and that this kernel does not know; a guard's is
        that of the process it represents."""
        return self._dormant.missing_program(process)

    async def until_known(self, process: Process) -> None:
        """Return when the process can continue; ConfigError if it is dormant. While other processes replay, the spawn
        that registers its program may still come, so this waits for them, for a limited time."""
        await self._dormant.until_known(process)

    def may_become_known(self, program: str) -> bool:
        """Return whether the replay of another process is about to register a program."""
        return self._dormant.may_become_known(program)

    def graft(self, states: dict[str, ProcessState]) -> None:
        """Have processes whose rows were just written continue from there, as after a restart: see `forks`."""
        self.core.raise_if_elsewhere()
        if self.journal is None or not self.open:
            raise ProcessError("the kernel is not open", hint="use `async with Kernel(…) as kernel:`")
        given: object = states
        if not isinstance(given, dict) or not all(isinstance(state, ProcessState) for state in given.values()):
            raise ConfigError("graft takes the states of processes by pid")
        self._recovery.graft(states)

    def hold_back(self) -> None:
        """Dormant processes whose programs become known from now on wait for `let_go`."""
        self.core.raise_if_elsewhere()
        self._dormant.hold_back()

    def let_go(self, but: Collection[str] = ()) -> None:
        """Resume the held processes except the pids in `but`, which stay held until the next call."""
        self.core.raise_if_elsewhere()
        self._dormant.let_go(but)

    # ------------------------------------------------------------------ for workers outside

    submit = forward("lifecycle", LifecycleManager.submit)
    schedule = forward("lifecycle", LifecycleManager.schedule)
    get_next_runnable = forward("lifecycle", LifecycleManager.get_next_runnable)
    transition_state = forward("lifecycle", LifecycleManager.transition_state)
    terminate = forward("lifecycle", LifecycleManager.terminate)
    get_process = forward("lifecycle", LifecycleManager.get_process)
    list_processes = forward("lifecycle", LifecycleManager.list_processes)
    get_process_counts = forward("lifecycle", LifecycleManager.get_process_counts)
    cleanup_process = forward("worker_api", WorkerApi.cleanup_process)

    check_quota = forward("resources", ResourceTracker.check_quota)
    record_usage = forward("worker_api", WorkerApi.record_usage)
    record_tool_call = forward("resources", ResourceTracker.record_tool_call)
    record_agent_hop = forward("resources", ResourceTracker.record_agent_hop)
    get_remaining_budget = forward("resources", ResourceTracker.get_remaining_budget)
    adjust_quota = forward("resources", ResourceTracker.adjust_quota)
    check_rate_limit = forward("rate_limiter", RateLimiter.check_rate_limit)

    create_interrupt = forward("worker_api", WorkerApi.create_interrupt)
    resolve_interrupt = forward("worker_api", WorkerApi.resolve_interrupt)
    get_pending_interrupt = forward("worker_api", WorkerApi.get_pending_interrupt)

    get_system_status = forward("worker_api", WorkerApi.get_system_status)
    get_request_status = forward("worker_api", WorkerApi.get_request_status)
    cleanup = forward("worker_api", WorkerApi.cleanup)
    cleanup_every = forward("worker_api", WorkerApi.cleanup_every)
    shutdown = forward("worker_api", WorkerApi.shutdown)

    register_service = forward("services", ServiceRegistry.register_service)
    unregister_service = forward("services", ServiceRegistry.unregister_service)
    register_handler = forward("services", ServiceRegistry.register_handler)
    dispatch = give_name("lyra:Kernel.dispatch")(forward("worker_api", WorkerApi.dispatch))
    dispatch_inference = give_name("lyra:Kernel.dispatch_inference")(
        forward("worker_api", WorkerApi.dispatch_inference)
    )

    initialize_orchestration = forward("worker_api", WorkerApi.initialize_orchestration)
    get_next_instruction = forward("worker_api", WorkerApi.get_next_instruction)
    report_agent_result = forward("worker_api", WorkerApi.report_agent_result)
    renew_lease = forward("worker_api", WorkerApi.renew_lease)
    release_lease = forward("worker_api", WorkerApi.release_lease)
    store_envelope = forward("worker_api", WorkerApi.store_envelope)
    get_envelope = forward("worker_api", WorkerApi.get_envelope)
    create_envelope = forward("worker_api", WorkerApi.create_envelope)
    update_envelope = forward("worker_api", WorkerApi.update_envelope)
    clone_envelope = forward("worker_api", WorkerApi.clone_envelope)
    check_bounds = forward("envelopes", EnvelopeTable.check_bounds)
    get_orchestration_state = forward("worker_api", WorkerApi.get_orchestration_state)
    register_agent = forward("worker_api", WorkerApi.register_agent)
    execute_agent = forward("worker_api", WorkerApi.execute_agent)
    execute_pipeline = forward("worker_api", WorkerApi.execute_pipeline)

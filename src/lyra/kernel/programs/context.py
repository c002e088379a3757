"""What a program holds: `ctx`, its only way to anything outside itself.

    async def review(ctx, path):
        text = await ctx.do(read_page, path)             # an act, through the door
        helper = ctx.spawn(summarise, text)              # a child process
        ctx.send("editor", {"path": path})               # a message
        answer = await ctx.ask("Publish?", kind="confirmation")
        ...

Every call takes the next key of the program (a number, or a path such as `0/3` inside parallel branches made by
`gather` or a `TaskGroup`), by which a replay finds the journaled answer: see `process.replay`. What `spawn` gives is
in `handle`, what `budget` gives in `journaled_call`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast, overload

from lyra.core import codec
from lyra.core.checking.check import check_integer, sendable_text
from lyra.core.effect import Charged, EffectOptions, canonical_hash
from lyra.core.hints import Parameters, Result_co, Taken
from lyra.core.ids import ProcessRandom, make_random
from lyra.core.limits import BLOB_INLINE_BYTES_MAX
from lyra.core.naming import to_fixed_name
from lyra.core.rights.capability import Grant
from lyra.errors import ConfigError, Denied, LyraError, NoSuchProcess, ProcessError
from lyra.kernel.base.acting import acting, check_right
from lyra.kernel.base.waiting import NO_WAIT, suspend
from lyra.kernel.effects.door import Door
from lyra.kernel.effects.gates import Declared
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_from_row
from lyra.kernel.process.cut_short import CUT_OFF, cut_short
from lyra.kernel.process.links import Links, Ready, read_signal
from lyra.kernel.process.mailbox import NOTHING, receive_within
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import Branch, after, comes_next, current_branch, next_key, raise_journaled, take_entry
from lyra.kernel.programs.handle import ChildHandle
from lyra.kernel.programs.journaled_call import BudgetView, once, read
from lyra.kernel.programs.registry import ChildOptions, Programs, Spawnable, program_of, unknown_program
from lyra.kernel.programs.scopes import find_addressed, free_names

if TYPE_CHECKING:
    from typing import Concatenate, Protocol, Unpack

    from lyra.kernel.programs.lifetime import Lifetimes


T = TypeVar("T")
First_contra = TypeVar("First_contra", contravariant=True)
Second_contra = TypeVar("Second_contra", contravariant=True)
if TYPE_CHECKING:

    class _Keyed(Protocol[First_contra, Result_co]):
        """An effect's function that the door gives an `idempotency_key`: callers do not name it."""

        def __call__(self, first: First_contra, /, *, idempotency_key: str) -> Awaitable[Result_co]: ...

    class _KeyedAfterTwo(Protocol[First_contra, Second_contra, Result_co]):
        def __call__(
            self, first: First_contra, second: Second_contra, /, *, idempotency_key: str
        ) -> Awaitable[Result_co]: ...


class ExitProgram(BaseException):
    """`ctx.exit(reason)`: leaves the program from any depth; not an Exception, so no handler swallows it."""

    def __init__(self, reason: str, error: BaseException | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error  # what more there is to say about it


@dataclass(frozen=True, slots=True)
class Calls:
    """The parts of the kernel behind `ctx`, at `core.calls`: those below, and callbacks of those above."""

    door: Door
    declared: Declared
    programs: Programs
    lifetimes: Lifetimes
    links: Links
    ask: Callable[..., Awaitable[Any]]  # InterruptService.ask
    guard: Callable[..., tuple[Callable[..., Any], tuple[Any, ...]]]  # Supervisors.guard
    supervisor: Callable[..., tuple[Callable[..., Any], tuple[Any, ...]]]  # Supervisors.program


class Context:
    """What a program holds: every act of the process goes through its methods.

    `own_process`, `journaled_read`, `check_right` and `may_send` are for the layers that drive programs (agents, Vega):
    a program needs none of them.
    """

    __slots__ = ("own_process",)

    def __init__(self, process: Process) -> None:
        self.own_process = process

    # ------------------------------------------------------------------ the process itself

    @property
    def pid(self) -> str:
        """Return where others find it, also after a restart: with a `supervision` of its own, that is its guard's
        pid."""
        return self.own_process.known_as

    @property
    def address(self) -> str:
        """Return where processes of other shards find it, `shard/pid`; its pid in a kernel that is no shard."""
        remote = self.own_process.core.remote
        return self.pid if remote is None else str(remote.address_of(self.pid))

    @property
    def name(self) -> str | None:
        return self.own_process.name

    @property
    def parent(self) -> str | None:
        process = self.own_process
        if process.parent is None and process.core.remote is not None:  # it may be on another shard
            return cast("str | None", process.core.remote.acts.parents.get(process.pid))
        return process.parent.pid if process.parent is not None else None

    @property
    def grant(self) -> Grant:
        return self.own_process.grant

    @property
    def budget(self) -> BudgetView:
        return BudgetView(self.own_process)

    @property
    def restored(self) -> Any:
        """Return what the last `checkpoint` of this process kept; None on a first run."""
        return self.own_process.restored

    @property
    def replaying(self) -> bool:
        """True while answers come from the journal: the place to skip progress output, nothing else."""
        return self.own_process.replay is not None

    # ------------------------------------------------------------------ acts

    if TYPE_CHECKING:
        # An Effect is called as its function is. Without options every argument is checked, by name or by place; with
        # options those by place, and with `idempotent` others by name are let through. A function with an
        # `idempotency_key` is given it by the door, and takes one or two others by their place.
        @overload
        def do(
            self,
            act: Callable[Parameters, Awaitable[Charged[T]]],
            /,
            *args: Parameters.args,
            **kwargs: Parameters.kwargs,
        ) -> Awaitable[T]: ...
        @overload
        def do(
            self, act: Callable[Parameters, Awaitable[T]], /, *args: Parameters.args, **kwargs: Parameters.kwargs
        ) -> Awaitable[T]: ...
        @overload
        def do(
            self,
            act: Callable[[*Taken], Awaitable[Charged[T]]],
            /,
            *args: *Taken,
            **options: Unpack[EffectOptions],
        ) -> Awaitable[T]: ...
        @overload
        def do(
            self,
            act: Callable[[*Taken], Awaitable[T]],
            /,
            *args: *Taken,
            **options: Unpack[EffectOptions],
        ) -> Awaitable[T]: ...
        @overload
        def do(
            self, act: _Keyed[First_contra, T], first: First_contra, /, **options: Unpack[EffectOptions]
        ) -> Awaitable[T]: ...
        @overload
        def do(
            self,
            act: _KeyedAfterTwo[First_contra, Second_contra, T],
            first: First_contra,
            second: Second_contra,
            /,
            **options: Unpack[EffectOptions],
        ) -> Awaitable[T]: ...
        @overload
        def do(
            self,
            act: Callable[Concatenate[First_contra, ...], Awaitable[T]],
            first: First_contra,
            /,
            *,
            idempotent: bool,
            **kwargs: Any,
        ) -> Awaitable[T]: ...
        @overload
        def do(  # type: ignore[overload-cannot-match]  # the second takes no option of a function that has none
            self, act: Callable[..., Awaitable[T]], /, *, idempotent: bool, **kwargs: Any
        ) -> Awaitable[T]: ...

    def do(self, act: Any, /, *args: Any, **options: Any) -> Awaitable[Any]:  # type: ignore[misc]  # *args is any *Taken
        """Perform an effect through the door.

        Options that say how (`idempotent`, `needs`, `cost`, `retry`, `timeout_s`, `policy`) are Effect.of's; any
        other keyword goes to the function.
        """
        process = self.own_process
        calls: Calls = process.core.calls
        effect, kwargs = calls.declared.resolve(act, options)
        return calls.door.perform(process, next_key(process), effect, args, kwargs)

    @overload
    def spawn(self, program: Spawnable[Any], *task: Any, **options: Unpack[ChildOptions]) -> ChildHandle[Any]: ...

    @overload
    def spawn(
        self,
        program: Callable[[Context, *Taken], Coroutine[Any, Any, T]],
        *args: *Taken,
        **options: Unpack[ChildOptions],
    ) -> ChildHandle[T]: ...

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
        shard: str | None = None,
        near: str | ChildHandle | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> ChildHandle[Any]:
        """Start a child process; its Budget lies inside this one's, its Grant can only be narrower.

        In a cluster it begins where `shard` says, `near` another process (by its address), or where the `resources`
        are (`{"cpu": 4, "gpu": 1}`); without them on the shard of this process.
        """
        if supervision is None:
            supervision = getattr(program, "supervision", None)
        if budget is None:
            budget = getattr(program, "budget", None)
        programs = self.own_process.core.calls.programs
        declared = programs.name(program)
        read_result = getattr(program_of(program), "__lyra_read_result__", None)
        if supervision is not None:
            program, args = self.own_process.core.calls.guard(program, args, supervision)
        program = program_of(program)
        options = {"pid": pid, "name": name, "budget": budget, "grant": grant, "priority": priority}
        if recovery_attempts is not None:
            options["recovery_attempts"] = check_integer(recovery_attempts, "recovery_attempts")
        if shard is not None or near is not None or resources is not None:
            options["needs"] = {"shard": shard, "near": None if near is None else _pid(near), "resources": resources}
        child = self._spawn(programs.name(program), program, args, options)
        child.program = declared
        child.read_result = read_result
        return child

    def _spawn(
        self, word: str, program: Callable[..., Any] | None, args: Iterable[Any], options: dict[str, Any]
    ) -> ChildHandle:
        """Start the program of that name. A replay finds the child it started, and needs no function for that."""
        process = self.own_process
        core = process.core
        calls: Calls = core.calls
        args = tuple(args)
        key = next_key(process)
        needs = options.pop("needs", None)
        if needs is not None and (address := self._spawn_abroad(key, word, args, options, needs)) is not None:
            return ChildHandle(self, None, address)
        digest = b""
        if core.journal is not None:
            digest = canonical_hash(word, args, {})
            if process.replay is not None:
                entry = take_entry(process, key, "spawn", word, digest, (args, {}))
                if entry is not None:
                    if entry.error is not None:
                        raise error_from_row(entry.error)
                    return ChildHandle(self, core.find_again(entry.link))
        try:
            program = program or calls.programs.get(word)
            if program is None:
                raise unknown_program(word, calls.programs)
            fork = free_names(process, options) if core.forks else None
            child = calls.lifetimes.start(program, args, parent=process, key=key, digest=digest, fork=fork, **options)
        except LyraError as refusal:  # a name that is taken now may be free at a replay
            cut_short(process, key, refusal, form="spawn", name=to_fixed_name(word), digest=digest)
            raise
        if fork is not None:
            core.forks[child.pid] = fork
        return ChildHandle(self, child)

    def supervise(
        self,
        children: Iterable[Any] = (),
        *,
        name: str | None = None,
        budget: Any = None,
        grant: Any = None,
        priority: str | None = None,
        **flags: Any,
    ) -> ChildHandle:
        """Start a supervisor as `kernel.supervise` does, linked to this process: neither outlives the other.

        With the strategy `stop`, a child that crashes is told here as `{"child", "supervisor", "reason"}`.
        """
        program, args = self.own_process.core.calls.supervisor(children, **flags)
        handle = self.spawn(program, *args, name=name, budget=budget, grant=grant, priority=priority)
        OwnContext(self.own_process).link(handle)
        return handle

    def _spawn_abroad(
        self, key: rows.Key, word: str, args: tuple[Any, ...], options: dict[str, Any], needs: dict[str, Any]
    ) -> str | None:
        """Start the program on another shard; gives its address, None where its place is this shard."""
        process = self.own_process
        if process.core.remote is None:
            raise ConfigError(
                "shard, near and resources say where in a cluster a process begins, and this kernel is in none",
                hint="start hosts with `lyra cluster start`, or leave them out",
            )
        try:
            address: str | None = process.core.remote.acts.spawn(process, key, word, args, options, needs)
        except LyraError as refusal:
            cut_short(process, key, refusal, form="spawn", name=to_fixed_name(word))
            raise
        return address

    def send(self, to: str | ChildHandle | Any, message: Any) -> Awaitable[Any]:
        """Put a message in another process's mailbox; await it to be held back while that one is full."""
        process = self.own_process
        core = process.core
        key = next_key(process)
        target = to if isinstance(to, str) else to.pid
        digest = b""
        if core.journal is not None:
            digest = canonical_hash("send", (target, message), {})
            if process.replay is not None:
                entry = take_entry(process, key, "send", "", digest)
                if entry is not None:
                    if entry.error is None:
                        return NO_WAIT
                    if entry.error.get("code") not in ("cancelled", *CUT_OFF):
                        raise error_from_row(entry.error)
                    return raise_journaled(process, entry.error)
        receiver = find_addressed(process, target)
        try:
            if not process.grant.is_all:
                self.may_send(target, receiver)
            if receiver is None:
                if core.remote is not None and core.remote.knows(target):
                    sent: Awaitable[Any] = core.remote.messages.send(process, key, digest, target, message)
                    return sent
                raise NoSuchProcess(f"no process {target!r}", pid=target)
        except (
            LyraError
        ) as refusal:  # a fact like any other refusal: a replay may find such a process, or another Grant
            cut_short(process, key, refusal, form="send", name=target, digest=digest)
            raise
        mailboxes = core.mailboxes
        if mailboxes.must_wait(receiver):
            turn: Awaitable[Any] = mailboxes.send_in_turn(receiver, message, sender=process, key=key, digest=digest)
            return turn
        mailboxes.deliver(receiver, message, sender=process, key=key, digest=digest)
        return NO_WAIT

    def receive(self, timeout: float | None = None, *, timeout_s: float | None = None) -> Awaitable[Any]:
        """Return the next message; None when `timeout` seconds pass first."""
        process = self.own_process
        limit_s = timeout if timeout_s is None else timeout_s
        if limit_s is not None:
            limit_s = _seconds(limit_s, "a timeout")
        if process.replay is None and limit_s is None and process.stepping and process.receiver is None:
            process.receive_key = process.keys
            process.keys += 1
            return process
        key = next_key(process)
        if process.receiver is not None:
            raise ProcessError(f"process {process.pid} is receiving already", pid=process.pid)
        return self._receive(key, limit_s)

    async def _receive(self, key: rows.Key, limit_s: float | None) -> Any:
        process = self.own_process
        if process.replay is not None:
            entry = take_entry(process, key, "receive", "", b"")
            if entry is not None:
                if entry.error is not None:
                    await raise_journaled(process, entry.error)
                if entry.link == "timeout":
                    return None
                return read_signal(entry.link, await process.core.value_of(entry))
        message = await receive_within(process, key, limit_s)
        return None if message is NOTHING else message

    def ask(self, question: str, kind: str = "clarification", *, message: str = "") -> Awaitable[Any]:
        """Put a question to a human and wait for the Answer, across restarts."""
        process = self.own_process
        calls: Calls = process.core.calls
        return calls.ask(process, kind=kind, key=next_key(process), question=question, message=message)

    # ------------------------------------------------------------------ time and chance

    async def sleep(self, seconds: float) -> None:
        """Wait; a restart waits only for what is left."""
        seconds = _seconds(seconds, "a sleep") or 0.0
        process = self.own_process
        core = process.core
        key = next_key(process)
        left_s = seconds
        if core.journal is not None:
            entry = take_entry(process, key, "sleep", "", b"") if process.replay is not None else None
            if entry is not None:
                if entry.error is not None:
                    await raise_journaled(process, entry.error)
                # A next call in the journal says that it was over, whatever the wall clock says by now.
                went_on = process.replay is not None and after(key) in process.replay
                left_s = 0.0 if went_on else min(seconds, entry.due - core.now())
            else:
                row = rows.TimerSet(key, core.now() + seconds)
                core.journal.write(process.pid, "timer.set", rows.encode(row))
        if left_s > 0:
            try:
                await core.pause(process, left_s)
            except BaseException as error:
                cut_short(process, key, error, form="sleep")
                raise

    def now(self) -> float:
        """Return the wall clock, read once: a replay sees the same time."""
        return float(self.journaled_read("clock", self.own_process.core.clock.now))

    @property
    def random(self) -> ProcessRandom:
        """A generator whose seed is journaled; `ctx.random()` and all methods of random.Random."""
        process = self.own_process
        holder: Process | Branch = process if process.stepping else current_branch(process)
        if holder.rng is None:
            holder.rng = make_random(self.journaled_read("seed", process.core.entropy.bits))
        rng: ProcessRandom = holder.rng
        return rng

    def check_right(self, verb: str, *names: str) -> None:
        """Raise CapabilityDenied if this process may not do that to the thing that goes by these names."""
        check_right(self.own_process, verb, names)

    def may_send(self, target: str, receiver: Process | None, *more: str) -> None:
        """Check the right to send messages and signals to a process, which may go by `more` names. A process may send
        to its own children unless that is denied: it was allowed to start them, and cannot know their pids before."""
        process = self.own_process
        if receiver is not process:
            names = (target,) if receiver is None else receiver.names
            if receiver is not None:
                implied = receiver.parent is process
            else:
                remote = process.core.remote
                implied = remote is not None and remote.ties.is_child(process, target)
            check_right(process, "process.send", (*more, *names), implied=implied)

    def journaled_read(self, what: str, reading: Callable[[], Any]) -> Any:
        """Read something outside the program once and journal it as `what`: a replay gets the same value."""
        return read(self.own_process, what, reading)

    # ------------------------------------------------------------------ ties to other processes

    def link(self, pid: str | ChildHandle | Any) -> None:
        """Be ended with another process, and it with this one; or get its ExitSignal, if this one traps exits."""
        self._tie("link", _pid(pid), lambda other: self.own_process.core.calls.links.link(self.own_process, other))

    def unlink(self, pid: str | ChildHandle | Any) -> None:
        self._tie("unlink", _pid(pid), lambda other: self.own_process.core.calls.links.unlink(self.own_process, other))

    def monitor(self, pid: str | ChildHandle | Any) -> str:
        """Get one Down message when another process ends; the result names the monitor."""
        ref = f"{self.own_process.pid}#{next_key(self.own_process)}"
        self._tie(
            "monitor",
            _pid(pid),
            lambda other: self.own_process.core.calls.links.monitor(self.own_process, other, ref),
            {"ref": ref},
        )
        return ref

    def demonitor(self, ref: str) -> None:
        once(
            self.own_process,
            "demonitor",
            ref,
            lambda: (
                self.own_process.core.calls.links.demonitor(self.own_process, ref)
                or (
                    self.own_process.core.remote is not None
                    and self.own_process.core.remote.ties.demonitor(self.own_process, ref)
                )
            ),
        )

    def trap_exit(self, on: bool = True) -> None:
        """From now on the end of a linked process is a message, not the end of this one."""
        if not isinstance(on, bool):
            raise ConfigError(f"trap_exit is True or False, not {on!r}")
        once(
            self.own_process, "trap_exit", str(on), lambda: self.own_process.core.calls.links.trap(self.own_process, on)
        )

    def stop(self, pid: str | ChildHandle | Any, *, grace_s: float | None = 5.0, reason: str = "shutdown") -> None:
        """Tell a process that this one spawned (and all below it) to end: CancelledError where it waits.

        After `grace_s` seconds (0: at once; None: never) one that still tidies up is killed.
        """
        target = _pid(pid)
        limit_s = _seconds(grace_s, "a time to tidy up")
        reason = sendable_text(reason, "a reason to stop")

        def tell(other: Process) -> None:
            if other.parent is not self.own_process:
                raise Denied(f"process {self.own_process.pid} did not spawn {target!r}", pid=target)
            self.own_process.core.calls.lifetimes.stop_tree(other, reason, grace_s=limit_s, overdue="killed")

        self._tie("stop", target, tell, {"grace_s": limit_s, "reason": reason})

    def ready(self) -> None:
        """Tell the supervisor (or the process that spawned this one) that it has begun to work."""
        process, parent = self.own_process, self.own_process.parent
        if parent is not None:
            once(process, "ready", "", lambda: process.core.mailboxes.deliver(parent, Ready(process.pid)))
        elif (remote := process.core.remote) is not None and (above := remote.acts.parents.get(process.pid)):
            told = Ready(remote.address_of(process.pid))
            once(process, "ready", "", lambda: remote.messages.tell(above, told, pid=process.pid))
        elif comes_next(process, "ready"):  # its parent got the message and has ended since
            once(process, "ready", "", lambda: None)

    def _tie(
        self, what: str, pid: str, make: Callable[[Process], object], abroad: dict[str, Any] | None = None
    ) -> None:
        """Tie this process to another once; `abroad` is what more the shard of one that is not here has to know."""
        process = self.own_process
        remote = process.core.remote

        def tie() -> None:
            other = find_addressed(process, pid)
            if not process.grant.is_all:
                self.may_send(pid, other)
            if other is not None:
                make(other)
            elif remote is not None and remote.knows(pid):
                remote.ties.tie(process, what, pid, abroad or {})
            else:
                raise NoSuchProcess(f"no process {pid!r}", pid=pid)

        once(self.own_process, what, pid, tie)

    # ------------------------------------------------------------------ its own life

    def exit(self, reason: str = "normal") -> NoReturn:
        """End this process now, with a reason."""
        raise ExitProgram(sendable_text(reason, "a reason to exit"))

    async def checkpoint(self, state: Any) -> None:
        """Keep `state` and forget the answers so far: after a restart the program begins again with
        `ctx.restored`."""
        process = self.own_process
        core = process.core
        if not process.stepping:
            raise ProcessError("checkpoint belongs in the program itself, not in a parallel branch", pid=process.pid)
        key = next_key(process)
        assert isinstance(key, int)
        journal = core.journal
        if journal is None:
            return
        if process.replay is not None:
            take_entry(process, key, "checkpoint", "", b"")
        data = codec.encode(state)
        blob = await core.calls.door.put_blob("checkpoint", data) if len(data) > BLOB_INLINE_BYTES_MAX else ""
        row = rows.Checkpointed(key, rows.NIL if blob else rows.Raw(data), blob, process.branches)
        journal.write(process.pid, "program.checkpoint", rows.encode(row))
        process.rng = None  # a restart begins here with a new seed, so this execution does too
        await suspend(process, journal.waiters)

    @property
    def groups(self) -> Any:
        """Return the groups and blackboards, as `kernel.groups`: on a cluster those of all shards. What is done with
        them is an act: do it in an effect, or a replay does it again."""
        return self.own_process.core.face.groups

    def agent(self, pid: str | ChildHandle | Any) -> Any:
        """Return the handle on an agent process, by pid or name, or by its address on another shard of the cluster."""
        return self.own_process.core.face.agent(_pid(pid))

    def process(self, pid: str | ChildHandle | Any) -> ChildHandle:
        """Return a handle on another process by pid or name: to send to it, or to wait for its end.

        Whether there is one is found out when it is used: that is an act, and this is not.
        """
        return ChildHandle(self, None, _pid(pid))


class OwnContext(Context):
    """The ctx of a process for what Lyra's own code does in it: a supervisor that ties itself to its children, a helper
    that is ended with its caller. Such messages and signals need no right."""

    __slots__ = ()

    def may_send(self, target: str, receiver: Process | None, *more: str) -> None:
        """Allow it."""


def require_send(receiver: Process, *more: str) -> Process | None:
    """Check the right of the process that runs here, if one does, to send messages and signals to another; gives it."""
    process: Process | None = acting()
    if process is not None and not process.grant.is_all:
        Context(process).may_send(receiver.pid, receiver, *more)
    return process


def _seconds(value: Any, what: str) -> float | None:
    if value is None or (type(value) in (int, float) and not isnan(value)):
        return None if value is None else float(value)
    raise ConfigError(f"{what} is a number of seconds, not {value!r}")


def _pid(process: str | ChildHandle | Any) -> str:
    return process if isinstance(process, str) else str(process.pid)

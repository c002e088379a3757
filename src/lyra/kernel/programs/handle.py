"""What the outside holds: a process by its Handle, an act of the kernel by its Ack.

A ChildHandle is what the program of another process holds. Handle and Ack may be awaited or not. Awaiting waits until
the store has it: that is what "acknowledged" means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self

from lyra.core import codec
from lyra.core.budgets.budget import Budget
from lyra.core.hints import Result_co
from lyra.core.limits import BLOB_INLINE_BYTES_MAX
from lyra.core.naming import SUPERVISE, give_name
from lyra.core.rights.capability import Grant
from lyra.errors import Corrupt, Denied, Divergence, NoSuchProcess, ProcessExit
from lyra.kernel.base.acting import acting
from lyra.kernel.base.tasks import thread_id
from lyra.kernel.base.waiting import no_wait, suspend
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_from_row, error_to_row
from lyra.kernel.process.cut_short import cut_short
from lyra.kernel.process.process import Exit, Process
from lyra.kernel.process.replay import Diverged, next_key, raise_journaled, take_entry

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.programs.context import Context
    from lyra.kernel.programs.registry import Programs


class Ack:
    """A promise of the kernel: await it to know that the act is durable (and, for a send, that there was room)."""

    __slots__ = ("_core", "_seq")

    def __init__(self, core: Core[Process], seq: int | Any) -> None:
        self._core = core
        self._seq = seq

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        seq = self._seq if isinstance(self._seq, int) else await self._seq
        journal = self._core.journal
        if journal is not None:
            await journal.wait_until_durable(seq)


def acknowledge(core: Core[Process]) -> Ack:
    """Make a promise of everything that has happened so far."""
    return Ack(core, core.journal.seq if core.journal is not None else 0)


class ProcessCommands(Protocol):
    """What a Handle asks of the kernel, which is above this module."""

    def send(self, to: str | Handle, message: Any, /) -> Ack: ...
    def kill(self, pid: str | Handle, reason: str = ..., /) -> Ack: ...
    def process(self, pid: str | Handle, /) -> Handle: ...
    def missing_program(self, process: Process, /) -> str | None: ...
    async def until_known(self, process: Process, /) -> None: ...
    @property
    def programs(self) -> Programs: ...


class Handle(Generic[Result_co]):
    """A process as the outside holds it; its program gives a `Result_co`."""

    __slots__ = ("_kernel", "_process")

    _read_result: Callable[[Any], Any] | None = None  # a method of handles whose processes keep results as text

    def __init__(self, kernel: ProcessCommands, process: Process) -> None:
        self._kernel = kernel
        self._process = process

    def __await__(self) -> Generator[Any, None, Self]:
        return self._durable().__await__()

    async def _durable(self) -> Self:
        journal = self._process.core.journal
        if journal is not None:
            await journal.wait_until_durable(journal.seq)
        return self

    def __repr__(self) -> str:
        return f"<Handle {self._process!r}>"

    @property
    def kernel(self) -> Any:
        """The kernel of the process, for the layers above."""
        return self._kernel

    @property
    def pid(self) -> str:
        return self._process.pid

    @property
    def name(self) -> str | None:
        process = self._process
        if process.name is not None:  # chosen by the process that spawned it
            process.core.taint.pass_on_to_here(process.pid, "the name of")
        return process.name

    @property
    def state(self) -> str:
        return (self._process.stands_for or self._process).state

    @property
    def alive(self) -> bool:
        return self._process.alive

    @property
    def budget(self) -> Budget:
        return self._process.budget

    @property
    def grant(self) -> Grant:
        process = self._process
        if not process.grant.is_all:  # its scopes are chosen by the process that spawned it
            process.core.taint.pass_on_to_here(process.pid, "the rights of")
        return process.grant

    def regrant(self, grant: Any) -> None:
        """Give a process that no other process spawned other rights from now on, inside the kernel's (and, in a
        process, inside those of that process).

        Children that it has keep theirs. After a restart it has again those that it was spawned with.
        """
        process = self._process
        process.core.raise_if_elsewhere()
        if process.parent is not None:
            raise Denied(f"process {process.pid} has its rights from process {process.parent.pid}", pid=process.pid)
        right = process.core.grant.narrow(Grant.of(grant))
        maker = acting()
        process.grant = right if maker is None else right.narrow(maker.grant)  # none gives rights that it has not

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

    @give_name("lyra:Handle.wait")
    async def wait(self) -> Exit[Result_co]:
        """Return how it ended, once that is durable. ConfigError, if this kernel does not know its program."""
        kernel, process = self._kernel, self._process
        core = process.core
        if thread_id() != core.thread:
            core.raise_if_elsewhere()
        if core.failure is not None:
            raise core.failure
        # A program that runs is known; a supervisor may represent a process whose program is not.
        may_lack = process.exit is None and (process.coroutine is None or process.program == SUPERVISE)
        if may_lack and not core.stopping and kernel.missing_program(process) is not None:
            await kernel.until_known(process)
            core.raise_if_failed()
        if process.exit is None:
            if core.stopping:
                raise make_stopped_error(process.pid)
            future: asyncio.Future[None] = core.loop.create_future()
            process.watch(future)
            try:
                await future
            finally:
                if process.watchers is not None and future in process.watchers:
                    process.watchers.remove(future)
        if core.journal is not None:
            await core.journal.wait_until_durable(process.exit_seq)
        ended = process.exit
        assert ended is not None
        if process.pid in core.taint.state.pids:
            core.taint.pass_on_to_here(process.pid, "what came of")
        if self._read_result is not None:
            return Exit(ended.reason, self._read_result(ended.result), ended.error)
        if type(ended.result) in codec.UNCHANGED:
            return ended
        # A process that ended before a restart has plain data: its program may have become known since.
        program = (process.stands_for or process).program
        return Exit(ended.reason, kernel.programs.result(program, ended.result), ended.error)


def make_stopped_error(pid: str) -> ProcessExit:
    return ProcessExit(
        f"the kernel stopped before process {pid} ended",
        hint="open the store again and it goes on",
        pid=pid,
    )


class ChildHandle(Generic[Result_co]):
    """See the module; its program gives a `Result_co`."""

    __slots__ = ("_ctx", "_process", "_target", "program", "read_result")

    def __init__(self, ctx: Context, process: Process | None, target: str = "") -> None:
        self._ctx = ctx
        self._process = process
        self._target = process.pid if process is not None else target
        self.program = ""  # the program that was spawned, by name: its result is read as the type that it declares
        self.read_result: Callable[[Any], Any] | None = None  # how a declaration (an Agent) reads its result instead

    def __await__(self) -> Generator[Any, None, Self]:
        return no_wait(self)

    def __repr__(self) -> str:
        return f"<ChildHandle {self._look_up() or self._target!r}>"

    def _look_up(self) -> Process | None:
        if self._process is None:
            self._process = self._ctx.own_process.core.lookup(self._target)
        return self._process

    @property
    def pid(self) -> str:
        return self._target

    @property
    def is_abroad(self) -> bool:
        """Return whether it is on another shard of the cluster."""
        remote = self._ctx.own_process.core.remote
        return self._process is None and remote is not None and remote.knows(self._target)

    @property
    def name(self) -> str | None:
        process = self._look_up()
        return process.name if process is not None else None

    @property
    def alive(self) -> bool:
        """As of now; a program that must decide the same way twice waits instead. One abroad is taken for alive."""
        process = self._look_up()
        remote = self._ctx.own_process.core.remote
        return process.alive if process is not None else remote is not None and remote.knows(self._target)

    def send(self, message: Any) -> Awaitable[Any]:
        return self._ctx.send(self, message)

    async def wait(self) -> Exit[Result_co]:
        """Return how it ended; on replay, how it ended then."""
        owner = self._ctx.own_process
        core = owner.core
        key = next_key(owner)
        if core.journal is not None and owner.replay is not None:
            entry = take_entry(owner, key, "wait", self._target, b"")
            if entry is not None:
                # How it ended when the program waited for it the first time.
                if entry.error is not None:
                    await raise_journaled(owner, entry.error)
                kept = await owner.core.value_of(entry)
                fault = rows.answer_fault("wait", self._target, rows.Raw(kept)) if entry.blob else None
                if fault is not None:
                    raise Corrupt(f"the end of {self._target} that {owner.pid} waited for: {fault}", pid=owner.pid)
                value = codec.decode(kept)
                error = error_from_row(value["error"]) if value["error"] is not None else None
                return Exit(value["reason"], self._convert_result(value["result"]), error)
        try:
            process = self._look_up()
            if process is not None:
                if process.exit is None:
                    await suspend(owner, _Watchers(process))
                ended = process.exit
            elif core.remote is not None and core.remote.knows(self._target):
                ended = await core.remote.ties.wait(owner, key, self._target)
            else:
                raise NoSuchProcess(f"no process {self._target!r}", pid=self._target)
        except BaseException as cut:
            cut_short(owner, key, cut, form="wait", name=self._target)
            raise
        assert ended is not None
        if process is not None and core.taint.state.pids:
            core.taint.pass_on(process.pid, owner.pid, "what came of")
        if isinstance(ended.error, Divergence) and ended.reason == "divergence":
            # Not an end that may be written down: with the right program the child continues, and so must its parent.
            owner.replay = Diverged(ended.error.message, **ended.error.fields)
            raise owner.replay.error
        if core.journal is not None:
            value = {
                "reason": ended.reason,
                "result": ended.result,
                "error": error_to_row(ended.error) if ended.error is not None else None,
            }
            data = codec.encode(value)
            blob = await core.calls.door.put_blob("wait", data) if len(data) > BLOB_INLINE_BYTES_MAX else ""
            row = rows.Finished(key, rows.NIL if blob else rows.Raw(data), blob, name=self._target, form="wait")
            core.journal.write(owner.pid, "effect.finished", rows.encode(row))
            if process is None:
                core.remote.ties.forget_wait(owner, key)
            if type(ended.result) not in codec.UNCHANGED:
                return Exit(ended.reason, self._convert_result(codec.decode(data)["result"]), ended.error)
        if self.read_result is not None:
            return Exit(ended.reason, self.read_result(ended.result), ended.error)
        return ended

    def _convert_result(self, result: Any) -> Any:
        if self.read_result is not None:
            return self.read_result(result)
        return self._ctx.own_process.core.calls.programs.result(self.program, result)


class _Watchers:
    """Makes a process's watchers look like the list that `suspend` wants."""

    __slots__ = ("_process",)

    def __init__(self, process: Process) -> None:
        self._process = process

    def append(self, waker: Any) -> None:
        self._process.watch(waker)

    def __contains__(self, waker: Any) -> bool:
        return waker in (self._process.watchers or ())

    def remove(self, waker: Any) -> None:
        if self._process.watchers is not None:
            self._process.watchers.remove(waker)

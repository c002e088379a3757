"""A process as the program of another holds it: to send to it, or to wait for its end.

`ctx.spawn` and `ctx.process` give one. Its calls are calls of the program, journaled under the program's next key:
after a restart `wait` tells how the process ended then. What callers outside any process hold is a `handle.Handle`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, Self

from lyra.core import codec
from lyra.core.hints import Result_co
from lyra.core.limits import BLOB_INLINE_BYTES_MAX
from lyra.errors import Corrupt, Divergence, NoSuchProcess
from lyra.kernel.base.waiting import no_wait, suspend
from lyra.kernel.journal import rows
from lyra.kernel.journal.error_rows import error_from_row, error_to_row
from lyra.kernel.process.call_keys import next_key
from lyra.kernel.process.cut_short import cut_short
from lyra.kernel.process.process import Exit, Process
from lyra.kernel.process.replay import Diverged, raise_journaled, take_entry

if TYPE_CHECKING:
    from lyra.kernel.journal.history import Entry
    from lyra.kernel.programs.context import Context


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
    def name(self) -> str | None:
        process = self._look_up()
        return process.name if process is not None else None

    @property
    def alive(self) -> bool:
        """As of now; a program that must decide the same way twice waits instead."""
        process = self._look_up()
        return process is not None and process.alive

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
                return await self._replayed(owner, entry)
        try:
            process = self._look_up()
            if process is None:
                raise NoSuchProcess(f"no process {self._target!r}", pid=self._target)
            if process.exit is None:
                await suspend(owner, _Watchers(process))
        except BaseException as cut:
            cut_short(owner, key, cut, form="wait", name=self._target)
            raise
        ended = process.exit
        assert ended is not None
        if core.taint.state.pids:
            core.taint.pass_on(process.pid, owner.pid, "what came of")
        if isinstance(ended.error, Divergence) and ended.reason == "divergence":
            # Not an end that may be written down: with the right program the child goes on, and so must its parent.
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
            if type(ended.result) not in codec.UNCHANGED:
                return Exit(ended.reason, self._typed(codec.decode(data)["result"]), ended.error)
        if self.read_result is not None:
            return Exit(ended.reason, self.read_result(ended.result), ended.error)
        return ended

    async def _replayed(self, owner: Process, entry: Entry) -> Exit[Result_co]:
        """Return how it ended when the program waited for it the first time."""
        if entry.error is not None:
            await raise_journaled(owner, entry.error)
        kept = await owner.core.value_of(entry)
        fault = rows.answer_fault("wait", self._target, rows.Raw(kept)) if entry.blob else None
        if fault is not None:
            raise Corrupt(f"the end of {self._target} that {owner.pid} waited for: {fault}", pid=owner.pid)
        value = codec.decode(kept)
        error = error_from_row(value["error"]) if value["error"] is not None else None
        return Exit(value["reason"], self._typed(value["result"]), error)

    def _typed(self, result: Any) -> Any:
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

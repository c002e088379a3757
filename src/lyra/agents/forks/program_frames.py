"""The variables of a Python program at a step, and the arguments of its calls: the program is run again up to there.

A journal has what a program got, not what it made of it. `ProgramReplay` runs the program of one process over the
answers of its journal, in its own kernel in memory, and stops it where they end: nothing is performed, no child
continues, and nothing is written to the store. Only the code between the calls runs, so it has to be the program that
the journal is of, and what it prints is dropped. The frames of Lyra itself are left out, and so are agents.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import redirect_stdout
from functools import partial
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.errors import LyraError
from lyra.kernel.effects.door import Door
from lyra.kernel.forks import start_fork
from lyra.kernel.journal.fork_rows import ForkPoint, fork_records
from lyra.kernel.journal.history import Entry
from lyra.kernel.kernel import Kernel
from lyra.kernel.process.replay import after
from lyra.kernel.programs.handle import ChildHandle
from lyra.kernel.programs.registry import Programs
from lyra.kernel.seams import Seams
from lyra.observe.timeline.step import shorten
from lyra.store.memory import MemoryStore

if TYPE_CHECKING:
    from lyra.core.effect import Effect
    from lyra.kernel.process.process import Process
    from lyra.observe.timeline.timeline import RunTimeline
    from lyra.store.protocol import Store


Registration = Callable[[Kernel], Awaitable[None]]  # makes the programs of the run known to a kernel

_PATIENCE_S: Final = 10.0  # for a program that waits for something other than its kernel
_TEXT_MAX: Final = 2_000
_CONTEXT: Final = "ctx"
_BETWEEN: Final = ("lyra.", "asyncio.")  # modules whose frames stand between those of a program
_LOOP: Final = frozenset({"asyncio.events", "asyncio.base_events", "asyncio.runners"})  # below these no program is


class ProgramFrame(NamedTuple):
    """A function that a program stands in; the innermost comes last. `branch` is "" for the program itself and a path
    for a part of it that runs beside others."""

    function: str
    file: str
    line: int
    variables: dict[str, Any]
    branch: str = ""

    def to_data(self) -> dict[str, Any]:
        return self._asdict()


class ProgramReplay:
    """The programs of a run, run again where they are asked about. `register` makes them known."""

    def __init__(self, store: Store, timeline: RunTimeline, register: Registration) -> None:
        self._store = store
        self._timeline = timeline
        self._register = register
        self._arguments: dict[str, dict[str, Any]] = {}  # by process and key

    async def frames(self, number: int, pid: str) -> list[ProgramFrame]:
        """Return where the program of a process stands after a step, with its variables; empty where it has ended, has
        not begun, or is an agent. LyraError where the program is not known or is another one."""
        process = self._timeline.state(number).records.get(pid)
        if process is None or not process.is_live or process.is_agent:
            return []
        look = await self._look(pid, self._timeline.last_seq_of(number), self._timeline.state(number).time)
        return [frame for stack in look.stacks.values() for frame in stack]

    async def arguments(self, pid: str) -> Mapping[str, Any]:
        """Return the arguments of the calls that a process made through `ctx.do`, by their keys."""
        if pid not in self._arguments:
            last = self._timeline.state(len(self._timeline.steps))
            process = last.records.get(pid)
            self._arguments[pid] = {}
            if process is not None and not process.is_agent:
                self._arguments[pid] = (await self._look(pid, last.seq, last.time)).arguments
        return self._arguments[pid]

    async def _look(self, pid: str, upto: int, time: float) -> _Look:
        """Run a program until the answers that its journal had at a row end; `time` is that of the row."""
        records = [
            record
            for record in fork_records(self._store.read(upto=upto), pid)
            if record.pid != pid or record.kind not in ("process.terminated", "process.stopping")
        ]
        look = _Look(pid, time)
        seams = Seams(door=partial(_NotingDoor, look), programs=partial(_StoppedPrograms, look), kills=False)
        kernel = Kernel(_WithBlobsOf(self._store), seams=seams)
        with redirect_stdout(io.StringIO()):
            async with kernel:
                await self._register(kernel)
                await start_fork(
                    kernel, ForkPoint(pid, 0, upto + 1, pid, keeps_answers=True), records, pid=pid, keeps_pids=True
                )
                process = kernel.processes[pid]
                try:
                    async with asyncio.timeout(_PATIENCE_S):
                        await look.is_over(process)
                except TimeoutError:
                    raise LyraError(f"the program of {pid} waits for something outside its kernel") from None
        if process.exit is not None and isinstance(process.exit.error, LyraError) and not look.stacks:
            raise process.exit.error
        return look


class _Look:
    """What is seen of one process while its program runs again."""

    def __init__(self, pid: str, time: float) -> None:
        self.pid = pid
        self.time = time
        self.stacks: dict[str, list[ProgramFrame]] = {}  # by branch
        self.arguments: dict[str, Any] = {}

    async def is_over(self, process: Process) -> None:
        """Return when the program has ended, which it does where its answers end."""
        ended = asyncio.Event()
        if process.exit is None:
            process.add_done_callback(lambda _: ended.set())
            await ended.wait()

    def record_variables(self, key: Any) -> None:
        """Keep the variables of the program as they are where the answers of one line of it end."""
        branch = str(key).rpartition("/")[0]
        if branch not in self.stacks:
            self.stacks[branch] = [_frame_of(frame, branch) for frame in _program_frames(sys._getframe(2))]


class _AnswersEnd(asyncio.CancelledError):
    """The journal has no more answers for a program that is looked at."""


class _Answers(dict[Any, Any]):
    """The answers of a journal for one process. Where they end, the program does."""

    def __init__(self, entries: Mapping[Any, Entry], look: _Look, *, is_looked_at: bool) -> None:
        super().__init__(entries)
        self._look = look
        self._is_looked_at = is_looked_at

    def pop(self, key: Any, _default: Any = None) -> Any:
        entry = self.get(key)
        if entry is None or not self._is_over(key, entry):
            if self._is_looked_at:
                self._look.record_variables(key)
            raise _AnswersEnd
        return super().pop(key)

    def _is_over(self, key: Any, entry: Entry) -> bool:
        """Return whether a call that has begun had ended then; a pause has where the program continued, or its time was
        up."""
        if entry.kind == "sleep":
            return after(key) in self or entry.due <= self._look.time
        return entry.done

    def __bool__(self) -> bool:
        return True


class _StoppedPrograms(Programs):
    """Programs that stop where their journal ends; only that of the process that is looked at is told of."""

    __slots__ = ("_look",)

    def __init__(self, look: _Look, became_known: Callable[[str], None], programs: Iterable[Any]) -> None:
        self._look = look
        super().__init__(became_known, programs)

    def begin(self, program: Callable[..., Any], ctx: Any, args: Iterable[Any]) -> Any:
        process: Process = ctx.own_process
        is_looked_at = process.pid == self._look.pid
        process.replay = _Answers(process.replay or {}, self._look, is_looked_at=is_looked_at)
        return super().begin(program, ctx, args)


class _NotingDoor(Door):
    """Notes the arguments of each call, and lets none pass but those that the journal answers: a process that is told
    to end tidies up, and its calls are none of the replay any more."""

    __slots__ = ("_look",)

    def __init__(self, look: _Look, *parts: Any) -> None:
        super().__init__(*parts)
        self._look = look

    def perform(self, process: Process, key: Any, effect: Effect, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(process.replay, _Answers):
            raise _AnswersEnd
        if process.pid == self._look.pid:
            self._look.arguments[str(key)] = _render_value(_by_name(effect, args, kwargs))
        return super().perform(process, key, effect, args, kwargs)


def _by_name(effect: Effect, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the arguments by the names of the function's parameters."""
    try:
        return dict(inspect.signature(effect.run).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return [*args, kwargs] if kwargs else list(args)


class _WithBlobsOf(MemoryStore):
    """A store in memory that has the large values of another one."""

    __slots__ = ("_other",)

    def __init__(self, other: Store) -> None:
        super().__init__()
        self._other = other

    def get_blob(self, digest: str) -> bytes:
        return super().get_blob(digest) if digest in self._blobs else self._other.get_blob(digest)


def _program_frames(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of a program, the outermost first: those between the loop, whose turn it is, and the call."""
    frames: list[FrameType] = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module in _LOOP:
            break
        if not module.startswith(_BETWEEN):
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _frame_of(frame: FrameType, branch: str) -> ProgramFrame:
    code: CodeType = frame.f_code
    variables = {
        name: _render_value(value)
        for name, value in frame.f_locals.items()
        if name != _CONTEXT and not name.startswith(("__", "."))
    }
    return ProgramFrame(code.co_qualname, code.co_filename, frame.f_lineno, variables, branch)


def _render_value(value: Any) -> Any:
    if isinstance(value, ChildHandle):
        return f"process {value.pid}"
    try:
        return shorten(value, text_max=_TEXT_MAX)
    except Exception as error:  # noqa: BLE001 - a value of the program's own class may fail to tell what it is
        return f"({type(value).__name__}, which cannot be shown: {type(error).__name__})"

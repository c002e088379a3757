"""Runs to step through, for the API and the pages: each run is read once and then read on, in a thread.

The kernel's store is read over its own connection, beside the kernel. The last runs that were looked at are kept
in their short form, so that a page can go through one step after another. Nothing is written here.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from lyra.errors import ConfigError, Corrupt, LyraError, NoSuchProcess, Overloaded
from lyra.kernel.base.tasks import BlockingCalls
from lyra.observe.timeline.state import StoredRows
from lyra.observe.timeline.timeline import RunTimeline
from lyra.server.http.problems import HttpRefusal
from lyra.vega.durable.runs import DurableRun
from lyra.vega.replay.timeline import run_in_store, run_names, timeline_of_run

if TYPE_CHECKING:
    from lyra.agents.forks.change import StepChange
    from lyra.agents.forks.fork import PreparedFork
    from lyra.agents.forks.program_frames import ProgramFrame
    from lyra.config import Config
    from lyra.kernel.kernel import Kernel
    from lyra.server.http.parts import HttpParts
    from lyra.store.protocol import Store
    from lyra.vega.replay.fork import RunFork
    from lyra.vega.replay.replayed_run import ReplayedRun


T = TypeVar("T")
_RUNS_KEPT: Final = 8
_VEGA_KEPT_S: Final = 5.0
_REPLAYED_KEPT: Final = 2  # programs of Vega runs that are held as they stood
_STEPS_MAX: Final = 50_000
_LINES_SHOWN: Final = 200  # of what a Vega run printed


class ProgramMoment(NamedTuple):
    """Where a program stands, the innermost function last; `output` is the end of what a Vega program had printed."""

    frames: list[ProgramFrame]
    output: list[str] | None = None


class Timelines:
    """The runs of one kernel's store."""

    __slots__ = (
        "_is_looking",
        "_kernel",
        "_lock",
        "_replayed",
        "_runs",
        "_store",
        "_threads",
        "_vega",
        "_vega_limit",
        "_vega_read_s",
        "_vega_summaries",
    )

    def __init__(self, parts: HttpParts) -> None:
        self._kernel = parts.kernel
        self._threads = BlockingCalls("lyra-runs")
        self._is_looking = False  # a program is run again, to see its variables
        self._lock = Lock()  # one connection, which one thread uses at a time
        self._store: Store | None = None
        self._runs: OrderedDict[str, RunTimeline] = OrderedDict()
        self._vega: dict[str, DurableRun] = {}  # Vega runs that are looked at, each with a connection
        self._replayed: OrderedDict[str, ReplayedRun] = OrderedDict()
        self._vega_summaries: dict[str, dict[str, Any]] = {}
        self._vega_read_s = -math.inf
        self._vega_limit = 0
        self._kernel.parts["server.timelines"] = self

    async def read(self, pid: str, look: Callable[[RunTimeline], T]) -> T:
        """Return what `look` gives for the run of a process, as it stands now."""
        return await self._threads.call(self._look, (pid,), lambda runs: look(runs[0]))

    async def read_two(self, left: str, right: str, look: Callable[[RunTimeline, RunTimeline], T]) -> T:
        return await self._threads.call(self._look, (left, right), lambda runs: look(*runs))

    async def prepare_fork(self, pid: str, number: int, change: StepChange) -> PreparedFork:
        """Read what a fork of a run begins with."""
        from lyra.agents.forks.fork import prepare_fork

        known = set(self._kernel.programs.list_known())

        def prepare(runs: list[RunTimeline]) -> PreparedFork:
            store = self._store
            assert store is not None
            return prepare_fork(store, runs[0], number, change, is_known=known.__contains__)

        return await self._threads.call(self._look, (pid,), prepare)

    async def frames(self, pid: str, number: int, process: str) -> list[ProgramFrame]:
        """Return where the program of a process stood after a step, with its variables. The program is run again over
        its journal, in a thread: one at a time, since that may take long."""
        if self._is_looking:
            raise HttpRefusal(409, "another program is being looked at", hint="try again in a moment")
        programs = list(dict.fromkeys(self._kernel.programs.list_known().values()))
        self._is_looking = True
        return await self._threads.call(self._frames, pid, number, process, programs)

    def _frames(self, pid: str, number: int, process: str, programs: list[Any]) -> list[ProgramFrame]:
        from lyra.agents.forks.program_frames import ProgramReplay

        async def register(kernel: Kernel) -> None:
            for program in programs:
                kernel.register(program)

        store = self._kernel.open_reader()
        if store is None:
            raise _no_journal()
        try:
            timeline = RunTimeline(StoredRows(store), pid, steps_max=_STEPS_MAX)
            return asyncio.run(ProgramReplay(store, timeline, register).frames(number, process))
        finally:
            self._is_looking = False
            store.close()

    def _look(self, pids: tuple[str, ...], look: Callable[[list[RunTimeline]], T]) -> T:
        with self._lock:
            return look([self._run(pid) for pid in pids])

    def _open_store(self) -> Store | None:
        if self._store is None:
            self._store = self._kernel.open_reader()
        return self._store

    def _run(self, pid: str) -> RunTimeline:
        store = self._open_store()
        if store is None:
            raise _no_journal()
        run = self._runs.pop(pid, None)
        if run is None:
            run = self._read(store, pid)
        else:
            run.refresh()
        self._runs[pid] = run
        while len(self._runs) > _RUNS_KEPT:
            self._runs.popitem(last=False)
        return run

    def _read(self, store: Store, pid: str) -> RunTimeline:
        """Return the run of a process, or of a Vega program that the same file keeps under this name."""
        try:
            return RunTimeline(StoredRows(store), pid, steps_max=_STEPS_MAX)
        except NoSuchProcess:
            run = self._vega_run(store, pid)
            if run is None:
                raise
            return timeline_of_run(run, steps_max=_STEPS_MAX)

    # ------------------------------------------------------------ Vega runs

    def _vega_run(self, store: Store, name: str) -> DurableRun | None:
        run = self._vega.pop(name, None) or run_in_store(store, name)
        if run is None:
            return None
        self._vega[name] = run
        while len(self._vega) > _RUNS_KEPT:
            oldest = next(iter(self._vega))
            self._vega.pop(oldest).space.close()
            self._runs.pop(oldest, None)
            self._replayed.pop(oldest, None)
        return run

    async def look_at_vega(self, name: str, look: Callable[[DurableRun], T]) -> T | None:
        """Return what `look` gives for a durable Vega run as it stands now; None where there is none of that name."""
        return await self._threads.call(self._look_at_vega, name, look)

    def _look_at_vega(self, name: str, look: Callable[[DurableRun], T]) -> T | None:
        with self._lock:
            store = self._open_store()
            run = None if store is None else self._vega_run(store, name)
            return None if run is None else look(DurableRun(run.space))

    async def vega_place(self, name: str, number: int, process: str) -> ProgramMoment:
        """Return where the program of a Vega run stood after a step, and the last lines that it had printed. The
        program runs again over its journal, in a thread, and is then held as it stood."""

        def look(run: RunTimeline, replayed: ReplayedRun) -> ProgramMoment:
            seq = run.last_seq_of(number) if number else 0
            return ProgramMoment(replayed.frames(seq, process), replayed.output(seq, _LINES_SHOWN))

        return await self._threads.call(self._look_at_program, name, look)

    async def fork_vega(self, name: str, number: int, text: str) -> RunFork:
        """Write the beginning of a fork with another answer at a step."""
        from lyra.vega.replay.fork import RunFork, name_outside_imports, replay_command

        def write(run: RunTimeline, replayed: ReplayedRun) -> RunFork:
            missing = name_outside_imports(replayed.timeline.program)
            if missing:
                raise ConfigError(
                    f"the program of {name} imports {missing}, which a server does not start for a fork",
                    hint=f"{replay_command(name, run.location)} --live",
                )
            effect, change = replayed.change(run.step(number), text)
            return RunFork(run.location, name, change, effect)

        return await self._threads.call(self._look_at_program, name, write)

    def _look_at_program(self, name: str, look: Callable[[RunTimeline, ReplayedRun], T]) -> T:
        from lyra.vega.replay.replayed_run import ReplayedRun

        with self._lock:
            timeline = self._run(name)
            if not timeline.run_id:
                raise NoSuchProcess(f"there is no Vega run {name!r}", pid=name)
            space = self._vega[name].space
            replayed = self._replayed.pop(name, None)
            if replayed is None or replayed.last_seq != space.last_seq():
                replayed = ReplayedRun(DurableRun(space))
            self._replayed[name] = replayed
            while len(self._replayed) > _REPLAYED_KEPT:
                self._replayed.popitem(last=False)
            return look(timeline, replayed)

    async def vega_runs(self, limit: int) -> dict[str, dict[str, Any]]:
        """Return the durable Vega runs in the file of the store in a few figures, by name, the newest first. The
        figures are read again after a while."""
        now_s = self._kernel.clock.monotonic()
        if now_s - self._vega_read_s > _VEGA_KEPT_S or limit > self._vega_limit:
            self._vega_summaries = await self._threads.call(self._summaries, limit)
            self._vega_read_s, self._vega_limit = now_s, limit
        return dict(islice(self._vega_summaries.items(), limit))

    def _summaries(self, limit: int) -> dict[str, dict[str, Any]]:
        with self._lock:
            store = self._open_store()
            runs = ((name, self._vega_run(store, name)) for name in run_names(store)[::-1] if store is not None)
            begun = ((name, run) for name, run in runs if run is not None)
            return {name: _brief(run) for name, run in islice(begun, limit)}

    async def close(self) -> None:
        await self._threads.call(self._close)
        self._threads.close()

    def _close(self) -> None:
        with self._lock:
            self._runs.clear()
            self._replayed.clear()
            for run in self._vega.values():
                run.space.close()
            self._vega.clear()
            store, self._store = self._store, None
            if store is not None:
                store.close()


def _brief(run: DurableRun) -> dict[str, Any]:
    """Return how a run stands, in short; of one that cannot be read only that."""
    try:
        return DurableRun(run.space).brief()
    except Corrupt:
        return {"state": "damaged"}


def _no_journal() -> HttpRefusal:
    return HttpRefusal(409, "this kernel keeps no journal", hint="start it with a store: lyra serve --db FILE")


# Forks of Vega runs that people make on a server: each is executed in a thread, by its own kernel.

_FORKS_MAX: Final = 8  # under way at once
_FAILURES_KEPT: Final = 100
_PATIENCE_S: Final = 10.0  # for forks to let go of their journals, when the server stops
_PART: Final = "server.vega_forks"


class VegaForks:
    """The forks of one server. `failures` says why a fork could not be executed here, by its id."""

    __slots__ = ("_is_closed", "_kernel", "_live", "_threads", "_timelines", "_work", "failures")

    def __init__(self, parts: HttpParts) -> None:
        self._kernel = parts.kernel
        self._timelines = parts.get_shared(Timelines)
        self._threads = BlockingCalls("lyra-forks")
        self._live: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None] = {}
        self._work: set[asyncio.Task[None]] = set()  # one for each that is under way
        self._is_closed = False
        self.failures: dict[str, str] = {}
        self._kernel.parts[_PART] = self

    def is_under_way(self, run_id: str) -> bool:
        """Return whether this server executes a fork."""
        return run_id in self._live

    async def start(self, run_id: str, number: int, text: str) -> str:
        """Fork a run with another answer at a step, and begin to execute it; gives the id of the fork."""
        if len(self._live) >= _FORKS_MAX:
            raise Overloaded(f"{_FORKS_MAX} forks of Vega runs are under way", hint="wait for one of them to end")
        fork = await self._timelines.fork_vega(run_id, number, text)
        self._live[fork.run_id] = None
        work = self._kernel.tasks.start(self._threads.call(self._execute, fork), name="lyra-vega-fork")
        self._work.add(work)
        work.add_done_callback(self._work.discard)
        return fork.run_id

    def _execute(self, fork: RunFork) -> None:
        """Run a fork to its end, on its own loop. How its program ended is in its journal."""
        name = fork.run_id
        try:
            Context().run(asyncio.run, self._run_fork(fork))  # nothing of the request that asked for it
        except LyraError as error:
            if not _is_over(fork):
                hint = f" ({error.hint})" if error.hint else ""
                self.failures[name] = f"{error.message}{hint}"
                while len(self.failures) > _FAILURES_KEPT:
                    self.failures.pop(next(iter(self.failures)))
        except asyncio.CancelledError:
            pass  # the server stops
        finally:
            self._live.pop(name, None)
            fork.close()

    async def _run_fork(self, fork: RunFork) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._live[fork.run_id] = asyncio.get_running_loop(), task
        if not self._is_closed:  # else the server has stopped before it began
            await fork.execute(self._config(fork), fork.options(), is_live=True)

    def _config(self, fork: RunFork) -> Config | None:
        """Return the settings of the server, and over them those that the run was started with."""
        if not fork.settings:
            return self._kernel.config
        from lyra.config import Config

        return Config.load(flags=fork.settings)

    async def close(self) -> None:
        """Stop the forks that are under way; they stay in the store."""
        self._is_closed = True
        for place in list(self._live.values()):
            if place is not None:
                loop, task = place
                with suppress(RuntimeError):  # its loop has ended
                    loop.call_soon_threadsafe(task.cancel)
        if self._work:
            await asyncio.wait(self._work, timeout=_PATIENCE_S)
        self._threads.close()


def _is_over(fork: RunFork) -> bool:
    try:
        return DurableRun(fork.space).is_over
    except LyraError:
        return False

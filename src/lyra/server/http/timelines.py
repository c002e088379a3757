"""Runs to step through, for the API and the pages: each run is read once and then read on, in a thread.

The kernel's store is read over a connection of its own, beside the kernel. The last runs that were looked at are kept
in their short form, so that a page can go through one step after another. Nothing is written here.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lyra.errors import NoSuchProcess
from lyra.kernel.base.tasks import BlockingCalls
from lyra.observe.timeline.journal import StoredRows
from lyra.observe.timeline.timeline import RunTimeline
from lyra.server.http.problems import HttpRefusal
from lyra.store.space import Space, spaces
from lyra.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from lyra.agents.forks.change import StepChange
    from lyra.agents.forks.fork import PreparedFork
    from lyra.agents.forks.program_frames import ProgramFrame
    from lyra.kernel.kernel import Kernel
    from lyra.server.http.parts import HttpParts
    from lyra.store.protocol import Store
    from lyra.vega.durable.runs import DurableRun

__all__ = ["VEGA_MAIN", "Timelines"]

T = TypeVar("T")
_RUNS_KEPT: Final = 8
_VEGA_KEPT_S: Final = 5.0
VEGA_MAIN: Final = "main"  # the pid of a Vega run's main process
_STEPS_MAX: Final = 50_000


class Timelines:
    """The runs of one kernel's store."""

    __slots__ = (
        "_is_looking",
        "_kernel",
        "_lock",
        "_runs",
        "_spaces",
        "_store",
        "_threads",
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
        self._spaces: dict[str, Space] = {}  # of Vega runs that are looked at
        self._vega_summaries: dict[str, dict[str, Any]] = {}
        self._vega_read_s = -math.inf
        self._vega_limit = 0
        self._kernel.parts["server.timelines"] = self

    async def read(self, pid: str, look: Callable[[RunTimeline], T]) -> T:
        """What `look` gives for the run of a process, as it stands now."""
        return await self._threads.call(self._look, (pid,), lambda runs: look(runs[0]))

    async def read_two(self, left: str, right: str, look: Callable[[RunTimeline, RunTimeline], T]) -> T:
        return await self._threads.call(self._look, (left, right), lambda runs: look(*runs))

    async def prepare_fork(self, pid: str, number: int, change: StepChange) -> PreparedFork:
        """Read what a fork of a run begins with."""
        from lyra.agents.forks.fork import prepare_fork

        known = set(self._kernel.programs.known())

        def prepare(runs: list[RunTimeline]) -> PreparedFork:
            store = self._store
            assert store is not None
            return prepare_fork(store, runs[0], number, change, is_known=known.__contains__)

        return await self._threads.call(self._look, (pid,), prepare)

    async def frames(self, pid: str, number: int, process: str) -> list[ProgramFrame]:
        """Where the program of a process stood after a step, with its variables. The program is run again over its
        journal, in a thread: one at a time, since that may take long."""
        if self._is_looking:
            raise HttpRefusal(409, "another program is being looked at", hint="try again in a moment")
        programs = list(dict.fromkeys(self._kernel.programs.known().values()))
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

    def _opened(self) -> Store | None:
        if self._store is None:
            self._store = self._kernel.open_reader()
        return self._store

    def _run(self, pid: str) -> RunTimeline:
        store = self._opened()
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
        """The run of a process, or of a Vega program that the same file keeps under this name."""
        try:
            return RunTimeline(StoredRows(store), pid, steps_max=_STEPS_MAX)
        except NoSuchProcess:
            space = self._vega_run(store, pid)
            if space is None:
                raise
            return RunTimeline(StoredRows(space), VEGA_MAIN, steps_max=_STEPS_MAX)

    def _vega_run(self, store: Store, name: str) -> Space | None:
        if not isinstance(store, SqliteStore) or name not in spaces(store):
            return None
        space = self._spaces.get(name)
        if space is None:
            space = self._spaces[name] = Space(store.location, name, make=False, writes=False)
        while len(self._spaces) > _RUNS_KEPT:
            oldest = next(iter(self._spaces))
            self._spaces.pop(oldest).close()
            self._runs.pop(oldest, None)
        return space

    async def of_vega(self, name: str, look: Callable[[DurableRun], T]) -> T | None:
        """What `look` gives for a durable Vega run; None where there is none of that name."""
        return await self._threads.call(self._look_at_vega, name, look)

    def _look_at_vega(self, name: str, look: Callable[[DurableRun], T]) -> T | None:
        from lyra.vega.durable.runs import DurableRun

        with self._lock:
            store = self._opened()
            space = None if store is None else self._vega_run(store, name)
            return None if space is None else look(DurableRun(space))

    async def vega_runs(self, limit: int) -> dict[str, dict[str, Any]]:
        """The durable Vega runs in the file of the store in a few figures, by name, the newest first. The figures are
        read again after a while."""
        now_s = self._kernel.clock.monotonic()
        if now_s - self._vega_read_s > _VEGA_KEPT_S or limit > self._vega_limit:
            self._vega_summaries = await self._threads.call(self._summaries, limit)
            self._vega_read_s, self._vega_limit = now_s, limit
        return dict(islice(self._vega_summaries.items(), limit))

    def _summaries(self, limit: int) -> dict[str, dict[str, Any]]:
        with self._lock:
            store = self._opened()
            names = spaces(store)[::-1] if isinstance(store, SqliteStore) else []
            return {name: self._run(name).summary() for name in names[:limit]}

    async def close(self) -> None:
        await self._threads.call(self._close)
        self._threads.close()

    def _close(self) -> None:
        with self._lock:
            self._runs.clear()
            for space in self._spaces.values():
                space.close()
            self._spaces.clear()
            store, self._store = self._store, None
            if store is not None:
                store.close()


def _no_journal() -> HttpRefusal:
    return HttpRefusal(409, "this kernel keeps no journal", hint="start it with a store: lyra serve --db FILE")

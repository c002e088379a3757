"""Runs to step through, for the API and the pages: each run is read once and then read on, in a thread.

The kernel's store is read over a connection of its own, beside the kernel. The last runs that were looked at are kept
in their short form, so that a page can go through one step after another. Nothing is written here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from lyra.kernel.base.tasks import BlockingCalls
from lyra.observe.timeline.journal import StoredRows
from lyra.observe.timeline.timeline import RunTimeline
from lyra.server.http.problems import HttpRefusal

if TYPE_CHECKING:
    from lyra.agents.forks.change import ForkChange
    from lyra.agents.forks.fork import PreparedFork
    from lyra.server.http.parts import HttpParts
    from lyra.store.protocol import Store

__all__ = ["Timelines"]

T = TypeVar("T")
_RUNS_KEPT: Final = 8
_STEPS_MAX: Final = 50_000


class Timelines:
    """The runs of one kernel's store."""

    __slots__ = ("_kernel", "_lock", "_runs", "_store", "_threads")

    def __init__(self, parts: HttpParts) -> None:
        self._kernel = parts.kernel
        self._threads = BlockingCalls("lyra-runs")
        self._lock = Lock()  # one connection, which one thread uses at a time
        self._store: Store | None = None
        self._runs: OrderedDict[str, RunTimeline] = OrderedDict()
        self._kernel.parts["server.timelines"] = self

    async def read(self, pid: str, look: Callable[[RunTimeline], T]) -> T:
        """What `look` gives for the run of a process, as it stands now."""
        return await self._threads.call(self._look, (pid,), lambda runs: look(runs[0]))

    async def read_two(self, left: str, right: str, look: Callable[[RunTimeline, RunTimeline], T]) -> T:
        return await self._threads.call(self._look, (left, right), lambda runs: look(*runs))

    async def prepare_fork(self, pid: str, number: int, change: ForkChange) -> PreparedFork:
        """Read what a fork of a run begins with."""
        from lyra.agents.forks.fork import prepare_fork

        known = set(self._kernel.programs.known())

        def prepare(runs: list[RunTimeline]) -> PreparedFork:
            store = self._store
            assert store is not None
            return prepare_fork(store, runs[0], number, change, is_known=known.__contains__)

        return await self._threads.call(self._look, (pid,), prepare)

    def _look(self, pids: tuple[str, ...], look: Callable[[list[RunTimeline]], T]) -> T:
        with self._lock:
            return look([self._run(pid) for pid in pids])

    def _run(self, pid: str) -> RunTimeline:
        if self._store is None:
            self._store = self._kernel.open_reader()
        if self._store is None:
            raise HttpRefusal(
                409, "this kernel keeps no journal", hint="start it with a store: lyra serve --store FILE"
            )
        run = self._runs.pop(pid, None)
        if run is None:
            run = RunTimeline(StoredRows(self._store), pid, steps_max=_STEPS_MAX)
        else:
            run.refresh()
        self._runs[pid] = run
        while len(self._runs) > _RUNS_KEPT:
            self._runs.popitem(last=False)
        return run

    async def close(self) -> None:
        await self._threads.call(self._close)
        self._threads.close()

    def _close(self) -> None:
        with self._lock:
            self._runs.clear()
            store, self._store = self._store, None
            if store is not None:
                store.close()

"""Forks of Vega runs that people make on a server: each is executed in a thread, by a kernel of its own.

A Vega run has a journal of its own in the file of the server's store, so its fork is no process of the server's kernel.
A fork that is under way when the server stops, or that waits for a person, stays in the store: `vega resume` and
`vega answer` go on with it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Final

from lyra.errors import LyraError, Overloaded
from lyra.kernel.base.tasks import BlockingCalls
from lyra.server.http.past.timelines import Timelines

if TYPE_CHECKING:
    from lyra.config import Config
    from lyra.server.http.parts import HttpParts
    from lyra.vega.replay.fork import RunFork


_FORKS_MAX: Final = 8  # under way at once
_FAILURES_KEPT: Final = 100
_PATIENCE_S: Final = 10.0  # for forks to let go of their journals, when the server stops
_PART: Final = "server.vega_forks"


class VegaForks:
    """The forks of one server. `failures` says why a fork could not be executed here, by its id."""

    __slots__ = ("_is_closed", "_kernel", "_live", "_threads", "_timelines", "_work", "failures")

    def __init__(self, parts: HttpParts) -> None:
        self._kernel = parts.kernel
        self._timelines = parts.shared(Timelines)
        self._threads = BlockingCalls("lyra-forks")
        self._live: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None] = {}
        self._work: set[asyncio.Task[None]] = set()  # one for each that is under way
        self._is_closed = False
        self.failures: dict[str, str] = {}
        self._kernel.parts[_PART] = self

    def is_under_way(self, run_id: str) -> bool:
        """Whether this server executes a fork."""
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
        """Run a fork to its end, on a loop of its own. How its program ended is in its journal."""
        name = fork.run_id
        try:
            Context().run(asyncio.run, self._lived(fork))  # nothing of the request that asked for it
        except LyraError as error:
            if not _is_over(fork):
                self._failed(name, error)
        except asyncio.CancelledError:
            pass  # the server stops
        finally:
            self._live.pop(name, None)
            fork.close()

    async def _lived(self, fork: RunFork) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._live[fork.run_id] = asyncio.get_running_loop(), task
        if not self._is_closed:  # else the server has stopped before it began
            await fork.execute(self._config(fork), fork.options(), is_live=True)

    def _config(self, fork: RunFork) -> Config | None:
        """The settings of the server, and over them those that the run was started with."""
        if not fork.settings:
            return self._kernel.config
        from lyra.config import Config

        return Config.load(flags=fork.settings)

    def _failed(self, name: str, error: LyraError) -> None:
        hint = f" ({error.hint})" if error.hint else ""
        self.failures[name] = f"{error.message}{hint}"
        while len(self.failures) > _FAILURES_KEPT:
            self.failures.pop(next(iter(self.failures)))

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
    from lyra.vega.durable.runs import DurableRun

    try:
        return DurableRun(fork.space).is_over
    except LyraError:
        return False

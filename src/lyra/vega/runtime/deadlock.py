"""A run that can never go on: every process waits for a message, and no process is left to send one.

The watch looks while nothing happens, more and more seldom. It raises Deadlock only where that is sure: on a kernel
that belongs to the run alone, without a journal, when each process that is alive waits in a `receive` without `after`.
A timer, a call, a command, a process that sleeps: all of them are something else than that, and then the run waits on.
"""

from __future__ import annotations

import asyncio
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, Final

from lyra.vega.runtime.job import VegaJob
from lyra.vega.values.errors import VegaError
from lyra.vega.values.values import ErrorValue

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process
    from lyra.vega.runtime.world import World


_FIRST_S: Final = 0.25
_LONGEST_S: Final = 16.0
_TEXT: Final = "every process waits for a message that no process will send"


class DeadlockWatch:
    """`main` is the pid of the main process, which is ended when all processes wait; `error` is the Deadlock then."""

    __slots__ = ("_main", "_pause_s", "_steps", "_timer", "_world", "error")

    def __init__(self, world: World, main: str) -> None:
        self._world = world
        self._main = main
        self._pause_s = _FIRST_S
        self._steps = -1
        self.error: VegaError | None = None
        self._timer = self._wait()

    def _wait(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._pause_s, self._look)

    def _look(self) -> None:
        kernel = self._world.kernel
        steps, self._steps = self._steps, kernel.scheduler.steps
        if steps != self._steps:  # something happened meanwhile
            self._pause_s = _FIRST_S
        elif kernel.journal is not None and kernel.journal.pending:
            pass  # rows wait for room in the store, and processes for them
        elif kernel.scheduler.ready == 0 and self._all_receive():
            job = self._world.main
            place = job.fiber.place() if job is not None else ("", 0, 0)
            self.error = VegaError.of(ErrorValue("Deadlock", _TEXT, *place))
            kernel.end(self._main, "deadlock")
            return
        else:
            self._pause_s = min(2 * self._pause_s, _LONGEST_S)
        self._timer = self._wait()

    def _all_receive(self) -> bool:
        light_processes, processes = self._world.light_processes, self._world.kernel.processes
        return all(map(_receives, processes.present())) and (light_processes is None or light_processes.all_wait())

    def stop(self) -> None:
        self._timer.cancel()


def _receives(process: Process) -> bool:
    """Whether a process has ended, or what it waits for is a message and nothing else."""
    if process.exit is not None:
        return True
    if process.inbox or process.receiver is not process:
        return False
    waits: Any = process.coroutine
    if getcoroutinestate(waits) == CORO_CREATED:  # it waited as a light one, and has not been needed since
        return True
    while waits is not None and waits is not process and type(waits) is not VegaJob:
        waits = getattr(waits, "cr_await", None)
    return waits is not None

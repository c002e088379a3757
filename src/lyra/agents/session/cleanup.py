"""Cleanups: what has to stop when a process ends, such as a command that a tool left running in the background.

A tool hands a function to `lyra.core.tool.ending`. It is called once: when the process ends or when the kernel closes,
whichever comes first. A closing kernel waits for the futures that it gives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process


_PART: Final = "endings"
_CLOSE_S: Final = 5.0
_log: Final = logging.getLogger("lyra.agents")


def cleanups_of(kernel: Kernel) -> Cleanups:
    cleanups: Cleanups | None = kernel.parts.get(_PART)
    if cleanups is None:
        cleanups = kernel.parts[_PART] = Cleanups()
    return cleanups


class Cleanups:
    """The cleanups of one kernel's processes; closed with the kernel."""

    __slots__ = ("_by_pid",)

    def __init__(self) -> None:
        self._by_pid: dict[str, list[Callable[[], Any]]] = {}

    def add(self, process: Process, cleanup: Callable[[], Any]) -> None:
        cleanups = self._by_pid.get(process.pid)
        if cleanups is None:
            cleanups = self._by_pid[process.pid] = []
            process.watch((self._process_ended, None))
        cleanups.append(cleanup)

    def end(self, process: Process) -> None:
        """Run the cleanups of a process that lives on. Those that it adds later run when it ends."""
        cleanups = self._by_pid.get(process.pid)
        if cleanups:
            _run(cleanups)
            cleanups.clear()

    def _process_ended(self, process: Process) -> None:
        _run(self._by_pid.pop(process.pid, ()))

    async def close(self) -> None:
        waiting = _run([cleanup for cleanups in self._by_pid.values() for cleanup in cleanups])
        self._by_pid.clear()
        if waiting:
            await asyncio.wait(waiting, timeout=_CLOSE_S)


def _run(cleanups: Iterable[Callable[[], Any]]) -> list[asyncio.Future[Any]]:
    """Call each of them, also where another one fails; gives the futures to wait for."""
    waiting: list[asyncio.Future[Any]] = []
    for cleanup in cleanups:
        try:
            waiting += cleanup() or ()
        except Exception:  # noqa: BLE001 - a cleanup that fails must not keep the others from running
            _log.exception("what a tool left running could not be ended")
    return waiting

"""What ends with a process: work that a tool left running for it, such as a command in the background.

A tool hands a function to `lyra.core.tool.ending`; it is called once, when the process has ended or when the kernel
closes, whichever comes first. What it gives (futures) a closing kernel waits for, so that nothing is left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process

__all__ = ["Endings", "endings_of"]

_PART: Final = "endings"
_CLOSE_S: Final = 5.0
_log: Final = logging.getLogger("lyra.agents")


def endings_of(kernel: Kernel) -> Endings:
    found: Endings | None = kernel.parts.get(_PART)
    if found is None:
        found = kernel.parts[_PART] = Endings()
    return found


class Endings:
    """Of one kernel; closed with it."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[str, list[Callable[[], Any]]] = {}

    def add(self, process: Process, end: Callable[[], Any]) -> None:
        ends = self._of.get(process.pid)
        if ends is None:
            ends = self._of[process.pid] = []
            process.watch((self._over, None))
        ends.append(end)

    def _over(self, process: Process) -> None:
        _call(self._of.pop(process.pid, ()))

    async def close(self) -> None:
        waiting = _call([end for ends in self._of.values() for end in ends])
        self._of.clear()
        if waiting:
            await asyncio.wait(waiting, timeout=_CLOSE_S)


def _call(ends: Iterable[Callable[[], Any]]) -> list[asyncio.Future[Any]]:
    """Each of them, whatever the others do."""
    waiting: list[asyncio.Future[Any]] = []
    for end in ends:
        try:
            waiting += end() or ()
        except Exception:  # noqa: BLE001 - one that fails must not keep the others running
            _log.exception("what a tool left running could not be ended")
    return waiting

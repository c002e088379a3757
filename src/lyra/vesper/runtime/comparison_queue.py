"""Executions that wait to be compared, on a thread of their own.

In shadow mode a caller gets its answer before the other path has run. The work waits in a queue of bounded length; what
does not fit is not compared, which only makes the evidence smaller than it could be.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

__all__ = ["ComparisonQueue"]

WAITING_MAX: Final = 1_000


class ComparisonQueue:
    """See the module: `compare` is called with what was added."""

    def __init__(self, compare: Callable[..., object]) -> None:
        self._compare = compare
        self._waiting: queue.Queue[tuple[Any, ...] | None] = queue.Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None

    def add(self, *work: Any) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work_off, name="lyra-vesper-shadow", daemon=True)
            self._thread.start()
        with suppress(queue.Full):
            self._waiting.put_nowait(work)

    def _work_off(self) -> None:
        while (work := self._waiting.get()) is not None:
            self._compare(*work)
            self._waiting.task_done()
        self._waiting.task_done()

    def settle(self) -> None:
        """Wait until nothing waits."""
        self._waiting.join()

    def close(self) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

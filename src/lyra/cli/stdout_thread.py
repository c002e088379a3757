"""stdout for a command that goes on while it prints: lines are written by a thread of their own.

Whoever reads may be slow, or asleep. Then `put` waits once so much is held back, but the event loop does not: signals
are heard, limits hold, and what runs can be stopped. A reader that is gone is an OSError of the next `put` or `drain`.
The thread is not waited for at the end; what nobody read by then is lost.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from contextlib import suppress
from typing import Final

__all__ = ["Outlet"]

_HELD_BYTES_MAX: Final = 1 << 20


class Outlet:
    """Lines for one descriptor, in the order in which they were put."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._held_bytes = 0
        self._moved = asyncio.Event()
        self._error: OSError | None = None
        threading.Thread(target=self._write, name="lyra-stdout", daemon=True).start()

    async def put(self, line: bytes) -> None:
        """Have it written; waits while too much is."""
        self._held_bytes += len(line)
        self._lines.put(line)
        await self._until(_HELD_BYTES_MAX)

    async def drain(self) -> None:
        """Until all of it is written."""
        await self._until(0)

    async def _until(self, held_bytes: int) -> None:
        while self._held_bytes > held_bytes and self._error is None:
            self._moved.clear()
            await self._moved.wait()
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody wants to know any more
            while True:
                line = self._lines.get()
                try:
                    left = memoryview(line)
                    while left:
                        left = left[os.write(self._fd, left) :]
                except OSError as error:
                    self._loop.call_soon_threadsafe(self._wrote, len(line), error)
                    return
                self._loop.call_soon_threadsafe(self._wrote, len(line))

    def _wrote(self, count: int, error: OSError | None = None) -> None:
        self._held_bytes -= count
        self._error = error
        self._moved.set()

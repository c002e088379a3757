"""Writes lines to stdout in a thread, so that a slow reader of the pipe does not block the event loop.

When more than `_PENDING_BYTES_MAX` wait to be written, `put` waits; signals and time limits still work meanwhile. After
the reader has closed the pipe, the next `put` or `drain` raises the OSError. The thread is a daemon: lines that are not
written when the interpreter ends are lost, so a caller that needs them calls `drain` first.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from contextlib import suppress
from typing import Final

_PENDING_BYTES_MAX: Final = 1 << 20


class StdoutThread:
    """Writes lines to one file descriptor, in the order in which they were put."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._pending_bytes = 0
        self._progress = asyncio.Event()
        self._error: OSError | None = None
        threading.Thread(target=self._write, name="lyra-stdout", daemon=True).start()

    async def put(self, line: bytes) -> None:
        """Queue a line for writing; wait while too many bytes are pending."""
        self._pending_bytes += len(line)
        self._lines.put(line)
        await self._wait_until_pending(_PENDING_BYTES_MAX)

    async def drain(self) -> None:
        """Wait until all lines are written."""
        await self._wait_until_pending(0)

    async def _wait_until_pending(self, pending_bytes_max: int) -> None:
        while self._pending_bytes > pending_bytes_max and self._error is None:
            self._progress.clear()
            await self._progress.wait()
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        with suppress(RuntimeError):  # The loop is closed: the command is over and ignores what is still pending.
            while True:
                line = self._lines.get()
                try:
                    unwritten = memoryview(line)
                    while unwritten:
                        unwritten = unwritten[os.write(self._fd, unwritten) :]
                except OSError as error:
                    self._loop.call_soon_threadsafe(self._line_written, len(line), error)
                    return
                self._loop.call_soon_threadsafe(self._line_written, len(line))

    def _line_written(self, size_bytes: int, error: OSError | None = None) -> None:
        self._pending_bytes -= size_bytes
        self._error = error
        self._progress.set()

"""Reads lines from stdin in a thread, so that waiting for the next one blocks neither the event loop nor its end.

The thread is a daemon: it may wait in `read` when the interpreter ends. A line that is longer than `LINE_BYTES_MAX` is
an error. At most `_PENDING_MAX` lines wait to be taken; then the thread stops reading.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import BinaryIO, Final

from lyra.errors import ConfigError

__all__ = ["LINE_BYTES_MAX", "stdin_lines"]

LINE_BYTES_MAX: Final = 10 * 1024 * 1024
_PENDING_MAX: Final = 100


async def stdin_lines(source: BinaryIO) -> AsyncIterator[bytes]:
    """Every line, without its end, as it comes."""
    lines: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
    room = threading.Semaphore(_PENDING_MAX)
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(RuntimeError):  # The loop is closed: the command is over.
            while True:
                room.acquire()
                try:
                    line = source.readline(LINE_BYTES_MAX + 1)
                except (OSError, ValueError) as error:
                    loop.call_soon_threadsafe(lines.put_nowait, error)
                    return
                loop.call_soon_threadsafe(lines.put_nowait, line or None)
                if not line:
                    return

    threading.Thread(target=read, name="lyra-stdin", daemon=True).start()
    while True:
        line = await lines.get()
        room.release()
        if line is None:
            return
        if isinstance(line, Exception):
            raise ConfigError(f"stdin cannot be read: {line}", key="stdin")
        if len(line) > LINE_BYTES_MAX:
            raise ConfigError(f"a line on stdin is longer than {LINE_BYTES_MAX} bytes", key="stdin")
        yield line.rstrip(b"\r\n")

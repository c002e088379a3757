"""Reads lines from a file descriptor in a thread, so that waiting blocks neither the event loop nor the end of the run.

The thread is a daemon: it may wait in `os.read` when the interpreter ends. It never touches `sys.stdin`, whose lock the
interpreter takes at its end. A line that is longer than `LINE_BYTES_MAX` is an error, or is cut off for a caller that
answers it by itself. At most `_PENDING_MAX` lines wait to be taken; then the thread stops reading.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Final

from lyra.errors import ConfigError

LINE_BYTES_MAX: Final = 10 * 1024 * 1024
_PENDING_MAX: Final = 100
_READ_BYTES: Final = 65_536


async def stdin_lines(fd: int = 0, *, cut_to_bytes: int | None = None) -> AsyncIterator[bytes]:
    """Every line, without its end, as it comes. With `cut_to_bytes` a line may be that long, and of a longer one come
    its first `cut_to_bytes + 1` bytes."""
    lines: asyncio.Queue[bytes | ConfigError | None] = asyncio.Queue()
    room = threading.Semaphore(_PENDING_MAX)
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(RuntimeError):  # The loop is closed: the command is over.
            try:
                for line in _lines_of(fd, cut_to_bytes):
                    room.acquire()
                    loop.call_soon_threadsafe(lines.put_nowait, line)
                loop.call_soon_threadsafe(lines.put_nowait, None)
            except ConfigError as error:
                loop.call_soon_threadsafe(lines.put_nowait, error)

    threading.Thread(target=read, name="lyra-stdin", daemon=True).start()
    while True:
        line = await lines.get()
        if line is None:
            return
        if isinstance(line, ConfigError):
            raise line
        room.release()
        yield line


def _lines_of(fd: int, cut_to_bytes: int | None) -> Iterator[bytes]:
    """The lines of a descriptor; the last one may have no end."""
    buffer = bytearray()  # the line that has begun
    while True:
        try:
            data = os.read(fd, _READ_BYTES)
        except OSError as error:
            raise ConfigError(f"stdin cannot be read: {error.strerror}", key="stdin") from None
        *ends, rest = data.split(b"\n")
        for end in ends:
            _extend(buffer, end, cut_to_bytes)
            yield bytes(buffer).rstrip(b"\r")
            buffer.clear()
        _extend(buffer, rest, cut_to_bytes)
        if not data:
            if buffer:
                yield bytes(buffer)
            return


def _extend(buffer: bytearray, data: bytes, cut_to_bytes: int | None) -> None:
    if cut_to_bytes is not None:
        buffer += data[: max(0, cut_to_bytes + 1 - len(buffer))]
        return
    buffer += data
    if len(buffer) > LINE_BYTES_MAX:
        raise ConfigError(f"a line on stdin is longer than {LINE_BYTES_MAX} bytes", key="stdin")

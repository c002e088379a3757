"""A program in a pseudo-terminal: it is typed to step by step, and all that it writes is kept."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from fcntl import ioctl
from typing import Final

from verify.attacks.sage.world import SageWorld

__all__ = ["Step", "typed"]

_ROWS, _COLUMNS = 40, 100
_READ_BYTES: Final = 1 << 16

Step = tuple[str, str]  # what is waited for, as a pattern of the text without styles, and what is typed then


def typed(world: SageWorld, words: Sequence[str], steps: Sequence[Step], *, seconds: float = 30.0, **env: str) -> bytes:
    """Run `sage` with these words; each step waits for its pattern in what came since the last one. It is ended after
    the last step, or when no pattern comes in time."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    settings = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **env}
    process = subprocess.Popen(
        [*world.command, *words],
        cwd=world.folder,
        env={**world.env, **settings},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        return _drive(master, process, steps, seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(master)


def _drive(master: int, process: subprocess.Popen[bytes], steps: Sequence[Step], seconds: float) -> bytes:
    written = b""
    for pattern, text in steps:
        wanted, seen, end = re.compile(pattern.encode()), len(written), time.monotonic() + seconds
        while wanted.search(written, seen) is None and time.monotonic() < end:
            piece = _read(master, 0.1)
            written += piece
            if not piece and process.poll() is not None:
                break
        if text:
            time.sleep(0.7)  # a question takes keys once a person had the chance to see it
            os.write(master, text.encode())
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        written += _read(master, 0.1)
    return written + _read(master, 0.1)


def _read(master: int, seconds: float) -> bytes:
    if not select.select([master], [], [], seconds)[0]:
        return b""
    try:
        return os.read(master, _READ_BYTES)
    except OSError:  # the other end is closed
        return b""

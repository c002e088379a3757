"""Files that only their owner can read, such as those in the folder of the user's own settings.

`write_private` replaces a file in one step; `alone` holds a lock beside it, so that two processes that change it at the
same time both succeed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from lyra.core.own_files import make_folder


def write_private(path: Path, data: bytes) -> None:
    """Write a file atomically, readable only by its owner."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, 0o600)
        file.write(data)
        file.flush()
        os.fsync(fd)
    os.replace(temporary, path)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock of a file; makes its folder, which only its owner can enter."""
    make_folder(path.parent, private=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)

"""Paths without symlinks, and the symlinks on the way to a path.

The kernel resolves a path where it can, which is faster than `os.path.realpath` and follows `..` behind a link to where
the link leads. Nothing here knows what is protected.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Final

_LINKS_MAX: Final = 40
_HAS_PROC: Final = os.path.isdir("/proc/self/fd")
_O_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC


def real_path(path: str) -> tuple[str, bool]:
    """The path without links, and whether it exists. The kernel resolves it, which is faster than `realpath`."""
    rest = ""
    while True:
        try:
            fd = os.open(path, _O_PATH)
        except (FileNotFoundError, NotADirectoryError):
            above, _, name = path.rpartition("/")
            if os.path.islink(path) or not above:  # a broken link, or nothing at all
                return os.path.join(without_links(path), rest).rstrip("/"), False
            path, rest = above, f"{name}/{rest}" if rest else name
            continue
        except OSError as error:  # a circular link leads to nothing; another path may only be closed to this process
            exists = error.errno != errno.ELOOP and os.path.lexists(path) and not rest
            return os.path.join(without_links(path), rest).rstrip("/"), exists
        try:
            real = os.readlink(f"/proc/self/fd/{fd}") if _HAS_PROC else os.path.realpath(path)
        finally:
            os.close(fd)
        return (f"{real.rstrip('/')}/{rest}", False) if rest else (real, True)


def without_links(path: str) -> str:
    """The path without links, or the path itself where a part of it may not be read."""
    try:
        return os.path.realpath(path)
    except OSError:
        return path


def links_on_the_way(path: str) -> Iterator[str]:
    """The symlinks on the way to a path, each with the links above it resolved."""
    todo = path.split("/")[::-1]
    here, followed = "", 0
    while todo and followed < _LINKS_MAX:
        name = todo.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = here.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"{here}/{name}")
        except OSError:
            here = f"{here}/{name}"
            continue
        followed += 1
        yield f"{here}/{name}"
        here = "" if target.startswith("/") else here
        todo += target.split("/")[::-1]

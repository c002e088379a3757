"""Folders on the way to a protected path, which Landlock cannot open, and the stock of new files and folders for them.

A rule of Landlock that opens a folder opens the protected path in it, too. So a command's new entries of such a folder
are made by another process (`creator`, in the reaper). The stock is made before the command starts, because the rules
cannot be added to later: unnamed files, and folders in a folder of the workspace that is removed afterwards. Landlock
binds rights to the file itself, so they hold under the name that it gets.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from typing import Final

from lyra.sandbox.creator import Folder, encode
from lyra.sandbox.landlock import WRITE, Ruleset
from lyra.sandbox.pre_exec import Creation
from lyra.sandbox.protection.leftovers import STOCK_PREFIX, lock, remove_tree
from lyra.sandbox.seccomp import notifying

_NEW_FILES: Final = 64
_NEW_FOLDERS: Final = 16
_FOLDERS_MAX: Final = 200  # in more folders than this nothing new is made; each is a descriptor of the reaper
_O_PATH: Final = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ClosedFolders:
    """The closed folders of one command, and its stock."""

    def __init__(self) -> None:
        self.folders: list[Folder] = []
        self._files: list[int] = []
        self._place: tuple[str, int] | None = None

    def add(self, fd: int, names: Iterable[str]) -> None:
        """Add a folder; entries of these names are never made, renamed or removed."""
        if len(self.folders) < _FOLDERS_MAX:
            self.folders.append(Folder(os.dup(fd), frozenset(map(os.fsencode, names))))

    def stock(self, rules: Ruleset, root: str) -> None:
        """Make the stock, in the file system of the workspace. Without it new files can only be written once."""
        with contextlib.suppress(OSError):  # a file system without unnamed files
            for _ in range(_NEW_FILES):
                self._files.append(os.open(root, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600))
                rules.allow(self._files[-1], WRITE)
        with contextlib.suppress(OSError):
            path = tempfile.mkdtemp(prefix=STOCK_PREFIX, dir=root)
            self._place = path, lock(path)
            for number in range(_NEW_FOLDERS):
                os.mkdir(f"{path}/{number}", 0o700)
                fd = os.open(f"{path}/{number}", _O_PATH)
                rules.allow(fd, WRITE)
                os.close(fd)

    def creation(self) -> Creation:
        """What the reaper needs. The descriptors belong to the returned object."""
        spare = [os.dup(self._place[1])] if self._place else []
        settings = encode(self.folders, self._files, *((spare[0], _NEW_FOLDERS) if spare else (-1, 0)))
        fds = [*self._files, *(folder.fd for folder in self.folders), *spare]
        self.folders, self._files = [], []
        return Creation(notifying(), _in_memory(settings), fds)

    def close(self) -> None:
        """Close what no `creation` has taken, and remove what is left of the stock."""
        for fd in (*self._files, *(folder.fd for folder in self.folders)):
            os.close(fd)
        self.folders, self._files = [], []
        if self._place is not None:
            path, fd = self._place
            self._place = None
            remove_tree(path)
            os.close(fd)


def _in_memory(data: bytes) -> int:
    fd = os.memfd_create("lyra", os.MFD_CLOEXEC)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd

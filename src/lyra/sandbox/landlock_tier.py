"""The second tier: a `Profile` as a Landlock ruleset.

Without mounts nothing can be hidden inside an open folder, so a workspace with protected paths is opened piece by
piece: the folders on the way to a protected path can only be listed, their other entries are opened one by one, and
the protected ones not at all (hidden) or for reading (read-only). Everything is opened by descriptor and no symlink is
followed.

A command's new entries of a folder that is not opened are made by another process (`creator`, in the reaper). The stock
for them is made before the command starts, because the rules cannot be added to later: unnamed files, and folders in a
folder of the workspace that is removed afterwards. Landlock binds rights to the file itself, so they hold under the
name that it gets.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from typing import Final

from lyra.sandbox.creator import Folder, encode
from lyra.sandbox.landlock import LISTING, READ, WRITE, Ruleset
from lyra.sandbox.paths import interpreter_mounts
from lyra.sandbox.pre_exec import Creation
from lyra.sandbox.profile import SYSTEM, SYSTEM_FILES, SYSTEM_FOLDERS, Profile
from lyra.sandbox.protected import ProtectedPaths
from lyra.sandbox.protection.forbidden_names import STOCK_PREFIX, is_stock, lock, remove_tree
from lyra.sandbox.protection.protected_places import find_hidden_inside
from lyra.sandbox.seccomp import notifying

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Files of /proc about the machine; the rest of /proc shows other processes.
_FACTS: Final = tuple(f"/proc/{name}" for name in ("cpuinfo", "meminfo", "stat", "uptime", "version", "filesystems"))
_O_PATH: Final = getattr(os, "O_PATH", 0) | os.O_CLOEXEC


def ruleset_of(
    profile: Profile, protected: ProtectedPaths, *, private: str, port: int | None, closed: ClosedFolders | None = None
) -> Ruleset:
    """Return the rules; `private` is the folder that is HOME and TMPDIR, `port` the proxy's. `closed` takes the folders
    in which nothing new can be made by these rules."""
    rules = Ruleset()
    try:
        folders = [(profile.workspace, protected, WRITE if profile.writable else READ)]
        folders += [(root, inside, WRITE) for root, inside in protected.also]
        known = {root for root, _, _ in folders}
        system = {*map(os.path.realpath, SYSTEM), *SYSTEM_FOLDERS, *SYSTEM_FILES, *_FACTS}
        _open_all(rules, system, READ)
        _open_all(rules, (*_DEVICES, private, *(path for path in profile.writable_also if path not in known)), WRITE)
        for root in {*profile.readable} - {"/"} - system - known:
            _open_all(rules, (root,), READ, around=_within(root, folders))
        _open_all(
            rules,
            {
                source
                for source, _ in interpreter_mounts(
                    (*protected.all_environments(), *profile.list_environments()), (*known,)
                )
            },
            READ,
        )
        for root, inside, rights in folders:
            _open_all(rules, (root,), rights, around=inside, closed=closed)
        if closed is not None and closed.folders:
            closed.stock(rules, profile.workspace)
        if port is not None:
            rules.allow_connect(port)
    except BaseException:
        rules.close()
        raise
    return rules


def _open_all(
    rules: Ruleset,
    paths: Iterable[str],
    rights: int,
    *,
    around: ProtectedPaths | None = None,
    closed: ClosedFolders | None = None,
) -> None:
    """Allow each path as a whole, or all of it except the protected paths `around`."""
    for path in paths:
        try:
            fd = os.open(path, _O_PATH | (os.O_NOFOLLOW if around is not None else 0))
        except OSError:
            continue  # not on this machine
        try:
            if around is None:
                rules.allow(fd, rights)
            else:
                _open_workspace(rules, fd, "", around, rights, closed)
        finally:
            os.close(fd)


def _within(root: str, folders: Sequence[tuple[str, ProtectedPaths, int]]) -> ProtectedPaths | None:
    """Return the paths that stay closed in a readable folder: Lyra's own, and those of folders with protected paths in
    it."""
    inside = [(folder[len(root) + 1 :], paths) for folder, paths, _ in folders if folder.startswith(root + "/")]
    hidden = [f"{prefix}/{path}" for prefix, paths in inside for path in paths.hidden]
    hidden += [path[len(root) + 1 :] for path in find_hidden_inside(root)]
    links = tuple(f"{prefix}/{path}" for prefix, paths in inside for path in paths.links)
    return ProtectedPaths((), tuple(hidden), links) if hidden or links else None


def _open_workspace(
    rules: Ruleset,
    folder: int,
    prefix: str,
    protected: ProtectedPaths,
    rights: int,
    closed: ClosedFolders | None = None,
) -> None:
    """Allow a folder: as a whole if nothing in it is protected, else each entry by itself."""
    paths = (*protected.hidden, *protected.links)
    paths += (*protected.read_only, *protected.absent) if rights == WRITE else ()
    shut = {path[len(prefix) :].partition("/")[0] for path in paths if path.startswith(prefix)}
    if not shut:
        rules.allow(folder, rights)
        return
    rules.allow(folder, LISTING)
    if rights == WRITE and closed is not None:
        closed.add(folder, shut)
    reading = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        names = os.listdir(reading)
    finally:
        os.close(reading)
    for name in names:
        relative = f"{prefix}{name}"
        if relative in protected.hidden or is_stock(name):
            continue
        try:
            fd = os.open(name, _O_PATH | os.O_NOFOLLOW, dir_fd=folder)
        except OSError:
            continue
        try:
            mode = os.fstat(fd).st_mode
            if relative in protected.read_only:
                _open_read_only(rules, fd, f"{relative}/", protected, is_folder=stat.S_ISDIR(mode))
            elif stat.S_ISDIR(mode):
                _open_workspace(rules, fd, f"{relative}/", protected, rights, closed)
            elif not stat.S_ISLNK(mode):
                rules.allow(fd, rights)
        finally:
            os.close(fd)


def _open_read_only(rules: Ruleset, fd: int, prefix: str, protected: ProtectedPaths, *, is_folder: bool) -> None:
    if is_folder:
        _open_workspace(rules, fd, prefix, protected, READ)
    else:
        rules.allow(fd, READ)


_NEW_FILES: Final = 64
_NEW_FOLDERS: Final = 16
_FOLDERS_MAX: Final = 200  # in more folders than this nothing new is made; each is a descriptor of the reaper
_OPEN_FOLDER: Final = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
                fd = os.open(f"{path}/{number}", _OPEN_FOLDER)
                rules.allow(fd, WRITE)
                os.close(fd)

    def creation(self) -> Creation:
        """Return what the reaper needs. The descriptors belong to the returned object."""
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

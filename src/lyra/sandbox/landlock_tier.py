"""The second tier: a `Profile` as a Landlock ruleset.

Without mounts nothing can be hidden inside an open folder, so a workspace with protected paths is opened piece by
piece: the folders on the way to a protected path can only be listed, their other entries are opened one by one, and
the protected ones not at all (hidden) or for reading (read-only). New files can then be made only below those
entries; `closed_folders` says how others are made. Everything is opened by descriptor and no symlink is followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from typing import Final

from lyra.sandbox.closed_folders import ClosedFolders
from lyra.sandbox.interpreters import interpreter_mounts
from lyra.sandbox.landlock import LISTING, READ, WRITE, Ruleset
from lyra.sandbox.profile import SYSTEM, SYSTEM_FILES, SYSTEM_FOLDERS, Profile
from lyra.sandbox.protected import ProtectedPaths
from lyra.sandbox.protection.leftovers import is_stock
from lyra.sandbox.protection.protected_places import hidden_inside

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Files of /proc about the machine; the rest of /proc shows other processes.
_FACTS: Final = tuple(f"/proc/{name}" for name in ("cpuinfo", "meminfo", "stat", "uptime", "version", "filesystems"))
_O_PATH: Final = getattr(os, "O_PATH", 0) | os.O_CLOEXEC


def ruleset_of(
    profile: Profile,
    protected: ProtectedPaths,
    *,
    private: str,
    port: int | None,
    closed: ClosedFolders | None = None,
) -> Ruleset:
    """The rules; `private` is the folder that is HOME and TMPDIR, `port` the proxy's. `closed` takes the folders in
    which nothing new can be made by these rules."""
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
        _open_all(rules, {source for source, _ in interpreter_mounts(protected.all_environments(), (*known,))}, READ)
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
    """The paths that stay closed in a readable folder: Lyra's own, and those of folders with protected paths in it."""
    inside = [(folder[len(root) + 1 :], paths) for folder, paths, _ in folders if folder.startswith(root + "/")]
    hidden = [f"{prefix}/{path}" for prefix, paths in inside for path in paths.hidden]
    hidden += [path[len(root) + 1 :] for path in hidden_inside(root)]
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

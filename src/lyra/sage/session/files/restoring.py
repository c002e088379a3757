"""Restoring: brings paths of the workspace back to a state, without ever leaving their workspace folder.

Folders are opened one below the other without following symlinks. A file or link is made beside its place and renamed,
so that a reader sees the old content or the new one. A path that cannot be restored is reported and the others
continue.
Never decides what is restored, and never touches a path that is not in the plan.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from lyra.core.secrets.visible import visible
from lyra.errors import Corrupt
from lyra.sage.session.files.observed import LEFTOVER_PREFIX
from lyra.sage.session.files.state import FileState, look_at, open_parent, read_name
from lyra.sandbox.paths import Beneath

if TYPE_CHECKING:
    from lyra.sage.session.files.contents import KeptContents


_count: Final = itertools.count()
_OWNERS_RIGHTS: Final = stat.S_IRWXU
_CACHE: Final = "__pycache__"


class PlannedPath(NamedTuple):
    path: str
    root: str
    now: FileState
    target: FileState


def restore_paths(
    plan: Sequence[PlannedPath], contents: KeptContents, restored: Callable[[str], None]
) -> dict[str, str]:
    """Bring every path to its target. `restored` is told each path that was changed; the paths that stay as they are
    come back, each with a sentence."""
    problems: dict[str, str] = {}
    shallow_first = sorted(plan, key=lambda planned: planned.path.count("/"))
    deep_first = shallow_first[::-1]
    steps: tuple[tuple[Sequence[PlannedPath], Callable[[Beneath, PlannedPath, KeptContents], bool]], ...] = (
        (shallow_first, _open_folder),
        (deep_first, _remove),
        (shallow_first, _make_folder),
        (shallow_first, _put),
        (deep_first, _set_mode),
    )
    for paths, step in steps:
        for planned in paths:
            try:
                with Beneath(planned.root) as root:
                    if step(root, planned, contents):
                        restored(planned.path)
            except (OSError, Corrupt) as error:
                reason = str(error) if isinstance(error, Corrupt) else error.strerror or "it cannot be written"
                problems.setdefault(planned.path, f"{visible(planned.path)}: {reason}")
    return problems


def set_folder_mode(root: str, path: str, mode: int) -> None:
    """Set the mode of a folder of the workspace folder `root`, also of one that may not be read."""
    with Beneath(root) as beneath, open_parent(beneath, path) as (parent, name):
        _change_mode(parent, name, mode)


# ------------------------------------------------------------ steps; each says whether it has changed its path
def _open_folder(root: Beneath, planned: PlannedPath, _contents: KeptContents) -> bool:
    """Give the owner of a folder all rights while what is in it is restored."""
    if planned.now.kind != "folder" or planned.now.mode & _OWNERS_RIGHTS == _OWNERS_RIGHTS:
        return False
    with open_parent(root, planned.path) as (parent, name):
        _change_mode(parent, name, planned.now.mode | _OWNERS_RIGHTS)
    return False


def _remove(root: Beneath, planned: PlannedPath, _contents: KeptContents) -> bool:
    """Remove what is not wanted, or has to make room for a folder or be a folder no longer."""
    now, target = planned.now.kind, planned.target.kind
    if now == "absent" or not (target == "absent" or "folder" in (now, target)) or now == target:
        return False
    with open_parent(root, planned.path) as (parent, name):
        if now != "folder":
            os.unlink(name, dir_fd=parent)
            return True
        _remove_cache(parent, name)
        os.rmdir(name, dir_fd=parent)
    return True


def _make_folder(root: Beneath, planned: PlannedPath, _contents: KeptContents) -> bool:
    if planned.target.kind != "folder" or planned.now.kind == "folder":
        return False
    _make_above(root, planned.path)
    with open_parent(root, planned.path) as (parent, name):
        os.mkdir(name, _OWNERS_RIGHTS, dir_fd=parent)
        _change_mode(parent, name, planned.target.mode | _OWNERS_RIGHTS)
    return True


def _put(root: Beneath, planned: PlannedPath, contents: KeptContents) -> bool:
    """Make the file or link beside its place and rename it."""
    if planned.target.kind not in ("file", "link"):
        return False
    digest = planned.target.digest
    data = b"" if digest is None else contents.read(digest)
    _make_above(root, planned.path)
    with open_parent(root, planned.path) as (parent, name):
        beside = f"{LEFTOVER_PREFIX}{os.getpid()}-{next(_count)}"
        try:
            if planned.target.kind == "link":
                os.symlink(read_name(planned.target.content), beside, dir_fd=parent)
            else:
                _write(parent, beside, data, planned.target.mode, beside_of=name)
            os.rename(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside, dir_fd=parent)
            raise
    return True


def _set_mode(root: Beneath, planned: PlannedPath, _contents: KeptContents) -> bool:
    """Return the modes of folders come last: a folder may be closed to writing."""
    if planned.target.kind != "folder":
        return False
    with open_parent(root, planned.path) as (parent, name):
        _change_mode(parent, name, planned.target.mode)
    return True


# ------------------------------------------------------------ calls
def _write(parent: int, name: str, data: bytes, mode: int, *, beside_of: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=parent)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        with suppress(OSError):  # only root can change the owner; for other users the file is theirs already
            status = os.stat(beside_of, dir_fd=parent, follow_symlinks=False)
            os.fchown(fd, status.st_uid, status.st_gid)
        os.fchmod(fd, mode)
        os.fsync(fd)


def _change_mode(parent: int, name: str, mode: int) -> None:
    """Set the mode of a folder, also of one that may not be read; a link of its name is not followed."""
    path_only = getattr(os, "O_PATH", 0)
    fd = os.open(name, path_only | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{fd}" if path_only else fd, mode)
    finally:
        os.close(fd)


def _make_above(root: Beneath, path: str) -> None:
    """Make the folders above a path that are missing: another hand has removed them."""
    folder = os.path.dirname(path)
    if folder == root.root or look_at(root, folder) is not None:
        return
    _make_above(root, folder)
    with open_parent(root, folder) as (parent, name), suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)


def _remove_cache(parent: int, name: str) -> None:
    """Remove the compiled modules that Python has left in a folder, if nothing else is there."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError):
        folder = os.open(name, flags, dir_fd=parent)
        try:
            if name != _CACHE and os.listdir(folder) != [_CACHE]:
                return
            cache = os.dup(folder) if name == _CACHE else os.open(_CACHE, flags, dir_fd=folder)
            try:
                files = os.listdir(cache)
                if all(file.endswith(".pyc") for file in files):
                    for file in files:
                        os.unlink(file, dir_fd=cache)
            finally:
                os.close(cache)
            if name != _CACHE:
                os.rmdir(_CACHE, dir_fd=folder)
        finally:
            os.close(folder)

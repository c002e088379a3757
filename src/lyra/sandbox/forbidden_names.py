"""Files and folders that a command must not create, because the user's programs would act on them (`.git`,
`lyra.toml`).

`placeholders` prevents the folders among them in a workspace's root: an empty folder of that name exists while a
command runs, which sees it read-only. `set_aside` handles all others after the command: it renames what appeared
(`lyra.toml` to `lyra.toml.held-x7k2`), so that no program reads it and nothing is lost. Both work by descriptor.

A placeholder has the sticky bit, and each process that uses it holds a shared lock on it. So several processes can
share one, the last of them removes it, and `remove_stale` recognizes one whose processes were killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Iterable
from typing import Final

from lyra.core.ids import Entropy
from lyra.errors import LyraError
from lyra.sandbox.paths import Beneath

__all__ = ["FOLDERS", "placeholders", "remove_stale", "set_aside"]

FOLDERS: Final = (".git", ".lyra", ".vscode")  # programs ignore each of these when it is empty
_NAME_BYTES_MAX: Final = 200
_TRIES: Final = 8
_names: Final = Entropy()
_held: Final[dict[str, _Placeholder]] = {}  # path → the placeholder that commands of this process use


class _Placeholder:
    """A placeholder that this process has locked, and how many of its commands need it."""

    __slots__ = ("commands", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.commands = 0


def placeholders(workspace: str, names: Iterable[str] = FOLDERS) -> Callable[[], None]:
    """Make the missing ones of these folders. The returned function removes them after the last command that needs
    them."""
    mine: list[str] = []
    for path in (f"{workspace}/{name}" for name in names):
        held = _held.get(path)
        if held is None:
            fd = _lock(path)
            if fd is None:
                continue  # it exists already, or the workspace cannot be written anyway
            held = _held[path] = _Placeholder(fd)
        held.commands += 1
        mine.append(path)

    def release() -> None:
        for path in reversed(mine):  # inner folders first
            held = _held[path]
            held.commands -= 1
            if not held.commands:
                del _held[path]
                _unlock(path, held.fd)

    return release


def _lock(path: str) -> int | None:
    """Make a placeholder, or share one that is there, and lock it; None where another folder or a file has the name."""
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):
            os.mkdir(path, 0o700)
            os.chmod(path, _mode(path) | stat.S_ISVTX)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        if not os.fstat(fd).st_mode & stat.S_ISVTX:
            os.close(fd)
            return None
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_SH)
        if _is_same(path, fd):
            return fd
        os.close(fd)  # another process has removed it before it was locked
    return None


def _unlock(path: str, fd: int) -> None:
    """Remove a placeholder that no other process uses; a folder that is in use by now becomes a plain one."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)  # another process shares it, and removes it
        return
    except OSError:
        pass  # a file system without locks
    try:
        if _is_same(path, fd):
            _remove(path, fd)
    finally:
        os.close(fd)


def _remove(path: str, fd: int) -> None:
    try:
        os.rmdir(path)
    except OSError:
        os.fchmod(fd, _mode(path))


def _mode(path: str) -> int:
    return 0o755 if os.path.basename(path) in (".git", ".vscode") else 0o700


def _is_same(path: str, fd: int) -> bool:
    try:
        here, there = os.lstat(path), os.fstat(fd)
    except OSError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def remove_stale(workspace: str, names: Iterable[str] = FOLDERS) -> None:
    """Remove those of these folders that are placeholders of a killed process."""
    for path in (f"{workspace}/{name}" for name in names):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        if path not in _held and os.fstat(fd).st_mode & stat.S_ISVTX and not os.listdir(fd):
            _unlock(path, fd)
        else:
            os.close(fd)


def set_aside(root: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Rename each path so that it has no protected name any more; gives the new paths of those that were renamed."""
    done: list[str] = []
    with Beneath(root) as folder:
        for path in paths:
            above, _, name = path.rpartition("/")
            held = f"{os.fsdecode(os.fsencode(name)[:_NAME_BYTES_MAX])}.held-{_names.text(6)}"
            try:
                parent = folder.open(above or ".", os.O_RDONLY | os.O_DIRECTORY, links=False)
            except (OSError, LyraError):
                continue  # gone or moved: the next search finds it at its new place
            try:
                _rename(parent, name, held)
                done.append(f"{above}/{held}" if above else held)
            except OSError:
                continue
            finally:
                os.close(parent)
    return tuple(done)


def _rename(parent: int, name: str, held: str) -> None:
    """Rename an entry of a folder, also where a command has taken the right to write in it from its owner."""
    try:
        os.rename(name, held, src_dir_fd=parent, dst_dir_fd=parent)
    except PermissionError:
        mode = stat.S_IMODE(os.fstat(parent).st_mode)
        os.fchmod(parent, mode | stat.S_IRWXU)
        os.rename(name, held, src_dir_fd=parent, dst_dir_fd=parent)

"""Files and folders that a command must not create, because the user's programs would act on them (`.git`,
`lyra.toml`).

`placeholders` prevents the folders among them in a workspace's root: an empty folder of that name exists while a
command runs, which sees it read-only. `set_aside` handles all others after the command: it renames what appeared
(`lyra.toml` to `lyra.toml.held-x7k2`), so that no program reads it and nothing is lost. Both work by descriptor.

A placeholder has the sticky bit, and each process with a command in a workspace holds a shared lock on that folder. So
several processes can use the same placeholders, the last of them removes them, and `remove_stale` knows one whose
processes were killed. `clean_up` removes what commands of a killed Lyra have left, at the next start: placeholders, and
the stock of new files and folders of `landlock_tier`; never one whose lock another Lyra holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from lyra.core.ids import Entropy
from lyra.errors import LyraError
from lyra.sandbox.paths import Beneath
from lyra.sandbox.protection.protected_places import list_own_folders

FOLDERS: Final = (".git", ".lyra", ".vscode")  # programs ignore each of these when it is empty
_NAME_BYTES_MAX: Final = 200
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_names: Final = Entropy()
_used: Final[dict[str, _Used]] = {}  # workspace → its placeholders that commands of this process need


class _Used:
    """The lock of a workspace, how many commands run in it, and how many of them need each placeholder."""

    __slots__ = ("commands", "fd", "paths")

    def __init__(self, workspace: str) -> None:
        self.fd = os.open(workspace, _FLAGS)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self.fd, fcntl.LOCK_SH)
        self.commands = 0
        self.paths: Counter[str] = Counter()


def placeholders(workspace: str, names: Iterable[str] = FOLDERS) -> Callable[[], None]:
    """Make the missing ones of these folders. The returned function removes them after the last command that needs
    them."""
    try:
        used = _used.get(workspace) or _used.setdefault(workspace, _Used(workspace))
    except OSError:  # the workspace cannot be read: no command runs in it
        return lambda: None
    used.commands += 1
    mine = [path for name in names if _make(path := f"{workspace}/{name}")]
    used.paths.update(mine)

    def release() -> None:
        used.commands -= 1
        used.paths.subtract(mine)
        if not used.commands:
            del _used[workspace]
        _remove_alone(used.fd, [path for path in reversed(mine) if not used.paths[path]])  # inner folders first
        if not used.commands:
            os.close(used.fd)
        else:
            with contextlib.suppress(OSError):
                fcntl.flock(used.fd, fcntl.LOCK_SH)

    return release


def _make(path: str) -> bool:
    """Make a placeholder; False where another folder or a file has the name, or nothing can be made."""
    try:
        os.mkdir(path, (0o755 if path.endswith(("/.git", "/.vscode")) else 0o700) | stat.S_ISVTX)
    except FileExistsError:
        return is_placeholder(path)  # of another command, or of a killed process
    except OSError:
        return False
    return True


def _remove_alone(fd: int, paths: Iterable[str]) -> None:
    """Remove placeholders of a workspace, unless another process has commands there: that one removes them. The lock of
    this process may be gone afterwards."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    except OSError:
        pass  # a file system without locks
    for path in paths:
        try:
            os.rmdir(path)
        except OSError:
            _make_plain(path)


def _make_plain(path: str) -> None:
    """Make a placeholder that is in use by now a folder like any other."""
    with contextlib.suppress(OSError):
        fd = os.open(path, _FLAGS)
        try:
            mode = stat.S_IMODE(os.fstat(fd).st_mode)
            if mode & stat.S_ISVTX:
                os.fchmod(fd, mode & ~stat.S_ISVTX)
        finally:
            os.close(fd)


def is_placeholder(path: str) -> bool:
    """Return whether a path is an empty folder that was made as a placeholder."""
    try:
        return _is_marked(path) and not os.listdir(path)
    except OSError:
        return False


def _is_marked(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)


def remove_stale(workspace: str, names: Iterable[str] = FOLDERS) -> None:
    """Remove those of these folders that are placeholders of a killed process; inner folders come before outer ones.
    One with something in it by now becomes a plain folder."""
    stale = [path for name in names if _is_marked(path := f"{workspace}/{name}")]
    if stale and workspace not in _used:
        with contextlib.suppress(OSError):
            fd = os.open(workspace, _FLAGS)
            try:
                _remove_alone(fd, stale)
            finally:
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
                # Rename an entry of a folder, also where a command has taken the right to write in it from its owner.
                try:
                    os.rename(name, held, src_dir_fd=parent, dst_dir_fd=parent)
                except PermissionError:
                    mode = stat.S_IMODE(os.fstat(parent).st_mode)
                    os.fchmod(parent, mode | stat.S_IRWXU)
                    os.rename(name, held, src_dir_fd=parent, dst_dir_fd=parent)
                done.append(f"{above}/{held}" if above else held)
            except OSError:
                continue
            finally:
                os.close(parent)
    return tuple(done)


STOCK_PREFIX: Final = ".lyra-new-"


def clean_up(root: str) -> None:
    """Remove what is left in a workspace."""
    remove_stale(root, (*FOLDERS, *list_own_folders(root)))
    try:
        names = os.listdir(root)
    except OSError:
        return
    for name in filter(is_stock, names):
        with contextlib.suppress(OSError):  # it is in use, or no folder
            fd = os.open(f"{root}/{name}", _FLAGS)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(f"{root}/{name}")
            finally:
                os.close(fd)


def is_stock(name: str) -> bool:
    """Return whether an entry of a workspace is the stock of a command."""
    return name.startswith(STOCK_PREFIX)


def lock(path: str) -> int:
    """Return a descriptor of a folder, with a lock that ends with the processes that have the descriptor."""
    fd = os.open(path, _FLAGS)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def remove_tree(path: str) -> None:
    with contextlib.suppress(RecursionError):  # folders nested too deeply by a command are left
        shutil.rmtree(path, ignore_errors=True)

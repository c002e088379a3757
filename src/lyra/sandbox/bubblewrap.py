"""The best tier: bubblewrap gives the command a file system, process table and network of its own.

Turns a `Profile` into bubblewrap's arguments. The order matters: later mounts lie on top of earlier ones, so the
system comes first, then private folders, then what may be read, then the workspace, and the protected paths inside
it last. Paths inside the workspace are opened first and bound by descriptor (`--ro-bind-fd`), so that a running
command cannot replace them by a symlink meanwhile; a bubblewrap without that option hides those paths instead of
showing them read-only.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from lyra.errors import SandboxUnavailable
from lyra.sandbox.paths import Beneath, interpreter_mounts
from lyra.sandbox.profile import SYSTEM, SYSTEM_FILES, SYSTEM_FOLDERS, Profile
from lyra.sandbox.protected import ProtectedPaths
from lyra.sandbox.protection.protected_places import find_hidden_inside

TEMPORARY: Final = "/tmp"  # noqa: S108 - the sandbox's own, a file system in memory
HOME: Final = "/tmp/home"  # noqa: S108 - the same
INSIDE: Final = "/run/lyra"
_NAMESPACES: Final = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"),
)
_SETTINGS: Final = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
# Where the whole file system may be read, these are shown empty: sockets of services, and the keys of all users.
_EMPTY: Final = ("/run", "/var/run", "/tmp", "/var/tmp", "/boot", "/sys")  # noqa: S108 - hidden, not used
_KEYS: Final = (".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".config/gcloud", ".netrc", ".git-credentials")
_SHADOW: Final = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/ssl/private")


def find_program() -> str | None:
    """Return where bubblewrap is; never one from a folder that a command could write (PATH is the system's)."""
    return shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin")


def arguments(
    program: str,
    profile: Profile,
    protected: ProtectedPaths,
    *,
    by_descriptor: bool,
    filter_fd: int,
    info_fd: int,
    extra: Sequence[str],
) -> tuple[list[str], list[int]]:
    """Return the command line up to `--`, and the descriptors that it needs; `extra` are the mounts for the proxy."""
    fds: list[int] = []
    line = [program, *_NAMESPACES, "--uid", str(os.getuid()), "--gid", str(os.getgid())]
    line += _system(profile, fds)
    size = str(profile.limits.file_bytes)
    line += ["--proc", "/proc", *_kernel(), "--dev", "/dev", "--size", size, "--tmpfs", "/dev/shm"]  # noqa: S108 - its own
    line += ["--size", size, "--tmpfs", TEMPORARY, "--dir", HOME]
    for name, path in profile.find_home_links():
        line += ["--symlink", path, f"{HOME}/{name}"]
    for path in sorted(profile.readable):
        line += [] if path == "/" or _is_system_path(path) else ["--ro-bind", path, path]
    for path in sorted({path for root in profile.readable for path in find_hidden_inside(root)}):
        line += _hide(path, is_folder=os.path.isdir(path))
    # The folders that the command sees in any case.
    for source, place in interpreter_mounts(
        (*protected.all_environments(), *profile.list_environments()),
        (*SYSTEM, *profile.readable, *profile.writable_also, profile.workspace),
    ):
        line += ["--ro-bind", source, place]
    for path in sorted(profile.writable_also):
        line += ["--bind", path, path]
    line += ["--bind" if profile.writable else "--ro-bind", profile.workspace, profile.workspace]
    line += _protect(profile, protected, fds, by_descriptor=by_descriptor)
    line += [*extra, "--remount-ro", "/", "--chdir", profile.start, "--seccomp", str(filter_fd)]
    line += ["--info-fd", str(info_fd)]
    return [*line, "--"], fds


def _system(profile: Profile, fds: list[int]) -> list[str]:
    if "/" in profile.readable:
        return ["--ro-bind", "/", "/", *_without_keys()]
    line = [*_mounts()]
    for path in _files():  # a copy in memory costs bubblewrap a tenth of a mount
        try:
            fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            continue
        line += ["--perms", "0444", "--file", str(fds[-1]), path]
    return line


@lru_cache(maxsize=1)
def _mounts() -> tuple[str, ...]:
    """Return the mounts of the system's folders, computed once."""
    line: list[str] = []
    for path in SYSTEM:
        if os.path.islink(path):
            line += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            line += ["--ro-bind", path, path]
    for path in (path for path in SYSTEM_FOLDERS if os.path.isdir(path)):
        line += ["--ro-bind", path, path]
    return tuple(line)


@lru_cache(maxsize=1)
def _files() -> tuple[str, ...]:
    """Return the small files of /etc that this machine has, computed once."""
    return tuple(path for path in SYSTEM_FILES if os.path.isfile(path))


def in_memory(data: bytes) -> int:
    """Return a descriptor from which bubblewrap reads these bytes."""
    fd = os.memfd_create("lyra")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@lru_cache(maxsize=1)
def _kernel() -> list[str]:
    """Return mounts that make the kernel's settings read-only: root, which owns them, is root inside the sandbox
    too."""
    line: list[str] = []
    for path in (path for path in _SETTINGS if os.getuid() == 0 and os.path.exists(path)):
        line += ["--ro-bind", path, path]
    return [*line, "--ro-bind-try", "/dev/null", "/proc/keys"]


def _without_keys() -> list[str]:
    line: list[str] = []
    for path in (path for path in _EMPTY if os.path.isdir(path) and not os.path.islink(path)):
        line += ["--tmpfs", path]
    homes = ["/root", *(entry.path for entry in _entries("/home"))]
    for path in (*_SHADOW, *(f"{home}/{name}" for home in homes for name in _KEYS)):
        if os.path.lexists(path) and not os.path.islink(path):
            line += _hide(path, is_folder=os.path.isdir(path))
    return line


def _entries(path: str) -> Iterator[os.DirEntry[str]]:
    try:
        yield from os.scandir(path)
    except OSError:
        return


def _is_system_path(path: str) -> bool:
    return any(path == root or path.startswith(root + "/") for root in SYSTEM if not os.path.islink(root))


def _protect(profile: Profile, protected: ProtectedPaths, fds: list[int], *, by_descriptor: bool) -> list[str]:
    """Return mounts for the read-only and hidden paths of every folder; a path that is gone by now needs none."""
    line = _protect_in(profile.workspace, protected, fds, writable=profile.writable, by_descriptor=by_descriptor)
    for root, inside in protected.also:
        line += _protect_in(root, inside, fds, writable=True, by_descriptor=by_descriptor)
    return line


def _protect_in(
    root: str, protected: ProtectedPaths, fds: list[int], *, writable: bool, by_descriptor: bool
) -> list[str]:
    line: list[str] = []
    with Beneath(root) as folder:
        read_only = protected.read_only if writable else ()
        if writable and by_descriptor:
            line += _pin(folder, root, (*read_only, *protected.hidden, *protected.links), fds)
        for hidden, paths in ((False, read_only), (True, protected.hidden)):
            for relative in paths:
                fd = _reach(folder, relative, os.O_PATH | os.O_NOFOLLOW)
                if fd is None:
                    continue
                path = os.path.join(root, relative)
                mode = os.fstat(fd).st_mode
                if hidden or not by_descriptor:
                    os.close(fd)
                    line += _hide(path, is_folder=stat.S_ISDIR(mode))
                else:
                    fds.append(fd)
                    line += ["--ro-bind-fd", str(fd), path]
    return line


def _pin(folder: Beneath, root: str, paths: Sequence[str], fds: list[int]) -> list[str]:
    """Make every folder above a protected path a mount. The kernel does not rename mounts, so that a command cannot
    move a protected path to where the next search would miss it."""
    line: list[str] = []
    parts = (path.split("/") for path in paths)
    ways = {"/".join(names[:depth]) for names in parts for depth in range(1, len(names))}
    for relative in sorted(ways):  # outer folders first
        fd = _reach(folder, relative, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
        if fd is not None:
            fds.append(fd)
            line += ["--bind-fd", str(fd), os.path.join(root, relative)]
    return line


def _reach(folder: Beneath, relative: str, flags: int) -> int | None:
    """Return a descriptor of a protected path; None where it is gone, SandboxUnavailable where it cannot be opened."""
    try:
        return folder.open(relative, flags, links=False)
    except PermissionError:
        raise SandboxUnavailable(
            f"the protected path {relative} cannot be reached, so the command does not run",
            hint="another command has just closed a folder above it: run the command again",
        ) from None
    except OSError:
        return None


def _hide(path: str, *, is_folder: bool) -> list[str]:
    """Return a folder becomes empty, a file becomes a device that may not be opened."""
    return ["--tmpfs", path, "--remount-ro", path] if is_folder else ["--ro-bind", "/dev/null", path]

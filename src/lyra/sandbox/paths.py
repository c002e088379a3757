"""Opening paths so that they stay inside a folder, even while other processes change the disk.

A path that is checked and then opened by name can be swapped in between. `Beneath` opens by file descriptor: the
kernel itself resolves the path below an open folder (`openat2` with RESOLVE_BENEATH) and refuses to leave it by `..`,
by an absolute or escaping symlink, or through /proc. Where the kernel has no such call, a walk from descriptor to
descriptor does the same and reads every symlink itself. The opened descriptor is what is used: `true_path` gives its
name, and the Grant is asked about that. A path that leaves the folder is `CapabilityDenied`, never redirected.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from typing import Final, Self

from lyra.errors import CapabilityDenied, ConfigError

_OPENAT2: Final = 437
_NO_MAGICLINKS: Final = 0x02
_NO_SYMLINKS: Final = 0x04
_BENEATH: Final = 0x08
_TRIES: Final = 128  # a rename somewhere on the machine during `..` makes the kernel say EAGAIN
_LINKS_MAX: Final = 40  # as many symlinks as the kernel itself follows
_DEPTH_MAX: Final = 1_000
_O_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY)
_ESCAPES: Final = frozenset({errno.EXDEV, errno.ELOOP})

_libc: Final = ctypes.CDLL(None, use_errno=True)


class _Swapped(Exception):
    """A component was replaced between two system calls: try again."""


class Beneath:
    """An open folder and everything below it: `with Beneath("/project") as folder: fd = folder.open("a/b")`."""

    __slots__ = ("_by_kernel", "fd", "root")

    def __init__(self, root: str, *, by_kernel: bool = True) -> None:
        try:
            self.fd = os.open(root, _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(f"the folder {root} cannot be opened: {error.strerror}", place=root) from None
        self.root = true_path(self.fd)
        self._by_kernel = by_kernel and _has_openat2()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def open(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666, *, links: bool = True) -> int:
        """A descriptor of `path` (relative to the folder, or absolute and inside it); OSError where there is none.

        With `links=False` not even a symlink that stays inside is followed.
        """
        relative = self.relative(path)
        flags |= os.O_CLOEXEC
        temporary = getattr(os, "O_TMPFILE", 0)
        if not flags & os.O_CREAT and not (
            temporary and flags & temporary == temporary
        ):  # O_TMPFILE includes the bit of O_DIRECTORY
            mode = 0
        try:
            if self._by_kernel:
                return self._ask_kernel(relative, flags, mode, links=links)
            return self._walk(relative, flags, mode, links=links)
        except OSError as error:
            if error.errno in _ESCAPES and (links or error.errno == errno.EXDEV):
                raise self._escape(path) from None
            raise OSError(error.errno, os.strerror(error.errno or 0), path) from None

    def relative(self, path: str) -> str:
        """The path relative to the folder, by its text alone; symlinks are checked when it is opened."""
        if "\0" in path:
            raise self._escape(path)
        if not path.startswith("/"):
            return path or "."
        for root in dict.fromkeys((self.root, os.path.abspath(self.root))):
            if path == root:
                return "."
            if path.startswith(root.rstrip("/") + "/"):
                return path[len(root.rstrip("/")) + 1 :].lstrip("/") or "."
        raise self._escape(path)

    def _escape(self, path: str) -> CapabilityDenied:
        return CapabilityDenied(
            f"{path[:200]} leaves {self.root}",
            hint="use a path inside the folder; symlinks may not lead out of it",
            place=path[:200],
        )

    # ------------------------------------------------------------ by openat2
    def _ask_kernel(self, path: str, flags: int, mode: int, *, links: bool) -> int:
        how = struct.pack("=QQQ", flags, mode, _BENEATH | _NO_MAGICLINKS | (0 if links else _NO_SYMLINKS))
        name = os.fsencode(path)
        for _ in range(_TRIES):
            fd = int(_libc.syscall(_OPENAT2, ctypes.c_int(self.fd), name, how, ctypes.c_size_t(len(how))))
            if fd >= 0:
                return fd
            number = ctypes.get_errno()
            if number != errno.EAGAIN:
                raise OSError(number, os.strerror(number))
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    # ------------------------------------------------------------ by a walk
    def _walk(self, path: str, flags: int, mode: int, *, links: bool) -> int:
        for _ in range(_TRIES):
            try:
                return self._walk_once(path, flags, mode, links=links)
            except _Swapped:
                continue
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def _walk_once(self, path: str, flags: int, mode: int, *, links: bool) -> int:
        """Open every folder of the path and keep it open: `..` returns to an open folder, not to the parent on disk."""
        held = [os.dup(self.fd)]
        todo = _parts(path)
        followed = 0
        try:
            while todo:
                name = todo.pop()
                if name == "..":
                    if len(held) == 1:
                        raise OSError(errno.EXDEV, "out of the folder")
                    os.close(held.pop())
                    continue
                last = not todo
                target = _link_target(held[-1], name) if (links and not flags & os.O_NOFOLLOW) or not last else None
                if target is not None:
                    followed += 1
                    if target.startswith("/") or followed > _LINKS_MAX or not links:
                        raise OSError(errno.EXDEV, "a symlink that leaves")
                    todo += _parts(target)
                elif last:
                    return _open_last(held[-1], name, flags, mode, links=links)
                else:
                    held.append(_open_folder(held[-1], name))
                    if len(held) > _DEPTH_MAX:
                        raise OSError(errno.ENAMETOOLONG, "too deep")
            return os.open(".", flags & ~os.O_CREAT | os.O_NOFOLLOW, dir_fd=held[-1])
        finally:
            for fd in held:
                os.close(fd)


def _parts(path: str) -> list[str]:
    """The components, last first, so that the next one is popped."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.endswith("/") and parts:
        parts.append(".")  # `file/` names a folder
    return [part for part in reversed(parts) if part != "."]


def _link_target(folder: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _open_folder(folder: int, name: str) -> int:
    try:
        return os.open(name, _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(folder, name):
            raise _Swapped from None
        raise


def _open_last(folder: int, name: str, flags: int, mode: int, *, links: bool) -> int:
    try:
        fd = os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=folder)
    except OSError as error:
        follow = links and not flags & os.O_NOFOLLOW
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and follow and _is_link(folder, name):
            raise _Swapped from None
        raise
    if stat.S_ISLNK(os.fstat(fd).st_mode) and not (flags & os.O_NOFOLLOW):
        os.close(fd)  # O_PATH opens the symlink itself
        if links:
            raise _Swapped
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return fd


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return True  # gone already: it was replaced


def true_path(fd: int) -> str:
    """The current path of an open descriptor, as the kernel knows it."""
    if os.path.isdir("/proc/self/fd"):
        return os.readlink(f"/proc/self/fd/{fd}")
    import fcntl

    return os.fsdecode(fcntl.fcntl(fd, getattr(fcntl, "F_GETPATH", 50), bytes(1024)).rstrip(b"\0"))


def reopen(root: str, relative: str) -> bool:
    """Give the owner of a folder all rights on it again; False where another user owns it, or it is no folder."""
    with Beneath(root) as folder:
        flags = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = folder.open(relative, flags, links=False) if relative else os.dup(folder.fd)
        except (OSError, CapabilityDenied):
            return False
        try:
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(os.fstat(fd).st_mode) | stat.S_IRWXU)
        except OSError:
            return False
        finally:
            os.close(fd)
    return True


_openat2_works: bool | None = None


def _has_openat2() -> bool:
    """Whether the kernel has `openat2`; tried once, because some containers refuse the call."""
    global _openat2_works
    if _openat2_works is None:
        how = struct.pack("=QQQ", _O_PATH | os.O_CLOEXEC, 0, _BENEATH)
        arguments = (ctypes.c_int(-100), b".", how, ctypes.c_size_t(len(how)))
        fd = int(_libc.syscall(_OPENAT2, *arguments)) if os.uname().sysname == "Linux" else -1
        _openat2_works = fd >= 0
        if fd >= 0:
            os.close(fd)
    return _openat2_works

"""Opening paths so that they stay inside a folder, even while other processes change the disk; paths without symlinks.

A path that is checked and then opened by name can be swapped in between. `Beneath` opens by file descriptor: the
kernel itself resolves the path below an open folder (`openat2` with RESOLVE_BENEATH) and refuses to leave it by `..`,
by an absolute or escaping symlink, or through /proc. Where the kernel has no such call, a walk from descriptor to
descriptor does the same and reads every symlink itself. The opened descriptor is what is used: `true_path` gives its
name, and the Grant is asked about that. A path that leaves the folder is `CapabilityDenied`, never redirected.

`real_path` lets the kernel resolve a path where it can, which is faster than `os.path.realpath` and follows `..` behind
a link to where the link leads. Nothing here knows what is protected.

`recall_names` gives the names in a folder that were listed before, as long as the kernel tells by the folder's times
that none has come or gone: a tree of 30 000 files is looked through again in a tenth of the time.

The interpreter of a project's Python environment is a link to a Python that is installed elsewhere (pyenv, uv, conda),
and `pyvenv.cfg` names its folder. A command may write both, so what they name is checked: only the program and the
library folder of a Python installation become visible, read-only, and nothing else beside them. Where the links lead
through other links, each place on the way shows the same folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Self

from lyra.core.clock import SystemClock
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
        """Return a descriptor of `path` (relative to the folder, or absolute and inside it); OSError where there is
        none.

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
            for _ in range(_TRIES):
                try:
                    return self._walk_once(relative, flags, mode, links=links)
                except _Swapped:
                    continue
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        except OSError as error:
            if error.errno in _ESCAPES and (links or error.errno == errno.EXDEV):
                raise self._escape(path) from None
            raise OSError(error.errno, os.strerror(error.errno or 0), path) from None

    def relative(self, path: str) -> str:
        """Return the path relative to the folder, by its text alone; symlinks are checked when it is opened."""
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
    """Return the components, last first, so that the next one is popped."""
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
    """Return the current path of an open descriptor, as the kernel knows it."""
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
    """Return whether the kernel has `openat2`; tried once, because some containers refuse the call."""
    global _openat2_works
    if _openat2_works is None:
        how = struct.pack("=QQQ", _O_PATH | os.O_CLOEXEC, 0, _BENEATH)
        arguments = (ctypes.c_int(-100), b".", how, ctypes.c_size_t(len(how)))
        fd = int(_libc.syscall(_OPENAT2, *arguments)) if os.uname().sysname == "Linux" else -1
        _openat2_works = fd >= 0
        if fd >= 0:
            os.close(fd)
    return _openat2_works


# ---------------------------------------------------------------- names in folders

_SETTLED_S: Final = 2.0  # a folder that was changed this shortly before may change again within one tick of its time
_LISTED_MAX: Final = 100_000
# A name that comes or goes changes the times of its folder there, and no program sets the time of a change (ctime).
_EXACT: Final = frozenset(["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"])


class FolderEntry(NamedTuple):
    name: str
    path: str
    is_folder: bool = False
    is_link: bool = False


class FolderNames:
    """The names in a folder. `notes` are what callers have concluded from them, by keys of their own."""

    __slots__ = ("count", "files", "folders", "links", "notes")

    def __init__(self, folders: Sequence[str] = (), links: Sequence[str] = (), files: Sequence[str] = ()) -> None:
        self.folders, self.links, self.files = folders, links, files
        self.count = len(folders) + len(links) + len(files)
        self.notes: dict[object, Any] = {}

    def entries(self, folder: str) -> Iterator[FolderEntry]:
        """Yield the entries of the folder, whose path is given."""
        start = folder.rstrip("/")
        yield from (FolderEntry(name, f"{start}/{name}", is_folder=True) for name in self.folders)
        yield from (FolderEntry(name, f"{start}/{name}", is_link=True) for name in self.links)
        yield from (FolderEntry(name, f"{start}/{name}") for name in self.files)


_listed: Final[dict[str, tuple[tuple[int, ...], FolderNames]]] = {}
_exact_devices: Final[dict[int, bool]] = {}


def recall_names(path: str, status: os.stat_result | None = None) -> FolderNames | None:
    """Return the names in a folder as they were listed, if none has come or gone since; `status` is that of now."""
    known = _listed.get(path)
    if known is None:
        return None
    try:
        return known[1] if known[0] == _signature(status or os.lstat(path)) else None
    except OSError:
        return None


def list_names(path: str, fd: int, *, most: int) -> FolderNames:
    """List a folder, which is open as `fd`, and close it. Where it has more than `most` names, one more is given."""
    try:
        status = os.fstat(fd)
        folders: list[str] = []
        links: list[str] = []
        files: list[str] = []
        with os.scandir(fd) as opened:
            for entry in islice(opened, most + 1):
                is_folder = entry.is_dir(follow_symlinks=False)
                (folders if is_folder else links if entry.is_symlink() else files).append(entry.name)
        names = FolderNames(folders, links, files)
        is_settled = names.count <= most and status.st_ctime_ns < (SystemClock.now() - _SETTLED_S) * 1e9
        if is_settled and _signature(status) == _signature(os.fstat(fd)) and _has_exact_times(fd, status.st_dev):
            if len(_listed) >= _LISTED_MAX:
                _listed.clear()
            _listed[path] = _signature(status), names
    finally:
        os.close(fd)
    return names


def _signature(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ctime_ns, status.st_mtime_ns, status.st_ino, status.st_dev


def _has_exact_times(fd: int, device: int) -> bool:
    """Return whether a folder lies in a file system of which that is known; the kernel names it by the mount."""
    if device not in _exact_devices:
        _exact_devices[device] = False
        with contextlib.suppress(OSError, StopIteration, IndexError):
            with open(f"/proc/self/fdinfo/{fd}") as info:
                mount = next(line.split()[1] for line in info if line.startswith("mnt_id:"))
            with open("/proc/self/mountinfo") as mounts:
                facts = next(line.split(" - ")[1].split() for line in mounts if line.split()[0] == mount)
            _exact_devices[device] = facts[0] in _EXACT
    return _exact_devices[device]


# ---------------------------------------------------------------- real paths

_HAS_PROC: Final = os.path.isdir("/proc/self/fd")
_RESOLVE: Final = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_CLOEXEC


def real_path(path: str) -> tuple[str, bool]:
    """Return the path without links, and whether it exists. The kernel resolves it, which is faster than `realpath`."""
    rest = ""
    while True:
        try:
            fd = os.open(path, _RESOLVE)
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
    """Return the path without links, or the path itself where a part of it may not be read."""
    try:
        return os.path.realpath(path)
    except OSError:
        return path


def links_on_the_way(path: str) -> Iterator[str]:
    """Yield the symlinks on the way to a path, each with the links above it resolved."""
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


# ---------------------------------------------------------------- interpreters

_PROGRAM: Final = re.compile(r"python(\d+(\.\d+)?t?)?")
_LIBRARY: Final = re.compile(r"python3\.\d+t?")
_NOT_PLACES: Final = ("/proc", "/sys", "/dev", "/run")  # nothing can be shown there
_CONFIG_BYTES_MAX: Final = 65_536


def interpreter_mounts(environments: Iterable[str], visible: Sequence[str]) -> list[tuple[str, str]]:
    """Return what a sandbox has to show so that the interpreters of these environments start: pairs of a real path and
    the path at which it is looked for. Paths inside the folders of `visible` are there already."""
    known = (*visible, *_NOT_PLACES)
    places = [place for environment in environments for program in _programs(environment) for place in _way(program)]
    pairs = {pair for place in dict.fromkeys(places) for pair in _find_installed_parts(place)}
    return sorted(pair for pair in pairs if not any(_inside(pair[1], root) for root in known))


def _programs(environment: str) -> Iterator[str]:
    """Yield the interpreter of an environment, and that of the installation which its settings name."""
    yield f"{environment}/bin/python"
    try:
        fd = os.open(f"{environment}/pyvenv.cfg", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, encoding="utf-8", errors="replace") as file:
            text = file.read(_CONFIG_BYTES_MAX)
    except OSError:
        return
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key.strip().lower() == "home" and value.strip().startswith("/") and "\0" not in value:
            yield os.path.normpath(f"{value.strip()}/python3")


def _way(program: str) -> Iterator[str]:
    """Yield each place of the program from link to link, the real one last. Links of folders are not followed on their
    own: the folder is shown where they lead and where they are named."""
    for _ in range(_LINKS_MAX):
        yield program
        try:
            target = os.readlink(program)
        except OSError:
            break
        program = os.path.normpath(os.path.join(os.path.dirname(program), target))
    yield without_links(program)


def _find_installed_parts(program: str) -> Iterator[tuple[str, str]]:
    """Yield the programs and libraries of the installation that a program belongs to, if it belongs to one."""
    prefix, real = os.path.dirname(os.path.dirname(program)), without_links(program)
    installation = os.path.dirname(os.path.dirname(real))
    if not _PROGRAM.fullmatch(os.path.basename(real)) or without_links(prefix) != installation:
        return
    libraries = [name for name in _names(f"{installation}/lib") if _LIBRARY.fullmatch(name)]
    libraries = [name for name in libraries if os.path.isfile(f"{installation}/lib/{name}/os.py")]
    if not libraries or not os.path.isfile(real):
        return
    for name in _names(f"{installation}/bin"):
        if _PROGRAM.fullmatch(name) and os.path.isfile(f"{installation}/bin/{name}"):
            yield without_links(f"{installation}/bin/{name}"), f"{prefix}/bin/{name}"
    names = [""]
    if _inside(os.path.expanduser("~"), installation):  # the user's own `lib` may hold other things
        names = [*libraries, *(name for name in _names(f"{installation}/lib") if name.startswith("libpython"))]
    for name in names:
        yield f"{installation}/lib/{name}".rstrip("/"), f"{prefix}/lib/{name}".rstrip("/")


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")

"""Makes files for a command in folders that Landlock cannot open for it, because they hold a protected path.

Landlock opens a folder with everything in it or not at all. A folder on the way to a protected path can therefore only
be listed, and the command's calls that make, rename or remove an entry of it (`openat` with O_CREAT, `mkdir`, `unlink`,
`rename`, `symlink`) come here: a filter of system calls passes them on (`seccomp.notifying`). This module runs in the
reaper, outside the confinement. It looks which folder a call is about. If that is one of the closed folders, and the
entry is not protected, it does what was asked, by the folder's own descriptor and the single name; else the kernel goes
on with the call, and Landlock decides. So a wrong or changed answer here can never open more than entries of those
folders that are not protected.

A new file is one of a stock that the ruleset already knows: Landlock's rights are bound to the file, not to its name,
so the command can read and write it again later. When the stock is used up, a new file can be written once, through the
descriptor that the command gets; a new folder becomes another closed folder.

It is part of a script without packages (`reaper`), so it imports few modules and none of Lyra's.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

_RECEIVE: Final = 0xC0502100
_SEND: Final = 0xC0182101
_IS_VALID: Final = 0x40082102
_ADD_FD: Final = 0x40182103
_NOTIFICATION: Final = struct.Struct("=QIIiIQ6Q")
_CONTINUE: Final = 1  # the kernel continues with the call
_ADD_AND_SEND: Final = 2
_AT_FDCWD: Final = -100
_REMOVE_FOLDER: Final = 0x200
_NO_REPLACE: Final = 1
_PATH_BYTES_MAX: Final = 4_096
_BLOCK_BYTES: Final = 4_096  # of memory, which may end at such an address
_PERMISSIONS: Final = 0o777  # a file that sets a user or group id is never made
_FOLDERS_MAX: Final = 1_000
_O_PATH: Final = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# The calls that come here, by their number on x86_64 and on aarch64.
CALLS: Final[dict[str, tuple[int | None, int | None]]] = {
    "openat": (257, 56),
    "mkdirat": (258, 34),
    "unlinkat": (263, 35),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "symlinkat": (266, 36),
    "open": (2, None),
    "creat": (85, None),
    "mkdir": (83, None),
    "rmdir": (84, None),
    "unlink": (87, None),
    "rename": (82, None),
    "symlink": (88, None),
}


class Folder(NamedTuple):
    """A closed folder: an open descriptor, and the names of its entries that stay as they are."""

    fd: int
    closed: frozenset[bytes] = frozenset()


class _Entry(NamedTuple):
    """An entry of a closed folder. It may not exist."""

    fd: int  # of the folder
    name: bytes

    def exists(self) -> bool:
        try:
            os.lstat(self.name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True


class _PassOnError(Exception):
    """There is nothing to do here: the kernel continues with the call."""


def encode(folders: Iterable[Folder], files: Iterable[int], spare: int, spares: int) -> bytes:
    """Return the settings of a Creator: its folders, its stock of files, and a folder with so many spare folders
    in it."""
    rows = [[b"%d" % spare, b"%d" % spares], [b"%d" % fd for fd in files]]
    rows += [[b"%d" % folder.fd, *sorted(folder.closed)] for folder in folders]
    fields = (struct.pack("=I", len(row)) + b"".join(struct.pack("=I", len(f)) + f for f in row) for row in rows)
    return b"".join(fields)


def decode(data: bytes) -> tuple[list[Folder], list[int], int, int]:
    rows: list[list[bytes]] = []
    start = 0

    def number() -> int:
        nonlocal start
        start += 4
        return int(struct.unpack_from("=I", data, start - 4)[0])

    while start < len(data):
        row: list[bytes] = []
        for _ in range(number()):
            size = number()
            row.append(data[start : start + size])
            start += size
        rows.append(row)
    (spare, spares), files, *folders = rows
    return [Folder(int(row[0]), frozenset(row[1:])) for row in folders], [*map(int, files)], int(spare), int(spares)


class Creator:
    """Answers the calls of one command. `listener` is the descriptor of the filter that passes them on."""

    def __init__(self, listener: int, folders: list[Folder], files: list[int], spare: int, spares: int) -> None:
        self._listener = listener
        self._folders = {_identity(os.fstat(folder.fd)): folder for folder in folders}
        self._files = files
        self._spare = spare
        self._spares = spares
        column = 0 if os.uname().machine == "x86_64" else 1
        self._calls: dict[int | None, Callable[[int, list[int]], int]] = {
            numbers[column]: getattr(self, f"_{name}") for name, numbers in CALLS.items()
        }
        self._id = 0

    def serve(self) -> None:
        """Answer until no process of the command is left."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while True:
            events = poll.poll()
            if events and events[0][1] & (select.POLLHUP | select.POLLERR) and not events[0][1] & select.POLLIN:
                return
            self._answer_next()

    def _answer_next(self) -> None:
        data = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, data)
        except OSError:
            return  # the process has died meanwhile
        self._id, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(data)
        value, error, flags = 0, 0, 0
        try:
            value = self._calls[number](pid, arguments)
        except OSError as failure:
            error = -(failure.errno or errno.EACCES)
        except Exception:  # noqa: BLE001 - whatever went wrong: the kernel decides, by the rules of Landlock
            flags = _CONTINUE
        if value >= 0:
            try:
                fcntl.ioctl(self._listener, _SEND, struct.pack("=QqiI", self._id, 0, error, flags))
            except OSError:
                return

    # ------------------------------------------------------------ what a call is about
    def _entry(self, pid: int, folder: int, address: int) -> _Entry | None:
        """Return the entry that a path of the process names, if it lies in a closed folder; a protected one is passed
        on."""
        path = self._text(pid, address).rstrip(b"/")
        above, slash, name = path.rpartition(b"/")
        if name in (b"", b".", b".."):
            raise _PassOnError
        if not path.startswith(b"/"):
            number = folder - 2**32 if folder & 2**31 else folder
            base = b"cwd" if number == _AT_FDCWD else b"fd/%d" % number
            above = b"/proc/%d/%s/%s" % (pid, base, above)
        try:
            place = self._folders.get(_identity(os.stat(above or slash)))
        except OSError:
            raise _PassOnError from None
        fcntl.ioctl(self._listener, _IS_VALID, struct.pack("=Q", self._id))  # else it was another process's memory
        if place is None:
            return None
        if name in place.closed:
            raise _PassOnError
        return _Entry(place.fd, name)

    def _find_entry(self, pid: int, folder: int, address: int) -> _Entry:
        entry = self._entry(pid, folder & 0xFFFFFFFF, address)
        if entry is None:
            raise _PassOnError
        return entry

    def _text(self, pid: int, address: int) -> bytes:
        """Return the text at an address of the process."""
        text = b""
        try:
            memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a process that no other may look into
            raise _PassOnError from None
        try:
            while b"\0" not in text and len(text) < _PATH_BYTES_MAX:
                start = address + len(text)
                piece = os.pread(memory, _BLOCK_BYTES - start % _BLOCK_BYTES, start)
                if not piece:
                    raise _PassOnError
                text += piece
        except OSError:
            raise _PassOnError from None
        finally:
            os.close(memory)
        return text.partition(b"\0")[0]

    def _mode(self, pid: int, mode: int) -> int:
        with open(f"/proc/{pid}/status", "rb") as file:
            umask = next((int(line[6:], 8) for line in file if line.startswith(b"Umask:")), 0o022)
        return mode & ~umask & _PERMISSIONS

    # ------------------------------------------------------------ the calls
    def _openat(self, pid: int, call: list[int]) -> int:
        return self._open_new(pid, self._find_entry(pid, call[0], call[1]), call[2], call[3])

    def _open(self, pid: int, call: list[int]) -> int:
        return self._open_new(pid, self._find_entry(pid, _AT_FDCWD, call[0]), call[1], call[2])

    def _creat(self, pid: int, call: list[int]) -> int:
        return self._open_new(pid, self._find_entry(pid, _AT_FDCWD, call[0]), os.O_WRONLY | os.O_CREAT, call[1])

    def _open_new(self, pid: int, entry: _Entry, flags: int, mode: int) -> int:
        """Make a file and hand its descriptor over; -1: the answer is sent already."""
        if entry.exists() or flags & os.O_DIRECTORY:
            raise _PassOnError
        for_exec = flags & os.O_CLOEXEC
        flags = flags & ~(os.O_EXCL | os.O_TRUNC) | os.O_NOCTTY | os.O_CLOEXEC
        fd = self._new_file(entry, flags, self._mode(pid, mode))
        try:
            fcntl.ioctl(self._listener, _ADD_FD, struct.pack("=QIIII", self._id, _ADD_AND_SEND, fd, 0, for_exec))
        finally:
            os.close(fd)
        return -1

    def _new_file(self, entry: _Entry, flags: int, mode: int) -> int:
        if self._files:
            stock = self._files.pop()
            fd = os.open(f"/proc/self/fd/{stock}", flags & ~(os.O_CREAT | os.O_NOFOLLOW))
            try:
                os.fchmod(stock, mode)
                os.link(f"/proc/self/fd/{stock}", entry.name, dst_dir_fd=entry.fd, follow_symlinks=True)
                return fd
            except OSError as error:
                os.close(fd)
                if error.errno == errno.EEXIST:
                    raise _PassOnError from None
            finally:
                os.close(stock)
        return os.open(entry.name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=entry.fd)

    def _mkdirat(self, pid: int, call: list[int]) -> int:
        return self._make_folder(pid, self._find_entry(pid, call[0], call[1]), call[2])

    def _mkdir(self, pid: int, call: list[int]) -> int:
        return self._make_folder(pid, self._find_entry(pid, _AT_FDCWD, call[0]), call[1])

    def _make_folder(self, pid: int, entry: _Entry, mode: int) -> int:
        if entry.exists():
            raise _PassOnError
        mode = self._mode(pid, mode)
        while self._spares:
            self._spares -= 1
            name = b"%d" % self._spares
            try:
                os.chmod(name, mode, dir_fd=self._spare)
                os.rename(name, entry.name, src_dir_fd=self._spare, dst_dir_fd=entry.fd)
            except OSError:
                continue  # another file system
            return 0
        os.mkdir(entry.name, mode, dir_fd=entry.fd)
        if len(self._folders) < _FOLDERS_MAX:
            fd = os.open(entry.name, _O_PATH, dir_fd=entry.fd)
            self._folders[_identity(os.fstat(fd))] = Folder(fd)
        return 0

    def _unlinkat(self, pid: int, call: list[int]) -> int:
        return self._remove(self._find_entry(pid, call[0], call[1]), is_folder=bool(call[2] & _REMOVE_FOLDER))

    def _unlink(self, pid: int, call: list[int]) -> int:
        return self._remove(self._find_entry(pid, _AT_FDCWD, call[0]), is_folder=False)

    def _rmdir(self, pid: int, call: list[int]) -> int:
        return self._remove(self._find_entry(pid, _AT_FDCWD, call[0]), is_folder=True)

    def _remove(self, entry: _Entry, *, is_folder: bool) -> int:
        (os.rmdir if is_folder else os.unlink)(entry.name, dir_fd=entry.fd)
        return 0

    def _renameat2(self, pid: int, call: list[int]) -> int:
        return self._rename_entry(pid, call, call[4])

    def _renameat(self, pid: int, call: list[int]) -> int:
        return self._rename_entry(pid, call, 0)

    def _rename(self, pid: int, call: list[int]) -> int:
        return self._rename_entry(pid, [_AT_FDCWD, call[0], _AT_FDCWD, call[1]], 0)

    def _rename_entry(self, pid: int, call: list[int], flags: int) -> int:
        """Rename between closed folders. From or to another folder the answer is that of another file system: programs
        then copy, and the copy has the rights of its new place."""
        old = self._entry(pid, call[0] & 0xFFFFFFFF, call[1])
        new = self._entry(pid, call[2] & 0xFFFFFFFF, call[3])
        if old is None and new is None:
            raise _PassOnError
        if old is None or new is None:
            raise OSError(errno.EXDEV, "between an open and a closed folder")
        if flags & ~_NO_REPLACE:
            raise OSError(errno.EINVAL, "no exchange")
        if flags and new.exists():
            raise OSError(errno.EEXIST, "it exists")
        os.rename(old.name, new.name, src_dir_fd=old.fd, dst_dir_fd=new.fd)
        return 0

    def _symlinkat(self, pid: int, call: list[int]) -> int:
        return self._make_link(self._text(pid, call[0]), self._find_entry(pid, call[1], call[2]))

    def _symlink(self, pid: int, call: list[int]) -> int:
        return self._make_link(self._text(pid, call[0]), self._find_entry(pid, _AT_FDCWD, call[1]))

    def _make_link(self, target: bytes, entry: _Entry) -> int:
        os.symlink(target, entry.name, dir_fd=entry.fd)
        return 0


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino

"""Landlock: the kernel's access control for a process, through system calls (no library, no privilege).

A ruleset is made here, in the parent, from open file descriptors; the child only enters it (`pre_exec`). Landlock rules
grant access and never remove it: a folder inside an open one can only stay closed when its neighbours are opened one by
one, which `landlock_tier` does. `holes` lists what this tier cannot prevent; every result shows it.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from typing import Final

_CREATE: Final = 444
_ADD: Final = 445
RESTRICT: Final = 446
_VERSION: Final = 1
_PATH: Final = 1
_PORT: Final = 2
LEAST: Final = 3  # older versions cannot refuse that a file is truncated

_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE: Final = 1 << 4 | 1 << 5
_MAKE: Final = 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12  # folders, files, sockets, pipes, symlinks; no devices
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_CONNECT: Final = 1 << 1
_BIND: Final = 1 << 0
_SCOPES: Final = 1 << 0 | 1 << 1  # abstract unix sockets, signals

READ: Final = _EXECUTE | _READ | _LIST
WRITE: Final = READ | _WRITE | _REMOVE | _MAKE | _REFER | _TRUNCATE
_OF_FILES: Final = _EXECUTE | _READ | _WRITE | _TRUNCATE | _IOCTL
LISTING: Final = _LIST

libc: Final = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """Return the version that the kernel speaks; 0 without Landlock."""
    if os.uname().sysname != "Linux":
        return 0
    return max(0, int(libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))))


def holes(version: int, *, egress: bool, creates: bool = True) -> tuple[str, ...]:
    """Return what this tier does not prevent, in sentences for a person."""
    sentences = [
        "landlock: the sizes, names and times of files outside can be seen, their content cannot",
        "landlock: all processes share one table of process ids and one /tmp, which is closed",
        "landlock: modes, owners and times of files cannot be changed by name, nor can a process leave its group",
    ]
    if not creates:
        sentences.append("landlock: new files cannot be made beside a protected path, only in folders that hold none")
    if version < 6:
        sentences.append("landlock: this kernel cannot stop signals to other processes of the same user")
        sentences.append(
            "landlock: so a command can kill its reaper, and then outlive Lyra where that is killed outright"
        )
    if version < 5:
        sentences.append("landlock: this kernel cannot restrict the controls of devices")
    if egress:
        sentences.append(
            "landlock: the network is limited by port, not by host: another host on the proxy's port is open"
        )
    return tuple(sentences)


class Ruleset:
    """A set of rules for a child; `close` it when the child has entered it."""

    __slots__ = ("_handled", "_version", "fd")

    def __init__(self) -> None:
        self._version = abi()
        handled = (1 << (13 + (self._version >= 2) + (self._version >= 3))) - 1
        if self._version >= 5:
            handled |= _IOCTL
        self._handled = handled
        net = _CONNECT | _BIND if self._version >= 4 else 0
        scoped = _SCOPES if self._version >= 6 else 0
        size = 24 if self._version >= 6 else 16 if self._version >= 4 else 8
        attributes = struct.pack("=QQQ", handled, net, scoped)[:size]
        self.fd = int(libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint(0)))
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "no ruleset")

    def allow(self, path_fd: int, rights: int) -> None:
        """Allow access to the file or folder of a descriptor, and to all beneath it."""
        if not stat.S_ISDIR(os.fstat(path_fd).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights & self._handled, path_fd)
        self._add(_PATH, rule)

    def allow_connect(self, port: int) -> None:
        if self._version >= 4:
            self._add(_PORT, struct.pack("=QQ", _CONNECT, port))

    def _add(self, kind: int, rule: bytes) -> None:
        if libc.syscall(_ADD, ctypes.c_int(self.fd), ctypes.c_int(kind), rule, ctypes.c_uint(0)):
            raise OSError(ctypes.get_errno(), "the rule was refused")

    def close(self) -> None:
        os.close(self.fd)

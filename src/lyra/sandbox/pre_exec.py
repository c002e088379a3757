"""The code that runs in the child between fork and exec: limits, then the confinement.

Everything is prepared in the parent (numbers, bytes, open descriptors, functions already looked up), because the
child of a process with threads may not import, allocate much or take a lock. An error here ends the child before the
command starts: no command runs without the confinement.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shlex
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Final

from lyra.sandbox.landlock import RESTRICT, libc
from lyra.sandbox.profile import Limits

_DEATH: Final = 1
_SECCOMP: Final = 22
_CAPBSET_DROP: Final = 24
_NO_NEW_PRIVILEGES: Final = 38
_AMBIENT: Final = 47
_AMBIENT_CLEAR: Final = 4
_FILTER: Final = 2
_CAPABILITIES: Final = 64  # more than exist; the kernel refuses unknown numbers
_CAPSET: Final = {"x86_64": 126, "aarch64": 91}
_CAP_VERSION: Final = 0x20080522
_SIGNALS: Final = signal.valid_signals()
_SECCOMP_CALL: Final = {"x86_64": 317, "aarch64": 277}
_SET_FILTER: Final = 1
_NEW_LISTENER: Final = 1 << 3 | 1 << 5  # and a call that was passed on is interrupted by deadly signals alone
_LIBRARIES: Final = {
    name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ
}  # of the interpreter


class Creation:
    """What the reaper needs to make files for the command (`creator`): a socket on which it receives the listener of
    the filter, its settings, and all descriptors that they name."""

    __slots__ = ("_fds", "_program", "_program_bytes", "_seccomp", "_socket", "_theirs", "arguments")

    def __init__(self, program: bytes, settings: int, fds: Sequence[int]) -> None:
        self._socket, self._theirs = socket.socketpair()
        self._program_bytes, self._program = _filter(program)
        self._seccomp = ctypes.c_long(_SECCOMP_CALL.get(os.uname().machine, _SECCOMP_CALL["x86_64"]))
        self._fds = (*fds, settings)
        self.arguments = [str(self._theirs.fileno()), str(settings)]

    def hand_over(self) -> None:
        """Install the filter in the command and send its listener, or one byte alone where the kernel refuses it."""
        flags = ctypes.c_ulong(_NEW_LISTENER)
        listener = libc.syscall(self._seccomp, ctypes.c_ulong(_SET_FILTER), flags, self._program)
        if listener < 0:
            self._socket.send(b"-")
        else:
            message = struct.pack("=i", listener)
            self._socket.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, message)])
            os.close(listener)
        self._socket.close()

    def keep_open(self) -> None:
        """Keep the descriptors open in the reaper, before its exec."""
        self._socket.close()
        for fd in (*self._fds, self._theirs.fileno()):
            os.set_inheritable(fd, True)

    def close(self) -> None:
        """Close the descriptors in Lyra, once the command has started."""
        self._socket.close()
        self._theirs.close()
        for fd in self._fds:
            os.close(fd)


def _filter(program: bytes) -> tuple[object, ctypes.Array[ctypes.c_char]]:
    """Return a filter as the kernel takes it, and the memory that it points to."""
    code = ctypes.create_string_buffer(program, len(program))
    return code, ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))


class Confinement:
    """Landlock rules, dropped capabilities and the filter of system calls, for the tier without bubblewrap."""

    __slots__ = ("_capset", "_creation", "_data", "_filter", "_filter_bytes", "_header", "_ruleset")

    def __init__(self, ruleset: int, program: bytes, creation: Creation | None = None) -> None:
        self._ruleset = ctypes.c_int(ruleset)
        self._creation = creation
        self._filter_bytes, self._filter = _filter(program)
        self._header = ctypes.create_string_buffer(struct.pack("=Ii", _CAP_VERSION, 0))
        self._data = ctypes.create_string_buffer(bytes(24))
        self._capset = _CAPSET.get(os.uname().machine, _CAPSET["x86_64"])

    def enter(self) -> None:
        zero = ctypes.c_ulong(0)
        if libc.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), zero, zero, zero):
            raise OSError("no_new_privs was refused")
        libc.prctl(_AMBIENT, ctypes.c_ulong(_AMBIENT_CLEAR), zero, zero, zero)
        for number in range(_CAPABILITIES):  # refused for a user without capabilities, who has none to drop
            libc.prctl(_CAPBSET_DROP, ctypes.c_ulong(number), zero, zero, zero)
        if libc.syscall(self._capset, self._header, self._data):
            raise OSError("the capabilities could not be dropped")
        if self._creation is not None:
            self._creation.hand_over()
        if libc.syscall(RESTRICT, self._ruleset, ctypes.c_uint(0)):
            raise OSError("landlock was refused")
        if libc.prctl(_SECCOMP, ctypes.c_ulong(_FILTER), self._filter, zero, zero):
            raise OSError("the filter of system calls was refused")


class PreExec:
    """The function that the child calls. It forks into two processes: the `reaper`, which kills all others when Lyra
    dies or the command ends, and the command, which joins the control groups, sets the limits and enters the
    confinement. `report` is the descriptor to which the reaper writes how the command ended."""

    __slots__ = ("_confinement", "_creation", "_groups", "_limits", "_parent", "_reaper", "_report")

    def __init__(
        self,
        limits: list[tuple[int, int]],
        groups: tuple[int, ...],
        confinement: Confinement,
        *,
        report: int,
        creation: Creation | None = None,
    ) -> None:
        self._creation = creation
        self._limits = limits
        self._groups = groups
        self._confinement = confinement
        self._report = report
        self._parent = os.getpid()
        self._reaper = (os.path.realpath(sys.executable), "-IS", os.path.join(os.path.dirname(__file__), "reaper.py"))

    def __call__(self) -> None:
        os.setsid()
        reaper = os.getpid()
        command = os.fork()
        if command:
            self._become_reaper(command)
        _die_with(reaper, signal.SIGKILL)
        for fd in self._groups:
            os.write(fd, b"0")
        for kind, value in self._limits:
            resource.setrlimit(kind, (value, value))
        self._confinement.enter()

    def _become_reaper(self, command: int) -> None:
        """Become the reaper. Signals are blocked from here on, so that none is lost before it waits for them."""
        signal.pthread_sigmask(signal.SIG_SETMASK, _SIGNALS)
        _die_with(self._parent, signal.SIGTERM)
        os.chdir("/")
        nothing = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)  # else the pipes of the command's output would stay open
        os.set_inheritable(self._report, True)
        line = [*self._reaper, str(command), str(self._report)]
        if self._creation is not None:
            self._creation.keep_open()
            line += self._creation.arguments
        os.execve(line[0], line, _LIBRARIES)  # noqa: S606 - no shell


def _die_with(parent: int, number: int) -> None:
    """Ask the kernel for that signal when the parent dies; if it is dead already, kill the group."""
    libc.prctl(_DEATH, ctypes.c_ulong(number), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if os.getppid() != parent:
        os.killpg(0, signal.SIGKILL)


# The limits set by a shell, for bubblewrap, which confines the command itself: a process starts several times as fast
# when no Python code runs between fork and exec. Blocks are of 512 bytes, memory in units of 1024.
_IN_SHELL: Final = {
    resource.RLIMIT_CPU: ("ulimit -t {}", 1),
    resource.RLIMIT_FSIZE: ("ulimit -f {}", 512),
    resource.RLIMIT_NOFILE: ("ulimit -n {}", 1),
    resource.RLIMIT_CORE: ("ulimit -c {}", 512),
    resource.RLIMIT_AS: ("ulimit -v {}", 1024),
    resource.RLIMIT_NPROC: ("{{ ulimit -u {0} 2>/dev/null || ulimit -p {0}; }}", 1),
}


def in_shell(limits: list[tuple[int, int]], groups: Sequence[str]) -> list[str]:
    """Return the words before a command that start it with these limits, or not at all."""
    steps = [text.format(value // unit) for kind, value in limits for text, unit in (_IN_SHELL[kind],)]
    steps += [f"echo 0 > {shlex.quote(file)}" for file in groups]
    return ["/bin/sh", "-c", " && ".join([*steps, 'exec "$@"']) + "; exit 125", "sh"]


def rlimits(limits: Limits, counted: frozenset[str]) -> list[tuple[int, int]]:
    """Return the limits of each process; what a control group counts (`counted`) is left to it."""
    wanted = [
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
    ]
    if "memory" not in counted:
        wanted.append((resource.RLIMIT_AS, limits.memory_bytes))
    if "pids" not in counted:
        wanted.append((resource.RLIMIT_NPROC, limits.processes + _running()))
    return [(kind, _at_most_hard_limit(kind, value)) for kind, value in wanted]


def _at_most_hard_limit(kind: int, value: int) -> int:
    """Return the wish, at most the hard limit of this process: raising that would be refused."""
    _, hard = resource.getrlimit(kind)
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _running() -> int:
    """Return how many threads this user runs already, since the kernel counts them all together."""
    me, count = os.getuid(), 0
    try:
        with os.scandir("/proc") as entries:
            for entry in entries:
                if entry.name.isdigit() and _owner(entry.path) == me:
                    count += _threads(entry.path)
    except OSError:
        return count
    return count


def _owner(path: str) -> int:
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1


def _threads(path: str) -> int:
    try:
        return os.stat(f"{path}/task").st_nlink - 2
    except OSError:
        return 0

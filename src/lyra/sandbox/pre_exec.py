"""What happens in the child between fork and exec: limits, then the fence, and nothing that could fail half-way.

Everything is prepared in the parent (numbers, bytes, open descriptors, functions already looked up), because the
child of a process with threads may not import, allocate much or take a lock. An error here ends the child before the
command starts: there is no way on without the fence.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shlex
import signal
import struct
import sys
from collections.abc import Sequence
from typing import Final

from lyra.sandbox.landlock import RESTRICT, libc
from lyra.sandbox.profile import Limits

__all__ = ["Confinement", "PreExec", "in_shell", "rlimits"]

_DEATH: Final = 1
_SECCOMP: Final = 22
_CAPBSET_DROP: Final = 24
_NO_NEW_PRIVILEGES: Final = 38
_AMBIENT: Final = 47
_AMBIENT_CLEAR: Final = 4
_FILTER: Final = 2
_CAPABILITIES: Final = 64  # more than there are; unknown ones are refused by number
_CAPSET: Final = {"x86_64": 126, "aarch64": 91}
_CAP_VERSION: Final = 0x20080522
_SIGNALS: Final = signal.valid_signals()
_LIBRARIES: Final = {
    name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ
}  # of the interpreter


class Confinement:
    """Landlock, no capabilities and the filter, for the tier without bubblewrap."""

    __slots__ = ("_capset", "_data", "_filter", "_filter_bytes", "_header", "_ruleset")

    def __init__(self, ruleset: int, program: bytes) -> None:
        self._ruleset = ctypes.c_int(ruleset)
        self._filter_bytes = ctypes.create_string_buffer(program, len(program))
        pointer = ctypes.addressof(self._filter_bytes)
        self._filter = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(program) // 8, pointer))
        self._header = ctypes.create_string_buffer(struct.pack("=Ii", _CAP_VERSION, 0))
        self._data = ctypes.create_string_buffer(bytes(24))
        self._capset = _CAPSET.get(os.uname().machine, _CAPSET["x86_64"])

    def enter(self) -> None:
        zero = ctypes.c_ulong(0)
        if libc.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), zero, zero, zero):
            raise OSError("no_new_privs was refused")
        libc.prctl(_AMBIENT, ctypes.c_ulong(_AMBIENT_CLEAR), zero, zero, zero)
        for number in range(_CAPABILITIES):  # a user without capabilities has none to drop: refusals are fine
            libc.prctl(_CAPBSET_DROP, ctypes.c_ulong(number), zero, zero, zero)
        if libc.syscall(self._capset, self._header, self._data):
            raise OSError("the capabilities could not be dropped")
        if libc.syscall(RESTRICT, self._ruleset, ctypes.c_uint(0)):
            raise OSError("landlock was refused")
        if libc.prctl(_SECCOMP, ctypes.c_ulong(_FILTER), self._filter, zero, zero):
            raise OSError("the filter of system calls was refused")


class PreExec:
    """The function that the child calls. It becomes two processes: the `keeper`, which ends all others when whoever
    started it dies or the command is over, and the command, which joins the control groups, sets the limits and enters
    the fence. `report` is where the keeper writes how the command ended."""

    __slots__ = ("_fence", "_groups", "_keeper", "_limits", "_parent", "_report")

    def __init__(
        self, limits: list[tuple[int, int]], groups: tuple[int, ...], fence: Confinement, *, report: int
    ) -> None:
        self._limits = limits
        self._groups = groups
        self._fence = fence
        self._report = report
        self._parent = os.getpid()
        self._keeper = (os.path.realpath(sys.executable), "-IS", os.path.join(os.path.dirname(__file__), "reaper.py"))

    def __call__(self) -> None:
        os.setsid()
        keeper = os.getpid()
        command = os.fork()
        if command:
            self._keep(command)
        _die_with(keeper, signal.SIGKILL)
        for fd in self._groups:
            os.write(fd, b"0")
        for kind, value in self._limits:
            resource.setrlimit(kind, (value, value))
        self._fence.enter()

    def _keep(self, command: int) -> None:
        """Become the keeper. Signals wait from here on, so that none is lost before it listens."""
        signal.pthread_sigmask(signal.SIG_SETMASK, _SIGNALS)
        _die_with(self._parent, signal.SIGTERM)
        os.chdir("/")
        nothing = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)  # or the command's output would seem to go on
        os.set_inheritable(self._report, True)
        os.execve(self._keeper[0], [*self._keeper, str(command), str(self._report)], _LIBRARIES)  # noqa: S606 - no shell


def _die_with(parent: int, number: int) -> None:
    """Get that signal when the parent dies; if it is dead already, end here."""
    libc.prctl(_DEATH, ctypes.c_ulong(number), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if os.getppid() != parent:
        os.killpg(0, signal.SIGKILL)


# The same by a shell, for a program that brings its own fence: a process is started several times as quickly when
# nothing of Python's runs between fork and exec. Blocks are of 512 bytes, memory in units of 1024.
_IN_SHELL: Final = {
    resource.RLIMIT_CPU: ("ulimit -t {}", 1),
    resource.RLIMIT_FSIZE: ("ulimit -f {}", 512),
    resource.RLIMIT_NOFILE: ("ulimit -n {}", 1),
    resource.RLIMIT_CORE: ("ulimit -c {}", 512),
    resource.RLIMIT_AS: ("ulimit -v {}", 1024),
    resource.RLIMIT_NPROC: ("{{ ulimit -u {0} 2>/dev/null || ulimit -p {0}; }}", 1),
}


def in_shell(limits: list[tuple[int, int]], groups: Sequence[str]) -> list[str]:
    """The words before a command that make it start with these limits, or not at all."""
    steps = [text.format(value // unit) for kind, value in limits for text, unit in (_IN_SHELL[kind],)]
    steps += [f"echo 0 > {shlex.quote(file)}" for file in groups]
    return ["/bin/sh", "-c", " && ".join([*steps, 'exec "$@"']) + "; exit 125", "sh"]


def rlimits(limits: Limits, counted: frozenset[str]) -> list[tuple[int, int]]:
    """The limits of each process; what a control group counts (`counted`) is left to it."""
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
    return [(kind, _within(kind, value)) for kind, value in wanted]


def _within(kind: int, value: int) -> int:
    """Never above what we have ourselves: raising it would be refused."""
    _, hard = resource.getrlimit(kind)
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _running() -> int:
    """Threads that this user runs already: the kernel counts them all together."""
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

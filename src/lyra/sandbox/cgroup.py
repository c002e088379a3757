"""Limits on a whole command instead of each of its processes, where the kernel's control groups may be used.

`make` tries to create a group below or beside that of Lyra (version 2 with its controllers delegated, or version 1) and
gives None where that is refused: then only rlimits apply. The child joins by writing to `files` before it starts
anything, so no process is ever outside. Afterwards the group tells which limit was hit, and `kill`
reaches every process in it, also one that has moved to another session or process group.
"""

from __future__ import annotations

import contextlib
import os
import signal
from functools import lru_cache
from typing import Final

from lyra.sandbox.profile import Limits

_MEMORY, _PIDS = "memory", "pids"
_SETTINGS: Final = {  # controller → version 1 and version 2 names of its limit
    _MEMORY: ("memory.limit_in_bytes", "memory.max"),
    _PIDS: ("pids.max", "pids.max"),
}


class ControlGroup:
    """The folders of one group: one for version 2, one a controller for version 1."""

    __slots__ = ("_folders", "_unified", "controllers", "files")

    def __init__(self, folders: dict[str, str], *, unified: bool) -> None:
        self._folders = folders
        self._unified = unified
        self.controllers = frozenset(folders)
        self.files = tuple(f"{path}/cgroup.procs" for path in self._unique())  # writing 0 there joins

    def _unique(self) -> list[str]:
        return list(dict.fromkeys(self._folders.values()))

    def kill(self) -> None:
        if self._unified:
            for folder in self._unique():
                with contextlib.suppress(OSError):
                    _write(f"{folder}/cgroup.kill", "1")
        for folder in self._unique():
            for pid in _numbers(f"{folder}/cgroup.procs"):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def hits(self) -> set[str]:
        """Return which limits were reached: `memory`, `processes`."""
        limits = set()
        memory, pids = self._folders.get(_MEMORY), self._folders.get(_PIDS)
        if memory and _counter(f"{memory}/{'memory.events' if self._unified else 'memory.oom_control'}", "oom_kill"):
            limits.add("memory")
        if pids and _counter(f"{pids}/pids.events", "max"):
            limits.add("processes")
        return limits

    def remove(self) -> bool:
        """Remove the folders; False while a process that is still dying keeps one of them."""
        gone = True
        for folder in self._unique():
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
        return gone


def make(name: str, limits: Limits) -> ControlGroup | None:
    """Return a group with these limits, or None where groups cannot be used."""
    wanted = {_MEMORY: str(limits.memory_bytes), _PIDS: str(limits.processes)}
    for unified, parents in _places():
        folders: dict[str, str] = {}
        for controller, parent in parents.items():
            folder = f"{parent.rstrip('/')}/{name}"
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder)
                _write(f"{folder}/{_SETTINGS[controller][unified]}", wanted[controller])
                if controller == _MEMORY:
                    with contextlib.suppress(OSError):
                        _write(f"{folder}/{'memory.swap.max' if unified else 'memory.swappiness'}", "0")
                folders[controller] = folder
            except OSError:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
        if folders:
            return ControlGroup(folders, unified=unified)
    return None


def _places() -> list[tuple[bool, dict[str, str]]]:
    """Return where a group could be made: (is version 2, controller → parent folder), best first."""
    try:
        with open("/proc/self/cgroup") as file:
            return _places_of(file.read())
    except OSError:
        return []


@lru_cache(maxsize=4)
def _places_of(groups: str) -> list[tuple[bool, dict[str, str]]]:
    """`_places` for the content of /proc/self/cgroup; cached, so that mounts are read once."""
    lines = [line.split(":", 2) for line in groups.splitlines()]
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split() for line in file]
    places: list[tuple[bool, dict[str, str]]] = []
    old: dict[str, str] = {}
    for fields in mounts:
        point, kind, options = fields[4], fields[fields.index("-") + 1], fields[-1].split(",")
        for number, controllers, path in lines:
            if kind == "cgroup2" and number == "0":
                places += _read_unified(point, path)
            elif kind == "cgroup" and controllers in (_MEMORY, _PIDS) and controllers in options:
                old[controllers] = f"{point}{path}"
    return [*places, (False, old)] if old else places


def _read_unified(point: str, path: str) -> list[tuple[bool, dict[str, str]]]:
    """Return the group of this process and the one above it, with the controllers that they delegate to children."""
    places: list[tuple[bool, dict[str, str]]] = []
    for place in dict.fromkeys((f"{point}{path}", os.path.dirname(f"{point}{path}".rstrip("/")))):
        if not place.startswith(point):
            continue
        with contextlib.suppress(OSError), open(f"{place}/cgroup.subtree_control") as file:
            handed = set(file.read().split())
            parents = {name: place for name in (_MEMORY, _PIDS) if name in handed}
            if parents:
                places.append((True, parents))
    return places


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _numbers(path: str) -> list[int]:
    try:
        return [int(line) for line in _read(path).split()]
    except (OSError, ValueError):
        return []


def _counter(path: str, name: str) -> int:
    try:
        words = _read(path).split()  # pairs of a name and a number
    except OSError:
        return 0
    values = [words[index + 1] for index in range(0, len(words) - 1, 2) if words[index] == name.encode()]
    return int(values[0]) if values and values[0].isdigit() else 0


def _read(path: str) -> bytes:
    """Return the whole file: the kernel generates a group's files as they are read, so their size is not known
    before."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(fd, 1 << 16), b""))
    finally:
        os.close(fd)

"""Processes of one kind that the server started for users, by the id under which clients know them.

The pid carries the kind, the user and the id (`lyra.server.owners`), so that all of it is known after a restart. An id
belongs to the user that first used it: another user's is answered as one that does not exist, and cannot be chosen for
one that begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.errors import Denied, LyraError, NoSuchProcess
from lyra.server.owners import OwnedPid, make_owned_pid

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.server.identity import Caller


class OwnedProcesses:
    """See the module."""

    __slots__ = ("_kernel", "_kind", "_missing", "_pids", "_word")

    def __init__(self, kernel: Kernel, kind: str, word: str, missing: type[LyraError] = NoSuchProcess) -> None:
        self._kernel = kernel
        self._kind = kind
        self._word = word
        self._missing = missing
        self._pids: dict[str, str] = {}  # by id

    def restore(self) -> None:
        """Find those that the store has."""
        for pid in list(self._kernel.processes):
            owned = OwnedPid.read(pid)
            if owned is not None and owned.kind == self._kind:
                self._pids.setdefault(owned.rest, pid)

    def list_for(self, caller: Caller) -> list[tuple[str, Process]]:
        """Return the ids and processes that are the caller's, the oldest first."""
        rows = []
        for name, pid in list(self._pids.items()):
            process = self._kernel.processes.get(pid)
            if process is None:
                del self._pids[name]
            elif caller.owns(_user(pid)):
                rows.append((name, process))
        return rows

    def get(self, name: str, caller: Caller) -> Process:
        """Return the process of an id of the caller's."""
        pid = self._pids.get(name)
        process = None if pid is None else self._kernel.processes.get(pid)
        if pid is None or process is None:
            raise self._unknown(name)
        caller.require_owner(_user(pid), self._unknown, name)
        return process

    def _unknown(self, name: str) -> LyraError:
        return self._missing(f"no {self._word} {name[:80]!r}")

    def find(self, name: str) -> Process | None:
        """Return the process of an id, of any user."""
        pid = self._pids.get(name)
        return None if pid is None else self._kernel.processes.get(pid)

    def add(self, name: str, pid: str) -> None:
        """Know a process that was started by other means, such as a fork of one."""
        self._pids[name] = pid

    def claim(self, name: str, caller: Caller) -> str:
        """Return the pid for an id: the one that has it, if it is the caller's, or a new one."""
        pid = self._pids.get(name)
        if pid is not None and pid in self._kernel.processes:
            if not caller.owns(_user(pid)):
                raise Denied(f"the {self._word} {name} cannot be chosen", hint="choose another id, or leave it out")
            return pid
        pid = self._pids[name] = make_owned_pid(self._kind, caller.user_id, name)
        return pid


def _user(pid: str) -> str:
    owned = OwnedPid.read(pid)
    return "" if owned is None else owned.user_id

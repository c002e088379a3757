"""Belonging of a process: the fork whose pids it means, and the budget scopes whose seconds it may use.

A program may name its processes by pids that it or its caller chose. In a fork these processes have others, so a
message or a tie that names one of them would reach the run that was forked. `find_addressed` finds the fork's own
first, and `free_names` gives a child another pid where the run has the chosen one. A deadline lives as long as a
process that spends from its scope, or inside it (`ScopeDeadlines`).
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

from lyra.core.budgets.budget import Budget
from lyra.kernel.process.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable

    from lyra.core.clock import Timer
    from lyra.kernel.base.core import Core


OF: Final = "of"  # of a fork's first process: the pid of the run
WAS: Final = "was"  # of the others: the chosen pid that the process had in the run


def find_addressed(process: Process, word: str) -> Process | None:
    """Return the process that a program means by a pid or a name."""
    core = process.core
    root = _fork_of(process) if core.forks else None
    if root is not None:
        if core.forks[root.pid].get(OF) == word:
            return root
        for pid, fork in core.forks.items():
            member = core.processes.get(pid) if fork.get(WAS) == word else None
            if member is not None and _fork_of(member) is root:
                return member
    return core.lookup(word)


def free_names(parent: Process, options: dict[str, Any]) -> dict[str, Any] | None:
    """Give a child that a program of a fork starts another pid where the chosen one is taken, and no name where that
    is: a process of the run may have them. `options` are changed; gives what its row says of that, None elsewhere."""
    core, pid = parent.core, options.get("pid")
    if _fork_of(parent) is None:
        return None
    if options.get("name") in core.names:
        options["name"] = None
    if pid is None or pid not in core.processes:
        return None
    numbers = (number for number in count(1) if f"{pid}-fork-{number}" not in core.processes)
    options["pid"] = f"{pid}-fork-{next(numbers)}"
    return {WAS: pid}


def _fork_of(process: Process) -> Process | None:
    """Return the first process of the fork that a process belongs to."""
    above: Process | None = process
    while above is not None:
        if OF in process.core.forks.get(above.pid, ()):
            return above
        above = above.parent
    return None


class ScopeDeadlines:
    """When the seconds of a scope have passed, the processes inside it are told to end."""

    def __init__(self, core: Core[Process], out_of_time: Callable[[Process], None]) -> None:
        self._core = core
        self._out_of_time = out_of_time  # tells a process to end
        self._timers: dict[Budget, Timer] = {}
        self._due: dict[Budget, float] = {}  # when each of them rings
        self._members: dict[Budget, int] = {}  # live processes in each scope that has a deadline

    def __len__(self) -> int:
        """Return how many have not rung yet."""
        return len(self._timers)

    def limit(self, scope: Budget, seconds: float) -> None:
        """When a scope's seconds have passed, all processes that spend from it or inside it are told to end."""
        if scope in self._timers:
            return

        def over() -> None:
            self._timers.pop(scope, None)
            self._due.pop(scope, None)
            if not self._core.stopping:
                for process in list(self._core.processes.present()):  # guests have no time limit
                    if process.exit is None and scope in _scopes(process):
                        self._out_of_time(process)

        clock = self._core.clock
        self._due[scope] = clock.monotonic() + seconds
        self._timers[scope] = clock.call_at(self._due[scope], over)

    def due(self, scope: Budget) -> float | None:
        """When a scope's seconds will have passed, on the monotonic clock; None without such a limit."""
        return self._due.get(scope)

    def enter(self, process: Process) -> None:
        """Enter a process that begins and that a deadline holds."""
        for scope in _scopes(process):
            self._members[scope] = self._members.get(scope, 0) + 1

    def leave(self, process: Process) -> None:
        """Leave a scope; the last to do so takes its deadline along."""
        for scope in _scopes(process):
            if scope.seconds is not None and scope in self._members:
                self._members[scope] -= 1
                if not self._members[scope]:
                    del self._members[scope]
                    self._due.pop(scope, None)
                    timer = self._timers.pop(scope, None)
                    if timer is not None:
                        timer.cancel()


def _scopes(process: Process) -> list[Budget]:
    scopes, scope = [], process.budget
    while True:
        scopes.append(scope)
        if scope.parent is None:
            return scopes
        scope = scope.parent

"""The seconds of budgets: when those of a scope have passed, the processes inside it are told to end.

A deadline lives as long as a process that spends from its scope, or inside it. Guests, which have no process, have no
time limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.core.budgets.budget import Budget
from lyra.kernel.process.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable

    from lyra.core.clock import Timer
    from lyra.kernel.base.core import Core


class ScopeDeadlines:
    """See the module."""

    __slots__ = ("_core", "_due", "_members", "_out_of_time", "_timers")

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
        """A process begins that a deadline holds."""
        for scope in _scopes(process):
            self._members[scope] = self._members.get(scope, 0) + 1

    def leave(self, process: Process) -> None:
        """The last to leave a scope takes its deadline along."""
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

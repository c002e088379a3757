"""What the pids that a program knows stand for in a fork of it: the fork's own processes, and not those of the run.

A program may name its processes by pids that it or its caller chose. In a fork these processes have others, so a
message or a tie that names one of them would reach the run that was forked. `addressed` finds the fork's own first.
"""

from __future__ import annotations

from typing import Final

from lyra.kernel.process.process import Process

__all__ = ["OF", "WAS", "addressed"]

OF: Final = "of"  # of a fork's first process: the pid of the run
WAS: Final = "was"  # of the others: the chosen pid that the process had in the run


def addressed(process: Process, word: str) -> Process | None:
    """The process that a program means by a pid or a name."""
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


def _fork_of(process: Process) -> Process | None:
    """The first process of the fork that a process belongs to."""
    above: Process | None = process
    while above is not None:
        if OF in process.core.forks.get(above.pid, ()):
            return above
        above = above.parent
    return None

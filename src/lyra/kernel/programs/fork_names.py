"""What the pids that a program knows stand for in a fork of it: the fork's own processes, and not those of the run.

A program may name its processes by pids that it or its caller chose. In a fork these processes have others, so a
message or a tie that names one of them would reach the run that was forked. `addressed` finds the fork's own first, and
`free_names` gives a child another pid where the run has the chosen one.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from lyra.kernel.process.process import Process

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
    """The first process of the fork that a process belongs to."""
    above: Process | None = process
    while above is not None:
        if OF in process.core.forks.get(above.pid, ()):
            return above
        above = above.parent
    return None

"""Keys: how the calls of a program are identified, the same in every replay.

A key is a number in the program itself and a path such as `0/3` inside parallel branches made by `gather` or a
`TaskGroup`. It is how a replay finds the journaled answer, so it depends only on the program's own structure, never on
which of two parallel branches happened to be faster.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING

from lyra.core.ids import ProcessRandom
from lyra.errors import ProcessError
from lyra.kernel.journal import rows
from lyra.kernel.process.process import Process

if TYPE_CHECKING:
    from lyra.kernel.journal.history import Entry


class Branch:
    """One parallel line of a program: the task it runs in and its own count of keys."""

    __slots__ = ("branches", "keys", "path", "rng", "task")

    def __init__(self, task: object, path: str) -> None:
        self.task = task
        self.path = path
        self.rng: ProcessRandom | None = None
        self.keys = 0
        self.branches = 0


_branch: ContextVar[tuple[Process, Branch] | None] = ContextVar("lyra_branch", default=None)


def next_key(process: Process) -> rows.Key:
    """The key of the next call: a number in the program itself, a path in a branch of it."""
    if process.stepping:
        key = process.keys
        process.keys = key + 1
        return key
    branch = current_branch(process)
    key_in_branch = branch.keys
    branch.keys += 1
    return f"{branch.path}{key_in_branch}"


def current_branch(process: Process) -> Branch:
    """The branch this task is; a task met for the first time becomes a child of the branch that made it."""
    task = asyncio.current_task()
    if task is None or process.exit is not None or process.coroutine is None:
        raise ProcessError(
            f"ctx of process {process.pid} was used outside its program",
            hint="use it only inside the program",
            pid=process.pid,
        )
    held = _branch.get()
    outer = held[1] if held is not None and held[0] is process else None
    if outer is not None and outer.task is task:
        return outer
    # Numbered in the order made, which the program alone decides; the contextvar was copied with the task.
    parent: Process | Branch = outer if outer is not None else process
    path = f"{outer.path if outer is not None else ''}{parent.branches}/"
    parent.branches += 1
    branch = Branch(task, path)
    if isinstance(task, asyncio.Task):
        process.core.branch_began(process)
    _branch.set((process, branch))
    return branch


def name_branch(process: Process, path: str) -> None:
    """Give the task that runs a branch of that path, for programs whose branches are not always made in one order."""
    task = asyncio.current_task()
    process.core.branch_began(process)
    _branch.set((process, Branch(task, path)))


def new_branch(process: Process) -> str:
    """The path of a new branch of the line that runs, for tasks that are made later (`name_branch`)."""
    line: Process | Branch = process if process.stepping else current_branch(process)
    path = f"{'' if isinstance(line, Process) else line.path}{line.branches}/"
    line.branches += 1
    return path


def after(key: rows.Key) -> rows.Key:
    """The key of the next call on the same line of the program."""
    if isinstance(key, int):
        return key + 1
    path, _, number = key.rpartition("/")
    return f"{path}/{int(number) + 1}"


def upcoming(process: Process) -> Entry | None:
    """The journal's next answer on this line of the program, if it has one; takes no key."""
    if process.replay is None:
        return None
    return process.replay.get(upcoming_key(process))


def upcoming_key(process: Process) -> rows.Key:
    """The key that the next effect on this line of the program will have; takes none."""
    branch = None if process.stepping else current_branch(process)
    return process.keys if branch is None else f"{branch.path}{branch.keys}"


def comes_next(process: Process, kind: str) -> bool:
    """Whether the journal's next answer on this line of the program is of that kind."""
    entry = upcoming(process)
    return entry is not None and entry.kind == kind

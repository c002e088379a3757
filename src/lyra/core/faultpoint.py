"""Named crash points: places where a test may stop the kernel.

`point("journal.before_commit")` costs one comparison in a normal run. A test arms a hook that raises, sleeps or
kills the process at the n-th visit. The names are listed in `POINTS`, so that a test can visit every one of them
and a misspelt name is an error where it is armed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

POINTS: Final[dict[str, str]] = {
    "door.admitted": "all checks passed, nothing written yet",
    "door.started": "`effect.started` is durable, the effect has not run",
    "door.performed": "the effect has run, nothing of it is written",
    "door.finished": "`effect.finished` is durable, the program has not seen it",
    "journal.before_commit": "a batch is ready, not handed to the store",
    "journal.after_commit": "the store has the batch, no waiting process knows it",
    "process.spawned": "a process is in the table, its first row is not durable",
    "process.exiting": "a process has ended, its last row is not durable",
    "mailbox.delivered": "a message is in a mailbox, its row is not durable",
    "snapshot.segment": "states of ended processes are in a blob that no snapshot names yet",
    "snapshot.before": "a snapshot is about to be written",
    "snapshot.after": "a snapshot is durable",
    "recovery.loaded": "the journal is folded, no process has run",
    "recovery.done": "every live process is on the run queue",
    "lease.acquired": "this kernel owns the store, nothing was read",
    "fact.written": "a subsystem knows something new, its row is not durable",
    "interrupt.ended": "a question is over, its row is not durable and no waiting process knows it",
    "remote.taken": "a post of another shard has done its work here, its row is not durable",
    "remote.delivered": "another shard has posts, that they are acknowledged is not written",
    "supervisor.restarting": "a supervisor has counted a restart, nothing is stopped or started",
    "pipeline.answered": "a stage's answer is durable, its pipeline does not know it",
}


class SimulatedCrash(BaseException):
    """Raised by a hook to simulate a crash at a point; no handler in Lyra catches it."""


hook: Callable[[str], None] | None = None  # read directly where a call would cost too much


def point(name: str) -> None:
    if hook is not None:
        hook(name)


@contextmanager
def intercept(action: Callable[[str], None]) -> Iterator[None]:
    """Call `action` with the name of every point visited inside the block."""
    global hook
    previous, hook = hook, action
    try:
        yield
    finally:
        hook = previous


def arm(action: Callable[[str], None]) -> None:
    """Call `action` at every point for the rest of this OS process (a crash harness's child)."""
    global hook
    hook = action

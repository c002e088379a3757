"""A call that ended before it was answered, and whose program continues: that outcome is journaled like any other.

`cut_short` writes it; a replay meets it at the same call (`replay.raise_journaled`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lyra.errors import DeadlineExceeded, LyraError
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_to_row

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process


# Messages of a cancellation that ends what a process is doing and not the process:
GIVEN_UP: Final = "the caller gave up"
OUT_OF_TIME: Final = "the time of the call is over"  # the call's own timeout ran out

# Those cancellations by their code in the journal. After any other the canceller says how the program continues.
CUT_OFF: Final = {"given_up": GIVEN_UP, "out_of_time": OUT_OF_TIME}


def cut_short(
    process: Process,
    key: rows.Key,
    error: BaseException,
    *,
    form: str = "do",
    name: str = "",
    digest: bytes = b"",
) -> None:
    """Note that a call was cancelled (or its process's time ran out) while it waited, and the program may continue from
    there.

    A replay has to meet the same outcome at the same call, whatever else its journal has for it.
    """
    journal = process.core.journal
    if journal is None or not process_lives_on(process):
        return
    if isinstance(error, asyncio.CancelledError):
        row = {"code": cancellation_code(error)}
    elif isinstance(error, LyraError):
        row = error_to_row(error)
    else:
        return
    finished = rows.Finished(key, error=row, name=name, hash=digest, form=form)
    journal.write(process.pid, "effect.finished", rows.encode(finished))


def process_lives_on(process: Process) -> bool:
    """Tell whether a process lives on: then its cancelled effect is finished; one cut off with its process is in
    doubt."""
    return not process.core.stopping and process.kill_reason is None and process.exit is None


def deadline_behind(error: BaseException) -> DeadlineExceeded | None:
    """Return the DeadlineExceeded that an error was made from, at any depth; for a process whose time is up.

    The deadline is raised where the process waits, often inside a library. DeadlineExceeded is a TimeoutError and an
    OSError, which libraries catch and raise again as errors of their own, or collect in an ExceptionGroup.
    """
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        cause = todo.pop()
        if cause is None or id(cause) in seen:
            continue
        if isinstance(cause, DeadlineExceeded):
            return cause
        seen.add(id(cause))
        todo += [cause.__context__, cause.__cause__]
        if isinstance(cause, BaseExceptionGroup):
            todo += cause.exceptions
    return None


def cancellation_code(error: BaseException) -> str:
    return next((code for code, message in CUT_OFF.items() if error.args == (message,)), "cancelled")

"""Calls of a program that the kernel answers at once: a reading (`read`), and an act that is done only once (`once`).

Each takes the program's next key and is one row; a replay gets the value that was read, or finds that the act was done
or refused. Neither waits for its row: later rows are behind it in the journal. For readings that wait see
`journal_wait`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from lyra.core import codec
from lyra.core.budgets.budget import Budget
from lyra.core.budgets.money import Money
from lyra.core.limits import BLOB_INLINE_BYTES_MAX
from lyra.errors import LyraError
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_from_row
from lyra.kernel.process.cut_short import cut_short
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import next_key, raise_journaled, take_entry


def read(process: Process, what: str, reading: Any) -> Any:
    """Return a reading of something that changes by itself: a function that reads it, or what it is now. It needs no
    wait: later rows are behind it in the journal."""
    journal = process.core.journal
    key = next_key(process)
    if journal is not None and process.replay is not None:
        entry = take_entry(process, key, "read", what, b"")
        if entry is not None:
            return _money(what, codec.decode(bytes(entry.value)))
    value = reading() if callable(reading) else reading
    if journal is None:
        return value
    row = rows.Finished(key, rows.Raw(codec.encode(value)), name=what, form="read")
    journal.write(process.pid, "effect.finished", rows.encode(row))
    return value


def once(process: Process, what: str, name: str, act: Callable[[], object]) -> None:
    """Something the kernel does at once and only the first time: a replay finds that it was done (or refused)."""
    journal = process.core.journal
    key = next_key(process)
    if journal is None:
        act()
        return
    if process.replay is not None:
        entry = take_entry(process, key, what, name, b"")
        if entry is not None:
            if entry.error is not None:
                raise error_from_row(entry.error)
            return
    try:
        act()
    except LyraError as refusal:
        cut_short(process, key, refusal, form=what, name=name)
        raise
    journal.write(process.pid, "effect.finished", rows.encode(rows.Finished(key, name=name, form=what)))


def _money(what: str, value: Any) -> Any:
    return Money(value) if what.endswith(".usd") and isinstance(value, int) else value


# `ctx.budget`: the Budget of a process as its program sees it.


class BudgetView:
    """Readings of what was spent and what is left are journaled, since other processes spend from the Budget, too."""

    __slots__ = ("_process",)

    def __init__(self, process: Process) -> None:
        self._process = process

    def remaining(self, dimension: str = "usd") -> Any:
        return read(self._process, f"budget.{dimension}", lambda: self._process.budget.remaining(dimension))

    def used(self, dimension: str = "usd") -> Any:
        return read(self._process, f"used.{dimension}", lambda: self._process.budget.used(dimension))

    def limit(self, dimension: str = "usd") -> Any:
        """Limits never change during a life, so reading one needs no row."""
        return self._process.budget.limit(dimension)

    @property
    def scope(self) -> Budget:
        return self._process.budget


# A wait for something outside the program whose outcome is journaled as a reading: a replay gets the same value.

_FORM: Final = "read"  # the word in the journal


async def journal_wait(process: Process, what: str, wait: Callable[[], Awaitable[Any]]) -> Any:
    """Return the value that `wait` gives, plain data; on a replay the one that it gave then. The journal names it
    `what`."""
    core = process.core
    key = next_key(process)
    if process.replay is not None:
        entry = take_entry(process, key, _FORM, what, b"")
        if entry is not None:
            if entry.error is not None:
                await raise_journaled(process, entry.error)
            return codec.decode(await core.value_of(entry))
    try:
        value = await wait()
    except BaseException as error:
        cut_short(process, key, error, form=_FORM, name=what)
        raise
    if core.journal is None:
        return value
    data = codec.encode(value)
    blob = core.put_blob_now(data) if len(data) > BLOB_INLINE_BYTES_MAX else ""
    row = rows.Finished(key, rows.NIL if blob else rows.Raw(data), blob, name=what, form=_FORM)
    core.journal.write(process.pid, "effect.finished", rows.encode(row))
    return codec.decode(data)

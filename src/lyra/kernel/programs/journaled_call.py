"""Calls of a program that the kernel answers at once: a reading (`read`), and an act that is done only once (`once`).

Each takes the program's next key and is one row; a replay gets the value that was read, or finds that the act was done
or refused. Neither waits for its row: later rows are behind it in the journal. For readings that wait see
`journaled_wait`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lyra.core import codec
from lyra.errors import LyraError
from lyra.kernel.journal import rows
from lyra.kernel.journal.error_rows import error_from_row
from lyra.kernel.process.call_keys import next_key
from lyra.kernel.process.cut_short import cut_short
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import take_entry


def read(process: Process, what: str, reading: Any) -> Any:
    """A reading of something that changes by itself: a function that reads it, or what it is now. It needs no wait:
    later rows are behind it in the journal."""
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
    from lyra.core.budgets.money import Money

    return Money(value) if what.endswith(".usd") and isinstance(value, int) else value

"""A choice that is rarely made: the journal has a row only if it was, and a replay makes the same choice again.

The choice may depend on anything (an estimate, a setting that has changed since): the replay follows the row. Where the
journal says that the program went on with another act, nothing was chosen. Only for the program itself, not for a
parallel branch of it.
"""

from __future__ import annotations

from collections.abc import Callable

from lyra.kernel.process.process import Process
from lyra.kernel.programs.journaled_call import once


def journaled_choice(process: Process, kind: str, choose: Callable[[], str | None]) -> str | None:
    """The choice as text; None if nothing was chosen, and then nothing is written."""
    replay = process.replay
    entry = replay.get(process.keys) if replay else None
    if entry is not None and entry.kind != kind:
        return None
    choice = entry.name if entry is not None else choose()
    if choice is not None:
        once(process, kind, choice, _nothing)
    return choice


def _nothing() -> None:
    """The row is all: there is nothing to do."""

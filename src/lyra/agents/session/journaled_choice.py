"""A decision that is rarely taken: written down when it is, and met again at the same place on a replay.

What it was based on may be anything (an estimate, a setting that has changed since): the replay does as was decided
then, and where the journal says that something else was done here, nothing was decided. Belongs in the program itself,
not in a parallel branch of it.
"""

from __future__ import annotations

from collections.abc import Callable

from lyra.kernel.process.process import Process
from lyra.kernel.programs.context import once

__all__ = ["noted"]


def noted(process: Process, what: str, decide: Callable[[], str | None]) -> str | None:
    """What was decided, in a word; None: nothing, and nothing is written."""
    recall = process.replay
    entry = recall.get(process.keys) if recall else None
    if entry is not None and entry.kind != what:
        return None
    decision = entry.name if entry is not None else decide()
    if decision is not None:
        once(process, what, decision, _nothing)
    return decision


def _nothing() -> None:
    """There is nothing to do but to write it down."""

"""What a journal keeps of a call of `@lyra.parallel` that a program has come to: whether it stood, and what it cost.

The child that answered spends apart from the program that asked, so its money is nobody's until this row says so: a
restart charges the program with it, and takes the same decision again.
"""

from __future__ import annotations

from typing import Final

from lyra.core import codec
from lyra.core.budgets.budget import NOTHING, Usage
from lyra.kernel.effects.door import take_entry
from lyra.kernel.journal import rows
from lyra.kernel.process.call_keys import next_key
from lyra.kernel.process.cut_short import process_lives_on
from lyra.kernel.process.process import Process

__all__ = ["AGAIN", "TAKEN", "Kept"]

TAKEN: Final = "taken"
AGAIN: Final = "again"  # it did not stand, and was made once more
_FORM: Final = "ahead"


class Kept:
    """The decision on one call; `word` is empty as long as there is none."""

    __slots__ = ("_key", "_process", "word")

    def __init__(self, process: Process) -> None:
        self._process = process
        self._key = next_key(process)
        self.word = ""
        if process.replay is not None:
            entry = take_entry(process, self._key, _FORM, "", b"")
            if entry is not None:
                self.word = str(codec.decode(bytes(entry.value)))

    def write(self, word: str, usage: Usage = NOTHING) -> None:
        """It needs no wait: later rows are behind it in the journal."""
        self.word = word
        journal = self._process.kernel.journal
        assert journal is not None
        if process_lives_on(self._process):
            spent = usage.to_data() if usage.items else None
            row = rows.Finished(self._key, rows.Raw(codec.encode(word)), usage=spent, form=_FORM)
            journal.write(self._process.pid, "effect.finished", rows.encode(row))

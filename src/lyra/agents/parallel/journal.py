"""The journal row for a call of `@lyra.parallel` that a program has come to: whether its result was used, and its cost.

The child process that answered spends from a separate scope. Only this row charges its cost to the program: a restart
reads it, charges the same, and makes the same decision again.
"""

from __future__ import annotations

from typing import Final

from lyra.core import codec
from lyra.core.budgets.budget import NOTHING, Usage
from lyra.kernel.journal import rows
from lyra.kernel.process.call_keys import next_key
from lyra.kernel.process.cut_short import process_lives_on
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import take_entry

TAKEN: Final = "taken"
AGAIN: Final = "again"  # its early result could not be used: the call was made once more
_FORM: Final = "ahead"


class JournaledDecision:
    """The decision on one call; `word` is empty until there is one."""

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
        """Write the decision, without waiting: later rows come after it in the journal."""
        self.word = word
        journal = self._process.kernel.journal
        assert journal is not None
        if process_lives_on(self._process):
            spent = usage.to_data() if usage.items else None
            row = rows.Finished(self._key, rows.Raw(codec.encode(word)), usage=spent, form=_FORM)
            journal.write(self._process.pid, "effect.finished", rows.encode(row))
            self._process.count_spent(usage)

"""The rules that early calls keep, one row each. Tests break each rule to see that the comparison of random functions
with their line-by-line runs notices."""

from __future__ import annotations

from typing import Final

__all__ = ["RULES"]

RULES: Final[dict[str, str]] = {
    "ordered": "whoever remembers, writes, answers by the order of its questions or is not known is asked in its turn",
    "delivery": "one process gets its messages in the order of the program",
    "cancelled": "what was asked early and is not due is cancelled and waited for",
    "take back": "a conversation forgets a turn that the program never came to",
    "in place": "what may do anything is done in its place, and nothing is made early across it",
    "apart": "what an early call spends is apart from the budgets until the program comes to it",
    "room": "a call is not made before there is room for it beside the calls before it",
    "spend": "when its turn has come, a call stands if the budgets would have allowed it, and is charged",
    "keys": "an effect has the key of its place in the program, whenever it was made",
    "kept": "a journal keeps which calls the program has come to, and what they cost",
}

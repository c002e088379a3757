"""The rules that early calls keep, one row each. Tests break each rule, and the comparison of random functions with
their line-by-line runs has to notice."""

from __future__ import annotations

from typing import Final

RULES: Final[dict[str, str]] = {
    "ordered": "an agent that remembers, writes, answers by the order of questions or is unknown is asked in its turn",
    "delivery": "one process gets its messages in the order of the program",
    "cancelled": "an early call that the program does not come to is cancelled and awaited",
    "take back": "a conversation forgets a turn that the program never came to",
    "in place": "code that may do anything runs in its place, and no call is made early across it",
    "apart": "the cost of an early call stays out of the budgets until the program comes to it",
    "room": "a call is not made before there is room for it beside the calls before it",
    "spend": "when its turn has come, an early call is used if the budgets would have allowed it, and is charged",
    "keys": "an effect has the key of its place in the program, whenever it was made",
    "kept": "a journal keeps which calls the program has come to, and what they cost",
}

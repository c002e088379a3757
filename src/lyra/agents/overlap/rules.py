"""The rules that early calls keep, one row each. `OFF` is for tests alone: a rule in it is not kept, and the comparison
of random functions with their line-by-line runs has to notice."""

from __future__ import annotations

from typing import Final

__all__ = ["OFF", "RULES"]

RULES: Final[dict[str, str]] = {
    "ordered": "whoever remembers, writes, is limited or is not known is asked in its turn",
    "delivery": "one process gets its messages in the order of the program",
    "cancelled": "what was asked early and is not due is cancelled and waited for",
    "take back": "a conversation forgets a turn that the program never came to",
}

OFF: Final[set[str]] = set()

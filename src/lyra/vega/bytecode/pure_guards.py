"""The guards that keep generated code exact, one row each. Tests leave out each guard to see that the comparison of
random functions with the machine notices."""

from __future__ import annotations

from typing import Final

GUARDS: Final[dict[str, str]] = {
    "overflow": "a result that leaves 64 bits gives up",
    "truncate": "division and remainder are Python's only where nothing is negative",
    "index": "an index below zero is none, though Python takes it",
    "sign": "what is never negative is known, not supposed",
    "order": "an index is computed before the value that is stored there, where it makes a difference",
    "bound": "only a counter that its loop bounds is stepped without a look at 64 bits",
    "mutation": "only what the function made itself is changed in it",
    "poll": "a call that runs long gives way to processes that wait for their turn",
}

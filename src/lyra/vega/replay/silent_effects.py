"""Effects that change nothing but the fiber that asks for them, so that a replay answers them at once.

Calls ahead of their turn save time and never change what a program sees. A replay has no time to save: it says that no
call is made ahead, and every call is answered when the program comes to it.
"""

from __future__ import annotations

from typing import Final

from lyra.vega.machine.early_calls import EarlyCallGroup, NotEarly
from lyra.vega.machine.fiber import Fiber, VmEffect

SILENT: Final = frozenset({"ahead_begin", "ahead_start", "ahead_promise", "ahead_look", "ahead_end"})


def answered(fiber: Fiber, effect: VmEffect) -> bool:
    """Answer a quiet effect; False for any other."""
    if effect.kind not in SILENT:
        return False
    if effect.kind == "ahead_begin":
        fiber.resume(EarlyCallGroup(0, is_kept=True))
    elif effect.kind == "ahead_end":
        fiber.resume(None)
    else:
        refusal = NotEarly("a replay makes every call in its turn")
        fiber.throw(refusal.name, refusal.text)
    return True

"""The fuel that a step of the machine costs for the size of the data it works on.

One instruction may walk a list of a million items. The functions that do such things add to `WORK.units` what that
comes to in calls and loop turns, and the machine takes it off the fuel of the running process: so a turn is about as
long as any other, whatever it is spent on. It is a count and no clock, so that a run in virtual time is the same every
time. The rates are rough: an item that Python looks at by itself is about one unit, items and characters that it copies
together are many to a unit.
"""

from __future__ import annotations

from typing import Final

BULK: Final = 5  # a shift: so many items that are copied together are one loop turn, as a power of two
CHARS: Final = 9  # a shift: so many characters that are copied together are one loop turn, as a power of two


class Work:
    __slots__ = ("units",)

    def __init__(self) -> None:
        self.units = 0


WORK: Final = Work()

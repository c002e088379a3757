"""The budget of a call that is made ahead of its turn, as Vega's runtime holds it: see `lyra.core.apart`.

Here a call that finds no room is not made early, and one whose turn has come is charged once it is over.
"""

from __future__ import annotations

from collections.abc import Callable

from lyra.core.apart import NO_ROOM, is_limited
from lyra.core.apart import Apart as _Apart
from lyra.core.budget import Budget, Usage
from lyra.vega.rules import OFF
from lyra.vega.values import Money

__all__ = ["NO_ROOM", "Apart", "is_limited", "take_back"]


def take_back(scope: Budget, usage: Usage) -> None:
    """A scope has counted something that is not its own, or that it will be charged once more."""
    scope.charge_alone(Usage._from_pairs(tuple((index, -amount) for index, amount in usage.items)))


class Apart(_Apart):
    """`around` is the innermost scope that the call will be charged to, `before` the scopes of the calls that stand
    before it and are not charged yet."""

    __slots__ = ()

    def __init__(self, around: Budget, before: Callable[[], list[_Apart]], limit: Money | None) -> None:
        super().__init__(around, {"usd": limit}, before)

    def has_room(self, usage: Usage) -> bool:
        return "reserve" in OFF or super().has_room(usage)

    def is_allowed(self) -> bool:
        """What was refused is asked for apart from this."""
        return "spend" in OFF or self._fits(self.peak, [])

"""The budget of a call that is made ahead of its turn: it draws on nobody until the program comes to the call.

What such a call spends is written in a scope of its own, below the one it will be charged to. While it is under way it
asks for room in program order: beside everything that the calls before it have set aside, and not before those have.
When its turn comes, the scopes above are asked whether they would have allowed just this; if they would, they are
charged and the scope is one below them like any other (`join`). If not, whoever made the call makes it again.

`EarlyBudget` is what all such scopes share. `Apart` is the one for calls that the program may come to while they are
under way: it joins the scopes above in the middle, and so may have none below it. In Vega the program waits for the end
of a call and is charged with the sum, and functions that run ahead open scopes below (`vega.runtime.early.budget`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from lyra.core.budgets.budget import DIMENSIONS, Budget, Reservation, Usage
from lyra.errors import BudgetExceeded

__all__ = ["NO_ROOM", "Apart", "EarlyBudget", "is_limited"]

NO_ROOM: Final = "ahead"  # the field of an error that only says: not yet
_MARK: Final = "apart"


def is_limited(scope: Budget) -> bool:
    """Whether this scope or one above refuses anything at all."""
    return any(
        each.on_exceed == "block" and each.limit(dimension) is not None
        for each in scope.chain()
        for dimension in DIMENSIONS
    )


class EarlyBudget(Budget):
    """`around` is the innermost scope that the call will be charged to."""

    __slots__ = ("around", "is_over", "peak", "was_refused")

    def __init__(self, around: Budget, **settings: Any) -> None:
        super().__init__(**settings)
        self.around = around
        self.is_over = False  # charged, or given up
        self.was_refused = False
        self.peak = [0] * len(DIMENSIONS)  # the most that was used and set aside at one time

    def note(self) -> None:
        """Keep what is used and set aside now, where it is the most so far."""
        self.peak = list(map(max, self.peak, self._taken))

    def is_allowed(self) -> bool:
        """Whether the scopes above, as they are now that its turn has come, would have let it happen like this."""
        return not self.was_refused and self._fits(self.peak)

    def _refused(self) -> BudgetExceeded:
        """There is no room; the error only says: not yet."""
        self.was_refused = True
        marked: dict[str, Any] = {NO_ROOM: True}
        return BudgetExceeded("there is no room for a call that is made early", **marked)

    def _taken_with(self, usage: Usage) -> list[int]:
        asked = dict(usage.items)
        return [taken + asked.get(index, 0) for index, taken in enumerate(self._taken)]

    def _fits(self, wanted: list[int], beside: Sequence[EarlyBudget] = ()) -> bool:
        """Whether the scopes above hold this, beside what those have set aside that are charged to them too."""
        for _, taken, limits in self.around._chain:
            others = [scope for scope in beside if any(level[1] is taken for level in scope.around._chain)]
            for index, amount in enumerate(wanted):
                more = amount + sum(scope._taken[index] for scope in others) if amount else 0
                if more and taken[index] + more > limits[index]:
                    return False
        return True


class Apart(EarlyBudget):
    """`before` gives the scopes of the calls that stand before this one and are not charged yet; None: one of those is
    not made yet, so nobody knows what it will take."""

    __slots__ = ("before", "has_asked", "is_joined")

    def __init__(
        self, around: Budget, limits: Any = None, before: Callable[[], list[Apart] | None] | None = None
    ) -> None:
        value = limits._limit_data() if isinstance(limits, Budget) else limits
        super().__init__(around, parent=around, **self._settings(value))
        self._chain = self._chain[:1]
        self.before: Callable[[], list[Apart] | None] = before or list
        self.has_asked = False
        self.is_joined = False  # the program has come to the call

    @staticmethod
    def is_saved_in(data: dict[str, Any] | None) -> bool:
        """Whether this is what `to_data` said of a scope apart."""
        return data is not None and bool(data.get(_MARK))

    def to_data(self) -> dict[str, Any]:
        return {**super().to_data(), _MARK: True}

    def restore(self, spent: Usage, peak: Usage, *, refused: bool) -> None:
        """What the journal says of it."""
        self.was_refused = refused
        self.charge_alone(spent)
        self.note()
        for index, amount in peak.items:
            self.peak[index] = max(self.peak[index], amount)
        self.has_asked = bool(peak.items or spent.items)

    # ------------------------------------------------------------ spending

    def reserve(self, usage: Usage) -> Reservation:
        if not self.is_joined and not self.has_room(usage):
            raise self._refused()
        self.has_asked = True
        reservation = super().reserve(usage)
        self.note()
        return reservation

    def child(self, value: Any = None, **limits: Any) -> Budget:
        if not self.is_joined:  # a scope below would not follow when this one joins
            raise self._refused()
        return super().child(value, **limits)

    def has_room(self, usage: Usage) -> bool:
        """Whether the scopes above would hold this beside all that the calls before it have set aside."""
        if self.is_joined or not is_limited(self.around):
            return True
        before = self.before()
        if before is None or any(not scope.has_asked for scope in before if not scope.is_over):
            return False
        beside = [scope for scope in before if not scope.is_over and not scope.is_joined]
        return self._fits(self._taken_with(usage), beside)

    # ------------------------------------------------------------ the end

    def join(self) -> None:
        """The program has come to the call: what it spends, and has spent, is spent above too."""
        self.is_joined = True
        for used, taken, _ in self.around._chain:
            for index in range(len(DIMENSIONS)):
                used[index] += self._used[index]
                taken[index] += self._taken[index]
        self._chain = (*self._chain, *self.around._chain)

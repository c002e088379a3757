"""Early calls: calls that start before the program reaches them. The rules that they keep, and what they may spend.

Vega's programs and functions of `@lyra.parallel` both make such calls, and keep `RULES`; how each finds them in its
syntax is its own. `why_ordered` says which agents have to be asked in their turn.

What an early call spends is recorded in its own scope (`EarlyBudget`), below the scope it will be charged to.
While it runs, its reservations are checked in program order: they must fit beside all reservations of the calls before
it, and wait until those calls have made theirs. When the program reaches the call, the scopes above are asked whether
they would have allowed the same spending; if not, the program makes the call again. `JoinableBudget` is for calls that
the program may reach while they still run: if allowed, it joins the scopes above before the call has ended, and so may
have no scope below it. In Vega the program waits for the end of a call and is charged with the sum, and functions that
run early open scopes below (`vega.runtime.early_budget`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from lyra.core.budgets.budget import DIMENSIONS, Budget, Reservation, Usage, lanes
from lyra.errors import BudgetExceeded

# Tests break each rule, and the comparison of random programs with their line-by-line runs has to notice.
RULES: Final[dict[str, str]] = {
    "ordered": "an agent that remembers, writes, answers by the order of questions or is unknown is asked in its turn",
    "delivery": "one process gets its messages in the order of the program",
    "cancelled": "an early call that the program does not come to is cancelled and awaited",
    "spend": "when its turn has come, an early call is used if the budgets would have allowed it, and is charged",
    "room": "a call is not made before there is room for it beside the calls before it",
}
_READING: Final = frozenset(
    {"fs.read", "file.read", "net.get", "http.get", "db.read", "memory.read", "env.read", "time.read"}
)


def why_ordered(agent: str, *, remembers: bool, has_breaker: bool) -> str:
    """Return why the order of an agent's calls can be observed by what it keeps between them; "" where it cannot."""
    if remembers:
        return f"{agent} remembers its conversation"
    return f"the circuit breaker of {agent} counts its calls in their order" if has_breaker else ""


def more_than_reading(rights: Iterable[str]) -> str | None:
    """Return the first right that allows more than reading; None where there is none."""
    return next((right for right in rights if right not in _READING), None)


NO_ROOM: Final = "ahead"  # the field that marks an error as "no room before the call's turn", not a real refusal
_MARK: Final = "apart"  # the field of saved data that marks the scope of an early call


def is_limited(scope: Budget) -> bool:
    """Return whether this scope or one above has a limit that blocks."""
    return any(
        level.on_exceed == "block" and level.limit(dimension) is not None
        for level in scope.chain()
        for dimension in DIMENSIONS
    )


class EarlyBudget(Budget):
    """The scope of an early call; `around` is the innermost scope that the call will be charged to. `before` gives the
    scopes of the calls before this one in program order that are not charged yet; None where one of these calls has not
    started, so that its usage is unknown."""

    __slots__ = ("around", "before", "has_asked", "is_joined", "is_over", "peak", "was_refused")

    def __init__(
        self, around: Budget, before: Callable[[], Sequence[EarlyBudget] | None] | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.around = around
        self.before: Callable[[], Sequence[EarlyBudget] | None] = before or list
        self.has_asked = False  # the calls after it can know what it reserves
        self.is_joined = False  # the program has reached the call, which still runs
        self.is_over = False  # charged to the scopes above, or discarded
        self.was_refused = False
        self.peak = [0] * len(DIMENSIONS)  # the most that was used and reserved at one time

    def reserve(self, usage: Usage) -> Reservation:
        self.admit(usage)
        reservation = super().reserve(usage)
        self.note()
        return reservation

    def admit(self, usage: Usage) -> None:
        """BudgetExceeded where there is no room; it only says: not yet."""
        if not self.has_room(usage):
            raise self._make_refusal()
        self.has_asked = True

    def has_room(self, usage: Usage) -> bool:
        """Return whether `usage` fits into the scopes above beside all reservations of the calls before this one."""
        if self.is_joined or not is_limited(self.around):
            return True
        before = self.before()
        if before is None:
            return False
        before = [scope for scope in before if not scope.is_over]
        if any(scope.was_refused or not scope.has_asked for scope in before):
            return False  # its cost is not known, nor whether the program continues behind it
        return self._fits(lanes(self._taken + usage.packed), [scope for scope in before if not scope.is_joined])

    def note(self) -> None:
        """Raise the peak to what is used and reserved now."""
        self.peak = list(map(max, self.peak, lanes(self._taken)))

    def is_allowed(self) -> bool:
        """Return whether the scopes above, as they are when the program reaches the call, would have allowed its
        spending."""
        return not self.was_refused and self._fits(self.peak)

    def _make_refusal(self) -> BudgetExceeded:
        """Return the error for a reservation without room, marked with NO_ROOM: the call can be made again in its
        turn."""
        self.was_refused = True
        marked: dict[str, Any] = {NO_ROOM: True}
        return BudgetExceeded("there is no room for a call that is made early", **marked)

    def _fits(self, wanted: list[int], beside: Sequence[EarlyBudget] = ()) -> bool:
        """Return whether `wanted` fits into the scopes above, beside the reservations of `beside` that count there
        too."""
        for level in self.around._chain:
            room = lanes(level._left - sum([scope._taken for scope in beside if level in scope.around._chain]))
            if any(amount and amount > left for amount, left in zip(wanted, room, strict=True)):
                return False
        return True


class JoinableBudget(EarlyBudget):
    """The scope of a call that the program may reach while it still runs."""

    __slots__ = ()

    def __init__(
        self, around: Budget, limits: Any = None, before: Callable[[], list[JoinableBudget] | None] | None = None
    ) -> None:
        value = limits._limit_data() if isinstance(limits, Budget) else limits
        super().__init__(around, before, parent=around, **self._settings(value))
        self._chain = self._chain[:1]

    @staticmethod
    def is_saved_in(data: dict[str, Any] | None) -> bool:
        """Return whether saved data is that of such a scope."""
        return data is not None and bool(data.get(_MARK))

    def to_data(self) -> dict[str, Any]:
        return {**super().to_data(), _MARK: True}

    def restore(self, spent: Usage, peak: Usage, *, refused: bool) -> None:
        """Set the usage, the peak and the refusal that the journal holds."""
        self.was_refused = refused
        self.charge_alone(spent)
        self.note()
        self.peak = list(map(max, self.peak, lanes(peak.packed)))
        self.has_asked = bool(peak or spent)

    def child(self, value: Any = None, **limits: Any) -> Budget:
        if not self.is_joined:  # a scope below has its own copy of the chain, which `join` does not change
            raise self._make_refusal()
        return super().child(value, **limits)

    def join(self) -> None:
        """Charge the scopes above with past and future spending: the program has reached the call."""
        self.is_joined = True
        for scope in self.around._chain:
            scope._used += self._used
            scope._taken += self._taken
        self._chain = (*self._chain, *self.around._chain)

"""The part of a budget that another shard of a cluster has lent.

A process that was spawned on another shard spends from a scope whose limits stand there, at its home. The home lends
portions; `BorrowedBudget` is what they amount to here. Its limits are those of the home; its room is what was lent and
not given back, so that no reservation here can pass what the home has set aside for it. An effect that finds no room
asks the home for more (`lyra.kernel.remote.loans`).

What the home said to be spent by others counts as reserved here, in the figures and in the room alike: `remaining`
tells what the home has left, and `covers` and `spendable` what was lent. A quote that would shorten a call to what is
left has to see the former: `as_at_home` shows it that for the moment.

Amounts are plain mappings of dimensions here, as posts have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lyra.core.budgets.budget import _GUARDS, _UNLIMITED, DIMENSIONS, Budget, Reservation, _pack, lanes

Amounts = Mapping[str, int]


def to_amounts(packed: int) -> dict[str, int]:
    """Return the amounts above zero in a packed integer, by dimension."""
    return {name: amount for name, amount in zip(DIMENSIONS, lanes(packed), strict=True) if amount > 0}


def pack(amounts: Amounts) -> int:
    """Return amounts as one packed integer."""
    return _pack([amounts.get(name, 0) for name in DIMENSIONS])


def add(total: Amounts, more: Amounts) -> dict[str, int]:
    """Return the sum, without dimensions that are zero."""
    return {name: amount for name in DIMENSIONS if (amount := total.get(name, 0) + more.get(name, 0))}


def subtract(total: Amounts, less: Amounts) -> dict[str, int]:
    """Return what is left of `total`, never below zero."""
    return {name: left for name, amount in total.items() if (left := amount - less.get(name, 0)) > 0}


def least(some: Amounts, most: Amounts) -> dict[str, int]:
    """Return the smaller amount of each dimension."""
    return {name: amount for name in some if (amount := min(some[name], most.get(name, 0))) > 0}


class BorrowedBudget(Budget):
    """See the module. `limits` are those that block at the home; `own_limits` are of the process that borrows, in a
    scope of its own below this one."""

    __slots__ = ("elsewhere", "granted", "last", "loan", "members", "own_limits")

    def __init__(self, loan: str, limits: Amounts, *, parent: Budget, own_limits: Mapping[str, Any]) -> None:
        super().__init__(parent=parent, **dict(limits))  # type: ignore[arg-type]
        self.loan = loan
        self.own_limits = dict(own_limits)
        self.granted: dict[str, int] = {}
        self.elsewhere: dict[str, int] = {}
        self.last: dict[str, int] = {}  # the portion that was asked for last
        self.members: set[str] = set()  # live processes that spend from it
        self.set_terms({}, None)

    def _copy_below(self, parent: Budget) -> Budget:  # noqa: ARG002 (one signature)
        """Return the scope of the process that borrows: below this one, which is below the shard's already."""
        return Budget.child(self, self.own_limits)

    def set_terms(self, granted: Amounts, left: Amounts | None) -> None:
        """Set what was lent altogether and not given back, and what the home has left beside it, where it said so."""
        self.granted = dict(granted)
        before = pack(self.elsewhere)
        limits = self.read_home_limits()
        if left is not None:
            self.elsewhere = {
                name: limit - granted.get(name, 0) - left.get(name, 0)
                for name, limit in limits.items()
                if limit > granted.get(name, 0) + left.get(name, 0)
            }
        self._taken += pack(self.elsewhere) - before
        lent = {name: granted.get(name, 0) + self.elsewhere.get(name, 0) for name in limits}
        self._room = _GUARDS + _pack(
            [
                lent[name] if name in limits else limit
                for name, limit in zip(DIMENSIONS, lanes(self._limits), strict=True)
            ]
        )

    def read_home_limits(self) -> dict[str, int]:
        """Return the limits of the home, by dimension."""
        return {name: limit for name, limit in zip(DIMENSIONS, lanes(self._limits), strict=True) if limit < _UNLIMITED}

    def find_unused(self) -> dict[str, int]:
        """Return what was lent and is neither used nor reserved."""
        return subtract(to_amounts(pack(self.granted)), to_amounts(self._taken - pack(self.elsewhere)))

    @property
    def is_settled(self) -> bool:
        """Whether nothing is reserved here."""
        return self._taken - pack(self.elsewhere) == self._used

    @contextmanager
    def as_at_home(self, *, at_best: bool) -> Iterator[None]:
        """Let quotes see what the home had left when it lent last, and not only what was lent; `at_best`: what it may
        have by now, if all that others held has come back."""
        room, self._room = self._room, self._limits + _GUARDS + (pack(self.elsewhere) if at_best else 0)
        try:
            yield
        finally:
            self._room = room


def find_borrowed(scope: Budget) -> BorrowedBudget | None:
    """Return the scope here or above that another shard lends; there is one at most."""
    for level in scope._chain:
        if type(level) is BorrowedBudget:
            return level
    return None


def take_part(reservation: Reservation, amounts: Amounts) -> Reservation:
    """Split off part of a reservation, as much as it has."""
    part = Reservation(reservation.scope, pack(least(amounts, to_amounts(reservation.packed))))
    reservation.packed -= part.packed
    return part

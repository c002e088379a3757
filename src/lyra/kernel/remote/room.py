"""Room in budgets that several shards spend from: who waits for it, and in which order it is looked for.

    at a borrower   ask the home for a portion, and wait for its answer; then call back what it lent on itself
    at a home       call back unused portions of all loans of the scope that is full, and wait for the answers

Only when all of this has given no room is an effect over its budget. Those that look for room by calling portions back
do so one after the other, first come first served: what comes back for one is not lent to the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from lyra.core.budgets import borrowed as amounts
from lyra.core.budgets.borrowed import BorrowedBudget, find_borrowed
from lyra.core.budgets.budget import Budget, Reservation, Usage
from lyra.core.effect import Effect
from lyra.errors import BudgetExceeded, Overloaded

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.process.process import Process
    from lyra.kernel.remote.loans import Loans

_EFFECTS_A_PORTION: Final = 64  # that a first portion should last for; the next is twice as large, and so on
_QUOTES_MOST: Final = 8  # of one call, while what is left changes under it
_HOME, _BORROWER = "home", "borrower"


class _Turn:
    """Who calls portions of a scope back, and how many do or wait to."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class BudgetRoom:
    """See the module."""

    def __init__(self, loans: Loans, core: Core[Process]) -> None:
        self._loans = loans
        self._core = core
        self._waiting: dict[tuple[str, str], list[asyncio.Future[None]]] = {}  # side and loan → who waits for word
        # Loan → the scope and the usage of the effect that asked for a portion: it gets room before any other does, and
        # before the home can call the portion back.
        self._askers: dict[str, tuple[Budget, Usage, asyncio.Future[Reservation | bool]]] = {}
        self._turns: dict[Budget, _Turn] = {}  # scopes that are full, and who calls portions back for them

    # ------------------------------------------------------------------ at the door

    async def admit(
        self, process: Process, effect: Effect, cost: Usage, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Usage, Reservation]:
        """Reserve what an effect costs, waiting for room where other shards may have some; gives its cost, too."""
        scope = process.budget
        borrowed = find_borrowed(scope)
        if effect.quote is None or borrowed is None:
            return cost, await self.reserve(scope, cost)
        least: Usage | None = None
        for again in range(_QUOTES_MOST):
            with borrowed.as_at_home(at_best=not again):
                cost = effect.quote(scope, *args, **kwargs)
            try:
                return cost, await self.reserve(scope, cost)
            except BudgetExceeded:
                if cost == least:  # what is left now asks for no smaller call
                    raise
                least = cost
        return cost, await self.reserve(scope, cost)

    async def reserve(self, scope: Budget, usage: Usage, but: str = "") -> Reservation:
        """Reserve `usage`, or raise BudgetExceeded when no shard has room for it. `but` is a loan that is not called
        back."""
        borrowed = find_borrowed(scope)
        is_called = is_refused = False
        while full := scope.full_scopes(usage):
            if borrowed is not None and full == [borrowed] and not is_refused:
                hold = await self._ask(borrowed, scope, usage)
                if isinstance(hold, Reservation):
                    return hold
                is_refused = hold
            elif not is_called:
                is_called = True
                async with self._turn(full[-1]):
                    await self._call_back(scope, usage, but)
                    if not scope.full_scopes(usage):
                        break
            else:
                break
        return scope.reserve(usage)

    async def _ask(self, borrowed: BorrowedBudget, scope: Budget, usage: Usage) -> Reservation | bool:
        """Ask the home for a portion, and wait for its answer; gives the reservation that was made when it came, or
        whether it was refused.

        One ask is under way at a time. Others wait for its answer and look again.
        """
        name = borrowed.loan
        loan = self._loans.borrowed.get(name)
        if loan is None:
            return True
        if not loan.asking:
            need = {name: cost for name, cost in amounts.to_amounts(usage.packed).items() if name in loan.limits}
            last = borrowed.last
            wanted = {name: max(_EFFECTS_A_PORTION * cost, 2 * last.get(name, 0)) for name, cost in need.items()}
            self._loans.ask(borrowed, need, wanted)
            return await self._wait_as_asker(name, scope, usage)
        await self._wait_for_word(_BORROWER, name)
        return False

    async def _wait_as_asker(self, name: str, scope: Budget, usage: Usage) -> Reservation | bool:
        told: asyncio.Future[Reservation | bool] = self._core.loop.create_future()
        self._askers[name] = (scope, usage, told)
        try:
            return await told
        except BaseException:
            if told.done() and not told.cancelled() and isinstance(hold := told.result(), Reservation):
                scope.release(hold)  # cancelled with the reservation in hand
            raise
        finally:
            if name in self._askers and self._askers[name][2] is told:
                del self._askers[name]

    async def _call_back(self, scope: Budget, usage: Usage, but: str) -> None:
        """Call back unused portions of the scopes that are full, until there is room or all have answered."""
        loans = self._loans
        calls = {name for level in scope.full_scopes(usage) for name in loans.list_lent(level, but)}
        for name in calls:
            loans.call_back(name)
        while scope.full_scopes(usage) and (late := self._list_unanswered(calls)):
            await self._wait_for_word(_HOME, *late)

    def _list_unanswered(self, calls: set[str]) -> list[str]:
        lent = self._loans.lent
        return sorted(name for name in calls if name in lent and lent[name].called)

    @asynccontextmanager
    async def _turn(self, scope: Budget) -> AsyncIterator[None]:
        turn = self._turns.setdefault(scope, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[scope]

    # ------------------------------------------------------------------ lending and giving back

    def begin_lending(self, name: str) -> None:
        """Answer what a borrower asked for: at once where there is room, else when room was looked for."""
        loans = self._loans
        lent = loans.lent[name]
        assert lent.asked is not None
        scope = loans.scope_of_loan(name)
        if scope is None or lent.done:
            loans.refuse(name, scope)
            return
        if not any(level in self._turns for level in scope._chain) and loans.lend_more(name, scope, *lent.asked):
            return
        self._core.tasks.start(self._lend(name, scope), name=f"lyra-portion {name}")

    async def _lend(self, name: str, scope: Budget) -> None:
        loans = self._loans
        lent = loans.lent.get(name)
        if lent is None or lent.asked is None:  # its borrower ended with the post behind the one that asked
            return
        need, wanted = lent.asked
        is_refused = False
        try:
            scope.release(await self.reserve(scope, Usage.from_data(need), but=name))
        except (BudgetExceeded, Overloaded):
            is_refused = True
        lent = loans.lent.get(name)
        if lent is None or lent.asked is None or self._core.stopping or self._core.failure is not None:
            return
        if is_refused or lent.done or not loans.lend_more(name, scope, need, wanted):
            loans.refuse(name, scope)

    def begin_return(self, name: str) -> None:
        """Give unused portions of a loan back, after what of them was lent on."""
        scope = self._loans.find_scope(name)
        if scope is None or not self._loans.list_lent(scope, ""):
            self._loans.give_back(name)
        else:
            self._core.tasks.start(self._return(name, scope), name=f"lyra-return {name}")

    async def _return(self, name: str, scope: BorrowedBudget) -> None:
        loans = self._loans
        calls = set(loans.list_lent(scope, ""))
        for call in calls:
            loans.call_back(call)
        while late := self._list_unanswered(calls):
            await self._wait_for_word(_HOME, *late)
        if not self._core.stopping and self._core.failure is None:
            loans.give_back(name)

    # ------------------------------------------------------------------ word of a loan

    async def _wait_for_word(self, side: str, *names: str) -> None:
        """Wait until the other side of one of these loans has told something."""
        told: asyncio.Future[None] = self._core.loop.create_future()
        for name in names:
            self._waiting.setdefault((side, name), []).append(told)
        try:
            await told
        finally:
            for name in names:
                waiting = self._waiting.get((side, name), [])
                if told in waiting:
                    waiting.remove(told)
                if not waiting:
                    self._waiting.pop((side, name), None)

    def loan_told(self, name: str, what: str, *, refused: bool = False) -> None:
        """Wake those who wait for word of a loan."""
        side = _BORROWER if what == "budget.lent" else _HOME
        if side == _BORROWER and name in self._askers:
            scope, usage, asker = self._askers.pop(name)
            if not asker.done():
                try:
                    asker.set_result(scope.reserve(usage))
                except BudgetExceeded:
                    asker.set_result(refused)
        for told in self._waiting.pop((side, name), ()):
            if not told.done():
                told.set_result(None)

"""The budget of an early call: it charges no scope around it until the program reaches the call.

What such a call spends is counted in its own scope. When the program reaches the call, the sessions around it are asked
whether they would have allowed this spending, and are charged; if they would not, the call counts as speculative and is
made again, as a sequential run makes it. While it is under way its reservations are checked in program order: together
with all reservations of the calls before it, and after those are known. A call that does not fit is not made early.

Unlike the early budget of `lyra.core.budgets`, it never joins the scopes around it: the program waits for the end of
the call and is charged with the sum, and an early function opens its own scopes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lyra.core.budgets.budget import NOTHING, Budget, Reservation, Usage
from lyra.core.budgets.early_calls import NO_ROOM, EarlyBudget, is_limited
from lyra.core.budgets.money import Money
from lyra.errors import LyraError
from lyra.vega.runtime.agents.slot import AgentSlot, now_s

if TYPE_CHECKING:
    from lyra.vega.machine.fiber import EarlyCall


def uncharge(scope: Budget, usage: Usage) -> None:
    """Remove from a scope what belongs to another, or what will be charged to it again."""
    scope.charge_alone(-usage)


class EarlyCallBudget(EarlyBudget):
    __slots__ = ("_earlier", "guessed", "known")

    def __init__(self, around: Budget, before: Callable[[], list[EarlyCallBudget]], limit: Money | None) -> None:
        super().__init__(around, before, usd=limit)
        self._earlier = before
        self.limits_money = self.limits_money or around.limits_money
        self.limits_tokens = self.limits_tokens or around.limits_tokens
        self.known = asyncio.Event()  # for the calls after it that wait to know what it reserves
        self.guessed: Usage = NOTHING  # the cost of what was under way when it was cancelled; charged to no scope

    def child(self, value: Any = None, **limits: Any) -> Budget:
        """Return the scope of a call that an early function makes; its reservations are checked like those of any
        other."""
        return _Inside(self, super().child(value, **limits))

    def cut_off(self, guess: Usage) -> bool:
        self.guessed = self.guessed + guess
        return True

    def charge_alone(self, usage: Usage) -> None:
        super().charge_alone(usage)
        self.note()

    def admit(self, usage: Usage) -> None:
        super().admit(usage)
        self.known.set()

    def end(self) -> None:
        """Note that the call has ended: it reserves no more."""
        self.has_asked = True
        self.known.set()

    async def wait_for_those_before(self) -> None:
        """Wait until it is known what the calls before it take, where that matters."""
        if is_limited(self.around):
            for scope in self._earlier():
                await scope.known.wait()


class _Inside(Budget):
    """A limit of one call below the scope of the function that makes it."""

    __slots__ = ("_early_budget",)

    def __init__(self, early_budget: EarlyCallBudget, limit: Budget) -> None:
        super().__init__(parent=early_budget, **limit._limit_data())
        self._early_budget = early_budget

    def reserve(self, usage: Usage) -> Reservation:
        self._early_budget.admit(usage)
        reservation = super().reserve(usage)
        self._early_budget.note()
        return reservation


class RecordedBudget(Budget):
    """The budget of a question to a conversation, inside a session of a durable run. No replay makes the turns of a
    conversation again for the process that asked, so what they cost is told to `pay`: what is set aside for a call
    before it is made, and the difference when its cost is known. What a crash cut off stays paid with what was set
    aside."""

    __slots__ = ("_pay",)

    def __init__(self, around: Budget, limit: Money | None, pay: Callable[[Usage], None]) -> None:
        super().__init__(usd=limit, parent=around)
        self._pay = pay

    def reserve(self, usage: Usage) -> Reservation:
        reservation = super().reserve(usage)
        self._on_usage(usage)
        return reservation

    def settle(self, reservation: Reservation, actual: Usage | None = None) -> Usage:
        over = super().settle(reservation, actual)
        if actual is not None:
            self._on_usage(actual + -reservation.usage)
        return over

    def charge(self, usage: Usage) -> None:
        super().charge(usage)
        self._on_usage(usage)

    def _on_usage(self, usage: Usage) -> None:
        if usage:
            self._pay(usage)


class SpeculativeCall:
    """One early call under way: its task, which never raises but gives how the call ended, and its scope."""

    __slots__ = (
        "before",
        "began_s",
        "call",
        "crashes",
        "cut_off",
        "depth",
        "ended_s",
        "error",
        "idle_s",
        "is_taken",
        "pids",
        "scope",
        "task",
        "value",
        "won_s",
    )

    def __init__(self, call: EarlyCall, scope: EarlyCallBudget, depth: int = 1) -> None:
        self.call = call
        self.scope = scope
        self.depth = depth  # of early functions inside one another
        self.task: asyncio.Task[None] | None = None
        self.value: Any = None
        self.error: BaseException | None = None
        self.is_taken = False
        self.pids: list[str] = []  # of the agents' processes that answer it
        self.crashes: list[tuple[AgentSlot, LyraError]] = []  # of agents, for when its turn comes
        self.began_s = now_s()
        self.ended_s = self.began_s
        self.idle_s = 0.0  # while it waited for others that were made early, and line by line would not have been there
        self.won_s = 0.0  # by calls that were made early inside it
        self.before: Usage = NOTHING  # what of it was spent before the restart
        self.cut_off: Usage = NOTHING  # the part of `before` for attempts that a restart cut off

    @property
    def took_s(self) -> float:
        """Return how long it would have taken line by line."""
        return self.ended_s - self.began_s - self.idle_s + self.won_s

    @property
    def was_refused(self) -> bool:
        """Whether its budget had no room for it, in this execution of the run or in an earlier one."""
        return self.scope.was_refused or (isinstance(self.error, LyraError) and NO_ROOM in self.error.fields)


class SpeculativeCalls:
    """The early calls of one group in this execution of the process, in the order they were started."""

    __slots__ = ("calls", "failed", "has_gap", "promised", "spawned", "under_way")

    def __init__(self) -> None:
        self.calls: dict[str, SpeculativeCall] = {}
        self.promised: dict[str, AgentSlot] = {}  # agents that the program has not come to spawn
        self.spawned: list[AgentSlot] = []  # agents that the program has spawned, whose processes may not have begun
        self.failed: list[SpeculativeCall] = []  # in the order of time
        self.has_gap = False  # a call was not made early: what it will cost is not known to those behind it
        self.under_way: set[asyncio.Task[None]] = set()

    def scopes_before(self, early: SpeculativeCall) -> list[EarlyCallBudget]:
        scopes: list[EarlyCallBudget] = []
        for call in self.calls.values():
            if call is early:
                break
            scopes.append(call.scope)
        return scopes

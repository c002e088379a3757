"""EarlyCall: a call that `@lyra.parallel` makes ahead of its turn: what it spends, and whether its result can be used.

Code that runs for such a call finds it in `current_early_call`. The call spends from separate scopes
(`lyra.core.budgets.early_calls`) in place of the budgets around it: a model is asked when there is room beside all
calls before it, or when the turn has come. From then on (`take_turn`) the call spends like any other. A call that the
program never comes to is speculative: it is paid for, published (`call.speculative`) and counted as such, and no budget
is charged for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from math import inf
from operator import gt
from typing import TYPE_CHECKING, Any

from lyra.core.budgets.budget import NOTHING, Budget, Usage
from lyra.core.budgets.early_calls import JoinableBudget, is_limited
from lyra.errors import LyraError

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.agents.session.shared import AgentRuntime
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.models.tokens import Estimator


class ChangeSignal:
    """Wakes all calls of a group that wait for the state of another call."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class EarlyCall:
    """`before` gives the calls that stand before this one in the program, as far as they are made."""

    __slots__ = (
        "_asked",
        "_before",
        "_changes",
        "_is_settled",
        "_lessons",
        "_scopes",
        "_turns",
        "children",
        "has_asked",
        "has_failed",
        "is_due",
        "is_over",
        "was_held",
    )

    def __init__(self, before: Callable[[], list[EarlyCall]], changes: ChangeSignal) -> None:
        self._before = before
        self._changes = changes
        self._scopes: list[JoinableBudget] = []
        self._asked: list[tuple[Kernel, str]] = []  # the processes that work on it
        self._lessons: list[Callable[[], None] | tuple[Estimator, str, tuple[float, float, int]]] = []
        self._turns = 0  # turns of conversations that are under way for it
        self.children: list[Process] = []  # processes that were started for it
        self._is_settled = False
        self.has_asked = False  # it has asked a model, or has ended
        self.has_failed = False
        self.is_due = False  # the program has come to it
        self.is_over = False  # its result was taken, or it was given up
        self.was_held = False  # it had to wait for room

    # ------------------------------------------------------------ budgets

    def scope_for(self, around: Budget) -> Budget:
        """Return the scope that the call spends from in place of a budget."""
        if self.is_due or (isinstance(around, JoinableBudget) and around in self._scopes):
            return around
        separate = next((scope for scope in self._scopes if scope.around is around), None)
        if separate is None:
            separate = JoinableBudget(around, None, self._scopes_before)
            self._scopes.append(separate)
        return separate

    def around(self, scopes: tuple[Budget, ...]) -> tuple[Budget, ...]:
        return tuple(self.scope_for(scope) for scope in scopes)

    def child_budget(self, around: Budget, limits: Any) -> Any:
        """Return the budget of a process that is started for the call."""
        return limits if self.is_due or isinstance(around, JoinableBudget) else JoinableBudget(around, limits)

    def add_child(self, process: Process) -> None:
        """Register a child process that works on the call, newly started or from before a restart."""
        self.children.append(process)
        self.began(process.kernel, process.pid)
        scope = process.budget
        if isinstance(scope, JoinableBudget) and not scope.is_over and scope not in self._scopes:
            scope.before = self._scopes_before
            self._scopes.append(scope)
            if self.is_over:  # taken before a restart, and charged when the journal was read
                scope.is_over = True
            elif self.is_due:
                scope.join()
        self._changes.notify()

    def _scopes_before(self) -> list[JoinableBudget] | None:
        """Return the scopes of the calls before it; None while one of those has not asked, or has failed."""
        scopes: list[JoinableBudget] = []
        for call in self._before():
            if call.has_failed or not call.has_asked:
                return None
            if not call.is_over:
                scopes += call._scopes
        return scopes

    async def wait_for_room(self, scopes: Iterable[Budget], expected: Callable[[], Usage]) -> None:
        """Wait until the budgets have room for a question beside the calls before it, or until its turn comes."""
        held = [scope for scope in scopes if isinstance(scope, JoinableBudget) and is_limited(scope.around)]
        usage = expected() if held and not self.is_due else NOTHING
        while not self.is_due and (self._follows_failure() or not all(scope.has_room(usage) for scope in held)):
            self.was_held = True
            await self._changes.wait()
        if not self.has_asked:
            self.has_asked = True
            self._changes.notify()

    def note_estimate(self, tokens: Estimator, model: str) -> None:
        """Keep which token estimate a question was made with: calls before it may still correct it."""
        if not self.is_due and any(is_limited(scope.around) for scope in self._scopes):
            self._lessons.append((tokens, model, tokens.expects(model)))

    def learn_later(self, lesson: Callable[[], None]) -> None:
        """Keep a correction of token estimates until the turn comes."""
        self._lessons.append(lesson)

    def _learn(self) -> bool:
        """Apply the corrections of token estimates. False, with nothing applied, if the line-by-line run would have
        estimated one of its questions higher."""
        lessons, self._lessons = self._lessons, []
        known = [lesson[0].get_learned(lesson[1]) for lesson in lessons if not callable(lesson)]
        rates = [(learned, learned.rate, learned.missed) for learned in known]
        for lesson in lessons:
            if callable(lesson):
                lesson()
            elif any(map(gt, lesson[0].expects(lesson[1]), lesson[2])):
                for learned, rate, missed in rates:
                    learned.rate, learned.missed = rate, missed
                return False
        return True

    def _follows_failure(self) -> bool:
        """Return whether a call before it has failed, so that the program will hardly come here."""
        return any(call.has_failed for call in self._before())

    @property
    def usage(self) -> Usage:
        """Return what the child processes have spent in separate scopes."""
        apart = {id(child.budget): child.budget for child in self.children if isinstance(child.budget, JoinableBudget)}
        return sum((scope.usage for scope in apart.values()), NOTHING)

    # ------------------------------------------------------------ processes that work on it

    def began(self, kernel: Kernel, pid: str) -> None:
        if not self.is_due:
            self._asked.append((kernel, pid))
            _publish(kernel, "call.ahead", pid)

    def enter(self) -> None:
        """Note that a process begins a turn of its conversation for this call."""
        self._turns += 1

    def leave(self) -> None:
        self._turns -= 1
        self._changes.notify()

    async def wait_for_child(self) -> None:
        """Wait until a child process works on the call, or the call has ended without one."""
        while not self.children and not self._is_settled:
            await self._changes.wait()

    # ------------------------------------------------------------ its turn, and its end

    def take_turn(self) -> bool:
        """Note that the program has come to the call. False if the line-by-line run would differ: it has to be made
        again."""
        self.is_due = True
        stands = all(scope.is_allowed() for scope in self._scopes) and self._learn()
        if stands:
            for scope in self._scopes:
                if not scope.is_joined:
                    scope.join()
        self._changes.notify()
        return stands

    def settle(self, *, failed: bool) -> None:
        """Note that the call has ended: it will ask no more model."""
        self.has_failed = failed
        self.has_asked = self._is_settled = True
        for scope in self._scopes:
            scope.has_asked = True
        self._changes.notify()

    async def wait_until_idle(self) -> None:
        """Wait until no process works on the call any more."""
        while self._turns:
            await self._changes.wait()
        for child in self.children:
            while child.exit is None and not child.kernel.stopping:
                waiter = asyncio.get_running_loop().create_future()
                child.watch(waiter)
                with suppress(LyraError):  # its kernel closes
                    await waiter

    def close(self, *, taken: bool) -> None:
        """Close a call whose result the program has taken, or that was given up and its cost is speculative."""
        if self.is_over:
            return
        self.is_due = self.is_over = True
        for scope in self._scopes:
            scope.is_over = True
            if not taken:
                for above in scope.around.chain():
                    above.speculative += scope.usage
        for kernel, pid in self._asked:
            _publish(kernel, "call.taken" if taken else "call.speculative", pid)
        self._changes.notify()


# The early call that the running code works for, if any.
current_early_call: ContextVar[EarlyCall | None] = ContextVar("lyra_early_call", default=None)


def _publish(kernel: Kernel, kind: str, pid: str) -> None:
    if kernel.agents_heard and not kernel.stopping:
        kernel.publish(pid, kind, {"pid": pid})


# Time won by overlapping calls, and how a program gives it back before it meets a limit that goes by the clock.


class TimeWon:
    __slots__ = ("is_open", "seconds")

    def __init__(self) -> None:
        self.is_open = True  # until the function that wins it has ended
        self.seconds = 0.0  # negative if the overlapped run is behind the line-by-line run

    def win(self, seconds: float) -> None:
        """Add what a call took beyond the program's wait for it; negative if the program waited for nothing."""
        self.seconds += seconds

    async def give_back(self, wanted: Callable[[], float] = lambda: inf) -> None:
        """Wait as long as `wanted` says, which is asked again afterwards; without it, all the time won."""
        while (wait_s := min(self.seconds, wanted())) > 0.0:
            self.seconds -= wait_s
            await asyncio.sleep(wait_s)


# Of the Python program that runs here: the time won by the outermost `@lyra.parallel` function, or by the last one.
# Earlier ones do not count: a program that waits for others in between is not paced by its calls alone.
time_won: ContextVar[TimeWon | None] = ContextVar("lyra_lead", default=None)


async def wait_for_limits(runtime: AgentRuntime, agent: AgentDeclaration, *, timed: bool) -> None:
    """Before an agent is asked, give its limits the time that they have in the line-by-line run."""
    won, early_call = time_won.get(), current_early_call.get()
    if won is not None and won.seconds > 0.0 and (early_call is None or early_call.is_due):
        await won.give_back(partial(runtime.models.ready_in, agent, timed=timed))

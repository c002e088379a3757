"""A call that a Python function makes ahead of its turn: what it spends, and whether it stands when its turn comes.

Whoever is asked in such a call finds it in `ahead`. The budgets around the call are replaced by scopes apart
(`early_budget`): a model is asked when there is room beside all calls before it, or when the turn has come. From
then on (`come`) the call spends like any other. What the program never comes to is speculative: it is paid for, told
(`call.speculative`) and counted as such, and no budget is charged with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from operator import gt
from typing import TYPE_CHECKING, Any

from lyra.core.budgets.budget import NOTHING, Budget, Usage
from lyra.core.budgets.early_budget import JoinableBudget, is_limited
from lyra.errors import LyraError

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.models.tokens import Estimator

__all__ = ["Ahead", "Changes", "ahead"]


class Changes:
    """Those who wait for something to change in a group of calls."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class Ahead:
    """One such call. `before` gives the calls that stand before it in the program, as far as they are made."""

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

    def __init__(self, before: Callable[[], list[Ahead]], changes: Changes) -> None:
        self._before = before
        self._changes = changes
        self._scopes: list[JoinableBudget] = []
        self._asked: list[tuple[Kernel, str]] = []  # which processes work on it
        self._lessons: list[Callable[[], None] | tuple[Estimator, str, tuple[float, float, int]]] = []
        self._turns = 0  # of conversations that it is in
        self.children: list[Process] = []  # that were started for it, in a program
        self._is_settled = False
        self.has_asked = False  # a model; or it has ended
        self.has_failed = False
        self.is_due = False  # the program has come to it
        self.is_over = False  # taken, or given up
        self.was_held = False  # it had to wait for room

    # ------------------------------------------------------------ budgets

    def apart(self, around: Budget) -> Budget:
        """What the call spends from in place of a budget."""
        if self.is_due or (isinstance(around, JoinableBudget) and around in self._scopes):
            return around
        found = next((scope for scope in self._scopes if scope.around is around), None)
        if found is None:
            found = JoinableBudget(around, None, self._set_aside)
            self._scopes.append(found)
        return found

    def around(self, scopes: tuple[Budget, ...]) -> tuple[Budget, ...]:
        return tuple(self.apart(scope) for scope in scopes)

    def own(self, around: Budget, limits: Any) -> Any:
        """What a process that is started for the call gets as its budget."""
        return limits if self.is_due or isinstance(around, JoinableBudget) else JoinableBudget(around, limits)

    def started(self, process: Process) -> None:
        """A program's child works on it: in an earlier life of the program, or from now on."""
        self.children.append(process)
        self.began(process.kernel, process.pid)
        scope = process.budget
        if isinstance(scope, JoinableBudget) and not scope.is_over and scope not in self._scopes:
            scope.before = self._set_aside
            self._scopes.append(scope)
            if self.is_over:  # taken in an earlier life, and charged when the journal was read
                scope.is_over = True
            elif self.is_due:
                scope.join()
        self._changes.tell()

    def _set_aside(self) -> list[JoinableBudget] | None:
        found: list[JoinableBudget] = []
        for call in self._before():
            if call.has_failed or not call.has_asked:
                return None
            if not call.is_over:
                found += call._scopes
        return found

    async def room(self, scopes: Iterable[Budget], expected: Callable[[], Usage]) -> None:
        """Wait until the budgets hold a question beside what the calls before it may take, or until its turn comes."""
        held = [scope for scope in scopes if isinstance(scope, JoinableBudget) and is_limited(scope.around)]
        usage = expected() if held and not self.is_due else NOTHING
        while not self.is_due and (self._is_hopeless() or not all(scope.has_room(usage) for scope in held)):
            self.was_held = True
            await self._changes.wait()
        if not self.has_asked:
            self.has_asked = True
            self._changes.tell()

    def quotes(self, tokens: Estimator, model: str) -> None:
        """A question was estimated by what was known of the model, without the calls before this one."""
        if not self.is_due and any(is_limited(scope.around) for scope in self._scopes):
            self._lessons.append((tokens, model, tokens.expects(model)))

    def later(self, lesson: Callable[[], None]) -> None:
        self._lessons.append(lesson)

    def _learn(self) -> bool:
        """Let others know what this call has learned of models. False, and nothing is learned: line by line one of its
        questions would have been thought larger."""
        lessons, self._lessons = self._lessons, []
        known = [lesson[0].learned(lesson[1]) for lesson in lessons if not callable(lesson)]
        rates = [(learned, learned.rate, learned.missed) for learned in known]
        for lesson in lessons:
            if callable(lesson):
                lesson()
            elif any(map(gt, lesson[0].expects(lesson[1]), lesson[2])):
                for learned, rate, missed in rates:
                    learned.rate, learned.missed = rate, missed
                return False
        return True

    def _is_hopeless(self) -> bool:
        """One before it has failed, and the program will hardly come here."""
        return any(call.has_failed for call in self._before())

    @property
    def usage(self) -> Usage:
        """What the children of a program have spent apart from it."""
        apart = {id(child.budget): child.budget for child in self.children if isinstance(child.budget, JoinableBudget)}
        return sum((scope.usage for scope in apart.values()), NOTHING)

    # ------------------------------------------------------------ who works on it

    def began(self, kernel: Kernel, pid: str) -> None:
        if not self.is_due:
            self._asked.append((kernel, pid))
            _publish(kernel, "call.ahead", pid)

    def enter(self) -> None:
        """A process begins a turn of its conversation for it."""
        self._turns += 1

    def leave(self) -> None:
        self._turns -= 1
        self._changes.tell()

    async def begun(self) -> None:
        """Wait for the child that works on it, or has in an earlier life; or for what came in between."""
        while not self.children and not self._is_settled:
            await self._changes.wait()

    # ------------------------------------------------------------ its turn, and its end

    def come(self) -> bool:
        """Its turn has come. False: line by line it would have gone otherwise, and has to be made again."""
        self.is_due = True
        stands = all(scope.is_allowed() for scope in self._scopes) and self._learn()
        if stands:
            for scope in self._scopes:
                if not scope.is_joined:
                    scope.join()
        self._changes.tell()
        return stands

    def settled(self, *, failed: bool) -> None:
        """Nothing more will be asked for it."""
        self.has_failed = failed
        self.has_asked = self._is_settled = True
        for scope in self._scopes:
            scope.has_asked = True
        self._changes.tell()

    async def ended(self) -> None:
        """Wait until nobody works on it any more."""
        while self._turns:
            await self._changes.wait()
        for child in self.children:
            while child.exit is None and not child.kernel.stopping:
                waiter = asyncio.get_running_loop().create_future()
                child.watch(waiter)
                with suppress(LyraError):  # its kernel closes
                    await waiter

    def over(self, *, taken: bool) -> None:
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
        self._changes.tell()


# The call for which the code that runs now was asked, if it was made ahead of its turn.
ahead: ContextVar[Ahead | None] = ContextVar("lyra_ahead", default=None)


def _publish(kernel: Kernel, kind: str, pid: str) -> None:
    if kernel.agents_heard and not kernel.stopping:
        kernel.publish(pid, kind, {"pid": pid})

"""One agent call of a decorated function: made ahead of its turn, or when the program has come to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lyra.agents.parallel.pending_values import real
from lyra.agents.parallel.targets import Question, session_of
from lyra.agents.session.early_call import Ahead, ahead
from lyra.agents.session.replies import MarkedReply
from lyra.agents.session.session import Metrics, Session
from lyra.core.budgets.early_budget import NO_ROOM
from lyra.errors import BudgetExceeded, LimitExceeded
from lyra.kernel.process.call_keys import name_branch

if TYPE_CHECKING:
    from lyra.agents.parallel.group import Group

__all__ = ["Abandoned", "Early"]


class Abandoned(Exception):
    """A call that this one needs has failed: the program will not come here, or make it in its turn."""


class Early:
    """`mark` is where the conversation stood before it, `over` where it stood after."""

    __slots__ = (
        "_answer",
        "_group",
        "_key",
        "ahead",
        "done",
        "error",
        "is_answered",
        "mark",
        "over",
        "question",
        "site",
        "task",
        "took_s",
    )

    def __init__(self, group: Group, site: int, question: Question, key: str) -> None:
        self._group = group
        self._key = key
        self._answer: Any = None
        self.site = site
        self.question = question
        self.ahead = Ahead(lambda: group.before(self), group.changes)
        self.task: asyncio.Task[Any] | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: BaseException | None = None
        self.is_answered = False
        self.mark: tuple[Session, int, bytes, Metrics] | None = None
        self.over = -1
        self.took_s = 0.0  # from when it had all it needs

    @property
    def answer(self) -> Any:
        return self._answer

    async def run(self, before: Early | None) -> Any:
        """In a task of its own."""
        program = self.question.program
        if program is not None and self._key:
            name_branch(program, self._key)
        return await self.here(before)

    async def here(self, before: Early | None = None) -> Any:
        """The answer, asked for in the task that runs."""
        token = None if self._group.is_inside else ahead.set(self.ahead)
        failed = True
        began_s = asyncio.get_running_loop().time()
        try:
            for other in (before, *self.question.calls):
                if other is not None:
                    await other.get()
            began_s = asyncio.get_running_loop().time()
            if not self.ahead.is_due and any(type(real(value)) is MarkedReply for value in self.question.args):
                raise Abandoned  # it would mark whom it asks, which cannot be taken back
            session = session_of(self.question.process)
            if session is not None:
                self.mark = (session, len(session.messages), session.digest, session.metrics.copy())
            self._answer = await self.question.ask()
            if session is not None:
                self.over = len(session.messages)
            self.is_answered = True
            failed = False
            return self._answer
        except BaseException as error:
            self.error = error
            raise
        finally:
            if token is not None:
                ahead.reset(token)
            self.took_s = asyncio.get_running_loop().time() - began_s
            self.ahead.settled(failed=failed)
            if not self.done.done():
                self.done.set_result(None)
            self._group.advance()

    async def get(self) -> Any:
        """The answer, for a call that needs it."""
        await asyncio.wait([self.done])
        if not self.is_answered:
            raise Abandoned
        return self._answer

    def is_in_vain(self) -> bool:
        """It failed, and might not have in its turn: it found no room in its budget, was held up by the others, or one
        that it needs was given up."""
        error = self.error
        if isinstance(error, BudgetExceeded):
            return NO_ROOM in error.fields
        return isinstance(error, (LimitExceeded, Abandoned, asyncio.CancelledError))

    def was_free(self) -> bool:
        """It has cost nothing."""
        return not any(scope.usage.items for scope in self.ahead._scopes)

    def was_held(self) -> bool:
        """Its own time limit ran while it waited for room in its budget."""
        return self.ahead.was_held and self.question.keywords.get("timeout") is not None

    def take_back(self) -> None:
        """Forget a turn of the conversation that the program never came to."""
        if self.mark is None:
            return
        session, length, digest, metrics = self.mark
        session.metrics = metrics
        if len(session.messages) > length and self.over in (-1, len(session.messages)):
            session.cut_back(length, digest)  # -1: it was over, and nobody had heard of it
        self.over = -1

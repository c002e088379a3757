"""ParallelCall: one agent call of a decorated function, made early or when the program has come to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lyra.agents.parallel.pending_values import resolve
from lyra.agents.parallel.targets import AgentCall, session_of
from lyra.agents.session.early_call import EarlyCall, current_early_call
from lyra.agents.session.replies import MarkedReply
from lyra.agents.session.session import AgentSession, Metrics
from lyra.core.budgets.early_calls import NO_ROOM
from lyra.errors import BudgetExceeded, LimitExceeded
from lyra.kernel.process.replay import name_branch

if TYPE_CHECKING:
    from lyra.agents.parallel.group import CallGroup


class Abandoned(Exception):
    """A call that this one needs has failed: the program will not come here, or will make the call in its turn."""


class ParallelCall:
    """`start` is the state of the conversation before the call, `length_after` its number of messages after it."""

    __slots__ = (
        "_answer",
        "_group",
        "_key",
        "done",
        "early_call",
        "error",
        "is_answered",
        "length_after",
        "question",
        "site",
        "start",
        "task",
        "took_s",
    )

    def __init__(self, group: CallGroup, site: int, question: AgentCall, key: str) -> None:
        self._group = group
        self._key = key
        self._answer: Any = None
        self.site = site
        self.question = question
        self.early_call = EarlyCall(lambda: group.before(self), group.changes)
        self.task: asyncio.Task[Any] | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: BaseException | None = None
        self.is_answered = False
        self.start: tuple[AgentSession, int, bytes, Metrics] | None = None
        self.length_after = -1
        self.took_s = 0.0  # from the moment when all calls it needs had answered

    @property
    def answer(self) -> Any:
        return self._answer

    async def run(self, before: ParallelCall | None) -> Any:
        """Make the call in its own task."""
        program = self.question.program
        if program is not None and self._key:
            name_branch(program, self._key)
        return await self.ask_now(before)

    async def ask_now(self, before: ParallelCall | None = None) -> Any:
        """Make the call in the running task."""
        token = None if self._group.is_inside else current_early_call.set(self.early_call)
        failed = True
        began_s = asyncio.get_running_loop().time()
        try:
            for other in (before, *self.question.calls):
                if other is not None:
                    await other.get()
            began_s = asyncio.get_running_loop().time()
            if not self.early_call.is_due and any(type(resolve(value)) is MarkedReply for value in self.question.args):
                raise Abandoned  # it would taint the agent that it asks, which cannot be undone
            session = session_of(self.question.process)
            if session is not None:
                self.start = (session, len(session.messages), session.digest, session.metrics.copy())
            self._answer = await self.question.ask()
            if session is not None:
                self.length_after = len(session.messages)
            self.is_answered = True
            failed = False
            return self._answer
        except BaseException as error:
            self.error = error
            raise
        finally:
            if token is not None:
                current_early_call.reset(token)
            self.took_s = asyncio.get_running_loop().time() - began_s
            self.early_call.settle(failed=failed)
            if not self.done.done():
                self.done.set_result(None)
            self._group.advance()

    async def get(self) -> Any:
        """Return the answer, for another call that needs it."""
        await asyncio.wait([self.done])
        if not self.is_answered:
            raise Abandoned
        return self._answer

    def is_in_vain(self) -> bool:
        """Return whether it failed only for being early: its budget had no room yet, or a call that it needs was given
        up."""
        error = self.error
        if isinstance(error, BudgetExceeded):
            return NO_ROOM in error.fields
        return isinstance(error, (LimitExceeded, Abandoned, asyncio.CancelledError))

    def was_free(self) -> bool:
        """Return whether it has cost nothing."""
        return not any(scope.usage.packed for scope in self.early_call._scopes)

    def was_held(self) -> bool:
        """Return whether its own time limit ran while it waited for room in its budget."""
        return self.early_call.was_held and self.question.keywords.get("timeout") is not None

    def remove_turn(self) -> None:
        """Remove a turn from the conversation that the program never came to."""
        if self.start is None:
            return
        session, length, digest, metrics = self.start
        session.metrics = metrics
        if len(session.messages) > length and self.length_after in (-1, len(session.messages)):
            session.cut_back(length, digest)  # -1: the turn had ended, and its answer was not delivered yet
        self.length_after = -1

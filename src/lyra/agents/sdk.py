"""`run` and `stream` an agent without making a kernel, and `budget` around any number of calls.

print(lyra.run(agent, "What is 2 + 2?"))             # in a script
answer = await lyra.run(agent, "What is 2 + 2?")     # in async code

with lyra.budget("$10.00") as spent:
    ...                                              # every agent asked in here draws on it
print(spent.used, spent.remaining)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from lyra.agents.agent import Agent
from lyra.agents.declaration.output import Content, content_of
from lyra.agents.helpers.task import ask_child
from lyra.agents.session.early_call import wait_for_limits
from lyra.agents.session.open_questions import attend, scopes
from lyra.agents.session.replies import Pending, Reply, Stream
from lyra.agents.session.shared import runtime_of
from lyra.core.budgets.budget import Budget, Limits, Usage
from lyra.core.budgets.money import Money
from lyra.core.checking.check import real
from lyra.errors import ConfigError, DeadlineExceeded
from lyra.kernel.interrupts.interrupt import Interrupt
from lyra.kernel.kernel import Kernel, KernelOptions
from lyra.kernel.programs.context import Context

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Unpack

    from lyra.agents.session.events import AnyEvent

    class _Answer(Reply, Awaitable[Reply]):
        """What `run` gives for an agent without `output`: the Reply, or in a running loop an awaitable of it."""

    class _NoOutput:
        """No agent's output: an argument with this type fits an `Agent[Any]` alone."""


T = TypeVar("T")


@overload
def run(agent: Agent[_NoOutput], message: Content, **options: Any) -> Any: ...


@overload
def run(
    agent: Agent[T],
    message: Content,
    *,
    timeout: float | None = None,
    budget: Limits | None = None,
    on: Kernel | Context,
) -> Coroutine[Any, Any, T]: ...


@overload
def run(
    agent: Agent[Reply],
    message: Content,
    *,
    timeout: float | None = None,
    budget: Limits | None = None,
    on: None = None,
    answer: Callable[[Interrupt], Any] | None = None,
    **kernel: Unpack[KernelOptions],
) -> _Answer: ...


@overload
def run(
    agent: Agent[T],
    message: Content,
    *,
    timeout: float | None = None,
    budget: Limits | None = None,
    on: None = None,
    answer: Callable[[Interrupt], Any] | None = None,
    **kernel: Unpack[KernelOptions],
) -> T: ...


def run(
    agent: Agent[Any],
    message: Content,
    *,
    timeout: float | None = None,
    budget: Limits | None = None,
    on: Kernel | Context | None = None,
    answer: Callable[[Interrupt], Any] | None = None,
    **kernel: Any,
) -> Any:
    """Return the agent's answer. In a running loop this is awaited; in a plain script it is the answer itself.

    Type checkers cannot know where it is called: with `on` it is a coroutine to them, without `on` the answer itself
    (text may be awaited as well).

    `on` says where the agent runs: in a kernel, or as a child of a program, by its `ctx`, where the journal keeps the
    answer. Without it a kernel is made for the call, with the other keywords as its options. What the agent or its
    tools ask a person is put to `answer` there, a function of the question; without one it is refused at once.
    """
    if on is None:
        work = _run(_check_agent(agent), message, timeout, budget, kernel, answer)
    elif answer is not None:
        raise ConfigError("answer belongs to a kernel of its own, and `on` names one", key="answer")
    else:
        work = _run_on(on, _check_agent(agent), message, timeout, budget, kernel)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return work


def _check_agent(agent: Any) -> Agent:
    if not isinstance(agent, Agent):
        is_class = isinstance(agent, type) and issubclass(agent, Agent)
        raise ConfigError(
            f"run and stream take an Agent, not {'the class itself' if is_class else repr(agent)}",
            hint="Agent('assistant', model='…')",
            key="agent",
        )
    return agent


async def _run(
    agent: Agent,
    message: Any,
    timeout_s: float | None,
    limit: Any,
    options: dict[str, Any],
    answer: Callable[[Interrupt], Any] | None,
) -> Any:
    async with Kernel(**options) as kernel:
        runtime_of(kernel).is_own = True
        attend(kernel, answer)
        process = await kernel.spawn(agent)
        return await process.send(message, timeout=timeout_s, budget=limit)


async def _run_on(
    on: Any, agent: Agent, message: Any, timeout_s: float | None, limit: Any, options: dict[str, Any]
) -> Any:
    if options:
        raise ConfigError(
            f"{', '.join(sorted(options))} are options of a new kernel and cannot be combined with `on`", key="on"
        )
    if isinstance(on, Context):
        return await _run_in(on, agent, content_of(message), timeout_s, limit)
    if not isinstance(on, Kernel):
        raise ConfigError(f"on is a Kernel or a program's ctx, not {type(on).__name__}", key="on")
    process = await on.spawn(agent)
    try:
        return await process.send(message, timeout=timeout_s, budget=limit)
    finally:
        await process.stop()


async def _run_in(ctx: Context, agent: Agent, content: Any, timeout_s: float | None, limit: Any) -> Any:
    if not ctx.replaying:
        await wait_for_limits(runtime_of(ctx.own_process.kernel), agent, timed=timeout_s is not None)
    if timeout_s is None:
        return await ask_child(ctx, agent, content, budget=limit)
    timeout_s = real(timeout_s, "timeout")
    try:
        async with asyncio.timeout(timeout_s) as waiting:
            return await ask_child(ctx, agent, content, budget=limit)
    except TimeoutError:
        if not waiting.expired():
            raise
        raise DeadlineExceeded(
            f"agent {agent.name} did not answer within {timeout_s:g} s", timeout_s=timeout_s
        ) from None


@overload
def stream(
    agent: Agent[T],
    message: Content,
    *,
    events: Literal[False] = False,
    budget: Limits | None = None,
    answer: Callable[[Interrupt], Any] | None = None,
    **kernel: Unpack[KernelOptions],
) -> Stream[T, str]: ...


@overload
def stream(
    agent: Agent[T],
    message: Content,
    *,
    events: Literal[True],
    budget: Limits | None = None,
    answer: Callable[[Interrupt], Any] | None = None,
    **kernel: Unpack[KernelOptions],
) -> Stream[T, AnyEvent]: ...


@overload
def stream(
    agent: Agent[T],
    message: Content,
    *,
    events: bool,
    budget: Limits | None = None,
    answer: Callable[[Interrupt], Any] | None = None,
    **kernel: Unpack[KernelOptions],
) -> Stream[T, Any]: ...


def stream(
    agent: Agent[Any],
    message: Content,
    *,
    events: bool = False,
    budget: Limits | None = None,
    answer: Callable[[Interrupt], Any] | None = None,
    **kernel: Any,
) -> Stream[Any, Any]:
    """Return the agent's answer piece by piece: `async for`, or `for` in a plain script. `answer` as for `run`."""
    return _OwnStream(_check_agent(agent), message, events=events, budget=budget, answer=answer, options=kernel)


class _OwnStream(Stream):
    """A Stream with its own kernel, which is closed when the stream ends."""

    def __init__(
        self,
        agent: Agent,
        message: Any,
        *,
        events: bool,
        budget: Any,
        answer: Callable[[Interrupt], Any] | None,
        options: dict[str, Any],
    ) -> None:
        super().__init__(self._ask, events=events)
        self._answer = answer
        self._agent = agent
        self._message = message
        self._budget = budget
        self._options = options
        self._kernel: Kernel | None = None

    async def _ask(self) -> Pending:
        self._kernel = Kernel(**self._options)
        await self._kernel.start()
        attend(self._kernel, self._answer)
        process = await self._kernel.spawn(self._agent)
        started = self._kernel.processes[process.pid]
        return runtime_of(self._kernel).ask(started, content_of(self._message), budget=self._budget, stream=True)

    async def _close(self) -> None:
        if self._kernel is not None:
            await self._kernel.close()

    async def _pieces(self) -> AsyncIterator[Any]:
        pieces = super()._pieces()
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()  # type: ignore[attr-defined]  # it is a generator
            await self._close()

    async def _read_all(self) -> Any:
        try:
            return await super()._read_all()
        finally:
            await self._close()


class BudgetScope:
    """The object of `with budget(…)`: how much was spent inside, and how much is left."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Budget) -> None:
        self._scope = scope

    @property
    def used(self) -> Money:
        return Money(int(self._scope.used("usd")))

    @property
    def limit(self) -> Money | None:
        limit = self._scope.limit("usd")
        return None if limit is None else Money(int(limit))

    @property
    def remaining(self) -> Money | None:
        left = self._scope.remaining("usd")
        return None if left is None else Money(int(left))

    @property
    def usage(self) -> Usage:
        """The use of every dimension: money, tokens, calls."""
        return self._scope.usage

    @property
    def speculative(self) -> Usage:
        """The cost of early calls that `@lyra.parallel` did not need: paid for, and no part of `used`."""
        return self._scope.speculative


def budget(
    limit: Limits | None = None, *, on_exceed: str = "block", **limits: int | float | str
) -> AbstractContextManager[BudgetScope]:
    """Return a budget for every agent that is asked inside, nested ones too. `limit` is money; others go by name."""
    settings: dict[str, Any] = {**Budget._settings(limit), **limits, "on_exceed": on_exceed}
    Budget(**settings)  # wrong limits are refused here, at the call, and not where the scope is entered
    return _budget_scope(settings)


@contextmanager
def _budget_scope(settings: dict[str, Any]) -> Iterator[BudgetScope]:
    outer = scopes.get()
    scope = outer[-1].child(settings) if outer else Budget(**settings)
    token = scopes.set((*outer[:-1], scope))
    try:
        yield BudgetScope(scope)
    finally:
        scopes.reset(token)

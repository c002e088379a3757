"""One-liners: `run` and `stream` an agent without a kernel in sight, and `budget` around any number of calls.

print(lyra.run(agent, "What is 2 + 2?"))             # in a script
answer = await lyra.run(agent, "What is 2 + 2?")     # in async code

with lyra.budget("$10.00") as spent:
    ...                                              # every agent asked in here draws on it
print(spent.used, spent.remaining)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from lyra.agents.agent import Agent
from lyra.agents.replies import Pending, Stream
from lyra.agents.runtime import scopes
from lyra.core.budget import Budget
from lyra.core.money import Money
from lyra.errors import ConfigError
from lyra.kernel.kernel import Kernel

__all__ = ["BudgetScope", "budget", "run", "stream"]


def run(agent: Agent, message: Any, *, timeout: float | None = None, budget: Any = None, **kernel: Any) -> Any:
    """The agent's answer. In a running loop this is awaited; in a plain script it is the answer itself."""
    work = _run(_checked(agent), message, timeout, budget, kernel)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return work


def _checked(agent: Any) -> Agent:
    if not isinstance(agent, Agent):
        made = isinstance(agent, type) and issubclass(agent, Agent)
        raise ConfigError(
            f"run and stream take an Agent, not {'the class itself' if made else repr(agent)}",
            hint="Agent('assistant', model='…')",
            key="agent",
        )
    return agent


async def _run(agent: Agent, message: Any, timeout_s: float | None, limit: Any, options: dict[str, Any]) -> Any:
    async with Kernel(**options) as kernel:
        process = await kernel.spawn(agent)
        return await process.send(message, timeout=timeout_s, budget=limit)


def stream(agent: Agent, message: Any, *, events: bool = False, budget: Any = None, **kernel: Any) -> Stream:
    """The agent's answer piece by piece: `async for`, or `for` in a plain script."""
    return _OwnStream(_checked(agent), message, events=events, budget=budget, options=kernel)


class _OwnStream(Stream):
    """A Stream with a kernel of its own, which lives as long as it is read."""

    def __init__(self, agent: Agent, message: Any, *, events: bool, budget: Any, options: dict[str, Any]) -> None:
        super().__init__(self._ask, events=events)
        self._agent = agent
        self._message = message
        self._budget = budget
        self._options = options
        self._kernel: Kernel | None = None

    async def _ask(self) -> Pending:
        from lyra.agents.content import content_of
        from lyra.agents.runtime import runtime_of

        self._kernel = Kernel(**self._options)
        await self._kernel.start()
        process = await self._kernel.spawn(self._agent)
        found = self._kernel.processes[process.pid]
        return runtime_of(self._kernel).ask(found, content_of(self._message), budget=self._budget, stream=True)

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

    async def _whole(self) -> Any:
        try:
            return await super()._whole()
        finally:
            await self._close()


class BudgetScope:
    """What `with budget(…)` gives: how much was spent inside, and how much is left."""

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
    def usage(self) -> Any:
        """Every dimension: tokens, calls."""
        return self._scope.usage


@contextmanager
def budget(limit: Any = None, *, on_exceed: str = "block", **limits: Any) -> Iterator[BudgetScope]:
    """A scope that every agent asked inside draws on, nested ones too. `limit` is money; others go by name."""
    outer = scopes.get()
    settings = {**Budget._settings(limit), **limits, "on_exceed": on_exceed}
    scope = outer[-1].child(settings) if outer else Budget(**settings)
    token = scopes.set((*outer[:-1], scope))
    try:
        yield BudgetScope(scope)
    finally:
        scopes.reset(token)

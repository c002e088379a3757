"""ProviderWaits: the time-outs of one call of a provider, for the code that awaits its answer (`http`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from lyra.core.first_step import await_rest
from lyra.models.timeouts import Timeouts
from lyra.models.wire.faults import fault

T = TypeVar("T")


class ProviderWaits:
    """`first` and `next` raise the ModelError `timeout`. A scope is open only while the provider is awaited, never
    while the consumer of the answer works: a time-out that fired then would cancel the consumer."""

    __slots__ = ("_first_at", "_idle_s", "_loop", "_provider", "_timeouts", "_total_at")

    def __init__(self, provider: str, timeouts: Timeouts, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._provider = provider
        self._timeouts = timeouts
        self._loop = loop
        self._idle_s = timeouts.idle_s
        self._first_at = None if timeouts.first_s is None else now + timeouts.first_s
        self._total_at = None if timeouts.total_s is None else now + timeouts.total_s

    async def first(self, awaitable: Awaitable[T]) -> T:
        """The head of the answer, and the first piece of its body."""
        return await self._until(awaitable, self._first_at, self._timeouts.first_s, "began to answer")

    async def next(self, awaitable: Awaitable[T]) -> T:
        """The next piece. One that has come already, in the same packet as the last one, needs no timer."""
        steps = awaitable.__await__()
        try:
            waited_for = next(steps)
        except StopIteration as ended:
            value: T = ended.value
            return value
        idle_s = self._idle_s
        deadline = None if idle_s is None else self._loop.time() + idle_s
        return await self._until(await_rest(steps, waited_for), deadline, idle_s, "sent the next piece of its answer")

    async def _until(self, awaitable: Awaitable[T], deadline: float | None, limit_s: float | None, what: str) -> T:
        total_at = self._total_at
        last = total_at if deadline is None or (total_at is not None and total_at < deadline) else deadline
        try:
            async with asyncio.timeout_at(last) as scope:
                return await awaitable
        except TimeoutError:
            if not scope.expired():
                raise
            if last == total_at:
                message = f"{self._provider} took longer than {self._timeouts.total_s:g} s"
            else:
                message = f"{limit_s:g} s passed before {self._provider} {what}"
            raise fault("timeout", message, provider=self._provider) from None

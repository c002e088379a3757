"""The time limit of a call: DeadlineExceeded when it is over.

A durable run journals the time-out with the effect that was under way. A replay raises it from there and does not wait
again. For calls without an effect under way, see `refused_calls`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from lyra.errors import DeadlineExceeded
from lyra.kernel.process.process import OUT_OF_TIME

if TYPE_CHECKING:
    from lyra.vega.runtime.agents.slot import AgentTurn


def now_s() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def in_time(
    name: str, limit_s: float | None, *, due_s: float | None = None, turn: AgentTurn | None = None
) -> AsyncIterator[None]:
    """Give what is inside so many seconds, or until `due_s` on the loop's clock. `name` is who did not answer; a `turn`
    is told how its time can be ended at once."""
    if limit_s is None:
        yield
        return
    clock = _Clock(limit_s, due_s)
    if turn is not None:
        turn.expire = clock.expire
    try:
        with clock:
            yield
    except asyncio.CancelledError as cut:
        if not clock.has_ended(cut):
            raise
        raise DeadlineExceeded(f"{name} did not answer within {limit_s:g} s", timeout_s=limit_s) from None


class _Clock:
    """Cancels its task when the time is over, as `asyncio.timeout` does; but says why, so that a journal keeps it."""

    __slots__ = ("_before", "_is_up", "_left", "_task", "_timer")

    def __init__(self, limit_s: float, due_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = self._left = task.cancelling()
        self._is_up = False
        self._timer = loop.call_at(loop.time() + limit_s if due_s is None else due_s, self.expire)

    def expire(self) -> None:
        self._is_up = True
        self._task.cancel(OUT_OF_TIME)

    def __enter__(self) -> None:
        """The timer was started by __init__."""

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._is_up:
            self._left = self._task.uncancel()

    def has_ended(self, cut: asyncio.CancelledError) -> bool:
        """Whether the time limit cut the work off, now or before the restart, and not a cancellation from outside."""
        return self._left <= self._before if self._is_up else cut.args == (OUT_OF_TIME,)

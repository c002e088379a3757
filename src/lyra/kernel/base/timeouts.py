"""Awaiting something for so long and no longer, by the kernel's clock (which may be a simulated one).

Most of the timers would be set for nothing: there is one only if the work really waits for something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from lyra.core.clock import Clock
from lyra.core.first_step import await_rest
from lyra.errors import DeadlineExceeded

T = TypeVar("T")


async def in_time(clock: Clock, work: Awaitable[T], timeout_s: float, late: str | BaseException) -> T:
    """Give what `work` gives; cancel it when it takes longer, and raise `late`, or `DeadlineExceeded` by that name."""
    due = clock.monotonic() + timeout_s
    steps = work.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as done:
        value: T = done.value
        return value
    task = asyncio.current_task()
    assert task is not None
    is_late = False

    def stop() -> None:
        nonlocal is_late
        is_late = True
        task.cancel()

    timer = clock.call_at(due, stop)
    try:
        value = await await_rest(steps, waits_for)
    except asyncio.CancelledError:
        if is_late and task.uncancel() <= 0:
            if isinstance(late, str):
                late = DeadlineExceeded(f"{late} took longer than {timeout_s:g} s", timeout_s=timeout_s)
            raise late from None
        raise
    finally:
        timer.cancel()
    if is_late:  # it was told, and gave something all the same
        task.uncancel()
    return value

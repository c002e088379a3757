"""Awaiting something for so long and no longer, by the kernel's clock (which may be a simulated one).

Most of the timers would be set for nothing: there is one only if the work really waits for something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from types import coroutine
from typing import Any, TypeVar

from lyra.core.clock import Clock
from lyra.errors import DeadlineExceeded

__all__ = ["in_time", "within"]

T = TypeVar("T")


async def in_time(clock: Clock, work: Awaitable[Any], timeout_s: float, what: str) -> Any:
    """What `work` gives; `DeadlineExceeded` when it takes longer. `what` names the work that is late."""
    due = clock.monotonic() + timeout_s
    steps = work.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as done:
        return done.value
    task = asyncio.current_task()
    assert task is not None
    late = False

    def stop() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = clock.call_at(due, stop)
    try:
        value = await _go_on(steps, waits_for)
    except asyncio.CancelledError:
        if late and task.uncancel() <= 0:
            raise DeadlineExceeded(f"{what} took longer than {timeout_s:g} s", timeout_s=timeout_s) from None
        raise
    finally:
        timer.cancel()
    if late:  # it was told, and gave something all the same
        task.uncancel()
    return value


async def within(clock: Clock, work: Awaitable[T], timeout_s: float, late: BaseException) -> T:
    """`await work`; when its time is up by the clock, it is cancelled and `late` is raised. The timer is always set."""
    task = asyncio.current_task()
    assert task is not None
    is_late = False

    def stop() -> None:
        nonlocal is_late
        is_late = True
        task.cancel()

    timer = clock.call_at(clock.monotonic() + timeout_s, stop)
    try:
        return await work
    except asyncio.CancelledError:
        if is_late and task.uncancel() <= 0:
            raise late from None
        raise
    finally:
        timer.cancel()


@coroutine
def _go_on(steps: Generator[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    """Await something that has taken its first step, and waits."""
    while True:
        try:
            yield waits_for
        except GeneratorExit:
            if hasattr(steps, "close"):
                steps.close()
            raise
        except BaseException as error:
            if not hasattr(steps, "throw"):  # a bare iterator: it cannot handle anything
                raise
            try:
                waits_for = steps.throw(error)
            except StopIteration as done:
                return done.value
        else:
            return (yield from steps)

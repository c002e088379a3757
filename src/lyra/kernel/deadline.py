"""A piece of work and the time it has: `within` ends it by the kernel's clock, so that virtual time can, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from lyra.core.clock import Clock

__all__ = ["within"]

T = TypeVar("T")


async def within(clock: Clock, work: Awaitable[T], timeout_s: float, late: BaseException) -> T:
    """`await work`, cancelled and answered with `late` when the clock says that its time is up."""
    task = asyncio.current_task()
    assert task is not None
    passed = False

    def stop() -> None:
        nonlocal passed
        passed = True
        task.cancel()

    timer = clock.call_at(clock.monotonic() + timeout_s, stop)
    try:
        return await work
    except asyncio.CancelledError:
        if passed and task.uncancel() <= 0:
            raise late from None
        raise
    finally:
        timer.cancel()

"""Clocks: all of Lyra reads the time through a `Clock`.

Two readings, never mixed: `now()` is the wall clock in seconds since 1970 (what people and journals read; it may
jump), and `monotonic()` only ever grows (what deadlines and timers use). `call_at(when, callback)` takes a
monotonic time. `SystemClock` is the real one; `lyra.testing.SimClock` is the one that tests move by hand.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "SystemClock", "Timer"]


class Timer(Protocol):
    """A scheduled callback; cancelling twice is harmless."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer: ...


class SystemClock:
    """The machine's clocks; timers belong to the running loop."""

    __slots__ = ()

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        loop = asyncio.get_running_loop()
        return loop.call_at(loop.time() + (when - time.monotonic()), callback)


def cpu_time() -> float:
    """CPU seconds of this process, for slices and benchmarks."""
    return time.process_time()

"""Clocks: all of Lyra reads the time through a `Clock`.

Two readings, never mixed: `now()` is the wall clock in seconds since 1970 (what people and journals read; it may
jump), and `monotonic()` only ever grows (what deadlines and timers use). `call_at(when, callback)` takes a
monotonic time. `SystemClock` is the real one; `lyra.testing.SimClock` is the one that tests move by hand. A part that
is given no clock takes that of the event loop it is made in (`loop_clock`), or uses that of the loop it runs on
(`RunningClock`): a loop in virtual time brings its own. This module does not import asyncio, which takes half of the
time in which an agent is declared: where it is not imported, no loop runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol


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
        from asyncio import get_running_loop

        loop = get_running_loop()
        return loop.call_at(loop.time() + (when - time.monotonic()), callback)


def counts_suspension(clock: Clock) -> Callable[[], float]:
    """Return a reading that grows like `monotonic()` and continues while the machine sleeps, where it has such a
    clock."""
    if not isinstance(clock, SystemClock):
        return clock.monotonic
    number = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))  # the second is macOS's name
    return time.monotonic if number is None else partial(time.clock_gettime, number)


def block(seconds: float) -> None:
    """Stop the calling thread for so long; for threads that only wait for a disk or a server."""
    time.sleep(seconds)


def loop_clock() -> Clock:
    """Return the clock of the running loop, where it brings one (`lyra_clock`); the machine's otherwise."""
    asyncio = sys.modules.get("asyncio")
    loop = None if asyncio is None else asyncio._get_running_loop()
    clock: Clock | None = getattr(loop, "lyra_clock", None)
    return SystemClock() if clock is None else clock


class RunningClock:
    """The clock of the loop that is running at the moment, for what is made before there is one."""

    __slots__ = ()

    def now(self) -> float:
        return loop_clock().now()

    def monotonic(self) -> float:
        return loop_clock().monotonic()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return loop_clock().call_at(when, callback)


def cpu_time() -> float:
    """CPU seconds of this process, for slices and benchmarks."""
    return time.process_time()

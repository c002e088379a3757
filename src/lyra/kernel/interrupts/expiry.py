"""The timers of open questions: each ends its question when the time to answer is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.base.core import Core
    from lyra.kernel.interrupts.interrupt import Interrupt


class ExpiryTimers:
    """One for each open question that expires by itself."""

    __slots__ = ("_core", "_expire", "_timers")

    def __init__(self, core: Core[Any], expire: Callable[[Interrupt], None]) -> None:
        self._core = core
        self._expire = expire
        self._timers: dict[str, Timer] = {}

    def arm(self, interrupt: Interrupt) -> None:
        due = interrupt.due
        if due is not None:
            clock = self._core.clock
            # Never longer than its whole time to live: it may have been asked by a clock that was ahead.
            left_s = min(due - self._core.now(), due - interrupt.created_at)
            rings_at = clock.monotonic() + max(0.0, left_s)
            self._timers[interrupt.id] = clock.call_at(rings_at, lambda: self._expire(interrupt))

    def disarm(self, interrupt_id: str) -> None:
        timer = self._timers.pop(interrupt_id, None)
        if timer is not None:
            timer.cancel()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

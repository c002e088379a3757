"""A clock that a test moves by hand.

`SimClock` keeps both readings of `lyra.core.clock`: `monotonic()` begins at 0 and only grows, `now()` is the wall
clock and may be jumped. `advance(seconds)` lets time pass and fires what falls due, in order, also timers that
other timers set on the way. Nothing here waits or looks at the machine's clock. Pass one as `Kernel(clock=…)` on an
ordinary event loop; a whole program in virtual time, its `asyncio.sleep` included, is `lyra.testing.loop`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable


class SimTimer:
    """A callback on its way."""

    __slots__ = ("_order", "callback", "cancelled", "when")

    def __init__(self, when: float, order: int, callback: Callable[[], None]) -> None:
        self.when = when
        self._order = order
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def __lt__(self, other: SimTimer) -> bool:
        """Order timers by time, and those of one time by when they were set."""
        return (self.when, self._order) < (other.when, other._order)


class SimClock:
    """`start` is the wall clock at the beginning."""

    __slots__ = ("_elapsed", "_offset", "_timer_count", "_timers")

    def __init__(self, start: float = 0.0) -> None:
        self._offset = float(start)
        self._elapsed = 0.0
        self._timer_count = 0
        self._timers: list[SimTimer] = []

    def now(self) -> float:
        return self._offset + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    def call_at(self, when: float, callback: Callable[[], None]) -> SimTimer:
        self._timer_count += 1
        timer = SimTimer(when, self._timer_count, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass; every timer due on the way fires at its own time.

        Programs run when the event loop gets its turn, after this returns: five sleeps of a second need five calls with
        an await in between. `lyra.testing.run_in_virtual_time` does that by itself.
        """
        if seconds < 0:
            raise ValueError("monotonic time never goes back; jump() moves the wall clock")
        until = self._elapsed + seconds
        while (due := self.next_due()) is not None and due <= until:
            self._elapsed = max(self._elapsed, due)
            self.fire()
        self._elapsed = max(self._elapsed, until)

    def jump(self, seconds: float) -> None:
        """Move the wall clock only, forwards or back, as an administrator or a time server would."""
        self._offset += seconds

    def stall(self, seconds: float) -> None:
        """Let time pass without firing anything: everything is held up, as by a slow disk on the loop's thread."""
        self._elapsed += max(0.0, seconds)

    def next_due(self) -> float | None:
        """Return when the next timer fires; None when there is none."""
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0].when if self._timers else None

    def fire(self) -> None:
        """Run the timers that are due now, once each; what they add for now waits for the next call."""
        due: list[SimTimer] = []
        while (when := self.next_due()) is not None and when <= self._elapsed:
            due.append(heapq.heappop(self._timers))
        for timer in due:
            if not timer.cancelled:
                timer.cancelled = True
                timer.callback()

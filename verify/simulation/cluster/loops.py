"""Hosts that run beside each other in one virtual time: a loop for each, and the order in which they get their turns.

`HostLoop.turn` runs what is ready on one host and lets no time pass; `run_until` gives turns to the hosts that have
something to do, in an order drawn from the seed, and moves the clock when none has. A host that is paused gets no
turn: time passes for the others, and all its timers are late when it wakes. `HostClock` is the clock of one host, whose
wall time may be minutes away from that of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from lyra.core.ids import ProcessRandom
from lyra.testing.clock import SimClock
from lyra.testing.loop import Deadlock, SimLoop


class HostClock:
    """The time as one host reads it; its timers belong to the host's loop."""

    __slots__ = ("_clock", "_loop", "ahead_s")

    def __init__(self, clock: SimClock, loop: HostLoop, ahead_s: float) -> None:
        self._clock = clock
        self._loop = loop
        self.ahead_s = ahead_s

    def now(self) -> float:
        return self._clock.now() + self.ahead_s

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(when, callback)


class HostLoop(SimLoop):
    """The event loop of one host. `name` is the host's."""

    def __init__(self, clock: SimClock, name: str, *, ahead_s: float = 0.0) -> None:
        super().__init__(clock)
        self.name = name
        self.host_clock = HostClock(clock, self, ahead_s)
        self.is_paused = False
        self.is_dead = False

    @property
    def lyra_clock(self) -> HostClock:  # type: ignore[override]
        return self.host_clock

    def halt(self) -> None:
        """Run nothing more, not even the rest of this turn."""
        self.is_dead = True

    def turn(self) -> None:
        """Run once what is ready now."""
        self._stopping = True  # after one round
        self.run_forever()

    def _run_once(self) -> None:
        self._due()
        ready = self._ready
        for _ in range(len(ready)):
            if self.is_dead:
                return
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    @property
    def runs(self) -> bool:
        return not (self.is_paused or self.is_dead)

    def next_due(self) -> float | None:
        """Return when it has something to do; None for never."""
        scheduled = self._scheduled
        if scheduled and scheduled[0].cancelled():
            self._due()
        if self._ready:
            return self.clock.monotonic()
        return scheduled[0].when() if scheduled else None


def run_until(
    clock: SimClock,
    loops: Callable[[], Iterable[HostLoop]],
    rng: ProcessRandom,
    is_over: Callable[[], bool],
    on_idle: Callable[[], None],
) -> None:
    """Give turns to the loops until `is_over`; Deadlock where nothing will ever happen again."""
    while not is_over():
        now = clock.monotonic()
        ready, soonest = [], clock.next_due()
        for loop in loops():
            if not loop.runs:
                continue
            due = loop.next_due()
            if due is None:
                continue
            if due <= now:
                ready.append(loop)
            elif soonest is None or due < soonest:
                soonest = due
        if ready:
            (ready[0] if len(ready) == 1 else rng.choice(ready)).turn()
            continue
        on_idle()
        if soonest is None:
            raise Deadlock("no host has anything to do, now or later")
        clock.advance(max(0.0, soonest - now))

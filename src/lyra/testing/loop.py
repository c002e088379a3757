"""An event loop in virtual time: nothing waits, the clock goes to the next timer instead.

`SimLoop(clock)` is a whole asyncio loop without a selector. When no callback is ready it moves its SimClock to the
earliest timer (its own or the clock's), so `asyncio.sleep`, `asyncio.timeout` and every kernel timer run in virtual
time and in a fixed order; a kernel that is given no clock takes the loop's, so its rate limits, breakers and back-offs
do, too. Nothing ready and no timer at all is a `Deadlock`. It has no sockets, no signals and no
threads; a run on it depends on its inputs only. `run(main)` is `asyncio.run` in virtual time. `LoopClock` is the
clock for a kernel that lives on one such loop: its timers stop when its loop is not run, which is how `world`
pauses a kernel.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from lyra.testing.clock import SimClock

T = TypeVar("T")


class Deadlock(Exception):
    """Nothing is ready and no timer will ever make it so."""


class _Task(asyncio.Task[Any]):
    """A task whose hash is its number: asyncio keeps tasks in sets, and the order of a set follows the hash."""

    number: int

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.BaseEventLoop):
    # asyncio's own fields, which its published extension points leave to subclasses
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self, clock: SimClock) -> None:
        super().__init__()
        self.clock = clock
        self.on_idle: Callable[[], None] | None = None
        self.complaints: list[str] = []
        self._task_count = 0
        self.set_exception_handler(_complain)
        self.set_task_factory(_make_task)

    @property
    def lyra_clock(self) -> SimClock:
        """Of kernels and other parts that are made on this loop and given no clock."""
        return self.clock

    def time(self) -> float:
        return self.clock.monotonic()

    def halt(self) -> None:
        """Stop between two callbacks; those not run yet stay where they are."""
        self._stopping = True

    def run_in_executor(self, *_args: Any, **_options: Any) -> Any:  # type: ignore[override]  # it only refuses
        raise RuntimeError("there are no threads in virtual time")

    def _write_to_self(self) -> None:
        """Do nothing: this loop never blocks in a selector that would have to be woken."""

    def _run_once(self) -> None:
        self._due()
        if not self._ready and not self._stopping:
            if self.on_idle is not None:
                self.on_idle()
            if not self._ready:
                own = self._scheduled[0].when() if self._scheduled else None
                clocks = self.clock.next_due()
                if own is None and clocks is None:
                    raise Deadlock("nothing is ready and no timer is set")
                if clocks is None or (own is not None and own <= clocks):
                    assert own is not None
                    self.clock.advance(max(0.0, own - self.clock.monotonic()))
                else:
                    self.clock.advance(max(0.0, clocks - self.clock.monotonic()))
                self._due()
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()
            if self._stopping:
                break

    def _due(self) -> None:
        """Move timers whose time has come to the ready queue."""
        scheduled, now = self._scheduled, self.clock.monotonic()
        while scheduled and (scheduled[0].cancelled() or scheduled[0].when() <= now):
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]  # asyncio counts cancelled timers by it
            if not handle.cancelled():
                self._ready.append(handle)


def _make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> _Task:
    assert isinstance(loop, SimLoop)
    loop._task_count += 1
    number, _Task.number = (
        _Task.number,
        loop._task_count,
    )  # asyncio registers a task, and so hashes it, while it is made
    try:
        task = _Task(work, loop=loop, **options)
    finally:
        _Task.number = number
    task.number = loop._task_count
    return task


_Task.number = 0


def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Keep what asyncio would log and continue from: in a simulation it is a finding."""
    error = context.get("exception")
    text = f"{context.get('message')}: {error!r}" if error is not None else str(context.get("message"))
    assert isinstance(loop, SimLoop)
    loop.complaints.append(text)


class LoopClock:
    """A kernel's clock: the world's time, and timers that belong to the kernel's own loop."""

    __slots__ = ("_clock", "_loop")

    def __init__(self, clock: SimClock, loop: SimLoop) -> None:
        self._clock = clock
        self._loop = loop

    def now(self) -> float:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(when, callback)


def run(main: Coroutine[Any, Any, T], *, clock: SimClock | None = None) -> T:
    """`asyncio.run` in virtual time: a program that sleeps for a day takes no time at all."""
    loop = SimLoop(clock if clock is not None else SimClock())
    try:
        return loop.run_until_complete(main)
    finally:
        leftover = asyncio.all_tasks(loop)
        for task in leftover:
            task.cancel()
        if leftover:
            loop.run_until_complete(asyncio.gather(*leftover, return_exceptions=True))
        loop.close()


run_in_virtual_time = run  # its name in `lyra.testing`

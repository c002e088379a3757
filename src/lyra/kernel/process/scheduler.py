"""The order of steps: five priorities, fair within each, no level starved.

Ready processes wait in five queues. A round takes from each in turn, highest first, up to the level's share, so
realtime work goes first and idle work still moves. After a round the journal's batch is committed once, if a
process or caller waits for it: that is the group commit. Rounds repeat until nothing is ready or the slice is over;
then the rest is committed and the loop gets its turn. It also gets one when a program lets others go first (a bare
yield, as in `asyncio.sleep(0)`): those others may be tasks of the loop, such as the reader of a stream.

A simulation replaces the order by one drawn from its seed (`order`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final, Protocol

from lyra.core.limits import TICK_S
from lyra.kernel.base.acting import task_of
from lyra.kernel.base.waiting import resume
from lyra.kernel.process.process import Process, enter_task, leave_task

if TYPE_CHECKING:
    from lyra.kernel.base.core import AnyJournal, Core


# Steps per round by priority: 100 : 75 : 50 : 25 : 1, times eight.
SHARES: Final[tuple[int, ...]] = (800, 600, 400, 200, 8)
ROUNDS_MAX: Final = (
    1_024  # in one slice: in simulated time, which stands still, two processes that answer each other would never end
)
FEW: Final = 16  # rounds without reading the clock, while only one process is ready
HANDED_OVER_MAX: Final = 32  # slices run from other tasks' callbacks before the event loop must call again


class Steppable(Protocol):
    """What may stand in line: a Process, or what a layer above steps by itself."""

    pid: str
    priority: int
    state: str

    def step(self) -> None:
        """Its turn, if its state is still `ready`."""


class Scheduler:
    def __init__(self, core: Core[Process]) -> None:
        self._core = core
        core.scheduler = self
        self._levels: tuple[deque[Steppable], ...] = tuple([deque() for _ in SHARES])
        self._poked = False
        self._in_loop = False  # a callback is scheduled on the event loop
        self._handed_over = 0  # slices since the event loop last called
        self._gave_way = False  # a program let others go first in this round
        self._steps: Iterator[Steppable] = iter(())  # the processes that have not had their step in this round
        self.running = False
        self.stopped = False
        self.ready = 0  # processes waiting for a step
        self.steps = 0
        self.stepped: dict[str, float] | None = None  # when each process last had a step, while a monitor watches
        self.order: Callable[[list[Any]], list[Any]] | None = None

    @property
    def waiting(self) -> int:
        """Return how many wait for a step while another has its own."""
        return self.ready + length_hint(self._steps)

    def push(self, process: Steppable) -> None:
        self._levels[process.priority].append(process)
        self.ready += 1
        if not self._poked and not self.running and not self.stopped:
            self._poked = True
            if not self._in_loop:
                self._in_loop = True
                self._core.loop.call_soon(self._turn)

    def give_way(self, process: Steppable) -> None:
        """Put a process in line behind all others, and let the loop have its turn."""
        self._gave_way = True
        self.push(process)

    def pause(self) -> None:
        """Give the loop its turn after this round: a step took long."""
        self._gave_way = True

    def wake_all(self, wakers: list[Process | asyncio.Future[Any]]) -> None:
        """`resume` for all waiters of one commit, in one loop: the hottest place of a durable kernel."""
        if self._core.listeners_want_states:
            for waker in wakers:
                resume(waker)
            return
        levels = self._levels
        for waker in wakers:
            if not isinstance(waker, Process):
                resume(waker)
            elif waker.state == "waiting" or waker.state == "blocked":
                waker.state = "ready"
                levels[waker.priority].append(waker)
                self.ready += 1
        if self.ready and not self.running:
            self.poke()

    def poke(self) -> None:
        """Make sure a slice runs soon: something is ready, or the journal has rows to commit."""
        if not self._poked and not self.running and not self.stopped:
            self._poked = True
            if not self._in_loop:
                self._in_loop = True
                self._core.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Take the turn that the loop gives."""
        self._in_loop = False
        self._handed_over = 0
        if self._poked:
            self._slice()

    def hand_over(self) -> None:
        """Run a process that a task outside waits for now, in the task's own turn.

        The way there and back over the loop would take longer than much of what is asked. Only so often in a row: the
        loop has others, too.
        """
        if not self._poked or self.running or self.order is not None or self._handed_over >= HANDED_OVER_MAX:
            return
        loop = self._core.loop
        task = task_of(loop)
        if task is None or asyncio._get_running_loop() is not loop:
            return
        self._handed_over += 1
        leave_task(loop, task)
        try:
            self._slice()
        finally:
            enter_task(loop, task)

    def _slice(self) -> None:
        self._poked = False
        core = self._core
        journal = core.journal
        time = core.clock.monotonic
        self.running = True
        try:
            until, rounds = time() + TICK_S, ROUNDS_MAX
            while not self.stopped:
                if journal is not None and journal.stuck is not None:
                    break
                self._gave_way = False
                if self.ready and not core.stopping:  # closing: only what was written is still committed
                    if self.ready == 1 and self.order is None and self.stepped is None:  # two that talk: most rounds
                        self._step_few(journal)
                    else:
                        self._step_all(self._round())
                rounds -= 1
                over = not self.ready or core.stopping or self._gave_way or not rounds or time() >= until
                # A slice may end after any round: a simulation, where time stands still meanwhile, commits after each.
                if journal is not None and journal.pending and (over or journal.awaited or self.order is not None):
                    journal.flush()
                # The commit may have woken some.
                if over and (not self.ready or core.stopping or self._gave_way or not rounds or time() >= until):
                    break
        finally:
            self.running = False
        if self.ready and not core.stopping and (journal is None or journal.stuck is None):
            self.poke()

    def _step_few(self, journal: AnyJournal | None) -> None:
        """Step the only one that is ready, and again, while there is only one and no commit is awaited."""
        levels = self._levels
        core = self._core
        most = FEW
        while True:
            self.ready = 0
            self.steps += 1
            for level in levels:
                if level:
                    process = level.popleft()
                    if process.state == "ready":
                        process.step()
                    break
            most -= 1
            if self.ready != 1 or not most or self._gave_way or core.stopping or self.stopped:
                return
            if journal is not None and journal.awaited:
                return

    def _step_all(self, batch: list[Steppable]) -> None:
        self.steps += len(batch)
        if self.stepped is not None:
            self.stepped.update(dict.fromkeys([process.pid for process in batch], self._core.clock.monotonic()))
        steps = self._steps = iter(batch)
        try:
            for process in steps:
                if process.state == "ready":
                    process.step()
        finally:  # what a step lets through (Ctrl-C, a bug) is not the fault of those behind it
            for process in steps:
                self.push(process)

    def _round(self) -> list[Steppable]:
        batch: list[Steppable] = []
        for level, share in zip(self._levels, SHARES, strict=True):
            if level:
                if len(level) <= share:
                    batch.extend(level)
                    level.clear()
                else:
                    batch.extend([level.popleft() for _ in range(share)])
        self.ready -= len(batch)
        return batch if self.order is None else self.order(batch)

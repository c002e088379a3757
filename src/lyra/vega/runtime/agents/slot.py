"""Where callers find an agent: the process that represents it now, and the turns of its calls.

Calls wait at the `AgentSlot` while supervision restarts the agent's process, and while as many calls run as its
concurrency allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from lyra.core.limits import VEGA_AHEAD_CALLS_MAX
from lyra.errors import AgentFailed, DeadlineExceeded, LyraError
from lyra.kernel.process.process import OUT_OF_TIME

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process as KernelProcess
    from lyra.vega.runtime.agents.plan import AgentPlan


CRASH: Final = "vega.crash"  # the key of the message that ends an agent's process


class AgentStream(Protocol):
    """An answer of an agent that is read piece by piece (`streams.OpenStream`), as other processes see it."""

    slot: AgentSlot

    def is_read_by(self, process: KernelProcess) -> bool:
        """Return whether this process reads the stream and holds a turn of the agent for it."""


class AgentTurn:
    """A call that is under way, for the process `asker`. What its own tools ask of the agent runs in its turn, one
    after the other (`inner`): it waits for them, and they must not wait for it."""

    __slots__ = ("asker", "expire", "inner", "slot")

    def __init__(self, slot: AgentSlot, asker: KernelProcess) -> None:
        self.slot = slot
        self.asker = asker
        self.inner = asyncio.Semaphore(1)
        self.expire: Callable[[], None] | None = None  # ends the time that it has, if it has one


class AgentSlot:
    """An agent as its callers find it: `front` is the process that represents it now, None while it is restarted."""

    __slots__ = ("_gone", "_waiters", "ahead", "front", "is_promised", "plan", "session")

    def __init__(self, plan: AgentPlan) -> None:
        self.plan = plan
        self.front: KernelProcess | None = None
        self.session: KernelProcess | None = None  # of an agent that remembers
        self.is_promised = False  # the program has not come to its spawn, and asks it already
        self._gone: KernelProcess | None = None  # the process that ended for good
        self._waiters: list[asyncio.Future[None]] = []
        self.ahead = asyncio.Semaphore(VEGA_AHEAD_CALLS_MAX)  # of calls that are made ahead of their turn

    def up(self, front: KernelProcess, session: KernelProcess | None) -> None:
        self.front, self.session = front, session
        self._wake()

    def keep(self, other: AgentSlot | None) -> None:
        """Note that the program has spawned what was promised; `other` stood for it, in a run that comes back."""
        self.is_promised = False
        if other is not None:
            self.front, self.session = other.front, other.session

    def down(self) -> None:
        self.front = self.session = None

    def on_process_end(self, process: KernelProcess) -> None:
        """Note that the process ended for good: its supervision gave up, or it was stopped."""
        self.down()
        self._gone = process
        self._wake()

    def _why_gone(self, process: KernelProcess) -> str:
        """Return why the agent ended; where its restarts were used up, how many there were and which settings say
        so."""
        ended, guard = process.exit, process.parent
        why = "" if ended is None else f": {ended.error or ended.reason}"
        for end in (ended, guard.exit if guard is not None else None):
            error = None if end is None else end.error
            if isinstance(error, LyraError) and "gave_up_after" in error.fields:
                after = error.fields["gave_up_after"]
                why += f" (not restarted after {after}: the settings `max_restarts` and `window` of its supervision)"
                break
        return f"agent {self.plan.name} is gone{why}"

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def ready(self) -> None:
        """Wait until there is a process; AgentFailed when there will be none."""
        while self.front is None and not self.is_promised:
            if self._gone is not None:
                raise AgentFailed(self._why_gone(self._gone), status="gone")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def conversation(self) -> KernelProcess:
        """Return the process that remembers, of an agent that does."""
        await self.ready()
        assert self.session is not None
        return self.session

    def room(self, outer: AgentTurn | None) -> asyncio.Semaphore | None:
        """Return the queue in which a call waits: with all others, or with those of the call whose tool makes it."""
        return self.plan.turns if self.plan.turns is None or outer is None else outer.inner

    async def enter(self, outer: AgentTurn | None) -> asyncio.Semaphore | None:
        """Wait for a call's turn: once the agent is there, and not too many others are running. Gives what to leave."""
        room = await self.enter_again(outer)
        try:
            await self.ready()
        except BaseException:
            leave_turn(room)
            raise
        return room

    async def enter_again(self, outer: AgentTurn | None) -> asyncio.Semaphore | None:
        """Take the turn of a call that had it before the restart, whether or not the agent runs now."""
        room = self.room(outer)
        if room is not None:
            await room.acquire()
        return room

    @asynccontextmanager
    async def turn(self, outer: AgentTurn | None) -> AsyncIterator[None]:
        """While a call is made."""
        room = await self.enter(outer)
        try:
            yield
        finally:
            leave_turn(room)

    @asynccontextmanager
    async def again(self, outer: AgentTurn | None, *, is_open: bool) -> AsyncIterator[None]:
        """While a call from before the restart continues; it holds a turn only where it `is_open`."""
        if not is_open:
            yield
            return
        room = await self.enter_again(outer)
        try:
            yield
        finally:
            leave_turn(room)


def leave_turn(room: asyncio.Semaphore | None) -> None:
    if room is not None:
        room.release()


# A durable run journals the time-out with the effect that was under way; a replay raises it from there and does not
# wait again.


def now_s() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def in_time(
    name: str, limit_s: float | None, *, due_s: float | None = None, turn: AgentTurn | None = None
) -> AsyncIterator[None]:
    """Give what is inside so many seconds, or until `due_s` on the loop's clock. `name` is who did not answer; a `turn`
    is told how its time can be ended at once."""
    if limit_s is None:
        yield
        return
    clock = _Clock(limit_s, due_s)
    if turn is not None:
        turn.expire = clock.expire
    try:
        with clock:
            yield
    except asyncio.CancelledError as cut:
        if not clock.has_ended(cut):
            raise
        raise DeadlineExceeded(f"{name} did not answer within {limit_s:g} s", timeout_s=limit_s) from None


class _Clock:
    """Cancels its task when the time is over, as `asyncio.timeout` does; but says why, so that a journal keeps it."""

    __slots__ = ("_before", "_is_up", "_left", "_task", "_timer")

    def __init__(self, limit_s: float, due_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = self._left = task.cancelling()
        self._is_up = False
        self._timer = loop.call_at(loop.time() + limit_s if due_s is None else due_s, self.expire)

    def expire(self) -> None:
        self._is_up = True
        self._task.cancel(OUT_OF_TIME)

    def __enter__(self) -> None:
        """Do nothing: the timer was started by __init__."""

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._is_up:
            self._left = self._task.uncancel()

    def has_ended(self, cut: asyncio.CancelledError) -> bool:
        """Return whether the time limit cut the work off, now or before the restart, and not a cancellation from
        outside."""
        return self._left <= self._before if self._is_up else cut.args == (OUT_OF_TIME,)

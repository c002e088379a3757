"""Waiting inside the kernel, with and without a time limit, and the table of processes.

`suspend` puts the running process on a list of waiters and parks it; the part that owns the list calls `resume` on each
waiter when what they wait for has happened. A process is known here only by what waiting and the table need of it
(`AnyProcess`), so that the journal, which is below processes, can make them wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, ItemsView, Iterable, Iterator, KeysView, ValuesView
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from lyra.core.clock import Clock
from lyra.core.first_step import await_rest
from lyra.errors import DeadlineExceeded

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core


class AnyProcess(Protocol):
    """A process, as the ground floor knows it."""

    @property
    def core(self) -> Core[Any]: ...

    @property
    def pid(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def exit(self) -> Any: ...

    @property
    def stepping(self) -> bool: ...

    def wake(self) -> None: ...

    def wake_with(self, error: BaseException) -> None: ...


class _Parked:
    """What a program's coroutine yields when a part of the kernel will wake it."""

    __slots__ = ()


PARKED: Final = _Parked()


@coroutine
def suspend(process: AnyProcess, waiters: Any) -> Generator[Any, Any, Any]:
    """Wait until the owner of `waiters` (anything with append and remove) resumes this waiter.

    The program's own coroutine parks the process. A branch of it (a task made by gather or a TaskGroup) waits on a
    future, since the process itself may be busy elsewhere.
    """
    waker: Any
    if process.stepping:
        waker = process
        waiters.append(process)
        try:
            yield PARKED
        except BaseException:
            _remove(waiters, process)
            raise
    else:
        core = process.core
        waker = core.loop.create_future()
        waiters.append(waker)
        core.scheduler.poke()
        try:
            yield from waker
        except BaseException:
            _remove(waiters, waker)
            raise


def consume_error(future: asyncio.Future[Any]) -> None:
    """Mark the error of an abandoned future as seen: asyncio reports errors that no code has read."""
    if not future.cancelled():
        future.exception()


def _remove(waiters: Any, waker: Any) -> None:
    if waker in waiters:
        waiters.remove(waker)


def resume(waker: AnyProcess | asyncio.Future[Any], error: BaseException | None = None) -> None:
    """Wake what `suspend` put to sleep."""
    if not isinstance(waker, asyncio.Future):
        if error is None:
            waker.wake()
        else:
            waker.wake_with(error)
    elif not waker.done():
        if error is None:
            waker.set_result(None)
        else:
            waker.set_exception(error)


def no_wait(value: Any) -> Generator[Any, None, Any]:
    """Return the value: the body of an await that waits for nothing."""
    yield from ()
    return value


class _NoWait:
    """An awaitable that is ready, for calls that need no waiting and may be awaited all the same."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return no_wait(None)


NO_WAIT: Final = _NoWait()


# Awaiting something for so long and no longer, by the kernel's clock (which may be a simulated one).

T = TypeVar("T")


async def in_time(clock: Clock, work: Awaitable[T], timeout_s: float, late: str | BaseException) -> T:
    """Give what `work` gives; cancel it when it takes longer, and raise `late`, or `DeadlineExceeded` by that name."""
    due = clock.monotonic() + timeout_s
    steps = work.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as done:
        value: T = done.value
        return value
    task = asyncio.current_task()
    assert task is not None
    is_late = False

    def stop() -> None:
        nonlocal is_late
        is_late = True
        task.cancel()

    timer = clock.call_at(due, stop)
    try:
        value = await await_rest(steps, waits_for)
    except asyncio.CancelledError:
        if is_late and task.uncancel() <= 0:
            if isinstance(late, str):
                late = DeadlineExceeded(f"{late} took longer than {timeout_s:g} s", timeout_s=timeout_s)
            raise late from None
        raise
    finally:
        timer.cancel()
    if is_late:  # it was told, and gave something all the same
        task.uncancel()
    return value


# A layer above may run processes of its own that need nothing of the kernel yet: its Guests. They count as processes;
# looking one up, or iterating, makes an ordinary process of it. Looking up one that ended long ago brings it back.

P = TypeVar("P", bound=AnyProcess)
P_co = TypeVar("P_co", bound=AnyProcess, covariant=True)


class Guests(Protocol[P_co]):
    """Processes that a layer above runs by itself until a part of the kernel asks for one."""

    def __len__(self) -> int: ...

    def __contains__(self, pid: object) -> bool: ...

    def bring(self, pid: Any) -> P_co | None:
        """Make a Process of one, and put it in the table; None if it is not among them."""

    def bring_all(self) -> None: ...

    def bring_ended(self) -> None:
        """Bring processes that have ended into the table."""

    def states(self) -> Iterable[str]:
        """Return the state of each, for callers that only count."""

    def stop(self) -> None:
        """Forget them all: the kernel closes."""


class Table(dict[str, P]):
    __slots__ = ("find_ended", "guests")

    def __init__(self) -> None:
        super().__init__()
        self.guests: list[Guests[P]] = []
        # Recovery: makes a process of one that ended long ago and is in the store alone. None without a store.
        self.find_ended: Callable[[str], P | None] | None = None

    def present(self) -> ValuesView[P]:
        """Those that need no bringing."""
        return super().values()

    def list_ended(self) -> list[P]:
        """Those that have ended."""
        for guests in self.guests:
            guests.bring_ended()
        return [process for process in super().values() if process.exit is not None]

    def states(self) -> Iterator[str]:
        """Yield the state of each process; guests stay guests."""
        yield from [process.state for process in super().values()]
        for guests in self.guests:
            yield from guests.states()

    # ------------------------------------------------------------------ one

    def __missing__(self, pid: Any) -> P:
        process = self._bring(pid)
        if process is None:
            raise KeyError(pid)
        return process

    def get(self, pid: Any, default: Any = None) -> P | None:  # type: ignore[override]  # one way to call it
        process = super().get(pid)
        if process is None and (self.guests or self.find_ended is not None):
            process = self._bring(pid)
        return default if process is None else process

    def __contains__(self, pid: object) -> bool:
        if super().__contains__(pid) or (self.guests and any(pid in guests for guests in self.guests)):
            return True
        return self.find_ended is not None and type(pid) is str and self.find_ended(pid) is not None

    def _bring(self, pid: Any) -> P | None:
        for guests in self.guests:
            process = guests.bring(pid)
            if process is not None:
                return process
        return None if self.find_ended is None or type(pid) is not str else self.find_ended(pid)

    # ------------------------------------------------------------------ all

    def __len__(self) -> int:
        return super().__len__() + sum(map(len, self.guests))

    def __bool__(self) -> bool:
        return len(self) > 0

    def __iter__(self) -> Iterator[str]:
        self._bring_all()
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        self._bring_all()
        return super().keys()

    def values(self) -> ValuesView[P]:  # type: ignore[override]
        self._bring_all()
        return super().values()

    def items(self) -> ItemsView[str, P]:  # type: ignore[override]
        self._bring_all()
        return super().items()

    def _bring_all(self) -> None:
        for guests in self.guests:
            guests.bring_all()

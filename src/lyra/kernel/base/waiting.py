"""How a process waits inside the kernel, and how it is woken.

`suspend` puts the running process on a list of waiters and parks it; the part that owns the list calls `resume` on each
waiter when what they wait for has happened. A process is known here only by what
waiting and the table need of it (`AnyProcess`), so that the journal, which is below processes, can make them wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

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


def looked_at(future: asyncio.Future[Any]) -> None:
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
    """The body of an await that waits for nothing."""
    yield from ()
    return value


class _NoWait:
    """An awaitable that is ready, for calls that need no waiting and may be awaited all the same."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return no_wait(None)


NO_WAIT: Final = _NoWait()

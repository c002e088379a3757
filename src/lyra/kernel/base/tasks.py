"""The one home of asyncio tasks and threads.

`Tasks` keeps a strong reference to every task it starts (the loop itself holds them weakly, so an unreferenced task
can be collected while it waits) and cancels and awaits them all when it closes. `Writer` is the single thread in
which a Store that must wait for a disk or a network is called, one call at a time, in the order asked. `Threads` are
several that run beside the loop for as long as their owner lives. `Pulse` does something while a loop is held up.
`BlockingCalls` runs functions of users that are not
async, so that the loop does not wait for them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from lyra.core.limits import BLOCKING_CALLS_MAX

T = TypeVar("T")

thread_id = threading.get_ident  # of the running thread: a kernel belongs to the thread of its loop


class Flight:
    """Work of callers outside that is under way: `with core.flight:`. A kernel that shuts down lets it end."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._mine: ContextVar[int] = ContextVar("lyra-flight", default=0)
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1
        self._mine.set(self._mine.get() + 1)

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        self._mine.set(self._mine.get() - 1)
        self._ended()

    @property
    def mine(self) -> int:
        """Flights opened by the current task, which it must not wait for: a handler that closes the kernel is one."""
        return self._mine.get()


class Tasks:
    """Background work that belongs to one owner."""

    def __init__(self) -> None:
        self._live: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        self._live.add(task)
        task.add_done_callback(self._live.discard)
        return task

    async def close(self) -> None:
        live = [task for task in self._live if task is not asyncio.current_task()]
        for task in live:
            task.cancel()
        if live:
            await asyncio.gather(*live, return_exceptions=True)


class Writer:
    """One thread, calls in order: `submit(fn, …)` gives an asyncio future."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lyra-writer")

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> asyncio.Future[T]:
        done: Future[T] = self._pool.submit(fn, *args, **kwargs)
        return asyncio.wrap_future(done, loop=self._loop)

    def wait_for(self, fn: Callable[..., T], /, *args: Any) -> T:
        """Wait for a caller that cannot await: behind what is on its way, and blocking."""
        return self._pool.submit(fn, *args).result()

    def close(self) -> None:
        self._pool.shutdown(wait=True)


class Threads:
    """Each runs `work` with its number until that returns. `changed` is the lock they share, and what they wait on."""

    def __init__(self, work: Callable[[int], None]) -> None:
        self.changed = threading.Condition()
        self._work = work
        self._live: list[threading.Thread] = []

    def start(self, count: int, *, name: str) -> None:
        for number in range(count):
            thread = threading.Thread(target=self._work, args=(number,), name=f"{name}-{number}", daemon=True)
            self._live.append(thread)
            thread.start()

    def close(self) -> None:
        """Wait for the end of all of them; `work` has been told."""
        for thread in self._live:
            thread.join()
        self._live.clear()


class Pulse:
    """Calls `beat` in a thread of its own after each `interval_s` in which `put_off` was not called: when the loop that
    calls it is held up. What `beat` raises is dropped."""

    def __init__(self, beat: Callable[[], object], interval_s: float) -> None:
        self._beat = beat
        self._interval_s = interval_s
        self._is_put_off = self._is_closed = False
        self._threads = Threads(self._work)
        self._threads.start(1, name="lyra-pulse")

    def put_off(self) -> None:
        self._is_put_off = True

    def close(self) -> None:
        with self._threads.changed:
            self._is_closed = True
            self._threads.changed.notify_all()
        self._threads.close()

    def _work(self, _number: int) -> None:
        while True:
            with self._threads.changed:
                self._threads.changed.wait_for(lambda: self._is_closed, self._interval_s)
                if self._is_closed:
                    return
            is_put_off, self._is_put_off = self._is_put_off, False
            if not is_put_off:
                with suppress(Exception):
                    self._beat()


class BlockingCalls:
    """Runs functions that block in threads, each with the context of its caller.

    A call that is given up continues in its thread to its end, and its result is dropped. Virtual time has no threads:
    on such a loop the function runs where it is called."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None

    async def call(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        loop = asyncio.get_running_loop()
        if hasattr(loop, "lyra_clock"):
            return fn(*args, **kwargs)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=BLOCKING_CALLS_MAX, thread_name_prefix=self._name)
        inside = copy_context()
        done: Future[T] = self._pool.submit(lambda: inside.run(_without_stop, fn, args, kwargs))
        try:
            return await asyncio.wrap_future(done, loop=loop)
        except asyncio.CancelledError:
            done.add_done_callback(_drop)
            raise

    def close(self) -> None:
        """Start no call that waits for a thread; those that run come to their end."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _drop(done: Future[Any]) -> None:
    """Close a coroutine that a call gives after it was given up: it is awaited nowhere."""
    if not done.cancelled() and done.exception() is None and asyncio.iscoroutine(coroutine := done.result()):
        coroutine.close()


def _without_stop(fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    """Call a function; a StopIteration, which no future can hold, becomes a RuntimeError as in a coroutine."""
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error

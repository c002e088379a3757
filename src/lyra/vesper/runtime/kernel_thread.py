"""A kernel on a thread of its own, for callers that are not async.

Nodes are executed by plain calls from any thread; a kernel belongs to one event loop. `KernelThread` starts the loop
and the kernel at the first need, hands coroutines over and gives their results back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from lyra.errors import ProcessError
from lyra.kernel import Kernel

T = TypeVar("T")


class KernelThread:
    """See the module."""

    def __init__(self, make: Callable[[], Kernel]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started: Future[Kernel] = Future()
        self._closed = False

    @property
    def kernel(self) -> Kernel:
        """The kernel, started if it is not yet."""
        with self._lock:
            self.check_open()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lyra-vesper", daemon=True)
                self._thread.start()
        return self._started.result()

    def check_open(self) -> None:
        """ProcessError where the kernel is closed."""
        if self._closed:
            raise ProcessError("the runtime is closed", hint="make a new one: Runtime(…)")

    @property
    def is_running(self) -> bool:
        if self._thread is None or self._closed:
            return False
        return not self._started.done() or self._started.exception() is None

    def call(self, work: Callable[[Kernel], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the kernel's loop and return its result."""
        kernel = self.kernel
        loop = self._loop
        assert loop is not None
        if threading.current_thread() is self._thread:
            raise ProcessError("a node cannot be executed by a plain call on the kernel's own thread")
        return asyncio.run_coroutine_threadsafe(work(kernel), loop).result()

    def post(self, work: Callable[[Kernel], object]) -> None:
        """Schedule work on the kernel's loop, in the order of posting, without waiting for it."""
        kernel = self.kernel
        loop = self._loop
        assert loop is not None
        loop.call_soon_threadsafe(work, kernel)

    def write(self, state: Any, kind: str, row: dict[str, Any]) -> None:
        """Write a fact and wait until it is durable; on the kernel's own thread, without waiting."""
        kernel = self.kernel
        if kernel.core.thread == threading.get_ident():
            kernel.core.fact(state, "", kind, row)
            return

        async def write(kernel: Kernel) -> None:
            kernel.core.fact(state, "", kind, row)
            await kernel.durable()

        self.call(write)

    def close(self) -> None:
        """Close the kernel, and wait until it is; twice is harmless."""
        with self._lock:
            thread, self._closed = self._thread, True
        if thread is None:
            return
        self._started.exception()  # wait until it has started or failed to
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            kernel = self._make()
            await kernel.start()
        except BaseException as error:  # noqa: BLE001 - the caller that waits for the kernel gets it
            self._started.set_exception(error)
            return
        self._started.set_result(kernel)
        try:
            await self._stop.wait()
        finally:
            await kernel.close()

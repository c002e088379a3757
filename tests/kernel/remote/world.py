"""Shards in memory: kernels on one loop in virtual time, wired by a function, each of which may be killed and opened
again on the same store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any, cast

from lyra.cluster.calls import CALLS
from lyra.core import codec
from lyra.core.faultpoint import SimulatedCrash
from lyra.errors import StoreError
from lyra.kernel import Kernel
from lyra.kernel.remote.posts import Remote
from lyra.kernel.seams import Seams
from lyra.store.memory import MemoryStore
from lyra.testing.clock import SimClock
from lyra.testing.loop import SimLoop


class Disk:
    """The store as one life of a kernel sees it: nothing reaches it any more once that one was killed."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        if self.is_dead:
            raise SimulatedCrash
        return getattr(self.store, name)

    def close(self) -> None:
        """Keep it: it outlives its kernels."""


class Shards:
    """Some shards, and the kernels that have them at the moment."""

    def __init__(self, *names: str, programs: Iterable[Any] = (), **options: Any) -> None:
        self.names = names
        self.programs = list(programs)
        self.options = options
        self.stores = {name: MemoryStore(store_id=name) for name in names}
        self.kernels: dict[str, Kernel] = {}
        self.lives: dict[str, int] = {}
        self.carried: list[tuple[str, str, int, int]] = []  # sender, receiver, number of the first post, how many
        self.cut: set[tuple[str, str]] = set()  # sender and receiver between whom nothing passes
        self.calls: dict[str, list[asyncio.Task[Any]]] = {}  # shard → those that it has not answered
        self.reopening: dict[str, asyncio.Task[Any]] = {}

    async def __aenter__(self) -> Shards:
        for name in self.names:
            await self.open(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in list(self.reopening.values()):
            await task
        for kernel in self.kernels.values():
            await kernel.close()

    def __getitem__(self, name: str) -> Kernel:
        return self.kernels[name]

    async def open(self, name: str) -> Kernel:
        disk: Any = Disk(self.stores[name])

        def make_remote(parts: Any) -> Remote:
            remote = Remote(parts, name, self.names, self.carrier(name))
            remote.asks.call = self.caller(name)
            return remote

        seams = Seams(remote=make_remote)
        life = self.lives[name] = self.lives.get(name, 0) + 1
        kernel = Kernel(disk, programs=self.programs, seams=seams, seed=life, **self.options)
        try:
            await kernel.start()
        except BaseException:
            bury(kernel, disk, self.stores[name])
            raise
        self.kernels[name] = kernel
        return kernel

    def carrier(self, sender: str) -> Callable[[str, int, list[bytes]], Coroutine[Any, Any, int]]:
        async def deliver(to: str, first: int, posts: list[bytes]) -> int:
            await asyncio.sleep(0.001)
            kernel = self.kernels.get(to)
            if kernel is None or (sender, to) in self.cut:
                raise StoreError(f"shard {to} is not open")
            self.carried.append((sender, to, first, len(posts)))
            taken = asyncio.ensure_future(kernel.core.remote.take(sender, first, posts))
            self.calls.setdefault(to, []).append(taken)
            try:
                await asyncio.wait([taken])
                if taken.cancelled() or isinstance(taken.exception(), SimulatedCrash):
                    raise StoreError(f"shard {to} was killed")
                last = taken.result()
            finally:
                self.calls[to].remove(taken)
            await asyncio.sleep(0.001)
            if (to, sender) in self.cut:
                raise StoreError("the answer was lost")
            return int(last)

        return deliver

    def caller(self, sender: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return what calls another shard as a host does; a call breaks off with the shard that was to answer it."""

        async def call(to: str, method: str, data: dict[str, Any], *, timeout_s: float) -> Any:
            await asyncio.sleep(0.001)
            if to not in self.kernels or (sender, to) in self.cut:
                raise StoreError(f"shard {to} is not open")
            answering = asyncio.ensure_future(CALLS[method](cast("Any", self), data))
            self.calls.setdefault(to, []).append(answering)
            try:
                await asyncio.wait([answering], timeout=timeout_s)
                if not answering.done() or answering.cancelled():
                    raise StoreError(f"shard {to} was killed")
                return codec.decode(codec.encode(answering.result()))
            finally:
                self.calls[to].remove(answering)

        return call

    def kernel_of(self, shard: str) -> Kernel:
        return self.kernels[shard]

    def kill(self, name: str) -> None:
        """End the kernel of a shard as kill -9 does."""
        kernel = self.kernels.pop(name)
        for call in self.calls.get(name, ()):
            call.cancel()
        assert kernel.journal is not None
        bury(kernel, cast("Disk", kernel.journal.store), self.stores[name])

    async def restart(self, *names: str) -> None:
        for name in names:
            if name in self.kernels:
                self.kill(name)
        for name in names:
            await self.open(name)

    def shard_here(self) -> str | None:
        """Return the shard whose code is running."""
        cores = {id(kernel.core): name for name, kernel in self.kernels.items()}
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            for name in ("self", "process", "kernel"):
                value = frame.f_locals.get(name)
                for attribute in ("_core", "core"):
                    core = getattr(value, attribute, None)
                    if id(core) in cores:
                        return cores[id(core)]
            frame = frame.f_back
        return None


def bury(kernel: Kernel, disk: Disk, store: MemoryStore) -> None:
    """Let go of a kernel as if it had been killed: none of its code runs on."""
    ownership = kernel._opening.ownership
    if ownership is not None and ownership.lease is not None:
        with suppress(StoreError):
            store.release(ownership.lease)
    disk.is_dead = True
    core = kernel.core
    core.stopping = True
    core.scheduler.stopped = True
    if kernel.journal is not None:
        kernel.journal.frozen = True
        kernel.journal.pending.clear()
        killed = StoreError("the kernel was killed")
        core.loop.call_soon(kernel.journal.answer, killed)
    for process in core.processes.present():
        if process.coroutine is not None:
            program, process.coroutine = process.coroutine, None
            with suppress(BaseException):
                program.close()
        core.loop.call_soon(core.calls.lifetimes.stop_branches, process)
    for task in list(core.tasks._live):
        task.cancel()


def run(main: Coroutine[Any, Any, Any], *, expected: tuple[str, ...] = ()) -> Any:
    """Run in virtual time; what asyncio would only log is a failure, unless it was to be expected."""
    loop = SimLoop(SimClock(1_000_000.0))
    try:
        result = loop.run_until_complete(asyncio.wait_for(main, 100_000))
        surprises = [
            text
            for text in loop.complaints
            if not any(word in text for word in ("SimulatedCrash", "the kernel was killed", *expected))
        ]
        assert not surprises, surprises[:3]
        return result
    finally:
        leftover = asyncio.all_tasks(loop)
        for task in leftover:
            task.cancel()
        if leftover:
            loop.run_until_complete(asyncio.gather(*leftover, return_exceptions=True))
        loop.close()


async def until(condition: Callable[[], Any], *, within_s: float = 600.0) -> None:
    """Return when something holds; fail when it does not in that (virtual) time."""
    left_s = within_s
    while not condition():
        await asyncio.sleep(0.01)
        left_s -= 0.01
        assert left_s > 0, "it did not come to pass"

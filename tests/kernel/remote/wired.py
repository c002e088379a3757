"""Shards of one process in virtual time, wired by a function: each a kernel on a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from lyra.core import faultpoint
from lyra.core.clock import Timer
from lyra.errors import StoreError
from lyra.kernel import Kernel
from lyra.kernel.remote.posts import Remote
from lyra.kernel.seams import Seams
from lyra.store.memory import MemoryStore
from lyra.testing.clock import SimClock
from lyra.testing.loop import run as run_in_virtual_time
from tests.kernel.conftest import crash


class ClockApart:
    """The clock of a machine whose wall clock is set otherwise than the others'."""

    def __init__(self, clock: SimClock, apart_s: float) -> None:
        self._clock, self.apart_s = clock, apart_s

    def now(self) -> float:
        return self._clock.now() + self.apart_s

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return self._clock.call_at(when, callback)


class Shards:
    """`async with Shards("a", "b") as shards: shards["a"].spawn(…)`."""

    def __init__(
        self,
        *names: str,
        programs: Iterable[Any] = (),
        setup: Callable[[Kernel], Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.names = names
        self.programs = tuple(programs)
        self.setup = setup
        self.options = options or {}
        self.stores = {name: MemoryStore() for name in names}
        self.kernels: dict[str, Kernel] = {}
        self.dead: list[Kernel] = []
        self.cut: set[tuple[str, str]] = set()  # pairs between which nothing gets through
        self.closed: set[str] = set()  # shards that the directory says are open on no host
        self.carried: list[tuple[str, str, int]] = []  # from, to and number of posts of each call
        self.clock: SimClock = asyncio.get_running_loop().lyra_clock  # type: ignore[attr-defined]

    async def __aenter__(self) -> Shards:
        for name in self.names:
            await self.open(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        for kernel in self.kernels.values():
            await kernel.close(drain_s=0.0)
        for kernel in self.dead:
            await kernel.core.tasks.close()

    def __getitem__(self, name: str) -> Kernel:
        return self.kernels[name]

    async def open(self, name: str, *, apart_s: float = 0.0) -> Kernel:
        def make_remote(parts: Any) -> Remote:
            async def deliver(to: str, first: int, posts: list[bytes]) -> int:
                await asyncio.sleep(0.001)
                if (name, to) in self.cut or to not in self.kernels or self.kernels.get(name) is not kernel:
                    raise StoreError(f"{to} is not there")
                self.carried.append((name, to, len(posts)))
                last: int = await self.kernels[to].core.remote.take(name, first, posts)
                await asyncio.sleep(0.001)
                if (to, name) in self.cut:
                    raise StoreError(f"the answer of {to} is lost")
                return last

            async def call(shard: str, _method: str, data: dict[str, Any], *, timeout_s: float) -> Any:
                await asyncio.sleep(0.001)
                if shard not in self.kernels or (name, shard) in self.cut:
                    raise StoreError(f"{shard} is not there")
                async with asyncio.timeout(timeout_s):
                    answer = await self.kernels[shard].core.remote.services.answer(data)
                if (shard, name) in self.cut or shard not in self.kernels:
                    raise StoreError(f"the answer of {shard} is lost")
                return answer

            remote = Remote(parts, name, self.names, deliver)
            remote.services.call = call
            remote.services.is_open = lambda shard: shard not in self.closed
            return remote

        clock: Any = ClockApart(self.clock, apart_s) if apart_s else self.clock
        kernel = Kernel(
            self.stores[name], clock, self.programs, seams=Seams(remote=make_remote), lease_s=3600.0, **self.options
        )
        await kernel.start()
        self.kernels[name] = kernel
        if self.setup is not None:
            self.setup(kernel)
        return kernel

    def kill(self, name: str) -> None:
        """End a shard's kernel as `kill -9` does."""
        kernel = self.kernels.pop(name)
        kernel.core.stopping = True
        for process in kernel.processes.values():
            if getattr(process.coroutine, "cr_running", False):
                process.coroutine = None
        crash(kernel)
        assert kernel.journal is not None
        kernel.journal.answer(StoreError("the host is gone"))  # calls of others break off
        self.dead.append(kernel)

    async def reopen(self, name: str, *, apart_s: float = 0.0) -> Kernel:
        if name in self.kernels:
            self.kill(name)
        for kernel in self.dead:
            await kernel.core.tasks.close()
        return await self.open(name, apart_s=apart_s)

    def home_of(self, name: str) -> str:
        return str(next(iter(self.kernels.values())).core.remote.home_of(name))

    def named(self, home: str) -> str:
        """Return a name whose home is this shard."""
        return next(name for name in (f"name{number}" for number in range(1000)) if self.home_of(name) == home)

    async def settle(self) -> None:
        """Return when no shard that is open has posts on their way to another that is."""
        while any(
            posts and to in self.kernels and (name, to) not in self.cut and (to, name) not in self.cut
            for name, kernel in self.kernels.items()
            for to, posts in kernel.core.remote.state.posts.items()
        ):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)


class Killer:
    """Kills a shard at the n-th point that is visited, and opens it again; `with killer.armed():`."""

    def __init__(self, shards: Shards, name: str, at: int) -> None:
        self.shards, self.name, self.left = shards, name, at
        self.done = asyncio.Event()

    def visit(self, _point: str) -> None:
        self.left -= 1
        if self.left == 0:
            kernel = self.shards.kernels[self.name]
            assert kernel.journal is not None
            kernel.journal.frozen = True  # nothing that happens from here on is kept,
            kernel.journal.seq += 1_000_000  # or told to be
            kernel.scheduler.stopped = True
            asyncio.get_running_loop().call_soon(self.done.set)

    def armed(self) -> Any:
        return faultpoint.intercept(self.visit)

    async def bring_back(self) -> None:
        """Open the killed shard again, if it was killed."""
        if self.done.is_set() or self.left <= 0:
            await self.done.wait()
            await self.shards.reopen(self.name)


def run_shards(main: Callable[[], Any], start: float = 1_000_000.0, limit_s: float = 500.0) -> Any:
    """Run an async function in virtual time."""

    async def within() -> Any:
        async with asyncio.timeout(limit_s):
            return await main()

    return run_in_virtual_time(within(), clock=SimClock(start))

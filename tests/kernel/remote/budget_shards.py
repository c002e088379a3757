"""Shards of a cluster in one event loop, whose kernels die and come back; a provider that counts what it performs."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

from lyra.core import codec
from lyra.core.faultpoint import SimulatedCrash
from lyra.errors import LyraError, ProcessError
from lyra.kernel import Kernel
from lyra.kernel.remote.posts import Remote
from lyra.kernel.seams import Seams
from lyra.store.memory import MemoryStore


class Shards:
    """Shards by name, and what they told each other."""

    def __init__(self, *names: str, programs: list[Any], **options: Any) -> None:
        self.names = names
        self.stores = {name: MemoryStore(store_id=name) for name in names}
        self.kernels: dict[str, Kernel] = {}
        self.told: Counter[str] = Counter()  # kind of post → how many were delivered for the first time
        self.crashes = 0
        self.before_deliver: Callable[[str, str], Awaitable[None]] | None = None
        self._seen: set[tuple[str, str, int]] = set()
        self._programs = programs
        self._options = options
        self._reopening: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Shards:
        for name in self.names:
            await self.open(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._reopening:
            await task
        for kernel in self.kernels.values():
            await kernel.close(drain_s=0.0)

    async def open(self, name: str) -> Kernel:
        def make(parts: Any) -> Remote:
            async def deliver(to: str, first: int, posts: list[bytes]) -> int:
                return await self._deliver(name, to, first, posts)

            return Remote(parts, name, self.names, deliver)

        kernel = Kernel(self.stores[name], programs=self._programs, seams=Seams(remote=make), **self._options)
        await kernel.start()
        self.kernels[name] = kernel
        return kernel

    async def _deliver(self, sender: str, to: str, first: int, posts: list[bytes]) -> int:
        if self.before_deliver is not None:
            await self.before_deliver(sender, to)
        kernel = self.kernels.get(to)
        if kernel is None:
            raise ProcessError(f"shard {to} is not open")
        try:
            last: int = await kernel.core.remote.take(sender, first, posts)
        except SimulatedCrash:
            raise ProcessError(f"shard {to} died") from None
        for number, raw in enumerate(posts, first):
            if number <= last and (sender, to, number) not in self._seen:
                self._seen.add((sender, to, number))
                self.told[codec.decode(raw)[0]] += 1
        return last

    def crash(self, name: str) -> None:
        """End a kernel as kill -9 does: what was not committed is gone."""
        kernel = self.kernels.pop(name)
        core, journal = kernel.core, kernel.journal
        assert journal is not None
        self.crashes += 1
        journal.frozen = core.stopping = True
        kernel.scheduler.stopped = True
        journal.answer(ProcessError(f"shard {name} died"))  # the connections of callers break
        for task in list(core.tasks._live):
            task.cancel()
        for process in list(kernel.processes.present()):
            kernel.lifetimes.stop_branches(process)
            if process.coroutine is not None and not process.stepping:
                process.coroutine.close()
        ownership = kernel._opening.ownership
        assert ownership is not None
        ownership.stop()
        self.stores[name].release(ownership.lease)  # type: ignore[arg-type]

    def crash_and_reopen(self, name: str, after_s: float) -> None:
        self.crash(name)

        async def reopen() -> None:
            await asyncio.sleep(after_s)
            await self.open(name)

        self._reopening.append(asyncio.create_task(reopen()))

    def running(self) -> str | None:
        """Return the shard whose code runs at the moment."""
        frame: FrameType | None = sys._getframe(1)
        cores = {id(kernel.core): name for name, kernel in self.kernels.items()}
        while frame is not None:
            owner = frame.f_locals.get("self")
            core = owner if id(owner) in cores else getattr(owner, "_core", None) or getattr(owner, "core", None)
            if id(core) in cores:
                return cores[id(core)]
            frame = frame.f_back
        return None

    async def until(self, is_true: Callable[[], bool], *, within_s: float = 600.0) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        while not is_true():
            assert loop.time() < end_s, "it did not come to that"
            await asyncio.sleep(0.05)

    def outstanding(self) -> dict[str, Any]:
        """Return the loans that are not over, of all shards."""
        return {
            f"{name} {side} {loan}": entry
            for name, kernel in self.kernels.items()
            for side in ("lent", "borrowed")
            for loan, entry in getattr(kernel.core.remote.loans, side).items()
        }


class Provider:
    """What costs money outside: it counts what it performs, over all lives of all shards."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.performed: Counter[str] = Counter()
        self.spent = 0

    async def charge(self, who: str, cost: int) -> int:
        self.performed[who] += 1
        self.spent += cost
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        return cost


async def end_of(wait: Awaitable[Any]) -> Any:
    try:
        return await wait
    except LyraError as error:
        return error

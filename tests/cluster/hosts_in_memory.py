"""A cluster of one process: hosts with stores in memory, and calls by a function, encoded as on a wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable
from contextvars import Context
from typing import Any

from lyra.cluster.client import Cluster
from lyra.cluster.directory import MemoryDirectory
from lyra.cluster.host import Host
from lyra.cluster.peers import answer_encoded, read_answer
from lyra.core import codec
from lyra.core.clock import SystemClock
from lyra.errors import LyraError, Unreachable
from lyra.kernel import Kernel
from lyra.store.memory import MemoryStore
from tests.kernel.conftest import crash

LEASE_S = 0.6


class Wires:
    """Carries calls to the hosts of this process that live."""

    def __init__(self, hosts: dict[str, Host]) -> None:
        self._hosts = hosts
        self._calls: dict[str, set[asyncio.Future[bytes]]] = {}

    async def call(self, address: str, method: str, data: Any, *, timeout_s: float) -> Any:
        host = self._hosts.get(address)
        if host is None:
            raise Unreachable(f"host {address} cannot be reached")
        answering = answer_encoded(host.answer, codec.encode([method, data]))
        call = asyncio.get_running_loop().create_task(answering, context=Context())  # of no caller's process
        self._calls.setdefault(address, set()).add(call)
        try:
            async with asyncio.timeout(timeout_s):
                return read_answer(await call)
        except asyncio.CancelledError:
            if address in self._hosts:
                raise
            raise Unreachable(f"host {address} cannot be reached") from None
        finally:
            self._calls[address].discard(call)

    def cut_off(self, address: str) -> None:
        """Break the calls off that a host which has died was to answer."""
        for call in self._calls.get(address, set()).copy():
            call.cancel()

    def forget(self, alive: Container[str]) -> None: ...

    async def close(self) -> None: ...


class MemoryCluster:
    """`async with MemoryCluster("a", "b") as world: await world.client.spawn(…)`."""

    def __init__(
        self,
        *names: str,
        shards: int = 4,
        programs: Iterable[Any] = (),
        setup: Callable[[Kernel], Any] | None = None,
    ) -> None:
        self.names = names
        self.hosts: dict[str, Host] = {}
        self.stores = {f"s{number}": MemoryStore() for number in range(1, shards + 1)}
        self.directory = MemoryDirectory(
            tuple(self.stores), SystemClock().monotonic, lease_s=LEASE_S, stores=self.stores
        )
        self._programs, self._setup = tuple(programs), setup
        self.wires = Wires(self.hosts)
        self.client = Cluster(self.directory, self.wires, patience_s=10.0)

    async def __aenter__(self) -> MemoryCluster:
        await self.client.__aenter__()
        for name in self.names:
            await self.start(name)
        await self.until_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        for host in list(self.hosts.values()):
            await host.close()
        await self.client.close()

    async def start(self, name: str) -> Host:
        def make_kernel(_shard: str, store: Any, seams: Any) -> Kernel:
            return Kernel(store, programs=self._programs, seams=seams, lease_s=60.0, lease_wait_s=5.0)

        host = Host(
            self.directory,
            self.wires,
            name=name,
            address=name,
            setup=self._setup,
            make_kernel=make_kernel,
            in_threads=False,
        )
        self.hosts[name] = host
        await host.start()
        return host

    async def kill(self, name: str) -> None:
        """End a host and its kernels as `kill -9` does."""
        host = self.hosts.pop(name)
        self.wires.cut_off(name)
        await host._tasks.close()
        for kernel in host.kernels.values():
            crash(kernel)
            await kernel.core.tasks.close()

    async def until_open(self) -> None:
        """Return when each shard is open on a host that lives, and every host has its share."""
        least = len(self.stores) // len(self.hosts)
        while True:
            held = [len(host.kernels) for host in self.hosts.values()]
            if sum(held) == len(self.stores) and min(held) >= least:
                return
            await next(iter(self.hosts.values())).until_beaten()

    def kernel(self, shard: str) -> Kernel:
        return next(host.kernels[shard] for host in self.hosts.values() if shard in host.kernels)

    def host_of(self, shard: str) -> str:
        return next(name for name, host in self.hosts.items() if shard in host.kernels)


def run_cluster(main: Callable[[], Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main(), 40))


async def until(condition: Callable[[], Any], *, client: Cluster | None = None) -> Any:
    """Return what a condition gives (awaited, if it must be) once that is true."""
    while True:
        try:
            value = condition()
            value = await value if hasattr(type(value), "__await__") else value
        except LyraError:
            if client is None:
                raise
            value = None
        if value:
            return value
        await asyncio.sleep(0.02)

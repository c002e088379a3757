"""What hosts do when the database cannot be reached for a while, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lyra.cluster.directory import HostRow, MemoryDirectory, View
from lyra.cluster.host import Host
from lyra.errors import StoreError
from lyra.kernel import Kernel
from lyra.kernel.programs.context import Context
from lyra.store.memory import MemoryStore
from lyra.testing.loop import run
from tests.cluster.hosts_in_memory import Wires

LEASE_S = 3.0


class Reach:
    """The directory as one host reaches it, or does not."""

    def __init__(self, directory: MemoryDirectory) -> None:
        self._directory = directory
        self.is_cut = False

    def __getattr__(self, name: str) -> Any:
        if self.is_cut and name in ("join", "renew", "view", "assign", "note", "set_state", "leave", "store_of"):
            raise StoreError("the database cannot be reached")
        return getattr(self._directory, name)


class World:
    """Hosts `a` and `b`, each with one of two shards."""

    def __init__(self, *programs: Any) -> None:
        self.clock: Any = asyncio.get_running_loop().lyra_clock  # type: ignore[attr-defined]
        stores = {"s1": MemoryStore(), "s2": MemoryStore()}
        self.directory = MemoryDirectory(list(stores), self.clock.now, lease_s=LEASE_S, stores=stores)
        self.hosts: dict[str, Host] = {}
        self.reach = {name: Reach(self.directory) for name in ("a", "b")}
        self._wires = Wires(self.hosts)
        self._programs = programs

    async def __aenter__(self) -> World:
        for name, reach in self.reach.items():
            directory: Any = reach
            host = Host(
                directory,
                self._wires,
                name=name,
                address=name,
                make_kernel=lambda _shard, store, seams: Kernel(
                    store, self.clock, self._programs, seams=seams, lease_s=600.0, lease_wait_s=600.0
                ),
                clock=self.clock,
                in_threads=False,
            )
            self.hosts[name] = host
            await host.start()
        await self.until(lambda: all(len(host.kernels) == 1 for host in self.hosts.values()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for name, host in self.hosts.items():
            self.reach[name].is_cut = False
            await host.close()

    async def until(self, is_true: Callable[[], bool], within_s: float = 60.0) -> float:
        """Return the time that it took."""
        began_s = self.clock.monotonic()
        while not is_true():
            await asyncio.sleep(0.05)
            assert self.clock.monotonic() - began_s < within_s, self.directory.view()
        return float(self.clock.monotonic() - began_s)

    def owners(self) -> dict[str, str]:
        return {name: row.host for name, row in self.directory.view().shards.items()}


@pytest.mark.parametrize("comes_back", [True, False])
def test_who_comes_back_first_after_an_outage_takes_nothing_at_once(comes_back: bool) -> None:
    """Two hosts cannot reach the database for longer than a lease. The one that can first finds the row of the other
    over, and leaves it time to renew that; where it does not, its shard is taken after all."""

    async def main() -> None:
        async with World() as world:
            before = world.owners()
            assert set(before.values()) == {"a", "b"}
            for reach in world.reach.values():
                reach.is_cut = True
            await asyncio.sleep(1.5 * LEASE_S)
            world.reach["a"].is_cut = False
            await asyncio.sleep(0.8 * LEASE_S)
            view: View = world.directory.view()
            assert (view.is_alive("a"), view.is_alive("b")) == (True, False)
            assert world.owners() == before
            if comes_back:
                world.reach["b"].is_cut = False
                await asyncio.sleep(3 * LEASE_S)
                assert world.owners() == before
            else:
                taken_s = await world.until(lambda: set(world.owners().values()) == {"a"})
                assert taken_s < LEASE_S

    run(main())


def test_a_host_that_died_alone_is_taken_over_at_once() -> None:
    """A host that has beaten all along waits for nothing: the row of the other was over because of that one."""

    async def main() -> None:
        async with World() as world:
            await asyncio.sleep(2 * LEASE_S)
            world.reach["b"].is_cut = True
            taken_s = await world.until(lambda: set(world.owners().values()) == {"a"})
            assert taken_s < 1.5 * LEASE_S

    run(main())


def test_a_host_whose_name_was_taken_meanwhile_joins_when_that_one_has_left() -> None:
    """Another host has entered under its name while it could not renew: it keeps no shard, and enters again under that
    name when the other one is gone."""

    async def main() -> None:
        async with World() as world:
            world.reach["b"].is_cut = True
            await asyncio.sleep(1.2 * LEASE_S)
            other = HostRow("b", "another life", "b", "1", world.hosts["b"].row.format)
            world.directory.join(other)
            world.reach["b"].is_cut = False
            for _ in range(10):
                await asyncio.sleep(LEASE_S / 2)
                world.directory.renew(other, world.directory.view())
            assert world.hosts["b"].kernels == {}
            assert "in the cluster already" in world.hosts["b"].problem
            world.directory.leave(other)
            await world.until(lambda: bool(world.hosts["b"].kernels), within_s=5 * LEASE_S)
            assert world.directory.view().hosts["b"].life == world.hosts["b"].row.life
            assert world.hosts["b"].problem == ""

    run(main())


async def nothing(_ctx: Context) -> None:
    """End."""


async def begin_near(ctx: Context, *near: str) -> list[str]:
    """Return the shards that children begin on which are to be near some process."""
    children = [ctx.spawn(nothing, near=word) for word in near]
    return [child.pid.partition("/")[0] for child in children]


def test_a_child_begins_near_another_process() -> None:
    """By its address: on the shard of that one, whichever is the least loaded; by its pid: here."""

    async def main() -> None:
        async with World(nothing, begin_near) as world:
            kernel = next(host.kernels["s1"] for host in world.hosts.values() if "s1" in host.kernels)
            ended = await kernel.spawn(begin_near, "s2/p7", "s1/p7", "p7", "s2/p7").wait()
            abroad = [place == "s2" for place in ended.result]
            assert abroad == [True, False, False, True]

    run(main())

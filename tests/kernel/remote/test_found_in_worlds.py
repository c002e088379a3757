"""Faults that simulated clusters have found: each was rare, and is made to happen here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.cluster.client import Cluster
from lyra.cluster.directory import HostRow, MemoryDirectory
from lyra.core import codec
from lyra.errors import Unreachable
from lyra.kernel.programs.context import Context
from tests.kernel.remote.wired import Shards, run_shards


async def traps(ctx: Context) -> Any:
    ctx.trap_exit()
    signal = await ctx.receive(timeout=50.0)
    return None if signal is None else [signal.pid, signal.reason]


async def links(ctx: Context, address: str) -> None:
    ctx.link(address)
    await ctx.sleep(5.0)
    ctx.exit("done")


def test_the_end_of_a_link_by_name_is_told():
    """A process that another one linked to by its name, and not by its pid, hears of that one's end."""

    async def main() -> None:
        async with Shards("a", "b", programs=(traps, links)) as shards:
            heard = shards["b"].spawn(traps, pid="t1", name="keeper")
            shards["a"].spawn(links, "b/keeper", pid="l1")
            assert (await heard.wait()).result == ["a/l1", "done"]
            await shards.settle()
            assert shards["b"].core.remote.ties.links == {}

    run_shards(main)


def test_an_answer_for_an_earlier_life_is_not_taken_for_another():
    """A shard that was killed while a group's home answered it does not believe that answer to be its next one's."""

    async def main() -> None:
        async with Shards("a", "b") as shards:
            name = shards.named("b")
            await shards["b"].groups.create(name)
            await shards.settle()
            assert await shards["a"].groups.bb_compare(name, "key", None, 1)
            shards.cut.add(("b", "a"))
            lost = asyncio.ensure_future(shards["a"].groups.bb_compare(name, "key", 1, 2))
            await asyncio.sleep(1.0)  # the home has answered "yes", and the answer waits
            generation = shards["a"].core.generation
            await shards.reopen("a")
            shards["a"].core.generation = generation  # as it stays where an owner was killed
            compare = shards["a"].groups.bb_compare
            asked = [asyncio.ensure_future(compare(name, "key", "other", number)) for number in range(3)]
            await asyncio.sleep(0.1)
            shards.cut.clear()
            assert await asyncio.gather(*asked) == [False, False, False]
            lost.cancel()
            await asyncio.gather(lost, return_exceptions=True)

    run_shards(main)


def test_a_shard_tells_only_what_is_durable():
    """Of two calls that bring posts at once, the first does not tell that those of the second are there."""

    async def main() -> None:
        async with Shards("a", "b") as shards:
            remote, journal = shards["b"].core.remote, shards["b"].journal
            posts = [codec.encode(["stop", {"pid": "nobody", "by": ""}]) for _ in range(3)]
            wait, told = journal.wait_until_durable, []

            async def take_more(seq: int) -> None:
                journal.wait_until_durable = wait  # type: ignore[method-assign]
                task = asyncio.ensure_future(remote.take("a", 3, posts[2:]))
                await wait(seq)
                told.append(task)

            journal.wait_until_durable = take_more  # type: ignore[method-assign]
            try:
                first = await remote.take("a", 1, posts[:2])
            finally:
                journal.wait_until_durable = wait  # type: ignore[method-assign]
            assert first == 2
            assert await told[0] == 3

    run_shards(main)


class _Fickle:
    """Carries the calls of a client to one shard; loses the answers of some."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.loses = False

    async def call(self, _address: str, method: str, data: Any, *, timeout_s: float) -> Any:
        assert method == "take", timeout_s
        last = await self.shards[data["shard"]].core.remote.take(data["from"], data["first"], data["posts"])
        if self.loses:
            raise Unreachable("the answer is lost")
        return last

    def forget(self, alive: Any) -> None:
        pass

    async def close(self) -> None:
        pass


def test_a_message_after_one_whose_answer_was_lost_arrives():
    """A client whose message may have arrived or not does not give its number to the next one."""

    async def main() -> None:
        async with Shards("a", programs=(counts,)) as shards:
            directory = MemoryDirectory(["a"], shards.clock.now)
            received = shards["a"].spawn(counts, pid="c1")
            carrier = _Fickle(shards)
            cluster = Cluster(directory, carrier, patience_s=0.0)
            cluster.view = _view_of(directory)
            cluster.refresh = _keep(cluster)  # type: ignore[method-assign]
            await cluster.send("a/c1", 1)
            carrier.loses = True
            with pytest.raises(Unreachable) as lost:
                await cluster.send("a/c1", 2)
            assert lost.value.code == "unreachable"
            carrier.loses = False
            await cluster.send("a/c1", 3)
            await cluster.send("a/c1", 4)
            assert (await received.wait()).result == [1, 2, 3, 4]

    run_shards(main)


async def counts(ctx: Context) -> list[Any]:
    return [await ctx.receive(timeout=20.0) for _ in range(4)]


def _keep(cluster: Cluster) -> Any:
    async def refresh() -> Any:
        return cluster.view

    return refresh


def _view_of(directory: MemoryDirectory) -> Any:
    directory.join(HostRow("h", "life", "h:1", "1", 1))
    directory.assign("a", "h", 0)
    return directory.view()

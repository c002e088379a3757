"""Trees of supervisors and agents over the hosts of a cluster, in one process: what moves is no crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lyra import Agent
from lyra.cluster.client import Cluster
from lyra.cluster.directory import MemoryDirectory
from lyra.cluster.host import Host
from lyra.cluster.peers import answer_encoded, read_answer
from lyra.core import codec
from lyra.errors import Unreachable
from lyra.kernel import Child
from lyra.models.sim import SimProvider
from lyra.store.memory import MemoryStore

pytestmark = pytest.mark.anyio


class InProcess:
    """Carries calls to hosts of this process."""

    hosts: dict[str, Host]

    def __init__(self, hosts: dict[str, Host]) -> None:
        self.hosts = hosts

    async def call(self, address: str, method: str, data: Any, *, timeout_s: float) -> Any:
        host = self.hosts.get(address)
        if host is None:
            raise Unreachable(f"there is no host {address}")
        return read_answer(await answer_encoded(host.answer, codec.encode([method, data])))

    def forget(self, alive: Any) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is open."""


tries: list[str] = []


def answer(request: Any) -> str:
    tries.append(request.messages[-1].text)
    if "fragile" in tries[-1] and len(tries) == 1:
        raise ValueError("a bad start")
    return f"heard {request.messages[-1].text}"


helper = Agent("helper", model=SimProvider(answer), budget={"llm_calls": 1})
fragile = Agent("fragile", model=SimProvider(answer), supervision="restart")


async def worker(ctx: Any, label: str) -> None:
    if await ctx.receive() == "crash":
        raise ValueError(label)


async def tree(ctx: Any) -> None:
    ctx.supervise(
        [Child("here", worker, ("here",)), Child("there", worker, ("there",), shard="s2")],
        name="sup",
        max_restarts=1,
    )
    await ctx.receive()


async def leads(ctx: Any) -> list[Any]:
    child = ctx.spawn(helper, "a task", shard="s2")
    ended = await child.wait()
    standing = ctx.spawn(helper, shard="s2")
    agent = ctx.agent(standing.pid)
    return [str(ended.result), str(await agent.ask(ctx, "a question"))]


PROGRAMS = [helper, fragile, worker, tree, leads]


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20.0):
        while not condition():
            await asyncio.sleep(0.02)


def make_host(name: str, directory: MemoryDirectory, hosts: dict[str, Host]) -> Host:
    host = Host(directory, InProcess(hosts), name=name, address=name, programs=PROGRAMS, in_threads=False)
    hosts[name] = host
    return host


async def test_trees_and_agents_on_two_hosts() -> None:
    """An agent is spawned with its budget and supervision and asked from another shard; a tree over two shards keeps
    its children while both shards change hosts, and restarts one that crashes."""
    tries.clear()
    names = ["s1", "s2"]
    stores = {name: MemoryStore(store_id=name) for name in names}
    directory = MemoryDirectory(names, asyncio.get_running_loop().time, lease_s=0.6, stores=stores)
    hosts: dict[str, Host] = {}
    first = make_host("a", directory, hosts)
    await first.start()
    await until(lambda: len(first.kernels) == 2)
    async with Cluster(directory, InProcess(hosts)) as cluster:
        spawned = await cluster.spawn(fragile, "fragile", shard="s2")
        ended = await spawned.wait()
        assert (ended.reason, str(ended.result)) == ("normal", "heard fragile")
        assert tries == ["fragile", "fragile"]
        task = await cluster.spawn(helper, "one", shard="s1")
        assert str((await task.wait()).result) == "heard one"
        assert first.kernels["s1"].process(task.pid).budget.limit("llm_calls") == 1
        lead = await cluster.spawn(leads, shard="s1")
        assert (await lead.wait()).result == ["heard a task", "heard a question"]

        await cluster.spawn(tree, shard="s1", pid="top")
        await until(lambda: first.kernels["s1"].whereis("sup") and len(rows(first)) == 2 and all(rows(first).values()))
        before = rows(first)
        second = make_host("b", directory, hosts)
        await second.start()
        await until(lambda: len(second.kernels) == 1)
        del hosts["a"]
        await first.close()
        await until(lambda: len(second.kernels) == 2)
        assert rows(second) == before
        await cluster.send(before["there"][0], "crash")
        await until(lambda: rows(second).get("there", before["there"]) != before["there"])
        assert rows(second)["there"][1] == 2
        assert rows(second)["here"] == before["here"]
        await cluster.process("s1/top").kill()
        await until(lambda: second.kernels["s2"].live == 1)  # the agent that was asked
    await second.close()


def rows(host: Host) -> dict[str, Any]:
    kernel = host.kernels["s1"]
    if kernel.whereis("sup") is None:
        return {}
    return {row.id: (row.pid, row.starts) for row in kernel.supervisor("sup").which_children() if row.pid}

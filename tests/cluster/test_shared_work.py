"""Workers that are connected to one host and get the work of all shards, whichever worker or host is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

import lyra.cluster
from lyra.cluster.calls import WORK_DESK
from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.host import Host
from lyra.core.clock import SystemClock
from lyra.kernel import Kernel
from lyra.server.client import Worker, current_work
from lyra.server.grpc.face import behavior_of, handlers_of
from lyra.server.grpc.guard import CallGuard, Method
from lyra.server.grpc.shared_work import SharedWorkerCalls, open_desk
from lyra.server.identity import TokenTable
from tests.cluster.hosts_in_memory import MemoryCluster, run_cluster, until
from tests.server.cluster.support import ServingHost
from tests.server.work.programs import OPERATOR, World
from verify.servers import PostgresServer, postgres_missing


class Agents:
    """What the workers run: each run is noted, and waits for the gate."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, str]] = []
        self.gate = asyncio.Event()

    def make_worker(self, name: str, address: str, **options: Any) -> Worker:
        worker = Worker(address, worker_id=name, token=OPERATOR, **options)

        async def run(envelope: Any) -> dict[str, Any]:
            work = current_work()
            assert work is not None
            self.runs.append((name, envelope.raw_input))
            await self.gate.wait()
            return {"by": name, "attempt": work.attempt}

        worker.register_agent("once", run)
        worker.register_agent("again", run, idempotent=True)
        worker.register_service("echo", lambda request: {"n": request.metadata["n"], "by": name})
        return worker


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    ready = asyncio.Event()
    run = asyncio.ensure_future(worker.run(ready.set))
    await ready.wait()
    yield run
    worker.stop()
    await asyncio.gather(run, return_exceptions=True)


async def run_agent(kernel: Kernel, name: str, text: str) -> Any:
    return (await kernel.execute_agent(name, text, pid=text)).output


async def serve_workers(host: Host) -> tuple[Any, str]:
    """Start the WorkerService of a host; gives the server and its address."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    guard = CallGuard(TokenTable({OPERATOR: ""}), SystemClock())
    calls: Any = SharedWorkerCalls(host)

    def make(method: Method, streams: bool) -> Any:
        return behavior_of(method, calls, guard, streams=streams)

    server.add_generic_rpc_handlers((handlers_of("WorkerService", make),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


def test_a_worker_of_one_host_gets_the_work_of_all_shards():
    """A worker with one place, connected to one host, does the work of the four shards of both, one piece at a time;
    its services are there on each."""

    async def main() -> None:
        agents = Agents()
        async with MemoryCluster("a", "b", setup=open_desk) as world:
            server, address = await serve_workers(world.hosts["a"])
            async with working(agents.make_worker("w", address, lease_s=1.0)):
                assert (await world.kernel("s3").dispatch("echo", {"metadata": {"n": 7}})).metadata == {
                    "n": 7,
                    "by": "w",
                }
                runs = [asyncio.ensure_future(run_agent(world.kernel(shard), "once", shard)) for shard in world.stores]
                await until(lambda: agents.runs)
                assert len(agents.runs) == 1
                # Its only place is taken, and it claims nothing: each shard hears on that it is there.
                desks = [world.kernel(shard).parts[WORK_DESK]._calls._desk for shard in world.stores]
                seen = [desk._queue.workers["w"].seen_at for desk in desks]
                await until(
                    lambda: all(desk._queue.workers["w"].seen_at > then for desk, then in zip(desks, seen, strict=True))
                )
                agents.gate.set()
                assert await asyncio.gather(*runs) == [{"by": "w", "attempt": 1}] * 4
                assert sorted(text for _, text in agents.runs) == sorted(world.stores)
            await server.stop(0)

    run_cluster(main)


@pytest.mark.parametrize("name", ["once", "again"])
def test_a_worker_that_is_lost_is_treated_as_by_one_server(name):
    """What a lost worker had is done by another one where that is allowed, else a person is asked; as one server does
    it, on the shard that waits."""

    async def main() -> None:
        agents = Agents()
        async with MemoryCluster("a", "b", setup=open_desk) as world:
            servers = [await serve_workers(world.hosts[host]) for host in ("a", "b")]
            shard = next(iter(world.hosts["b"].kernels))
            kernel = world.kernel(shard)
            async with working(agents.make_worker("v", servers[0][1], lease_s=1.0)) as lost:
                run = asyncio.ensure_future(run_agent(kernel, name, "text"))
                await until(lambda: agents.runs)
                lost.cancel()
                async with working(agents.make_worker("w", servers[1][1], lease_s=1.0)):
                    agents.gate.set()
                    if name == "once":
                        (asked,) = await until(lambda: kernel.interrupts.list_interrupts(status="pending"))
                        assert asked.kind == "in_doubt"
                        assert agents.runs == [("v", "text")]
                        await kernel.resolve_interrupt(asked.id, {"decision": "retry"})
                    assert await run == {"by": "w", "attempt": 2}
                    assert agents.runs == [("v", "text"), ("w", "text")]
            for server, _ in servers:
                await server.stop(0)

    run_cluster(main)


@pytest.mark.parametrize("killed", ["its own", "the shard's"])
def test_a_host_is_killed_while_a_worker_works(killed):
    """Whether the worker's host is killed or that of the shard, the worker goes on through the other one, says what it
    has, and its result is taken once by the shard that waits: nothing is run again and no person is asked."""

    async def main() -> None:
        agents = Agents()
        async with MemoryCluster("a", "b", setup=open_desk) as world:
            servers = {host: await serve_workers(world.hosts[host]) for host in ("a", "b")}
            shard = next(iter(world.hosts["b"].kernels))
            addresses = f"{servers['a'][1]},{servers['b'][1]}"
            worker = agents.make_worker("w", addresses, lease_s=1.0)
            async with working(worker):
                pipeline = {"name": "p", "agents": [{"name": "once"}]}
                events = world.client.execute_pipeline(pipeline, "text", pid="p", shard=shard)
                last = asyncio.ensure_future(_last(events))
                await until(lambda: agents.runs)
                gone = "a" if killed == "its own" else "b"
                await servers[gone][0].stop(0)
                await world.kill(gone)
                await world.until_open()
                agents.gate.set()
                assert (await last).envelope.outputs == {"once": {"by": "w", "attempt": 1}}
                assert agents.runs == [("w", "text")]
                assert world.kernel(shard).interrupts.list_interrupts() == []
                await until(lambda: worker.done == 1)
            await servers["b" if gone == "a" else "a"][0].stop(0)

    run_cluster(main)


async def _last(events: Any) -> Any:
    return [event async for event in events][-1]


@pytest.mark.parametrize("killed", ["b", pytest.param("a", marks=pytest.mark.long)])
@pytest.mark.skipif(postgres_missing() is not None, reason=str(postgres_missing()))
def test_real_hosts_and_workers_are_killed(tmp_path, killed):
    """Hosts and workers as processes on PostgreSQL. The host whose shard waits is killed with SIGKILL; at length the
    host to which a worker is connected, then a worker, then the host whose shard waits. Each run counts once, and
    nothing is run again that need not be."""
    with PostgresServer() as server, World(tmp_path) as world:
        directory = PostgresDirectory(server.url, shards=4, lease_s=1.0)
        directory.close()
        (tmp_path / "hosts").mkdir()
        hosts = {name: _start_host(tmp_path, server.url, name) for name in ("a", "b")}
        try:
            asyncio.run(asyncio.wait_for(_live_through(server.url, hosts, world, killed), 90))
        finally:
            for host in hosts.values():
                host.close()


def _start_host(folder: Path, url: str, name: str) -> ServingHost:
    return ServingHost(folder / "hosts", url, name, "", "--grpc", "127.0.0.1:0")


async def _live_through(url: str, hosts: dict[str, ServingHost], world: World, killed: str) -> None:
    for host in hosts.values():
        await host.until_ready()
    world.address = ",".join(hosts[name].ready["grpc"] for name in ("a", "b"))
    async with lyra.cluster.connect(url) as cluster:

        def start(agent: str, pid: str, shard: str) -> asyncio.Task[Any]:
            pipeline = {"name": "p", "agents": [{"name": agent}]}
            return asyncio.ensure_future(_last(cluster.execute_pipeline(pipeline, "text", pid=pid, shard=shard)))

        async def shards_of(name: str, number: int) -> Any:
            view = await cluster.refresh()
            own = sorted(shard for shard, row in view.shards.items() if row.host == name)
            return own if len(own) >= number else None

        async def end(run: asyncio.Task[Any]) -> Any:
            return (await run).envelope.outputs

        for name in hosts:
            await until(partial(shards_of, name, 2))
        first = await asyncio.to_thread(world.worker, "v")  # connected to host a
        try:
            run = start("once", "r1", (await shards_of("b", 2))[0])
            await until(lambda: "begin once v" in world.lines())
            await hosts[killed].kill()
            await until(partial(shards_of, "a" if killed == "b" else "b", 4))
            world.go()
            assert await end(run) == {"once": {"by": "v", "attempt": 1}}
            assert world.lines() == ["begin once v", "end once v"]
            if killed == "b":
                return

            hosts["c"] = await _start_host(world.folder, url, "c").until_ready()
            await until(lambda: shards_of("c", 2))
            own = await shards_of("b", 2)
            (world.folder / "go").unlink()
            world.address = hosts["c"].ready["grpc"]
            await asyncio.to_thread(world.worker, "w")
            runs = {name: start("repeatable", f"r2-{name}", own[0]) for name in ("x", "y")}
            await until(lambda: {"begin repeatable v", "begin repeatable w"} <= set(world.lines()))
            await asyncio.to_thread(first.kill)
            await until(lambda: world.lines().count("begin repeatable w") == 1)
            await hosts["b"].kill()  # that of the shard
            await until(lambda: shards_of("c", 4))
            world.go()
            ends = [await end(run) for run in runs.values()]
            assert {outputs["repeatable"]["by"] for outputs in ends} == {"w"}
            assert world.lines().count("end repeatable w") == 2
            assert await cluster.interrupts() == []
        finally:
            (world.folder / "go").touch()

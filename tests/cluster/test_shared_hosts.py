"""What shards share, on hosts of their own in one PostgreSQL database, one of which is killed with SIGKILL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import lyra.cluster
from lyra.cluster.directory import PostgresDirectory
from tests.cluster.hosts_in_memory import until
from tests.cluster.shared_host import asks, calls, reads, works, writes
from verify.servers import PostgresServer, postgres_missing

_ROOT = Path(__file__).parents[2]
SHARDS = ("s1", "s2", "s3", "s4")
COUNT = 60


class HostProcess:
    """A host as an operating system's process."""

    def __init__(self, url: str, name: str) -> None:
        argv = [sys.executable, "-m", "tests.cluster.shared_host", url, name]
        self.process = subprocess.Popen(argv, cwd=_ROOT, stdout=subprocess.PIPE, text=True)

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.mark.skipif(postgres_missing() is not None, reason=str(postgres_missing()))
def test_what_is_shared_outlives_a_host():
    """A host dies by SIGKILL in the middle of everything: boards agree, schedules fire each second once, questions wait
    on, services answer, and the stream of Events has neither gap nor repeat."""
    with PostgresServer() as server:
        directory = PostgresDirectory(server.url, shards=len(SHARDS), lease_s=1.0)
        directory.close()
        hosts = {name: HostProcess(server.url, name) for name in ("a", "b")}
        try:
            for host in hosts.values():
                host.wait_ready()
            asyncio.run(asyncio.wait_for(_live_through(server.url, hosts), 50))
        finally:
            for host in hosts.values():
                host.kill()


async def _live_through(url: str, hosts: dict[str, HostProcess]) -> None:
    async with lyra.cluster.connect(url) as cluster:
        await until(lambda: _each_has(cluster, "a", 2))
        seen: dict[str, list[int]] = {shard: [] for shard in SHARDS}
        created: list[str] = []

        async def follow(stream: Any) -> None:
            async for event in stream:
                seen[event.shard].append(event.seq)
                if event.kind == "process.created":
                    created.append(event.address)

        async with cluster.events() as stream:
            following = asyncio.ensure_future(follow(stream))
            await cluster.schedule("tick", works, every_s=1, missed="all", shard="s3")
            questions = [await cluster.spawn(asks, shard=shard) for shard in SHARDS]
            writers = [await cluster.spawn(writes, "red", shard, COUNT, shard=shard) for shard in SHARDS]
            asked = await until(lambda: _list_all(cluster.interrupts(), len(SHARDS)))
            calling = [await cluster.spawn(calls, number, shard=SHARDS[number % 4]) for number in range(20)]
            await asyncio.sleep(0.5)  # in the middle of sixty writes on each shard

            victim = (await cluster.refresh()).shards["s3"].host
            hosts[victim].kill()
            survivor = next(name for name in hosts if name != victim)
            await until(lambda: _each_has(cluster, survivor, len(SHARDS)))

            results = [(await process.wait()).result for process in calling]
            assert [result["n"] for result in results] == [number**2 for number in range(20)]
            after = await until(lambda: _list_all(cluster.interrupts(), len(SHARDS)))
            assert {row["id"] for row in after} == {row["id"] for row in asked}
            for question in questions:
                await cluster.resolve_interrupt(question.address, {"approved": True})
            assert [(await question.wait()).result for question in questions] == [True] * len(SHARDS)
            boards = await until(lambda: _read_boards(cluster))
            assert boards == [boards[0]] * len(SHARDS)
            for writer in writers:
                await writer.send("end")
            assert [(await writer.wait()).result for writer in writers] == [COUNT] * len(SHARDS)
            (row,) = await cluster.schedules()
            await until(lambda: _has_fired(cluster, row["fired"] + 2))
            assert await cluster.unschedule("tick")

            last = await cluster.spawn(works, shard="s3", pid="last")
            await last.wait()
            await until(lambda: last.address in created)
            following.cancel()
        ticks = [address.partition("@")[2] for address in created if address.startswith("s3/tick@")]
        dues = sorted(datetime.fromisoformat(text).timestamp() for text in ticks)
        assert dues == [dues[0] + number for number in range(len(dues))]
        assert len(dues) >= 3
        for shard, numbers in seen.items():
            assert numbers == list(range(numbers[0], numbers[-1] + 1)), shard


async def _each_has(cluster: Any, host: str, least: int) -> bool:
    told = {name: answer for name, answer in await cluster.ask_hosts("status", {}) if isinstance(answer, dict)}
    open_shards = [shard for answer in told.values() for shard in answer["shards"]]
    return sorted(open_shards) == list(SHARDS) and len(told[host]["shards"]) >= least


async def _list_all(listed: Any, count: int) -> Any:
    rows = await listed
    return rows if len(rows) == count else None


async def _has_fired(cluster: Any, least: int) -> bool:
    return any(row["fired"] >= least for row in await cluster.schedules())


async def _read_boards(cluster: Any) -> Any:
    """Return the boards as each shard reads them, once all writers have written their last number."""
    boards = []
    for shard in SHARDS:
        found = (await (await cluster.spawn(reads, "red", shard=shard)).wait()).result
        if found is None or found["board"] != dict.fromkeys(SHARDS, COUNT - 1):
            return None
        boards.append((found["board"], len(found["members"])))
    return boards

"""What a cluster costs: effects a second, messages between hosts, memory. Times are compared with a disk flush and
a call, measured beside them on the same server."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import lyra.cluster
from lyra.cluster.peers import GrpcCarrier
from lyra.errors import LyraError
from tests.cluster.conftest import new_url
from tests.limits import within
from verify.cluster.hosts import TestCluster
from verify.servers import PostgresServer, postgres_missing

PROGRAMS = "verify.cluster.programs"

pytestmark = [pytest.mark.slow, pytest.mark.timed]


@pytest.fixture(scope="module")
def flushing_server() -> Iterator[PostgresServer]:
    """A server that flushes each commit to its disk."""
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    with PostgresServer(fsync=True) as server:
        yield server


def _commit_s(server: PostgresServer) -> float:
    """Return how long a small commit takes, p50."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS flushed (number int)")
        taken = []
        for number in range(60):
            began_s = time.monotonic()
            connection.execute("INSERT INTO flushed VALUES (%s)", (number,))
            taken.append(time.monotonic() - began_s)
    return statistics.median(taken)


async def _call_s(cluster: TestCluster, host: str) -> float:
    """Return how long a call to a host takes that asks for nothing, p50."""
    carrier = GrpcCarrier(cluster.directory.secret)
    taken = []
    for _ in range(60):
        began_s = time.monotonic()
        try:
            await carrier.call(cluster.hosts[host].address, "nothing", {}, timeout_s=5.0)
        except LyraError:
            taken.append(time.monotonic() - began_s)
    await carrier.close()
    return statistics.median(taken)


@pytest.mark.parametrize("rounds", [pytest.param(50, id="short"), pytest.param(500, id="500", marks=pytest.mark.long)])
def test_a_message_there_and_back_takes_two_commits_and_two_calls(flushing_server, tmp_path, rounds):
    """A message to a process on another host and its answer: at most 2 commits, 2 calls and 3 ms, p50."""
    with TestCluster(new_url(flushing_server), tmp_path, shards=2, lease_s=3.0) as cluster:
        cluster.start("a", "b")

        async def main() -> tuple[float, float, float]:
            async with lyra.cluster.connect(cluster.url) as client:
                echo = await client.spawn(f"{PROGRAMS}:echo", shard=cluster.shards_of("b")[0], pid="echo")
                shard = cluster.shards_of("a")[0]
                handle = await client.spawn(
                    f"{PROGRAMS}:ping", f"{shard}/ping", echo.address, rounds, shard=shard, pid="ping"
                )
                taken = (await handle.wait()).result
                return statistics.median(taken), _commit_s(flushing_server), await _call_s(cluster, "b")

        taken_s, commit_s, call_s = asyncio.run(main())
        print(f"there and back {taken_s * 1e3:.1f} ms; commit {commit_s * 1e3:.2f}, call {call_s * 1e3:.2f} ms")
        within(taken_s, 2 * commit_s + 2 * call_s + 0.003)


def test_empty_kernels_are_small(flushing_server, tmp_path):
    """A host with 8 empty kernels has at most 100 MB, and each of them at most 2 MB."""
    with TestCluster(new_url(flushing_server), tmp_path, shards=8, lease_s=3.0) as cluster:
        cluster.start("a")
        eight = cluster.hosts["a"].memory_mb()
    with TestCluster(new_url(flushing_server), tmp_path, shards=1, lease_s=3.0) as cluster:
        cluster.start("a")
        one = cluster.hosts["a"].memory_mb()
    print(f"one kernel {one:.1f} MB, eight {eight:.1f} MB, each more {(eight - one) / 7:.2f} MB")
    within(eight, 100.0)
    within((eight - one) / 7, 2.0)


async def _run_crowds(cluster: TestCluster, program: str, args: tuple[Any, ...]) -> tuple[float, float]:
    """Run one program on each shard at the same time; gives the seconds from the first beginning to the last end, and
    the CPU seconds of the hosts."""
    cpu_s = sum(host.cpu_s() for host in cluster.hosts.values())
    async with lyra.cluster.connect(cluster.url) as client:
        handles = [
            await client.spawn(f"{PROGRAMS}:{program}", *args, shard=f"s{number + 1}")
            for number in range(cluster.shards)
        ]
        spans = [(await handle.wait()).result for handle in handles]
    cpu_s = sum(host.cpu_s() for host in cluster.hosts.values()) - cpu_s
    return max(ended for _, ended in spans) - min(began for began, _ in spans), cpu_s


@pytest.mark.long
def test_two_hosts_perform_more_than_one(flushing_server, tmp_path):
    """Two hosts make at least 1.5 times the effects a second of one kernel, at most at 1.3 times its CPU an effect."""
    processes, effects = 500, 200
    rates, costs = [], []
    for hosts in (1, 2):
        with TestCluster(new_url(flushing_server), tmp_path, shards=hosts, lease_s=3.0) as cluster:
            cluster.start(*"ab"[:hosts])
            asyncio.run(_run_crowds(cluster, "crowd", (50, 20)))
            taken_s, cpu_s = asyncio.run(_run_crowds(cluster, "crowd", (processes, effects)))
            rates.append(hosts * processes * effects / taken_s)
            costs.append(cpu_s / (hosts * processes * effects))
    print(f"effects/s {rates[0]:.0f} and {rates[1]:.0f}; CPU {costs[0] * 1e6:.1f} and {costs[1] * 1e6:.1f} µs")
    within(1.5, rates[1] / rates[0], "effects a second of two hosts to those of one")
    within(costs[1] / costs[0], 1.3)


@pytest.mark.long
def test_a_thousand_agents_use_two_hosts_well(flushing_server, tmp_path):
    """1 000 agents on two hosts take at most 1.25 times as long as 500 on one: an efficiency of 0.8."""
    taken = []
    for hosts in (1, 2):
        with TestCluster(new_url(flushing_server), tmp_path, shards=hosts, lease_s=3.0) as cluster:
            cluster.start(*"ab"[:hosts])
            asyncio.run(_run_crowds(cluster, "dig_team", (20,)))
            taken.append(asyncio.run(_run_crowds(cluster, "dig_team", (500,)))[0])
    print(f"500 agents on one host {taken[0]:.2f} s, 1 000 on two {taken[1]:.2f} s: {taken[0] / taken[1]:.2f}")
    within(0.8, taken[0] / taken[1], "efficiency")

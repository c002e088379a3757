"""What a cluster costs: effects a second, agents, messages between hosts, memory. Times are compared with a disk flush
and a call, measured beside them on the same server.

    pytest -s -q tests/cluster/test_costs.py

ends with a table of what was measured. Only CPU seconds and counts mean something while the machine has other work.
Efficiency is the throughput on two hosts over twice that on one, each host with as many agents."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

import lyra.cluster
from lyra.cluster.peers import GrpcCarrier
from lyra.errors import LyraError
from tests.cluster.conftest import new_url
from tests.limits import within
from verify.cluster.hosts import TestCluster
from verify.servers import PostgresServer, postgres_missing

_SOURCE = Path(__file__).parents[2]
PROGRAMS = "verify.cluster.programs"
_TRIES = 20  # of a commit and a call between two parts of the messages
_PARTS = 5

pytestmark = [pytest.mark.slow, pytest.mark.timed]


@pytest.fixture(scope="module")
def flushing_server() -> Iterator[PostgresServer]:
    """A server that flushes each commit to its disk."""
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    with PostgresServer(fsync=True) as server:
        yield server


@pytest.fixture(scope="module")
def table() -> Iterator[list[tuple[str, str, str]]]:
    """What was measured, how much of it, and what it may be."""
    rows: list[tuple[str, str, str]] = []
    yield rows
    print("\n\n| what | measured | limit |\n|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


@pytest.fixture
def vendor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A vendor whose models hosts call that are started from now on."""
    words = [sys.executable, "-m", "verify.cluster.vendor"]
    with subprocess.Popen(words, cwd=_SOURCE, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for name, value in json.loads(process.stdout.readline()).items():
            monkeypatch.setenv(name, value)
        yield
        process.stdin.close()


def _time_commits(server: PostgresServer) -> list[float]:
    """Return the seconds that small commits take."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS flushed (number int)")
        taken = []
        for number in range(_TRIES):
            began_s = time.monotonic()
            connection.execute("INSERT INTO flushed VALUES (%s)", (number,))
            taken.append(time.monotonic() - began_s)
    return taken


async def _time_calls(cluster: TestCluster, host: str) -> list[float]:
    """Return the seconds that calls to a host take that ask for nothing."""
    carrier = GrpcCarrier(cluster.directory.secret)
    taken = []
    for _ in range(_TRIES):
        began_s = time.monotonic()
        try:
            await carrier.call(cluster.hosts[host].address, "nothing", {}, timeout_s=5.0)
        except LyraError:
            taken.append(time.monotonic() - began_s)
    await carrier.close()
    return taken


@pytest.mark.parametrize("rounds", [pytest.param(50, id="short"), pytest.param(500, id="500", marks=pytest.mark.long)])
def test_a_message_there_and_back_takes_two_commits_and_two_calls(flushing_server, tmp_path, table, rounds):
    """A message to a process on another host and its answer: at most 2 commits, 2 calls and 3 ms, p50. Commits and
    calls are timed between the messages, since other work on the machine slows all three down."""
    with TestCluster(new_url(flushing_server), tmp_path, shards=2, lease_s=3.0) as cluster:
        cluster.start("a", "b")
        messages: list[float] = []
        commits: list[float] = []
        calls: list[float] = []

        async def main() -> None:
            async with lyra.cluster.connect(cluster.url) as client:
                echo = await client.spawn(f"{PROGRAMS}:echo", shard=cluster.shards_of("b")[0], pid="echo")
                shard = cluster.shards_of("a")[0]
                for number in range(_PARTS):
                    own, args = f"ping{number}", (echo.address, rounds // _PARTS)
                    handle = await client.spawn(f"{PROGRAMS}:ping", f"{shard}/{own}", *args, shard=shard, pid=own)
                    messages.extend((await handle.wait()).result)
                    commits.extend(_time_commits(flushing_server))
                    calls.extend(await _time_calls(cluster, "b"))

        asyncio.run(main())
        taken_s, commit_s, call_s = [statistics.median(times) for times in (messages, commits, calls)]
        limit_s = 2 * commit_s + 2 * call_s + 0.003
        words = f"2 × {commit_s * 1e3:.2f} + 2 × {call_s * 1e3:.2f} + 3 = {limit_s * 1e3:.1f} ms"
        table.append((f"{rounds} messages there and back, p50", f"{taken_s * 1e3:.1f} ms", words))
        within(taken_s, limit_s)


def test_empty_kernels_are_small(flushing_server, tmp_path, table):
    """A host with 8 empty kernels has at most 100 MB, and each of them at most 2 MB."""
    with TestCluster(new_url(flushing_server), tmp_path, shards=8, lease_s=3.0) as cluster:
        cluster.start("a")
        eight = cluster.hosts["a"].memory_mb()
    with TestCluster(new_url(flushing_server), tmp_path, shards=1, lease_s=3.0) as cluster:
        cluster.start("a")
        one = cluster.hosts["a"].memory_mb()
    table.append(("memory of a host with eight empty kernels", f"{eight:.1f} MB", "100 MB"))
    table.append(("memory of one more empty kernel", f"{(eight - one) / 7:.2f} MB", "2 MB"))
    within(eight, 100.0)
    within((eight - one) / 7, 2.0)


class _Run(NamedTuple):
    """How long a program took on all shards together, and the CPU seconds of the hosts and of the database."""

    taken_s: float
    hosts_s: float
    database_s: float

    @property
    def cpu_s(self) -> float:
        return self.hosts_s + self.database_s


async def _run_program(server: PostgresServer, cluster: TestCluster, program: str, *args: Any) -> _Run:
    """Run one program on each shard at the same time, from the first beginning to the last end."""

    def cpu() -> tuple[float, float]:
        return sum(host.cpu_s() for host in cluster.hosts.values()), server.cpu_s()

    async with lyra.cluster.connect(cluster.url) as client:

        async def run_on(shard: str) -> tuple[float, float]:
            handle = await client.spawn(f"{PROGRAMS}:{program}", *args, shard=shard)
            began_s, ended_s = (await handle.wait()).result
            return began_s, ended_s

        before = cpu()
        spans = await asyncio.gather(*[run_on(f"s{number + 1}") for number in range(cluster.shards)])
        after = cpu()
    taken_s = max(ended_s for _, ended_s in spans) - min(began_s for began_s, _ in spans)
    return _Run(taken_s, after[0] - before[0], after[1] - before[1])


def _compare(
    server: PostgresServer, folder: Path, program: str, args: tuple[Any, ...], first: tuple[Any, ...], tries: int
) -> tuple[_Run, _Run]:
    """Run a program on one host, and on each of two beside each other, after a short run; gives the quicker of so many
    runs of each."""
    best: dict[int, _Run] = {}
    for number in range(tries):
        for hosts in (1, 2):
            with TestCluster(new_url(server), folder / f"{number}-{hosts}", shards=hosts, lease_s=3.0) as cluster:
                cluster.start(*"ab"[:hosts])
                asyncio.run(_run_program(server, cluster, program, *first))
                run = asyncio.run(_run_program(server, cluster, program, *args))
            best[hosts] = min(best.get(hosts, run), run)
    return best[1], best[2]


@pytest.mark.long
def test_two_hosts_perform_more_than_one(flushing_server, tmp_path, table):
    """Two hosts make at least 1.5 times the effects a second of one kernel, at most at 1.3 times its CPU an effect, the
    database's included."""
    processes, effects = 500, 200
    one, two = _compare(flushing_server, tmp_path, "crowd", (processes, effects), (50, 20), 2)
    count = processes * effects
    costs = [
        f"{run.hosts_s / number * 1e6:.1f} + {run.database_s / number * 1e6:.1f}"
        for run, number in ((one, count), (two, 2 * count))
    ]
    ratio, cost = 2 * one.taken_s / two.taken_s, two.cpu_s / one.cpu_s / 2
    table.append(
        (
            "effects a second, one host and two",
            f"{count / one.taken_s:.0f} and {2 * count / two.taken_s:.0f}: {ratio:.2f} times",
            "1.5 times",
        )
    )
    table.append(
        (
            "CPU of an effect, hosts + database, one host and two",
            f"{costs[0]} and {costs[1]} µs: {cost:.2f} times",
            "1.3 times",
        )
    )
    within(1.5, ratio, "effects a second of two hosts to those of one")
    within(cost, 1.3, "CPU an effect")


@pytest.mark.long
@pytest.mark.parametrize("model", ["two seconds", "at once"])
def test_a_thousand_agents_use_two_hosts_well(flushing_server, tmp_path, table, vendor, model):
    """1 000 agents on two hosts, whose model answers after two seconds, do at least 1.6 times as much as 500 on one: an
    efficiency of 0.8. Where it answers at once they do nothing but compute, and cost at most 1.3 times as much each."""
    agents, is_quick = 500, model == "at once"
    waves = 5 if is_quick else 1
    one, two = _compare(
        flushing_server, tmp_path, "dig_team", (agents, waves, is_quick), (20, 1, is_quick), 1 + is_quick
    )
    count, efficiency, cost = agents * waves, one.taken_s / two.taken_s, two.cpu_s / one.cpu_s / 2
    what = f"500 agents a host, model answers {model if is_quick else f'after {model}'}"
    costs = f"{one.cpu_s / count * 1e3:.2f} and {two.cpu_s / count / 2 * 1e3:.2f} ms: {cost:.2f} times"
    table.append((f"{what}: seconds, one host and two", f"{one.taken_s:.2f} and {two.taken_s:.2f} s", "–"))
    table.append((f"{what}: efficiency", f"{efficiency:.2f}", "–" if is_quick else "0.8"))
    table.append((f"{what}: CPU of an agent, hosts + database", costs, "1.3 times"))
    within(cost, 1.3, "CPU of an agent")
    if not is_quick:
        within(0.8, efficiency, "efficiency")

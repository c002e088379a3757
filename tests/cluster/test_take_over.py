"""A host that dies, freezes or is slow, with its programs in the middle of effects: nothing is lost, nothing that has
finished is made again, and another host goes on within the lease and a little more."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import pytest

import lyra.cluster
from tests.cluster.conftest import LEASE_S, new_url
from tests.limits import within
from tests.store.conftest import postgres_server  # noqa: F401 - a fixture
from verify.cluster.hosts import Report, TestCluster

SPARE_S = 1.5  # beside the lease, until the shards of a dead host are open


async def _spawn(
    cluster: lyra.cluster.Cluster, program: str, count: int, shards: int, prefix: str, *args: object
) -> list[lyra.cluster.RemoteHandle]:
    word = f"verify.cluster.programs:{program}"
    began = [
        cluster.spawn(word, *args, shard=f"s{number % shards + 1}", pid=f"{prefix}{number}") for number in range(count)
    ]
    return list(await asyncio.gather(*began))


def _opened_again(cluster: TestCluster, shards: Sequence[str], after_s: float) -> float:
    """Return how long after that moment the last of these shards was open again."""

    def latest() -> float:
        opened = {report.words[0]: report.at_s for report in cluster.of_kind("open", after_s=after_s)}
        return max(opened[shard] for shard in shards) - after_s if opened.keys() >= set(shards) else 0.0

    return cluster.wait(latest)


def _in_flight(cluster: TestCluster, host: str, at_s: float) -> set[str]:
    """Return the keys of the effects of a host that had begun and not ended at a moment."""
    began = {report.words[0] for report in cluster.of_kind("begin", host=host) if report.at_s <= at_s}
    return began - {report.words[0] for report in cluster.of_kind("end", host=host)}


def _check_effects(cluster: TestCluster, since_s: float, effects: int, in_flight: set[str]) -> set[str]:
    """Check that each effect was performed once, those in flight at most twice; returns the keys of those twice."""
    begun = Counter(report.words[0] for report in cluster.of_kind("begin", after_s=since_s))
    assert len(begun) == effects
    twice = {key for key, times in begun.items() if times > 1}
    assert twice <= in_flight
    assert max(begun.values()) <= 2
    stores = {key.partition(".")[0] for key in begun}
    assert len(stores) == cluster.shards  # the key of a call names the store of its shard
    for shard, finished in cluster.finished().items():
        assert max(Counter(finished).values()) == 1, shard
    return twice


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize(
    ("programs", "shards", "lease_s"),
    [
        pytest.param(80, 4, LEASE_S, id="short"),
        pytest.param(1_000, 8, 3.0, id="1000 programs", marks=pytest.mark.long),
    ],
)
def test_programs_of_a_killed_host_go_on_elsewhere(postgres_server, tmp_path, programs, shards, lease_s):  # noqa: F811
    """One of two hosts is killed with effects in flight: every program ends with its result, each effect has one
    `finished` row, only idempotent effects that were in flight are made twice, each of the others is asked about once,
    the shards are open again within the lease and 1.5 s, and a call keeps its idempotency key."""
    with TestCluster(new_url(postgres_server), tmp_path, shards=shards, lease_s=lease_s) as cluster:
        cluster.start("a", "b")

        async def main() -> None:
            since_s = time.monotonic()
            async with lyra.cluster.connect(cluster.url) as client:
                pays = await _spawn(client, "pay", shards * 2, shards, "pay", 1, 60.0)
                acts = await _spawn(client, "act", programs, shards, "act", 10, 0.1)
                enough = min(50, programs // 4) + shards
                cluster.wait(lambda: len(_in_flight(cluster, "a", time.monotonic())) >= enough)
                lost = cluster.shards_of("a")
                cluster.hosts["a"].kill()
                killed_s = cluster.hosts["a"].killed_s
                in_flight = _in_flight(cluster, "a", killed_s)
                assert len(in_flight) >= enough
                within(_opened_again(cluster, lost, killed_s), lease_s + SPARE_S)
                expected = sum(number * 7 + 1 for number in range(10))
                ends = await asyncio.gather(*[handle.wait() for handle in acts])
                assert [end.result for end in ends] == [expected] * programs
                unsure = [handle.pid for handle in pays if handle.shard in lost]
                asked = cluster.wait(lambda: _at_least(cluster.of_kind("doubt"), len(unsure)))
                assert sorted(report.words[1] for report in asked) == sorted(unsure)
                twice = _check_effects(cluster, since_s, programs * 10 + len(pays), in_flight)
                assert twice
                assert not any(_pid_of(key) in unsure for key in twice)
                print(f"in flight {len(in_flight)}, twice {len(twice)}, in doubt {len(unsure)}")

        asyncio.run(main())


def _at_least(reports: list[Report], count: int) -> list[Report]:
    return reports if len(reports) >= count else []


def _pid_of(key: str) -> str:
    return key.split(":")[1].partition("~")[0]


@pytest.mark.slow
@pytest.mark.timed
def test_a_host_that_was_frozen_does_nothing_when_it_wakes(pair):
    """A host that is stopped for three leases and woken performs no effect and writes no row: it finds its shards taken
    and its kernels fenced, and goes on as an empty host."""

    async def main() -> None:
        async with lyra.cluster.connect(pair.url) as client:
            acts = await _spawn(client, "act", 60, pair.shards, "frozen", 8, 0.1)
            acts += await _spawn(client, "pace", 20, pair.shards, "paced", 8, 0.2)
            lost = pair.shards_of("a")
            pair.wait(lambda: len(_in_flight(pair, "a", time.monotonic())) >= 20)
            host = pair.hosts["a"]
            host.stop()
            stopped_s = host.killed_s
            within(_opened_again(pair, lost, stopped_s), pair.lease_s + SPARE_S)
            assert {report.host for report in pair.of_kind("open", after_s=stopped_s)} == {"b"}
            for handle in acts:
                assert (await handle.wait()).reason == "normal"
            await asyncio.sleep(max(0.0, stopped_s + 3 * pair.lease_s - time.monotonic()))
            before = {shard: len(pair.rows(shard)) for shard in lost}
            woken_s = time.monotonic()
            host.wake()
            closed = pair.wait(lambda: _at_least(pair.of_kind("closed", host="a", after_s=woken_s), len(lost)))
            assert {report.words[1] for report in closed} <= {"conflict", "given"}
            assert {shard: len(pair.rows(shard)) for shard in lost} == before
            assert [report for report in pair.of_kind("begin", host="a") if report.at_s > woken_s] == []
            pair.wait_balanced()

    asyncio.run(main())


@pytest.mark.slow
def test_a_host_that_a_program_holds_up_is_not_dead(pair):
    """A program that computes for three leases without waiting holds up the loop of its host: no shard moves, and no
    effect is made twice."""

    async def main() -> None:
        async with lyra.cluster.connect(pair.url) as client:
            since_s = time.monotonic()
            before = pair.owners()
            shard = pair.shards_of("a")[0]
            acts = await _spawn(client, "act", 40, pair.shards, "held", 10, 0.1)
            busy = await client.spawn("verify.cluster.programs:hold_up", 3 * pair.lease_s, shard=shard, pid="busy")
            assert (await busy.wait()).result == "done"
            for handle in acts:
                assert (await handle.wait()).reason == "normal"
            assert pair.owners() == before
            assert pair.of_kind("open", after_s=since_s) == []
            _check_effects(pair, since_s, 400, set())

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.timed
def test_wrong_clocks_change_nothing(postgres_server, tmp_path):  # noqa: F811
    """Two hosts have clocks two minutes apart: neither takes a shard of the other while it lives, and each takes all of
    them within the lease and 1.5 s when the other one is killed."""
    with TestCluster(new_url(postgres_server), tmp_path, shards=2, lease_s=LEASE_S) as cluster:
        cluster.begin("a", skew_s=60.0)
        cluster.start("b", skew_s=-60.0)
        for victim, skew_s in (("a", 60.0), ("b", -60.0)):
            before = cluster.owners()
            since_s = time.monotonic()
            time.sleep(2 * LEASE_S)
            assert cluster.owners() == before
            assert cluster.of_kind("open", after_s=since_s) == []
            lost = cluster.shards_of(victim)
            host = cluster.hosts[victim]
            host.kill()
            within(_opened_again(cluster, lost, host.killed_s), LEASE_S + SPARE_S)
            cluster.start(victim, skew_s=skew_s)

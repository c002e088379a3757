"""Hosts of two versions side by side, and hosts that are added and drained while programs run."""

from __future__ import annotations

import asyncio
import time

import pytest

import lyra.cluster
from lyra.cluster.directory import DRAINING
from lyra.cluster.host import FORMAT
from tests.cluster.conftest import LEASE_S, new_url
from tests.store.conftest import postgres_server  # noqa: F401 - a fixture
from verify.cluster.hosts import TestCluster

PROGRAMS = "verify.cluster.programs"

pytestmark = pytest.mark.slow


def test_a_post_that_an_older_host_does_not_know_waits(postgres_server, tmp_path):  # noqa: F811
    """Messages and a link to a shard on a host that does not know messages yet: neither is taken, not even the link,
    which it knows, before its turn; when the shard is drained to a newer host all arrive, once and in order."""
    with TestCluster(new_url(postgres_server), tmp_path, shards=2, lease_s=LEASE_S) as cluster:
        cluster.begin("old", unknown_posts=["message"])
        cluster.start("young")
        old_shard, young_shard = cluster.shards_of("old")[0], cluster.shards_of("young")[0]

        async def main() -> None:
            async with lyra.cluster.connect(cluster.url) as client:
                collecting = await client.spawn(f"{PROGRAMS}:collect", 6, shard=old_shard, pid="collects")
                teller = await client.spawn(
                    f"{PROGRAMS}:tell_and_spawn", collecting.address, 6, old_shard, shard=young_shard, pid="tells"
                )
                until_s = time.monotonic() + 20.0
                while True:
                    answers = dict(await client.ask_hosts("status", {}))
                    if answers["young"]["shards"][young_shard]["waiting_posts"].get(old_shard) == 7:
                        break
                    assert time.monotonic() < until_s
                    await asyncio.sleep(0.05)
                await asyncio.sleep(LEASE_S)  # tried again meanwhile
                assert [row["pid"] for row in await client.processes()] == ["collects"]  # and not what was spawned
                assert "does not know" in cluster.hosts["old"].log.read_text()
                assert cluster.directory.set_state("old", DRAINING)
                assert (await collecting.wait()).result == list(range(6))
                child = (await teller.wait()).result
                assert (await client.process(child).wait()).result == 0

        asyncio.run(main())


def test_a_shard_moves_only_to_a_host_that_can_open_it(postgres_server, tmp_path):  # noqa: F811
    """Shards that a newer version has opened are not taken by an older one, not when their host is killed either; the
    older host keeps its own, and the next newer one takes the others."""
    with TestCluster(new_url(postgres_server), tmp_path, shards=4, lease_s=LEASE_S) as cluster:
        cluster.start("old", format=FORMAT - 1)
        assert cluster.shards_of("old") == ["s1", "s2", "s3", "s4"]
        cluster.start("young")
        moved = cluster.shards_of("young")
        assert len(moved) == 2
        cluster.hosts["young"].kill()
        killed_s = cluster.hosts["young"].killed_s
        time.sleep(2 * LEASE_S + 0.5)
        assert cluster.of_kind("open", after_s=killed_s) == []
        assert len(cluster.shards_of("old")) == 2
        cluster.start("younger", is_balanced=False)
        cluster.wait(lambda: set(cluster.shards_of("younger")) >= set(moved))
        assert cluster.directory.set_state("old", DRAINING)
        cluster.wait(lambda: len(cluster.shards_of("younger")) == 4)
        cluster.hosts["old"].terminate()
        assert cluster.hosts["old"].join() == 0


def test_hosts_are_added_and_drained_while_programs_run(postgres_server, tmp_path):  # noqa: F811
    """A host is added, another one drained and ended, in the middle of effects and of messages between shards: every
    program ends, each effect is made once, each message arrives once and in order."""
    with TestCluster(new_url(postgres_server), tmp_path, shards=4, lease_s=LEASE_S) as cluster:
        cluster.start("a", "b")

        async def main() -> None:
            since_s = time.monotonic()
            async with lyra.cluster.connect(cluster.url) as client:
                acts = await asyncio.gather(
                    *[
                        client.spawn(f"{PROGRAMS}:act", 60, 0.1, shard=f"s{number % 4 + 1}", pid=f"act{number}")
                        for number in range(40)
                    ]
                )
                collecting = [
                    await client.spawn(f"{PROGRAMS}:collect", 100, shard=f"s{number}", pid="collects")
                    for number in range(1, 5)
                ]
                for number, handle in enumerate(collecting, 1):
                    shard = f"s{number % 4 + 1}"
                    await client.spawn(f"{PROGRAMS}:tell", handle.address, 100, 0.05, shard=shard, pid="tells")
                cluster.wait(lambda: len(cluster.of_kind("end", after_s=since_s)) > 100)
                await asyncio.to_thread(cluster.start, "c", is_balanced=False)
                assert cluster.directory.set_state("a", DRAINING)
                await asyncio.to_thread(cluster.wait, lambda: not cluster.shards_of("a"))
                cluster.hosts["a"].terminate()
                assert await asyncio.to_thread(cluster.hosts["a"].join) == 0
                for handle in acts:
                    assert (await handle.wait()).reason == "normal"
                for handle in collecting:
                    assert (await handle.wait()).result == list(range(100))
                keys = [report.words[0] for report in cluster.of_kind("begin", after_s=since_s)]
                assert len(keys) == len(set(keys)) == 40 * 60
                assert {"b", "c"} == set(cluster.owners().values())

        asyncio.run(main())

"""PostgreSQL's primary dies and a streaming replica is promoted: hosts that name both servers go on there."""

from __future__ import annotations

import asyncio
import time

import pytest

import lyra.cluster
from verify.cluster.hosts import TestCluster
from verify.servers import PostgresServer, postgres_missing

PROGRAMS = "verify.cluster.programs"


@pytest.mark.slow
@pytest.mark.long
def test_a_promoted_standby_is_gone_on_with(tmp_path):
    """The primary is killed in the middle of effects and its standby, which every commit waited for, is promoted: no
    shard moves, no program notices, each effect is made once."""
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    with PostgresServer(fsync=True) as primary:
        standby = PostgresServer(fsync=True)
        standby.start_standby(primary)
        folders = ",".join(server.url.partition("host=")[2].partition("&")[0] for server in (primary, standby))
        url = f"postgresql:///postgres?host={folders}&user=lyra&target_session_attrs=read-write&schema=lyra"
        try:
            with TestCluster(url, tmp_path, shards=4, lease_s=2.0) as cluster:
                cluster.start("a", "b", durability="power")

                async def main() -> None:
                    async with lyra.cluster.connect(cluster.url) as client:
                        since_s = time.monotonic()
                        began = [
                            client.spawn(f"{PROGRAMS}:act", 30, 0.1, shard=f"s{number % 4 + 1}", pid=f"p{number}")
                            for number in range(40)
                        ]
                        handles = await asyncio.gather(*began)
                        cluster.wait(lambda: len(cluster.of_kind("end", after_s=since_s)) > 100)
                        primary.halt()
                        await asyncio.to_thread(standby.promote)
                        for handle in handles:
                            assert (await handle.wait()).reason == "normal"
                        assert cluster.of_kind("open", after_s=since_s) == []
                        keys = [report.words[0] for report in cluster.of_kind("begin", after_s=since_s)]
                        assert len(keys) == len(set(keys)) == 40 * 30

                asyncio.run(main())
        finally:
            standby.stop()
            primary.resume()  # for its own end

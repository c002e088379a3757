"""PostgreSQL's primary dies and a streaming replica is promoted: hosts that name both servers go on there."""

from __future__ import annotations

import asyncio
import threading
import time

import psycopg
import pytest

import lyra.cluster
from lyra.store.postgres import PostgresStore
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


@pytest.mark.slow
def test_a_server_that_became_read_only_is_left(tmp_path):
    """The server that a store is connected to takes no changes any more, as a primary that was demoted: the store
    connects again until one does, and the append that met it is there once."""
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    with PostgresServer() as server:
        store = PostgresStore(f"{server.url}&schema=demoted")
        lease = store.acquire("one", now=None, ttl_s=60.0)
        with psycopg.connect(server.url, autocommit=True) as person:
            person.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            person.execute("SELECT pg_reload_conf()")
            while person.execute("SHOW default_transaction_read_only").fetchone() != ("on",):
                time.sleep(0.01)
            appending = threading.Thread(target=store.append, args=([(1, 0.0, "p1", "kind", b"x")], lease.epoch))
            appending.start()
            appending.join(0.5)
            assert appending.is_alive()
            person.execute("SET default_transaction_read_only = off")
            person.execute("ALTER SYSTEM RESET default_transaction_read_only")
            person.execute("SELECT pg_reload_conf()")
            appending.join(20.0)
        assert not appending.is_alive()
        assert [row.seq for row in store.read()] == [1]
        store.close()

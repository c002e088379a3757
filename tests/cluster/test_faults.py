"""What goes wrong around hosts: the database restarts, rows of the directory are changed by hand, two hosts have one
name, a store cannot be opened. Each is told in a sentence, and nothing else stops."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
import pytest

import lyra.cluster
from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.peers import GrpcCarrier
from lyra.core.secrets.secret import Secret
from lyra.errors import Denied, StoreError
from tests.cluster.conftest import LEASE_S, new_url
from tests.store.conftest import postgres_server  # noqa: F401 - a fixture
from verify.cluster.hosts import TestCluster
from verify.servers import PostgresServer, postgres_missing

PROGRAMS = "verify.cluster.programs"

pytestmark = pytest.mark.slow


def _change(cluster: TestCluster, statement: str) -> None:
    """Change the tables of the directory by hand."""
    with psycopg.connect(cluster.url.partition("&schema")[0]) as connection:
        connection.execute(f"SET search_path TO {cluster.directory.schema}".encode())
        connection.execute(statement.encode())


def _status(cluster: TestCluster, host: str) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        carrier = GrpcCarrier(cluster.directory.secret)
        try:
            status: dict[str, Any] = await carrier.call(cluster.hosts[host].address, "status", {}, timeout_s=5.0)
            return status
        finally:
            await carrier.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    "outage_s",
    [pytest.param(0.0, id="short", marks=pytest.mark.long), pytest.param(2.5 * LEASE_S, id="longer than the lease")],
)
def test_a_server_that_restarts_is_ridden_out(tmp_path, outage_s):
    """PostgreSQL crashes and comes back, also after longer than the lease: no shard moves, every program ends, and each
    effect is made once."""
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    with PostgresServer() as server, TestCluster(f"{server.url}&schema=lyra", tmp_path, lease_s=LEASE_S) as cluster:
        cluster.start("a", "b")

        async def main() -> None:
            async with lyra.cluster.connect(cluster.url) as client:
                since_s = time.monotonic()
                began = [
                    client.spawn(f"{PROGRAMS}:act", 20, 0.1, shard=f"s{number % 4 + 1}", pid=f"p{number}")
                    for number in range(40)
                ]
                handles = await asyncio.gather(*began)
                cluster.wait(lambda: len(cluster.of_kind("end", after_s=since_s)) > 100)
                server.halt()
                await asyncio.sleep(outage_s)
                server.resume()
                for handle in handles:
                    assert (await handle.wait()).reason == "normal"
                assert cluster.of_kind("open", after_s=since_s) == []
                keys = [report.words[0] for report in cluster.of_kind("begin", after_s=since_s)]
                assert len(keys) == len(set(keys)) == 800

        asyncio.run(main())


def test_a_second_host_of_a_name_is_refused(pair):
    """A host with the name of one that lives ends with a sentence, and the first one keeps its shards."""
    before = pair.owners()
    first = pair.hosts["a"]
    pair.begin("a")
    second = pair.hosts["a"]
    assert second.join() != 0
    assert "a host named 'a' is in the cluster already" in second.log.read_text()
    pair.hosts["a"] = first
    assert sorted(_status(pair, "a")["shards"]) == sorted(shard for shard, host in before.items() if host == "a")


def test_a_host_that_was_killed_starts_again_at_once(pair):
    """A host that is started under its name right after it was killed waits until its old row is over, and is in the
    cluster then."""
    pair.hosts["a"].kill()
    pair.start("a")
    assert pair.shards_of("a")


def test_a_name_that_was_taken_meanwhile_is_given_up(pair):
    """A host is frozen until another one is started under its name; woken, it closes what it had and leaves the other
    one alone, and when that ends it is in the cluster again."""
    first = pair.hosts["a"]
    first.stop()
    pair.begin("a", machine="a2")
    second = pair.hosts["a"]
    pair.wait(lambda: second.address)
    pair.wait(lambda: _is_balanced(pair))
    woken_s = time.monotonic()
    first.wake()
    pair.wait(lambda: pair.of_kind("closed", host="a", after_s=woken_s))
    time.sleep(LEASE_S)
    held = _status(pair, "a")["shards"]
    assert len(held) == 2
    pair.hosts["a"] = first
    assert _status(pair, "a")["shards"] == {}
    assert "is in the cluster already" in _status(pair, "a")["problem"]
    ended_s = time.monotonic()
    second.terminate()
    second.join()
    pair.wait(lambda: len({report.words[0] for report in pair.of_kind("open", host="a", after_s=ended_s)}) == 2)


def _is_balanced(cluster: TestCluster) -> bool:
    held = [_status(cluster, name)["shards"] for name in ("a", "b")]
    return [len(shards) for shards in held] == [2, 2]


def test_a_caller_without_the_secret_is_refused(pair):
    """A host answers nobody who does not know the secret of its cluster."""

    async def main() -> None:
        carrier = GrpcCarrier(Secret("another cluster's"))
        with pytest.raises(Denied, match="refuses this one's secret"):
            await carrier.call(pair.hosts["a"].address, "status", {}, timeout_s=5.0)
        await carrier.close()

    asyncio.run(main())


def test_a_directory_that_is_changed_by_hand_is_set_right(pair):
    """Rows of hosts that make no sense or are deleted, and shards that are assigned to nobody, cost no more than a
    moment."""
    _change(pair, "UPDATE hosts SET load = 'x', resources = '{\"cpu\": \"y\"}'")
    _change(pair, "DELETE FROM hosts WHERE name = 'b'")
    changed_s = time.monotonic()
    _change(
        pair,
        "WITH c AS (UPDATE cluster SET changes = changes + 1 RETURNING changes)"
        " UPDATE shards SET host = 'nobody', moves = moves + 7, change = c.changes FROM c WHERE name = 's1'",
    )
    opened = pair.wait(
        lambda: [
            report
            for report in pair.of_kind("open", after_s=changed_s)
            if report.words == ("s1", "0") or report.words[0] == "s1"
        ]
    )
    assert opened[0].at_s - changed_s < 2 * LEASE_S
    pair.wait_balanced()
    view = pair.directory.view()
    assert view.hosts["b"].resources == {"cpu": 1.0}


def test_a_directory_without_its_secret_says_so(postgres_server):  # noqa: F811
    """The row with the secret is deleted: no host makes another one, under which no store could be read."""
    url = new_url(postgres_server)
    directory = PostgresDirectory(url, shards=2)
    with psycopg.connect(url.partition("&schema")[0]) as connection:
        connection.execute(f"DELETE FROM {directory.schema}.cluster".encode())
    with pytest.raises(StoreError, match="lost the row") as refusal:
        PostgresDirectory(url, shards=2)
    assert "backup" in str(refusal.value.hint)
    with pytest.raises(StoreError, match="lost the row"):
        directory.view()
    directory.close()


def test_rows_of_shards_that_were_deleted_are_made_again(postgres_server):  # noqa: F811
    """A host that starts writes the rows that are missing; the others are as they were."""
    url = new_url(postgres_server)
    directory = PostgresDirectory(url, shards=4)
    assert directory.assign("s4", "a", 0)
    with psycopg.connect(url.partition("&schema")[0]) as connection:
        connection.execute(f"DELETE FROM {directory.schema}.shards WHERE name = 's2'".encode())
    again = PostgresDirectory(url, shards=4)
    rows = again.view().shards
    assert sorted(rows) == ["s1", "s2", "s3", "s4"]
    assert rows["s4"].host == "a"
    again.close()
    directory.close()


def test_a_shard_whose_store_is_damaged_stays_alone(postgres_server, tmp_path):  # noqa: F811
    """A store that cannot be read: the directory says why, the other shards work, the log has the sentence once, and
    when the store is repaired its shard opens."""
    with TestCluster(new_url(postgres_server), tmp_path, shards=3, lease_s=0.5) as cluster:
        schema = f"{cluster.directory.schema}_s2"
        with psycopg.connect(cluster.url.partition("&schema")[0], autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}".encode())
            connection.execute(f"CREATE TABLE {schema}.migrations (number int, name text, crc bigint)".encode())
            connection.execute(f"INSERT INTO {schema}.migrations VALUES (1, 'another program', 0)".encode())
            cluster.begin("a")
            cluster.wait(lambda: len(cluster.owners()) == 2)
            _wait_for_note(cluster, "s2")
            time.sleep(2.0)
            log = cluster.hosts["a"].log.read_text()
            assert log.count("cannot open shard s2") == 1
            assert sorted(cluster.owners()) == ["s1", "s3"]
            connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
            cluster.wait(lambda: len(cluster.owners()) == 3)
            _wait_for_note(cluster, "s2", is_there=False)


def _wait_for_note(cluster: TestCluster, shard: str, *, is_there: bool = True) -> None:
    until_s = time.monotonic() + 10.0
    while bool(cluster.directory.view().shards[shard].note) != is_there:
        assert time.monotonic() < until_s
        time.sleep(0.05)

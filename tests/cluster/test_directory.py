"""Names of hosts and rows that make no sense, in a directory alone."""

from __future__ import annotations

import asyncio
import re
from contextlib import closing

import psycopg
import pytest

from lyra.cluster.backup import _find_runs
from lyra.cluster.directory import HostRow, MemoryDirectory, PostgresDirectory
from lyra.cluster.host import FORMAT, Host
from lyra.cluster.placement import place
from lyra.errors import ConfigError, Conflict, NoCluster
from lyra.kernel import Kernel
from lyra.store.postgres import PostgresReader, PostgresStore
from lyra.store.postgres_space import PostgresSpace
from lyra.testing.loop import run
from tests.cluster.conftest import new_url
from tests.store.conftest import postgres_server  # noqa: F401 - a fixture


class NoCarrier:
    async def call(self, address, method, data, *, timeout_s):
        raise AssertionError("no host calls another one here")

    def forget(self, alive):
        """There is nothing to drop."""

    async def close(self):
        """There is nothing to close."""


def _host(directory: MemoryDirectory, clock) -> Host:
    return Host(directory, NoCarrier(), name="a", clock=clock, in_threads=False)


def test_a_host_that_was_killed_starts_under_its_name():
    """The row of a host that was killed is waited for; it is over after a lease."""

    async def main() -> None:
        clock = asyncio.get_running_loop().lyra_clock  # type: ignore[attr-defined]
        directory = MemoryDirectory([], clock.now, lease_s=3.0)
        directory.join(_host(directory, clock).row)  # and was killed
        began_s = clock.monotonic()
        async with _host(directory, clock) as host:
            assert 2.0 < clock.monotonic() - began_s < 4.0
            assert directory.view().hosts["a"].life == host.row.life

    run(main())


def test_a_name_that_is_in_use_is_refused():
    """A host whose name another one keeps renewing is refused after a little more than a lease."""

    async def main() -> None:
        clock = asyncio.get_running_loop().lyra_clock  # type: ignore[attr-defined]
        directory = MemoryDirectory([], clock.now, lease_s=3.0)
        async with _host(directory, clock) as first:
            began_s = clock.monotonic()
            with pytest.raises(Conflict, match="in the cluster already"):
                await _host(directory, clock).start()
            assert 3.0 < clock.monotonic() - began_s < 5.0
            assert directory.view().hosts["a"].life == first.row.life

    run(main())


def test_a_cluster_with_the_longest_name_has_runs(postgres_server):  # noqa: F811
    """PostgreSQL has no names over 63 characters: the schemas of the shards and of the Vega runs of a cluster whose own
    schema has 50 fit, differ from run to run, and are in its backups."""
    url = new_url(postgres_server).partition("&schema")[0] + f"&schema={'c' * 50}"
    directory = PostgresDirectory(url, shards=256)
    spaces = [PostgresSpace(url, run, directory.signer) for run in ("one", "two")]
    for space in spaces:
        space.leave_note(space.name.encode())
    found = [PostgresSpace(url, run, directory.signer, make=False) for run in ("one", "two")]
    assert [[data for _, data in space.notes()] for space in found] == [[b"one"], [b"two"]]
    shard = PostgresStore(directory.url_of("s256"))
    assert shard.check() == []
    with psycopg.connect(url.partition("&schema")[0]) as connection:
        listed = _find_runs(
            lambda sql, values: connection.execute(sql.replace("?", "%s").encode(), values).fetchall(), directory.schema
        )
    assert sorted(f"{directory.schema}_{name}" for name in listed) == sorted(space.schema for space in spaces)
    for store in (*spaces, *found, shard):
        store.close()
    directory.close()


def test_numbers_that_are_none_are_left_out(postgres_server):  # noqa: F811
    """A load and resources that were damaged by hand read as empty until the host writes them anew."""
    url = new_url(postgres_server)
    directory = PostgresDirectory(url, shards=1)
    row = HostRow("a", "life", "127.0.0.1:1", "1", FORMAT, resources={"cpu": 2.0}, load={"processes": 1.0})
    known = directory.join(row)
    with psycopg.connect(url.partition("&schema")[0]) as connection:
        damage = "load = 'x', resources = '{\"cpu\": \"y\"}'"
        connection.execute(f"UPDATE {directory.schema}.hosts SET {damage}".encode())
    assert directory.view().hosts["a"].resources == {}
    directory.renew(row, known)
    assert directory.view().hosts["a"].resources == {"cpu": 2.0}
    assert directory.view().hosts["a"].load == {"processes": 1.0}
    directory.close()


@pytest.mark.parametrize("open_one", [PostgresStore, PostgresReader])
def test_the_schema_of_a_cluster_is_no_store(postgres_server, open_one):  # noqa: F811
    """A store there would be no shard, and in no backup: it is refused, and none of its tables made."""
    url = new_url(postgres_server)
    with closing(PostgresDirectory(url, shards=1)) as directory:
        with pytest.raises(ConfigError, match="is a cluster, and no store"):
            open_one(url)
        with psycopg.connect(url.partition("&schema")[0]) as connection:
            made = connection.execute("SELECT to_regclass(%s)", (f"{directory.schema}.journal",)).fetchall()
        assert made == [(None,)]
        PostgresStore(directory.url_of("s1")).close()


def test_the_schema_of_a_store_is_no_cluster(postgres_server):  # noqa: F811
    """A cluster is not made beside the rows of a kernel that is no shard of it."""
    url = new_url(postgres_server)

    async def work() -> None:
        async with Kernel(url) as kernel:
            kernel.groups.create("council")

    asyncio.run(work())
    with pytest.raises(ConfigError, match="has a store already"):
        PostgresDirectory(url)
    PostgresStore(url).close()  # nothing was made there


def test_a_cluster_has_the_shard_of_each_store_there(postgres_server):  # noqa: F811
    """A store that was moved to a shard before the cluster was made would be opened by no host: too few are refused."""
    url = new_url(postgres_server)
    PostgresStore(f"{url}_s5").close()
    with pytest.raises(ConfigError, match="store for shard s5") as told:
        PostgresDirectory(url, shards=3)
    assert told.value.hint is not None
    assert "--shards 5" in told.value.hint
    with pytest.raises(NoCluster):  # nothing was made
        PostgresDirectory(url, make=False)
    with closing(PostgresDirectory(url, shards=5)) as directory:
        assert "s5" in directory.view().shards
    PostgresDirectory(url).close()  # there is one now


def test_a_schema_without_a_cluster_is_told(postgres_server):  # noqa: F811
    """A client of a database in which no host has made the cluster gets an error of its own."""
    with pytest.raises(NoCluster, match="no cluster") as told:
        PostgresDirectory(new_url(postgres_server), make=False)
    assert told.value.code == "no_cluster"


def test_a_cluster_may_be_called_like_a_word_of_sql(postgres_server):  # noqa: F811
    """`?schema=user` is a cluster like any other, with its shards beside it."""
    url = re.sub("schema=[a-z0-9_]+", "schema=user", new_url(postgres_server))
    with closing(PostgresDirectory(url, shards=1)) as directory:
        assert directory.schema == "user"
        directory.join(HostRow("a", "life", "127.0.0.1:1", "1", FORMAT))
        assert directory.assign("s1", "a", 0)
        PostgresStore(directory.url_of("s1")).close()
    with closing(PostgresDirectory(url, make=False)) as again:
        assert again.view().shards["s1"].host == "a"


def test_rows_of_hosts_that_left_long_ago_are_dropped(postgres_server):  # noqa: F811
    """One that left a moment ago stays: other hosts may not have heard of it."""
    with closing(PostgresDirectory(new_url(postgres_server))) as directory:
        rows = {name: HostRow(name, f"life of {name}", "", "1", 1) for name in ("old", "new", "next")}
        for name in ("old", "new"):
            directory.join(rows[name])
            directory.leave(rows[name])
        directory._read("UPDATE hosts SET expires_at = expires_at - 100000 WHERE name = 'old' RETURNING name")
        directory.join(rows["next"])
        assert {name for (name,) in directory._read("SELECT name FROM hosts")} == {"new", "next"}


def test_a_host_that_died_long_ago_is_no_part_of_the_cluster(postgres_server):  # noqa: F811
    """The next one that joins tells the others that it left, as if it had said so; its row goes a day later."""
    with closing(PostgresDirectory(new_url(postgres_server))) as directory:
        dead, live, late = [HostRow(name, f"life of {name}", "", "1", 1) for name in ("dead", "live", "late")]
        directory.join(dead)
        known = directory.join(live)
        directory._read("UPDATE hosts SET expires_at = expires_at - 100000 WHERE name = 'dead' RETURNING name")
        known = directory.renew(live, known)
        assert "dead" in known.hosts
        assert not known.is_alive("dead")
        directory.join(late)
        known = directory.renew(live, known)
        assert set(known.hosts) == {"live", "late"}
        directory.join(late)
        assert {name for (name,) in directory._read("SELECT name FROM hosts")} == {"dead", "live", "late"}
        with pytest.raises(Conflict):
            directory.renew(dead, known)
        directory.join(dead)
        assert directory.renew(live, known).is_alive("dead")


def test_a_place_near_nothing_is_refused():
    """A client names the process that a new one is to be near by its address."""
    view = MemoryDirectory(["s1"], lambda: 0.0).view()
    assert place(view, {"near": "s1/p7"}) == "s1"
    assert place(view, {"near": "p7"}, here="s2") == "s2"
    with pytest.raises(ConfigError, match="near is 'junk'"):
        place(view, {"near": "junk"})

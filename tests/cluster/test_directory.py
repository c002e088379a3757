"""Names of hosts and rows that make no sense, in a directory alone."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from lyra.cluster.directory import HostRow, MemoryDirectory, PostgresDirectory
from lyra.cluster.host import FORMAT, Host
from lyra.errors import Conflict
from lyra.testing.loop import run
from tests.cluster.conftest import new_url
from tests.store.conftest import postgres_server  # noqa: F401 - a fixture


class NoCarrier:
    async def call(self, address, method, data, *, timeout_s):
        raise AssertionError("no host calls another one here")

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

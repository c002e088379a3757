"""The pages and lists of all shards over a host with several of them: what they count as, and who may do what."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.started import database as database  # noqa: PLC0414 - a fixture
from tests.server.cluster.support import ADA, OPERATOR, Cluster, ServingHost, TellingVendor
from verify.servers import PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture
def host(tmp_path: Path, database: PostgresServer) -> Iterator[tuple[asyncio.Runner, Cluster]]:
    """One host with four shards, and six requests a minute for each caller."""
    with asyncio.Runner() as runner:
        cluster = Cluster(tmp_path, database.url, TellingVendor())
        flags = ("--shards", "4", "--lease", "1.5")
        env = {"LYRA_SERVER_REQUESTS_PER_MINUTE": "6"}
        started = ServingHost(tmp_path, cluster.url, "a", "http://127.0.0.1:9", *flags, **env)
        cluster.hosts["a"] = started
        try:
            runner.run(started.until_ready())
            yield runner, cluster
        finally:
            started.close()


def test_a_list_and_a_page_of_all_shards_are_one_request_of_their_caller(
    host: tuple[asyncio.Runner, Cluster],
) -> None:
    runner, cluster = host

    async def main() -> None:
        async with cluster.client("a", ADA) as http:
            for path in ("/api/processes", "/processes", "/api/tree", "/", "/inbox", "/api/costs"):
                assert (await http.get(path)).status_code == 200, path
            assert (await http.get("/api/processes")).status_code == 429

    runner.run(main())


def test_only_an_operator_sees_and_drains_hosts(host: tuple[asyncio.Runner, Cluster]) -> None:
    runner, cluster = host

    async def main() -> None:
        async with cluster.client("a", ADA) as http:
            assert (await http.get("/cluster")).status_code == 403
            assert (await http.post("/acts/cluster/a/drain")).status_code == 403
            assert "4 of 4 shards" not in (await http.get("/")).text
        async with cluster.client("a", OPERATOR) as http:
            page = (await http.get("/cluster")).text
            assert "All is well" in page
            assert "No other host would take its shards" in page
            assert (await http.post("/acts/cluster/b/drain")).status_code == 400

    runner.run(main())

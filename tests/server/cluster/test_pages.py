"""The pages and lists of all shards over a host with several of them: what they count as, and who may do what."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.started import database as database  # noqa: PLC0414 - a fixture
from tests.server.cluster.support import ADA, OPERATOR, Cluster, ServingHost, TellingVendor, serving
from tests.server.http.support import in_loop
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


def test_a_change_on_all_shards_is_one_request_of_its_caller(host: tuple[asyncio.Runner, Cluster]) -> None:
    """Also what is looked for on one shard after the other, and a stream of the events of all."""
    runner, cluster = host

    async def main() -> None:
        async with cluster.client("a", ADA) as http:
            webhook = {"url": "https://example.com/x", "kinds": ["process.created"]}
            made = await http.post("/api/webhooks", json=webhook)
            assert made.status_code == 201, made.text
            assert (await http.get("/api/sessions/nosuch")).status_code == 404
            async with http.stream("GET", "/api/events") as events:
                assert events.status_code == 200
                async for line in events.aiter_lines():
                    if line.count("=") == 4:  # a place in each shard
                        break
            assert (await http.delete("/api/processes/nosuch")).status_code == 404
            assert (await http.delete(f"/api/webhooks/{made.json()['webhook_id']}")).status_code == 200
            assert (await http.get("/api/webhooks")).json() == {"webhooks": []}
            for path in ("/api/webhooks", "/api/events"):
                assert (await http.get(path)).status_code == 429

    runner.run(main())


def test_no_client_names_a_webhook(host: tuple[asyncio.Runner, Cluster]) -> None:
    """Its secret is made of its id: who could choose that would be told the secret of another one's hook."""
    runner, cluster = host

    async def main() -> None:
        async with cluster.client("a", OPERATOR) as http:
            hook = (await http.post("/api/hooks", json={"agent": "clerk"})).json()
        async with cluster.client("a", ADA) as http:
            webhook = {"url": "https://example.com/x", "kinds": ["process.created"]}
            for path in ("/shards/s1/api/webhooks", "/api/webhooks"):
                for name in ("lyra-webhook-id", "lyra.webhook"):
                    made = await http.post(path, json=webhook, headers={name: hook["hook_id"]})
                    assert made.status_code == 201, made.text
                    assert made.json()["webhook_id"] != hook["hook_id"]
                    assert made.json()["secret"] != hook["secret"]

    runner.run(main())


NODES = '''\
from lyra import vesper
from lyra.server import mount_nodes

NODE = """
node_id: double_v1
type: function
intent: double a number
inputs:
  number: {type: integer}
outputs:
  success:
    doubled: integer
flow:
  - step: double
    operation: arithmetic
    expression: "number * 2"
    output: doubled
"""

def setup(kernel):
    runtime = vesper.Runtime(cluster=kernel, min_successes=1)
    mount_nodes(kernel, runtime, [vesper.load(NODE)])
'''


def test_a_mode_that_shards_share_is_changed_once(tmp_path: Path, database: PostgresServer) -> None:
    """A step back is one step, however many shards have the node."""

    async def main() -> None:
        (tmp_path / "nodes.py").write_text(NODES)
        flags = ("--load", str(tmp_path / "nodes.py"))
        async with (
            serving(tmp_path, database.url, "a", shards=3, flags=flags) as cluster,
            cluster.client("a", OPERATOR) as http,
        ):
            path = "/api/nodes/double_v1"
            forced = await http.post(f"{path}/mode", json={"mode": "direct_only", "force": True})
            assert forced.status_code == 200, forced.text
            assert (await http.post(f"{path}/rollback")).json()["mode"] == "shadow_direct"
            for shard in ("s1", "s2", "s3"):
                assert (await http.get(f"/shards/{shard}{path}")).json()["mode"] == "shadow_direct"
            assert (await http.post("/api/nodes/nosuch/rollback")).status_code == 404

    in_loop(main())

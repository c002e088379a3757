"""The gRPC face of a cluster: calls reach any host, and go to the shard of what they name."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

import lyra
from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.peers import GrpcCarrier
from lyra.errors import LyraError, NoSuchProcess, Unreachable
from lyra.server.client.worker import Worker
from tests.server.certificates import issue
from tests.server.cluster.support import OPERATOR, Cluster, ServingHost, TellingVendor, serving
from tests.server.http.support import in_loop
from tests.store.conftest import postgres_server  # noqa: F401 - a fixture
from verify.servers import PostgresServer

FACES = ("--grpc", "127.0.0.1:0")
PIPELINE = {"name": "line", "stages": [{"name": "only", "agent": "brew"}]}


def _connect(cluster: Cluster, name: str) -> Any:
    return lyra.connect(cluster.hosts[name].ready["grpc"], token=OPERATOR, user_id="ada")


def test_calls_over_grpc_reach_their_shard_from_any_host(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """Processes by address and by the pid that the client chose, lists and figures of all, questions by their id; a
    worker that is connected to one host serves all shards; the port answers the calls of hosts as well."""

    async def main() -> None:
        async with serving(tmp_path, postgres_server.url, "a", "b", flags=FACES) as cluster:
            async with _connect(cluster, "a") as first, _connect(cluster, "b") as second:
                for check in (_processes, _questions, _workers):
                    await check(cluster, first, second)
            await _calls_of_hosts(cluster)

    in_loop(main(), 200)


async def _processes(_cluster: Cluster, first: Any, second: Any) -> None:
    made = [await first.submit(f"job-{number}") for number in range(6)]
    shards = {block.pid.partition("/")[0] for block in made}
    assert len(shards) > 1
    for number, block in enumerate(made):
        assert block.pid.partition("/")[2] == f"job-{number}"
        for remote in (first, second):
            assert (await remote.get_process(block.pid)).pid == block.pid
            assert (await remote.get_process(f"job-{number}")).pid == block.pid
    addresses = {block.pid for block in made}
    for remote in (first, second):
        assert {block.pid for block in await remote.list_processes()} == addresses
        assert (await remote.get_process_counts()).total == 6
        assert (await remote.get_system_status()).total_processes == 6
        with pytest.raises(NoSuchProcess):
            await remote.get_process("nosuch")
        with pytest.raises(NoSuchProcess):
            await remote.get_process("s9/job-1")
        with pytest.raises(NoSuchProcess, match="each shard"):
            await remote.terminate("p1")
    await second.terminate(made[0].pid)
    assert (await first.get_process(made[0].pid)).state == "terminated"


async def _questions(_cluster: Cluster, first: Any, second: Any) -> None:
    asked = [await first.create_interrupt(f"job-{number}", "confirmation", question="May I?") for number in range(1, 5)]
    assert {row.id for row in await second.list_interrupts()} == {row.id for row in asked}
    for row in asked:
        answered = await second.resolve_interrupt(row.id, {"approved": True})
        assert (answered.id, answered.status) == (row.id, "resolved")


async def _workers(cluster: Cluster, first: Any, second: Any) -> None:
    worker = Worker(cluster.hosts["b"].ready["grpc"], token=OPERATOR, worker_id="hand", concurrency=2)

    async def brew(envelope: Any) -> dict[str, Any]:
        return {"said": envelope.raw_input.upper()}

    worker.register_agent("brew", brew, idempotent=True)
    ready = asyncio.Event()
    working = asyncio.ensure_future(worker.run(ready.set))
    await asyncio.wait((asyncio.ensure_future(ready.wait()), working), return_when=asyncio.FIRST_COMPLETED)
    places = set()
    for number, remote in enumerate((first, second, first, second, first, second)):
        pid, said = "", None
        async for event in remote.execute_pipeline(PIPELINE, {"raw_input": f"tea {number}"}, pid=f"line-{number}"):
            pid = getattr(event, "pid", "") or pid
            if event.type == "pipeline_completed":
                said = event.envelope.outputs
        assert said is not None
        assert said["only"] == {"said": f"TEA {number}"}
        places.add((await remote.get_process(f"line-{number}")).pid.partition("/")[0])
    assert len(places) > 1
    assert worker.done == 6
    worker.stop()
    await working


async def _calls_of_hosts(cluster: Cluster) -> None:
    directory = PostgresDirectory(cluster.url, make=False)
    carrier = GrpcCarrier(directory.secret)
    try:
        status = await carrier.call(cluster.hosts["a"].ready["grpc"], "status", {}, timeout_s=10.0)
        assert status["name"] == "a"
    finally:
        await carrier.close()
        directory.close()


def test_hosts_may_call_each_other_at_the_port_of_the_server(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """With `--advertise` the gRPC address of the server is the one that other hosts call."""

    async def main() -> None:
        async with serving(tmp_path, postgres_server.url) as cluster:
            for name in ("a", "b"):
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    address = f"127.0.0.1:{free.getsockname()[1]}"
                await cluster.start(name, flags=("--grpc", address, "--advertise", address))
                assert cluster.hosts[name].ready["peers"] == cluster.hosts[name].ready["grpc"] == address
            while set(cluster.owners().values()) != {"a", "b"}:
                await asyncio.sleep(0.1)
            for name in ("a", "b", "a", "b"):
                async with cluster.client(name) as client:
                    for number in range(4):  # of each shard one
                        body = {"message": "hello", "session_id": f"{name}-{number}"}
                        answer = await client.post("/api/agents/clerk/chat", json=body)
                        assert answer.status_code == 200, answer.text

    in_loop(main())


def test_the_flags_and_settings_of_a_host(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """Where it listens for other hosts, what its machine has, which cluster it is of; and that it is a host at all."""

    async def main() -> None:
        async with serving(tmp_path, postgres_server.url) as cluster:
            made = ("--shards", "2", "--lease", "1", "--listen", "127.0.0.2:0", "--resources", "gpu=2")
            vendor = cluster.vendor.url
            for name, store, flags, env in (
                ("a", cluster.url, made, {"LYRA_SERVER_CLUSTER": "true"}),
                ("b", "postgresql://127.0.0.1:1/none", ("--store", cluster.url), {}),
            ):
                cluster.hosts[name] = ServingHost(tmp_path, store, name, vendor, *flags, **env)
                await cluster.hosts[name].until_ready()
            assert cluster.hosts["a"].ready["peers"].startswith("127.0.0.2:")
            directory = PostgresDirectory(cluster.url, make=False)
            try:
                view = directory.view()
            finally:
                directory.close()
            assert (len(view.shards), view.lease_s) == (2, 1.0)
            assert view.hosts["a"].resources["gpu"] == 2.0
            assert "gpu" not in view.hosts["b"].resources or view.hosts["b"].resources["gpu"] != 2.0
            code, told = await cluster.hosts.pop("b").stop()
            assert code == 0, told

    in_loop(main())


def test_a_cluster_without_grpc_says_so(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    async def main() -> None:
        async with serving(tmp_path, postgres_server.url, "a", shards=1) as cluster:
            assert "grpc" not in cluster.hosts["a"].ready
            with pytest.raises(LyraError):
                async with lyra.connect(cluster.hosts["a"].ready["peers"], token=OPERATOR, reconnect_s=0.0) as remote:
                    await remote.get_system_status()

    in_loop(main())


def test_hosts_that_prove_themselves_are_called_at_their_own_port_alone(
    tmp_path: Path,
    postgres_server: PostgresServer,  # noqa: F811
) -> None:
    """The port of the server asks its clients for no certificate: there the secret alone would do."""
    issue("ours").write(tmp_path, "ours")
    files = {"CERT": "ours.pem", "KEY": "ours.key", "CA": "ours.pem"}
    env = {f"LYRA_CLUSTER_TLS_{kind}": str(tmp_path / file) for kind, file in files.items()}

    async def main() -> None:
        cluster = Cluster(tmp_path, postgres_server.url, TellingVendor())
        flags = ("--shards", "1", "--lease", "1.5", *FACES)
        host = cluster.hosts["a"] = ServingHost(tmp_path, cluster.url, "a", "http://127.0.0.1:9", *flags, **env)
        try:
            await host.until_ready()
            with pytest.raises(Unreachable, match="unimplemented"):
                await _calls_of_hosts(cluster)
            async with _connect(cluster, "a") as remote:
                assert (await remote.get_system_status()).total_processes == 0
        finally:
            host.close()

    in_loop(main())

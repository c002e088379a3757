"""`lyra store move`: into a schema of its own, or as a shard of a cluster; wrong input ends in one sentence."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lyra import Kernel, cluster
from lyra.cluster.directory import PostgresDirectory
from tests.cluster.started import StartHost
from tests.cluster.started import cluster_url as cluster_url  # noqa: PLC0414 - a fixture
from tests.cluster.started import database as database  # noqa: PLC0414 - a fixture
from tests.cluster.started import start_host as start_host  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.slow

JOBS = """
async def idle(ctx):
    return await ctx.receive()

def setup(kernel):
    kernel.register(idle)
"""
VEGA = 'agent Bot { model "sim/echo" }\nlet bot = spawn Bot;\nprint(bot <- "hello");\n'


async def idle(ctx: Any) -> Any:
    return await ctx.receive()


idle.__module__ = "lyra_server_setup"  # as a host knows it from its file


def make_store(path: Path) -> None:
    async def fill() -> None:
        async with Kernel(path, programs=[idle]) as kernel:
            await kernel.spawn(idle, pid="old", name="old")
            await kernel.durable()

    asyncio.run(fill())


def test_a_store_becomes_a_shard(lyra: Any, tmp_path: Path, cluster_url: str, start_host: StartHost) -> None:
    """Its processes are found under their addresses, and go on; the file says where they are."""
    make_store(lyra.folder / "k.db")
    host_env = {"HOME": str(tmp_path / "hosts")}  # whoever runs the hosts has the key that signs
    (tmp_path / "hosts").mkdir()
    adopted = lyra("store", "adopt", "k.db", "--yes", **host_env)
    assert adopted.returncode == 0, adopted.stderr
    done = lyra("store", "move", "k.db", cluster_url, "--shard", "s2", **host_env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"moved {lyra.folder}/k.db to postgresql://")
    assert "rows, read back and compared" in done.stdout
    again = lyra.json("store", "move", "k.db", cluster_url, "--shard", "s2", **host_env)
    assert again["before"] is True
    assert again["to"].endswith("_s2")
    told = lyra("store", "info", "k.db", **host_env)
    assert "k.db was moved to postgresql://" in told.stderr
    (tmp_path / "jobs.py").write_text(JOBS)
    start_host("a", "--shards", "2", "--load", "jobs.py").until_shards(2)

    async def go_on() -> Any:
        async with cluster.connect(cluster_url) as client:
            await client.send("s2/old", "hello")
            return (await client.process("s2/old").wait()).result

    assert asyncio.run(go_on()) == "hello"
    refused = lyra("store", "move", "k.db", cluster_url, "--shard", "s1", **host_env)
    assert refused.returncode == 1
    assert "was moved to postgresql://" in refused.stderr


def test_a_shard_that_the_cluster_has_not_is_refused(lyra: Any, cluster_url: str) -> None:
    """No host would ever open it, and the file opens no more after a move."""
    PostgresDirectory(cluster_url, shards=2).close()
    make_store(lyra.folder / "k.db")
    refused = lyra("store", "move", "k.db", cluster_url, "--shard", "s3")
    assert refused.returncode == 2
    assert "has no shard 's3'" in refused.stderr
    assert lyra("store", "info", "k.db").returncode == 0


def test_durable_runs_stay_where_they_are(lyra: Any, cluster_url: str) -> None:
    """Only if the user says so; they are stores of their own in the same file."""
    (lyra.folder / "program.vega").write_text(VEGA)
    ran = lyra("run", "program.vega", "--db", "k.db", "--run-id", "r")
    assert ran.returncode == 0, ran.stderr
    done = lyra("store", "move", "k.db", cluster_url)
    assert done.returncode == 2
    assert "has durable Vega runs, which cannot be moved: r" in done.stderr
    assert lyra("store", "move", "k.db", cluster_url, "--leave-runs").returncode == 0
    assert list(lyra.json("store", "info", "k.db")["runs"]) == ["r"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("nowhere.db", "{url}"), 1, "error[store]: there is no store at nowhere.db"),
        (("k.db", "other.db"), 2, "error[config]: a store is moved to PostgreSQL"),
        (("k.db", "{url}", "--shard", "x"), 2, "error[config]: 'x' is no name of a shard"),
        (("k.db", "postgresql://u:topsecret@127.0.0.1:1/d"), 1, "error[store]: cannot connect to postgresql://"),
        (("memory", "{url}"), 2, "error[config]: a memory store ends with its kernel"),
    ],
)
def test_wrong_input_ends_in_one_sentence(
    lyra: Any, cluster_url: str, words: tuple[str, ...], code: int, sentence: str
) -> None:
    make_store(lyra.folder / "k.db")
    done = lyra("store", "move", *[word.format(url=cluster_url) for word in words])
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(sentence)
    assert "topsecret" not in done.stderr

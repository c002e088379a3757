"""Without a cluster nothing changes: what is imported, what is installed, and what a kernel of one machine has."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_A_CLUSTER = ("grpc", "psycopg", "ray", "lyra.cluster", "lyra.kernel.remote", "lyra.store.postgres")

RUNS = """
import asyncio, sys
import lyra
from lyra import Kernel

async def work(ctx):
    child = ctx.spawn(end)
    await child.wait()
    return ctx.pid

async def end(ctx):
    return 1

async def main():
    async with Kernel(sys.argv[1], programs=[work, end]) as kernel:
        assert kernel.core.remote is None
        await kernel.run(work)

asyncio.run(main())
"""


@pytest.mark.parametrize("code", ["import lyra", "import lyra; lyra.Kernel; lyra.Agent", RUNS])
def test_nothing_of_a_cluster_is_imported(code, tmp_path):
    """`import lyra` and a kernel on SQLite, with programs that spawn and wait, import no gRPC, no PostgreSQL driver and
    no module of the cluster, and a kernel of one machine has no outbox."""
    probe = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", probe, str(tmp_path / "run.db")], capture_output=True, text=True, check=True, cwd=ROOT
    )
    modules = json.loads(done.stdout)
    assert [name for name in modules if name.startswith(OF_A_CLUSTER)] == []


def test_a_cluster_adds_no_dependency():
    """What a cluster needs is an extra: the packages that every installation has are those of one machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = " ".join(project["dependencies"]).lower()
    assert not any(name in needed for name in ("grpc", "psycopg", "ray"))
    assert project["optional-dependencies"]["cluster"] == ["lyra-agents[postgres,server]"]

"""One budget for what a client spawns on several hosts, while one of them dies."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import lyra.cluster
from lyra.core.budgets.budget import Usage
from lyra.errors import ConfigError
from tests.cluster.budget_programs import COST, ask_often, spend
from tests.cluster.started import StartHost
from tests.cluster.started import cluster_url as cluster_url  # noqa: PLC0414 - a fixture
from tests.cluster.started import database as database  # noqa: PLC0414 - a fixture
from tests.cluster.started import start_host as start_host  # noqa: PLC0414 - a fixture

EFFECTS = 600


def load_programs(folder: Path) -> tuple[str, str]:
    """Return the flags with which a host knows the programs by the names that they have here."""
    file = folder / "offered.py"
    root = Path(__file__).parents[2]
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(root)!r})\nfrom tests.cluster.budget_programs import setup as setup\n"
    )
    return "--load", str(file)


def count_performed(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_one_budget_holds_over_hosts_and_the_death_of_one(
    cluster_url: str, start_host: StartHost, tmp_path: Path
) -> None:
    """Four shards on two hosts spend one budget; a host is killed while they do. What was performed, counted by the
    provider over all lives, stays inside the limit, and nearly all of it is spent."""
    file = tmp_path / "performed"
    flags = load_programs(tmp_path)
    a = start_host("a", "--shards", "4", *flags).until_joined()
    b = start_host("b", *flags)
    b.until_shards(2)
    a.until_shards(2)

    async def main() -> tuple[int, dict[str, object]]:
        async with lyra.cluster.connect(cluster_url) as cluster:
            scope = await cluster.budget({"usd": EFFECTS * COST}, name="night")
            with pytest.raises(ConfigError, match="other limits"):
                await cluster.budget({"usd": 5}, name="night")
            shards = list((await cluster.refresh()).shards)
            jobs = [await cluster.spawn(spend, str(file), shard=shard, budget=scope) for shard in shards]
            while count_performed(file) < EFFECTS // 3:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(b.close)  # SIGKILL
            ended = [await job.wait() for job in jobs]
            assert all(one.ok for one in ended), ended
            while (figures := await scope.read())["reserved"]:
                await asyncio.sleep(0.05)
            return sum(one.result for one in ended), figures

    done, figures = asyncio.run(asyncio.wait_for(main(), 90))
    performed = count_performed(file)
    used = Usage.from_data(figures["used"]).micro_usd
    assert performed * COST <= used <= EFFECTS * COST
    assert used / COST >= 0.99 * EFFECTS - 2
    assert done <= performed <= EFFECTS


def test_all_of_a_connection_can_spend_one_budget(cluster_url: str, start_host: StartHost, tmp_path: Path) -> None:
    """`connect(url, budget=…)`; a process may have limits of its own inside it."""
    file = tmp_path / "performed"
    start_host("a", "--shards", "2", *load_programs(tmp_path)).until_shards(2)

    async def main() -> list[int]:
        async with lyra.cluster.connect(cluster_url, budget={"usd": 50 * COST}) as cluster:
            first = await cluster.spawn(spend, str(file), shard="s1", budget={"usd": 7 * COST})
            done = [(await first.wait()).result]
            rest = [await cluster.spawn(spend, str(file), shard=shard) for shard in ("s1", "s2")]
            return done + [(await job.wait()).result for job in rest]

    own, *others = asyncio.run(asyncio.wait_for(main(), 60))
    assert own == 7
    assert own + sum(others) == 50
    assert count_performed(file) == 50


def test_a_rate_limit_holds_over_two_hosts(cluster_url: str, start_host: StartHost, tmp_path: Path) -> None:
    """Two programs on two hosts share one limit: together they pass its burst, and what a minute refills in between."""
    flags = load_programs(tmp_path)
    a = start_host("a", "--shards", "2", *flags).until_joined()
    start_host("b", *flags).until_shards(1)
    a.until_shards(1)

    async def main() -> list[int]:
        async with lyra.cluster.connect(cluster_url) as cluster:
            jobs = [
                await cluster.spawn(ask_often, str(tmp_path / f"performed {shard}"), 15, shard=shard)
                for shard in ("s1", "s2")
            ]
            return [(await job.wait()).result for job in jobs]

    began_s = time.monotonic()
    passed = asyncio.run(asyncio.wait_for(main(), 60))
    assert 10 <= sum(passed) <= 12 + (time.monotonic() - began_s) / 10

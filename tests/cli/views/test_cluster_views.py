"""`lyra ps`, `tree`, `trace`, `cost`, `events` and `top` of a cluster: all shards, also while a host is held."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel, cluster
from lyra.cli.views.rows import Folded, StoreRows
from lyra.cluster.calls import list_live
from lyra.store.space import open_to_read
from tests.cluster.started import StartedHost
from tests.cluster.started import database as database  # noqa: PLC0414 - a fixture
from tests.limits import within
from verify.servers import PostgresServer

pytestmark = pytest.mark.slow

JOBS = """
from lyra import Agent
from lyra.core.budgets.budget import Usage

helper = Agent(name="helper", model="sim/echo")

async def idle(ctx):
    await ctx.receive()

async def parent(ctx):
    await ctx.spawn(idle, pid="child")
    await ctx.ask("May I go on?", kind="confirmation")

async def asks(ctx):
    bot = ctx.spawn(helper)
    await bot.send("hello")
    await ctx.receive()

async def work():
    return 1

async def spends(ctx):
    for _ in range(3):
        await ctx.do(work, cost=Usage(usd=1000), idempotent=True)
    await ctx.receive()

async def lends(ctx, shard):
    await ctx.do(work, cost=Usage(usd=500), idempotent=True)
    child = ctx.spawn(spends, pid="far", shard=shard)
    ctx.spawn(spends, pid="near")
    await ctx.receive()
    await ctx.send(f"{shard}/far", "end")
    await child.wait()
    await ctx.receive()

def setup(kernel):
    for program in (idle, parent, asks, helper, spends, lends):
        kernel.register(program)
"""


class Running:
    """Two hosts with four of eight shards each, and processes on s1, s2 and s3."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.url = f"{server.url}&schema=views"
        (folder / "jobs.py").write_text(JOBS)
        flags = ("--load", "jobs.py", "--lease", "10")
        self.a = StartedHost(folder, self.url, "a", *flags).until_joined()
        self.b = StartedHost(folder, self.url, "b", *flags)
        self.shards_of_b = self.b.until_shards(4)
        self.shards_of_a = self.a.until_shards(4)

    async def fill(self) -> None:
        async with cluster.connect(self.url) as client:
            mine, other = self.shards_of_a[0], self.shards_of_b[0]
            await client.spawn("lyra_server_setup:parent", shard=mine, pid="boss", name="boss")
            await client.spawn("lyra_server_setup:asks", shard=other, pid="asker")
            ended = await client.spawn("lyra_server_setup:idle", shard=other, pid="ended")
            await client.send(ended.address, "go")
            await ended.wait()

    def close(self) -> None:
        for host in (self.a, self.b):
            host.wake()
            host.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, database: PostgresServer) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("views"), database)
    try:
        asyncio.run(made.fill())
        yield made
    finally:
        made.close()


def in_json(lyra: Any, *words: str) -> Any:
    done = lyra(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def until(look: Any) -> Any:
    while not (found := look()):
        pass
    return found


def test_ps_and_tree_show_the_living_of_all_shards(lyra: Any, running: Running) -> None:
    """Under their addresses, from the tables of the hosts; `-a` and the configured cluster too."""
    mine, other = running.shards_of_a[0], running.shards_of_b[0]
    rows = {row["pid"]: row for row in in_json(lyra, "ps", "--store", running.url)}
    assert {f"{mine}/boss", f"{mine}/child", f"{other}/asker"} <= set(rows)
    assert f"{other}/ended" not in rows
    assert rows[f"{mine}/boss"]["state"] == "waiting"
    assert list(rows[f"{mine}/boss"]["questions"].values()) == ["May I go on?"]
    assert rows[f"{mine}/child"]["parent"] == f"{mine}/boss"
    assert (rows[f"{mine}/boss"]["shard"], rows[f"{mine}/boss"]["as_of"]) == (mine, None)
    every = {row["pid"]: row["state"] for row in in_json(lyra, "ps", "-a", running.url)}
    assert every[f"{other}/ended"] == "terminated"
    assert set(rows) < set(every)
    depths = {row["pid"]: row["depth"] for row in in_json(lyra, "tree", "--store", running.url)}
    assert depths[f"{mine}/child"] == 1
    done = lyra("ps", "--json", LYRA_CLUSTER_STORE=running.url)
    assert {row["pid"] for row in json.loads(done.stdout)} == set(rows)
    assert done.stderr == ""


def test_trace_cost_events_and_top_show_all_shards(lyra: Any, running: Running) -> None:
    other = running.shards_of_b[0]
    (_, traced) = until(
        lambda: (
            [
                row
                for row in in_json(lyra, "trace", "--store", running.url, "--pid", f"{other}/asker")
                if row["pid"] == f"{other}/asker" or any(call["ended_at"] for call in row["trace"])
            ][1:]
            and in_json(lyra, "trace", "--store", running.url, "--pid", f"{other}/asker")
        )
    )
    assert [call["kind"] for call in traced["trace"]] == ["model"]
    wrong = lyra("trace", "--store", running.url, "--pid", f"{other}/askr")
    assert wrong.returncode == 1
    assert f"did you mean '{other}/asker'?" in wrong.stderr
    summed = in_json(lyra, "cost", "--store", running.url)
    assert [(row["agent"], row["calls"]) for row in summed["rows"]] == [("helper", 1)]
    lines = [json.loads(line) for line in lyra("events", "--store", running.url, "--json").stdout.splitlines()]
    assert {row["shard"] for row in lines} >= {running.shards_of_a[0], other}
    assert [row["time"] for row in lines] == sorted(row["time"] for row in lines)
    created = [row["pid"] for row in lines if row["kind"] == "process.created"]
    assert f"{other}/ended" in created
    one = lyra("events", "--store", running.url, "--pid", f"{other}/ended", "--json").stdout.splitlines()
    assert {json.loads(line)["pid"] for line in one} == {f"{other}/ended"}
    (last,) = lyra("events", "--store", running.url, "-n", "1", "--json").stdout.splitlines()
    assert json.loads(last)["time"] == lines[-1]["time"]
    assert "write SHARD/PID" in lyra("events", "--store", running.url, "--pid", "ended").stderr
    assert "numbers its rows itself" in lyra("events", "--store", running.url, "--after", "3").stderr
    shown = lyra("events", "--store", running.url, "--kind", "process.terminated").stdout
    assert f"  {other}/ended  process.terminated" in shown
    picture = json.loads(lyra("top", "--once", "--store", running.url).stdout)
    assert picture["ended"] >= 1
    assert f"{other}/asker" in {row["pid"] for row in picture["processes"]}
    assert lyra("ps", "--run", "r", "--store", running.url).returncode == 2
    assert lyra("ps", running.url, "--store", running.url).returncode == 2


def test_a_child_on_another_shard_is_below_its_parent_and_its_spending_counts_once(lyra: Any, running: Running) -> None:
    """In `lyra ps`, `tree`, `top` and `cluster.processes()`, while it lives, from the tables of the hosts and from the
    journals, and when what it spent has been told to its parent."""
    mine, other = running.shards_of_a[0], running.shards_of_b[1]
    boss = f"{mine}/lender"

    def spent() -> float:
        return float(json.loads(lyra("top", "--once", "--store", running.url).stdout)["cost_usd"])

    before = spent()

    async def begin() -> str:
        async with cluster.connect(running.url) as client:
            await client.spawn("lyra_server_setup:lends", other, shard=mine, pid="lender", budget="$1")
            while True:
                rows = {row["address"]: row for row in await client.processes()}
                below = [address for address, row in rows.items() if row["parent"] == boss]
                if len(below) == 2 and all(rows[address]["spent"].get("usd") == 3000 for address in below):
                    return str(next(address for address in below if address.startswith(other)))

    child = asyncio.run(begin())
    assert child.startswith(f"{other}/")
    for words in (("tree",), ("tree", "-a")):
        rows = in_json(lyra, *words, "--store", running.url)
        place = next(index for index, row in enumerate(rows) if row["pid"] == boss)
        below = {row["pid"]: row["parent"] for row in rows[place + 1 : place + 3]}
        assert below == {child: boss, f"{mine}/near": boss}
        assert {row["depth"] for row in rows[place + 1 : place + 3]} == {1}
    parents = {row["pid"]: row["parent"] for row in in_json(lyra, "ps", "-a", "--store", running.url)}
    assert parents[child] == boss
    assert spent() - before == pytest.approx(0.0065)

    async def end() -> None:
        async with cluster.connect(running.url) as client:
            await client.send(boss, "end")
            await client.process(child).wait()
            while True:  # the parent is charged for what it lent
                rows = {row["address"]: row for row in await client.processes()}
                if rows[boss]["spent"]["usd"] == 6500:
                    return

    asyncio.run(end())
    assert spent() - before == pytest.approx(0.0065)


@pytest.mark.timed
def test_a_held_host_holds_nobody_up(lyra: Any, running: Running) -> None:
    """Within a second `ps` shows all processes, says which shards are late and as of when, and ends with 0."""
    known = {row["pid"] for row in in_json(lyra, "ps", "--store", running.url)}
    running.a.hold()
    try:
        began_s = time.perf_counter()
        done = lyra("ps", "--store", running.url, "--json")
        took_s = time.perf_counter() - began_s
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)
        assert {row["pid"] for row in rows} == known
        late = {row["shard"] for row in rows if row["as_of"] is not None}
        assert late == {running.shards_of_a[0]}
        for shard in running.shards_of_a:
            assert f"shard {shard} is late: its host a does not answer" in done.stderr
        assert f"{running.shards_of_a[0]} is late: its host a does not answer; shown from its journal, as of " in (
            done.stderr
        )
        assert not any(f"shard {shard} is late" in done.stderr for shard in running.shards_of_b)
        for words in (("tree",), ("trace",), ("cost",), ("ps", "-a"), ("top", "--once")):
            other = lyra(*words, "--store", running.url)
            assert other.returncode == 0, other.stderr
            assert "is late: its host a does not answer" in other.stderr
        within(took_s, 1.0, "lyra ps with a host that is held")
    finally:
        running.a.wake()


def test_the_table_of_a_kernel_says_what_the_journal_says(tmp_path: Path) -> None:
    """Every field of the living; what was spent, too, while no child has ended."""

    async def idle(ctx: Any) -> None:
        await ctx.sleep(3600)

    async def parent(ctx: Any) -> None:
        await ctx.spawn(idle, pid="child", name="kid", budget={"usd": "$2"})
        await ctx.send("child", "one")
        await ctx.ask("May I go on?", kind="confirmation")

    async def main() -> None:
        async with Kernel(tmp_path / "k.db", programs=[idle, parent]) as kernel:
            bot = kernel.spawn(Agent(name="bot", model="sim/echo"), pid="bot")
            await bot.send("hello")
            await bot.send("again")
            kernel.as_user("ann").spawn(parent, pid="boss", budget={"usd": "$3"})
            await kernel.submit("worker", request_id="r", user_id="ann", session_id="s")
            while not kernel.interrupts.pending():
                await asyncio.sleep(0)
            await kernel.durable()
            told = {record.pid: record.to_data() for record in list_live(kernel)}
            store = open_to_read(str(tmp_path / "k.db"))
            records = Folded(StoreRows(store)).processes.records
            store.close()
            assert {"bot", "boss", "child", "worker"} == set(told)
            for pid, data in told.items():
                known = records[pid].to_data()
                assert abs(data.pop("created_at") - known.pop("created_at")) < 1
                assert (pid, data) == (pid, known)

    asyncio.run(main())

"""Merged lists, from real answers of the applications of several shards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest

from lyra import Agent
from lyra.cli.views.rows import Folded, ServerRows
from lyra.cli.views.rows import _Page as rows_page
from lyra.errors import ConfigError
from lyra.server.cluster import merge
from lyra.server.http.app import make_app
from lyra.server.site import begin_listening, site
from tests.cluster.hosts_in_memory import MemoryCluster, run_cluster, until

SHARDS = ("s1", "s2", "s3", "s4")


async def idle(ctx: Any, *_args: Any) -> None:
    await ctx.receive()


async def parent(ctx: Any, shard: str) -> None:
    ctx.spawn(idle, shard=shard, pid="below")
    await ctx.receive()


async def asks(ctx: Any) -> None:
    await ctx.ask("May I?", kind="confirmation")


def setup(kernel: Any) -> None:
    kernel.register_agent("helper", Agent("helper", model="sim/echo"))
    kernel.register_service({"name": f"of-{kernel.core.remote.shard}"})


class Reader:
    """A connection of its own to a store in memory, which has none."""

    def __init__(self, store: Any) -> None:
        self.read = store.read

    def close(self) -> None: ...


class Sites:
    """The application of each shard, and their answers put together."""

    def __init__(self, world: MemoryCluster) -> None:
        self.world = world
        self.clients: dict[str, httpx.AsyncClient] = {}
        self.missing: set[str] = set()
        self.asked = 0
        self._endpoints = {endpoint.name: endpoint for endpoint in site(gateway=True)}
        for shard in SHARDS:
            app = make_app(
                world.kernel(shard),
                tokens={"op": "", "ada": "ada"},
                hosts={"*"},
                endpoints=tuple(self._endpoints.values()),
            )
            kernel, store = world.kernel(shard), Reader(world.stores[shard])
            read: Any = SimpleNamespace(
                open_reader=lambda store=store: store, parts=kernel.parts, journal=kernel.journal
            )
            app.parts.history._kernel = read
            begin_listening(app.parts)
            app.parts.open()
            transport = httpx.ASGITransport(app=app)
            self.clients[shard] = httpx.AsyncClient(transport=transport, base_url="http://testserver")

    async def get(self, name: str, *, token: str = "op", **query: Any) -> Any:
        """Ask all shards as the front does."""
        wanted = {key: str(value) for key, value in query.items()}
        answers = await self._ask(name, merge.begin(name, wanted, SHARDS), token)
        if merge.must_ask_again(name, wanted, answers):
            wanted = merge.restart(wanted)
            answers = await self._ask(name, merge.begin(name, wanted, SHARDS), token)
        return merge.join(name, wanted, answers, sorted(self.missing))

    async def _ask(self, name: str, queries: Any, token: str) -> dict[str, Any]:
        answers = {}
        for shard, client in self.clients.items():
            if shard in self.missing:
                continue
            self.asked += 1
            headers = {"authorization": f"Bearer {token}"}
            answer = await client.get(self._endpoints[name].path, params=queries[shard], headers=headers)
            assert answer.status_code == 200, answer.text
            is_json = answer.headers["content-type"].startswith("application/json")
            answers[shard] = msgspec.json.decode(answer.content) if is_json else answer.text
        return answers


def run(main: Callable[[MemoryCluster, Sites], Awaitable[None]]) -> None:
    async def in_cluster() -> None:
        async with MemoryCluster("a", "b", programs=(idle, parent, asks), setup=setup) as world:
            await main(world, Sites(world))

    run_cluster(in_cluster)


async def fill(world: MemoryCluster, count: int) -> list[str]:
    """Start processes on all shards in turn; gives their addresses in the order of their start."""
    return [
        (await world.client.spawn(idle, number, shard=SHARDS[number % 4], pid=f"p{number}")).address
        for number in range(count)
    ]


def test_processes_come_in_pages_the_oldest_first_each_once() -> None:
    """Whatever the size of a page; also those that began at one time; `total` counts all."""

    async def main(world: MemoryCluster, sites: Sites) -> None:
        started = await fill(world, 10)
        for shard, pid in zip(SHARDS, ("z", "m", "m", "a"), strict=True):  # four at one time
            started.append((await world.client.spawn(idle, shard=shard, pid=pid)).address)
            world.kernel(shard).processes[pid].created_at = 1_000_000.0
        whole = (await sites.get("processes.list"))["processes"]
        order = [row["pid"] for row in whole]
        assert set(started) <= set(order)
        assert [row["created_at"] for row in whole] == sorted(row["created_at"] for row in whole)
        for limit in (1, 3, 4, 100):
            seen: list[str] = []
            after = ""
            while True:
                page = await sites.get("processes.list", limit=limit, after=after)
                assert len(page["processes"]) <= limit
                assert page["total"] == len(whole)
                seen += [row["pid"] for row in page["processes"]]
                if page["next"] is None:
                    break
                after = page["next"]
            assert seen == order
        with pytest.raises(ConfigError, match="the page before"):
            await sites.get("processes.list", after="1.0:p1")

    run(main)


def test_processes_are_named_by_address_and_their_parents_are_known_across_shards() -> None:
    async def main(world: MemoryCluster, sites: Sites) -> None:
        await world.client.spawn(parent, "s3", shard="s1", pid="boss")
        await until(lambda: "below" in world.kernel("s3").processes)
        rows = {row["pid"]: row for row in (await sites.get("processes.list"))["processes"]}
        assert rows["s3/below"]["parent_pid"] == "s1/boss"
        assert "s3/below" in rows["s1/boss"]["child_pids"]
        tree = await sites.get("processes.rows")
        place = {row[0]: index for index, row in enumerate(tree["rows"])}
        assert dict(zip(tree["columns"], tree["rows"][place["s3/below"]], strict=True))["parent"] == "s1/boss"
        assert place["s1/boss"] < place["s3/below"]

    run(main)


def test_the_tree_tells_changes_of_all_shards_and_all_rows_where_a_shard_cannot() -> None:
    """A shard that is missing keeps its rows; where one begins anew, all of the tree is told."""

    async def main(world: MemoryCluster, sites: Sites) -> None:
        await fill(world, 4)
        first = await sites.get("processes.rows")
        assert first["whole"]
        nothing = await sites.get("processes.rows", since=first["mark"])
        assert (nothing["whole"], nothing["rows"], nothing["gone"]) == (False, [], [])
        await world.client.spawn(idle, shard="s2", pid="new")
        await world.client.send("s1/p0", "end")
        await world.client.process("s1/p0").wait()
        changed = await sites.get("processes.rows", since=first["mark"])
        assert not changed["whole"]
        assert "s2/new" in {row[0] for row in changed["rows"]}
        assert "s1/p0" in changed["gone"]
        sites.missing = {"s4"}
        partial = await sites.get("processes.rows", since=changed["mark"])
        assert (partial["whole"], partial["missing_shards"]) == (False, ["s4"])
        sites.missing = set()
        again = await sites.get("processes.rows", since=partial["mark"])
        assert not again["whole"]
        marks = merge.read_place(again["mark"])
        other = await sites.get("processes.rows", since=merge.write_place({**marks, "s3": "other.1"}))
        assert other["whole"]
        assert {row[0] for row in other["rows"]} >= {"s2/new", "s2/p1", "s3/p2", "s4/p3"}

    run(main)


def test_history_is_read_page_by_page_each_row_once_and_in_the_order_of_its_shard() -> None:
    async def main(world: MemoryCluster, sites: Sites) -> None:
        await world.client.spawn(parent, "s3", shard="s1", pid="boss")
        await fill(world, 6)
        whole = await sites.get("history.read", limit=10_000)
        keys = [(row["pid"].partition("/")[0], row["seq"]) for row in whole["events"] if row["pid"]]
        assert whole["more"] is False
        for limit in (1, 5):
            seen: list[Any] = []
            after: Any = 0
            while True:
                page = await sites.get("history.read", limit=limit, after=after)
                seen += [(row["pid"].partition("/")[0], row["seq"]) for row in page["events"] if row["pid"]]
                assert len(page["events"]) <= limit
                if not page["more"]:
                    break
                after = page["last_seq"]
            assert sorted(seen[: len(keys)]) == sorted(keys)
            assert len(seen) == len(set(seen))
            for shard in SHARDS:
                rows = [seq for name, seq in seen if name == shard]
                assert rows == sorted(rows)
        created = [row for row in whole["events"] if row["kind"] == "process.created" and row["pid"] == "s1/boss"]
        assert created
        await world.client.spawn(idle, shard="s2", pid="late")
        later = await sites.get("history.read", after=whole["last_seq"])
        assert "s2/late" in {row["pid"] for row in later["events"]}
        assert "s2/p1" not in {row["pid"] for row in later["events"]}

    run(main)


def test_lyra_tree_of_a_server_of_a_cluster_shows_all_shards() -> None:
    """From its pages of rows, and read on by place: each child below its parent, wherever that is."""

    async def main(world: MemoryCluster, sites: Sites) -> None:
        await world.client.spawn(parent, "s3", shard="s1", pid="boss")
        await until(lambda: "below" in world.kernel("s3").processes)
        loop = asyncio.get_running_loop()
        rows: Any = ServerRows("http://server")

        def read_page(query: dict[str, Any]) -> Any:
            work = asyncio.run_coroutine_threadsafe(sites.get("history.read", **{**query, "limit": 3}), loop)
            return msgspec.json.decode(msgspec.json.encode(work.result(10)), type=rows_page)

        rows._page = read_page
        folded = await asyncio.to_thread(Folded, rows)
        walked = [(depth, record.pid) for depth, record in folded.processes.walk()]
        assert walked.index((1, "s3/below")) == walked.index((0, "s1/boss")) + 1
        await world.client.spawn(idle, shard="s2", pid="late")
        assert await asyncio.to_thread(folded.refresh) >= 1
        assert await asyncio.to_thread(folded.refresh) == 0
        assert "s2/late" in folded.processes.records

    run(main)


def test_sums_services_questions_and_metrics_of_all_shards() -> None:
    """A user sees their own. A shard that is missing is named, and what the others told of its services is shown."""

    async def main(world: MemoryCluster, sites: Sites) -> None:
        await fill(world, 8)
        await world.client.spawn(asks, shard="s2", pid="asker")
        await until(world.kernel("s2").interrupts.pending)
        await until(lambda: all(len(world.kernel(s).services.list_services()) == 4 for s in SHARDS))
        status = await sites.get("system.status")
        own = [world.kernel(shard).get_system_status().total_processes for shard in SHARDS]
        assert status["total_processes"] == sum(own)
        assert status["interrupts"]["pending"] == 1
        questions = (await sites.get("interrupts.list", status="pending"))["interrupts"]
        assert [(row["pid"], row["question"]) for row in questions] == [("s2/asker", "May I?")]
        assert (await sites.get("interrupts.list", token="ada"))["interrupts"] == []
        assert (await sites.get("processes.list", token="ada"))["total"] == 0
        services = (await sites.get("services.list"))["services"]
        assert [(row["name"], row["shard"]) for row in services] == [(f"of-{shard}", shard) for shard in SHARDS]
        sites.missing = {"s4"}
        seen = await sites.get("services.list")
        assert [row["name"] for row in seen["services"]] == [f"of-{shard}" for shard in SHARDS]
        assert seen["missing_shards"] == ["s4"]
        told = {"name": "s", "shard": "s1", "current_load": 1}
        answers = {"s2": {"services": [told]}, "s1": {"services": [{**told, "shard": "", "current_load": 3}]}}
        for order in (("s1", "s2"), ("s2", "s1")):
            joined = merge.join("services.list", {}, {shard: answers[shard] for shard in order}, [])
            assert joined == {"services": [{**told, "current_load": 3}]}
        sites.missing = set()
        text = await sites.get("system.metrics")
        assert len([line for line in text.splitlines() if line.startswith("# TYPE lyra_processes ")]) <= 1
        samples = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert {merge._SAMPLE.match(line) is not None for line in samples} == {True}
        assert all('shard="s' in line for line in samples)
        assert len(samples) == len(set(samples))

    run(main)


def test_conversations_costs_and_traces_of_all_shards() -> None:
    """Costs are added up by group; conversations stand in the order of their start, traces the newest first."""

    async def main(world: MemoryCluster, sites: Sites) -> None:
        for shard in ("s3", "s1"):
            for word in ("one", "two"):
                body = {"message": word}
                headers = {"authorization": "Bearer ada"}
                done = await sites.clients[shard].post("/api/agents/helper/chat", json=body, headers=headers)
                assert done.status_code == 200, done.text
        sessions = (await sites.get("sessions.list"))["sessions"]
        assert [row["pid"].partition("/")[0] for row in sessions] == ["s3", "s3", "s1", "s1"]
        costs = await sites.get("costs.get", by="agent")
        assert [(row["key"], row["calls"]) for row in costs["groups"]] == [("helper", 4)]
        traces = await sites.get("traces.list", limit=3)
        ends = [row["started_at"] + row["latency_ms"] / 1000 for row in traces["traces"]]
        assert len(ends) == 3
        assert ends == sorted(ends, reverse=True)
        assert (await sites.get("sessions.list", token="op", user_id="bob"))["sessions"] == []

    run(main)


def test_a_stream_of_events_has_a_place_in_the_stream_of_each_shard() -> None:
    places = merge.EventPlaces(merge.begin_events("", SHARDS))
    first = places.tell("s2", b'id: abc.7\nevent: process.created\ndata: {"seq":1,"pid":"p1"}')
    assert b'"pid":"s2/p1"' in first
    second = places.tell("s1", b"id: d.e.9\nevent: x\ndata: [1]")
    place = second.split(b"\n")[0].removeprefix(b"id: ").decode()
    assert merge.begin_events(place, SHARDS) == {"s1": "d.e.9", "s2": "abc.7", "s3": "", "s4": ""}
    assert merge.begin_events("of.another.server", SHARDS) == dict.fromkeys(SHARDS, "")


def test_tasks_of_a2a_are_read_page_by_page() -> None:
    def answer(shard: str, token: str, size: int) -> dict[str, Any]:
        ids = [f"{shard}-{number}" for number in range(3)]
        start = ids.index(token) + 1 if token else 0
        tasks = [
            {"id": name, "status": {"timestamp": f"2027-01-0{9 - number}"}}
            for number, name in enumerate(ids)
            if number >= start
        ]
        page = tasks[:size]
        return {"tasks": page, "nextPageToken": page[-1]["id"] if len(tasks) > size else "", "totalSize": 3}

    seen: list[str] = []
    query = {"pageSize": "2"}
    while True:
        asked = merge.begin("a2a.list_tasks", query, ("s1", "s2"))
        answers = {shard: answer(shard, one.get("pageToken", ""), 2) for shard, one in asked.items()}
        page = merge.join("a2a.list_tasks", query, answers, [])
        assert page["totalSize"] == 6
        seen += [task["id"] for task in page["tasks"]]
        if not page["nextPageToken"]:
            break
        query = {"pageSize": "2", "pageToken": page["nextPageToken"]}
    assert seen == ["s1-0", "s2-0", "s1-1", "s2-1", "s1-2", "s2-2"]


def test_nodes_that_several_shards_execute_are_one() -> None:
    def node(**fields: Any) -> dict[str, Any]:
        base = {
            "node_id": "n",
            "mode": "shadow",
            "confidence": 0.5,
            "direct_share": 0.0,
            "blocked": False,
            "shared": False,
            "compared": 3,
            "divergences": 0,
            "errors": 0,
            "distinct": 2,
            "accepted": 2,
            "successes": 2,
            "executions": {"ok": 3},
            "reached": ["a"],
            "unreached": ["b"],
        }
        return {"nodes": [{**base, **fields}]}

    answers = {"s1": node(), "s2": node(confidence=0.1, mode="python", reached=["b"], unreached=["a", "c"], errors=1)}
    (row,) = merge.join("nodes.list", {}, answers, [])["nodes"]
    assert (row["compared"], row["errors"], row["executions"], row["mode"]) == (6, 1, {"ok": 6}, "python")
    assert (row["reached"], row["unreached"]) == (["a", "b"], ["c"])
    (row,) = merge.join("nodes.list", {}, {"s1": node(shared=True), "s2": node(shared=True)}, [])["nodes"]
    assert (row["compared"], row["executions"]) == (3, {"ok": 6})


def test_every_list_has_a_merge() -> None:
    """Each endpoint whose answer has a list of the caller's things, of all that may be asked of all shards."""
    lists = {
        endpoint.name for endpoint in site(gateway=True) if endpoint.method == "GET" and endpoint.name.endswith(".list")
    }
    assert lists - merge.MERGES.keys() == {"agents.list", "models.list"}  # every shard has the same

"""The gateway on several hosts: one budget, one rate and one end for each key, whichever hosts its calls reach."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest

from lyra.kernel.remote.part import home_of
from lyra.models.pricing import price_of
from lyra.models.stream import TokenUsage
from lyra.server.gateway.keys import make_user_key_id
from tests.server.cluster.support import ADA, OPERATOR, Cluster
from tests.server.gateway.support import FakeProvider, Received, Reply
from tests.server.http.support import in_loop
from tests.source import PYTHONPATH
from tests.store.conftest import postgres_server  # noqa: F401 - a fixture
from verify.servers import PostgresServer

MODEL = "anthropic/claude-opus-4-6"
PRICE = price_of(MODEL)
assert PRICE is not None
QUESTION: dict[str, Any] = {"model": MODEL, "max_tokens": 1_000, "messages": [{"role": "user", "content": "hello"}]}
INPUT_TOKENS = 20


def cost_of(received: Received) -> int:
    """Return what the vendor charges for a request: it always says as much as it may."""
    assert PRICE is not None
    cost = PRICE.cost(TokenUsage(INPUT_TOKENS, received.data["max_tokens"]))
    assert cost is not None
    return cost


class Vendor(FakeProvider):
    """Anthropic, by its wire format. While it is held no answer comes."""

    def __init__(self) -> None:
        super().__init__(self._tell)
        self.gate = asyncio.Event()
        self.gate.set()

    def _tell(self, received: Received) -> Reply:
        answer = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-4-6",
            "content": [{"type": "text", "text": "hello"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": received.data["max_tokens"]},
        }
        body = json.dumps(answer).encode()
        return Reply((body[:1], body[1:]), gate=self.gate)

    def charged(self) -> int:
        return sum(cost_of(received) for received in self.received)

    async def until_asked(self, times: int) -> None:
        while len(self.received) < times:
            await asyncio.sleep(0.02)


class Keyed:
    """A cluster with a gateway, a client of each host, and a balancer that takes the hosts in turn."""

    def __init__(self, cluster: Cluster, vendor: Vendor) -> None:
        self.cluster, self.vendor = cluster, vendor
        self.clients: dict[str, httpx.AsyncClient] = {}
        self._turns = cycle(["a", "b"])

    def next(self) -> httpx.AsyncClient:
        return self.clients[next(name for name in self._turns if name in self.clients)]

    async def create(self, **settings: Any) -> str:
        made = await self.next().post("/api/keys", json=settings)
        assert made.status_code == 201, made.text
        key: str = made.json()["key"]
        return key

    async def view(self, name: str) -> dict[str, Any]:
        answer = await self.next().get(f"/api/keys/{name}")
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view

    async def ask(self, key: str) -> httpx.Response:
        return await self.next().post("/v1/messages", json=QUESTION, headers={"x-api-key": key, "authorization": ""})

    async def spend_all(self, key: str) -> list[int]:
        """Call from eight clients at once until each is told that the money is spent; gives the statuses."""
        statuses: list[int] = []

        async def call_on() -> None:
            while True:
                answer = await self.ask(key)
                statuses.append(answer.status_code)
                if answer.status_code == 402:
                    return
                if answer.status_code != 200:  # the money is held by other calls
                    assert answer.status_code == 429, answer.text
                    await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(call_on())
        return statuses


@asynccontextmanager
async def keyed(folder: Path, url: str) -> AsyncIterator[Keyed]:
    vendor = Vendor()
    async with vendor:
        cluster = Cluster(folder, url, vendor)  # type: ignore[arg-type]
        world = Keyed(cluster, vendor)
        hosts = cluster.hosts
        try:
            await cluster.start("a", "b", flags=("--gateway",))
            hosts = dict(cluster.hosts)
            for name in hosts:
                world.clients[name] = cluster.client(name, OPERATOR)
            yield world
        finally:
            for client in world.clients.values():
                await client.aclose()
            for host in {**hosts, **cluster.hosts}.values():
                host.close()


def test_one_budget_and_one_rate_over_two_hosts(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """A key with a small budget is called through both hosts at once: never past it, and all of it is used."""

    async def main() -> None:
        async with keyed(tmp_path, postgres_server.url) as world:
            key = await world.create(name="ci", budget="$1")
            statuses = await world.spend_all(key)
            view = await world.view("ci")
            limit = view["budget_micro_usd"]
            assert limit == 1_000_000
            assert view["spent_micro_usd"] == world.vendor.charged()
            assert 0.99 * limit <= view["spent_micro_usd"] <= limit
            assert (view["reserved_micro_usd"], view["calls"]) == (0, statuses.count(200))
            assert statuses.count(200) == len(world.vendor.received)

            slow = await world.create(name="slow", requests_per_minute=20)
            answers = await asyncio.gather(*[world.ask(slow) for _ in range(50)])
            assert sorted(answer.status_code for answer in answers) == [200] * 20 + [429] * 30
            assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)

            for _ in range(6):  # the user of a token has one key, whichever hosts its calls reach
                bearer = {"authorization": f"Bearer {ADA}"}
                answer = await world.next().post("/v1/messages", json=QUESTION, headers=bearer)
                assert answer.status_code == 200, answer.text
            rows = (await world.next().get("/api/processes")).json()["processes"]
            (user_key,) = [row["pid"] for row in rows if ".token-" in row["pid"]]
            assert user_key.partition("/")[0] == home_of(make_user_key_id("ada"), [f"s{n}" for n in range(1, 5)])

            await _check_commands(tmp_path, world)

            same = await world.next().post("/api/keys", json={"name": "slow"})
            assert same.status_code == 409, same.text
            listed = [(await client.get("/api/keys")).json()["keys"] for client in world.clients.values()]
            assert [[row["name"] for row in rows] for rows in listed] == [["ci", "slow"]] * 2
            models = [await client.get("/v1/models", headers={"x-api-key": key}) for client in world.clients.values()]
            assert [answer.status_code for answer in models] == [200, 200]

            assert (await world.next().delete("/api/keys/slow")).status_code in (200, 202)
            assert [(await world.ask(slow)).status_code for _ in range(4)] == [401] * 4

    in_loop(main())


async def _check_commands(folder: Path, world: Keyed) -> None:
    """Make, list and revoke a key by `lyra keys`, which finds a host of the cluster on this machine."""
    host = world.cluster.hosts["b"]
    env = {**os.environ, "HOME": str(folder / "home-b"), "LYRA_TOKEN": OPERATOR, "PYTHONPATH": PYTHONPATH}
    env["LYRA_CLUSTER_STORE"] = world.cluster.url

    async def run(*words: str, **more: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "lyra", "keys", *words, "--json"]
        started = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env={**env, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, told = await started.communicate()
        assert started.returncode is not None
        return started.returncode, out.decode(), told.decode()

    made = await run("create", "--name", "made", "--budget", "$2", host.http)
    assert made[0] == 0, made
    assert (await world.ask(json.loads(made[1])["key"])).status_code == 200
    listed = await run("list")
    assert [row["name"] for row in json.loads(listed[1])] == ["ci", "slow", "made"], listed
    assert (await run("revoke", "made"))[0] == 0
    assert "made" not in (await run("list", host.http))[1]
    code, _, told = await run("list", HOME=str(folder))  # another user of the machine
    assert (code, "no host on this machine serves the cluster" in told) == (2, True), told


def test_money_is_exact_after_kill_9_of_the_host_of_the_key(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """What was answered is charged as it was, what a crash cut off with what was reserved for it; then the other host
    goes on with what is left, to the end of the budget."""

    async def main() -> None:
        async with keyed(tmp_path, postgres_server.url) as world:
            key = await world.create(name="ci", budget="$1")
            for _ in range(6):
                assert (await world.ask(key)).status_code == 200
            before = await world.view("ci")
            assert before["spent_micro_usd"] == world.vendor.charged()
            world.vendor.gate.clear()
            calls = [asyncio.create_task(world.ask(key)) for _ in range(8)]
            await world.vendor.until_asked(14)
            held = (await world.view("ci"))["reserved_micro_usd"]
            assert held >= sum(cost_of(received) for received in world.vendor.received[6:])
            home = world.cluster.owner_of("ci")
            await world.cluster.kill(home)
            await world.clients.pop(home).aclose()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert not any(isinstance(answer, httpx.Response) and answer.status_code == 200 for answer in ended)
            world.vendor.gate.set()
            after = await world.view("ci")
            assert (after["spent_micro_usd"], after["reserved_micro_usd"]) == (before["spent_micro_usd"] + held, 0)
            at_kill = len(world.vendor.received)
            statuses = await world.spend_all(key)
            view = await world.view("ci")
            since = sum(cost_of(received) for received in world.vendor.received[at_kill:])
            assert view["spent_micro_usd"] == after["spent_micro_usd"] + since
            assert 0.99 * 1_000_000 <= view["spent_micro_usd"] <= 1_000_000
            assert statuses.count(200) == len(world.vendor.received) - at_kill

    in_loop(main())


@pytest.mark.long
def test_a_frozen_host_holds_no_caller_up(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """A call in flight on a host that is stopped ends within seconds, and the next one is answered by the host that has
    taken the shard of its key."""

    async def main() -> None:
        async with keyed(tmp_path, postgres_server.url) as world:
            key = await world.create(name="ci", budget="$1")
            home = world.cluster.owner_of("ci")
            await world.clients.pop(home).aclose()
            world.vendor.gate.clear()
            waiting = asyncio.create_task(world.ask(key))
            await world.vendor.until_asked(1)
            world.cluster.hosts[home].process.send_signal(signal.SIGSTOP)
            began_s = time.monotonic()
            world.vendor.gate.set()
            assert (await waiting).status_code in (502, 503)
            assert time.monotonic() - began_s < 10
            assert (await world.ask(key)).status_code == 200
            assert time.monotonic() - began_s < 14

    in_loop(main())

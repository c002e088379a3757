"""Protocols and work behind a load balancer: each request reaches any host, and finds what it names."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.server.cluster.support import OPERATOR, Cluster, serving
from tests.server.http.support import in_loop
from tests.store.conftest import postgres_server  # noqa: F401 - a fixture
from verify.servers import PostgresServer

_ELAPSED = re.compile(r'"elapsed_seconds":[0-9.e-]+')


class Balancer:
    """A client whose requests reach the hosts in turn."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turns: Iterator[str] = cluster.turns()

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        async with self._cluster.client(next(self._turns)) as client:
            return await client.request(method, path, **options)

    async def get(self, path: str, **options: Any) -> Any:
        """Return the JSON of an answer, the same one from both hosts, but for what a process uses meanwhile."""
        answers = [await self.ask("GET", path, **options) for _ in range(2)]
        assert all(answer.status_code == 200 for answer in answers), [answer.text for answer in answers]
        first, second = (_ELAPSED.sub("", answer.text) for answer in answers)
        assert first == second
        return answers[0].json()


def _message(text: str, message_id: str, **more: Any) -> dict[str, Any]:
    return {"role": "ROLE_USER", "messageId": message_id, "parts": [{"text": text}], **more}


def test_every_protocol_goes_over_both_hosts(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """Runs, pipelines, processes, questions, A2A, AG-UI and MCP: what one request begins the next ones find, whichever
    hosts they reach."""

    async def main() -> None:
        async with serving(tmp_path, postgres_server.url, "a", "b") as cluster:
            balancer = Balancer(cluster)
            for check in (_runs, _pipelines, _processes, _a2a, _agui, _mcp, _webhooks):
                await check(balancer)

    in_loop(main(), 200)


async def _runs(balancer: Balancer) -> None:
    started = [await balancer.ask("POST", "/api/runs", json={"agent": "clerk", "message": "go"}) for _ in range(4)]
    for answer in started:
        assert answer.status_code == 202, answer.text
        run_id = answer.json()["run_id"]
        result = (await balancer.ask("GET", f"/api/runs/{run_id}/result?wait_s=30")).json()
        assert (result["status"], result["text"]) == ("success", "The 1. answer is here.")
        shown = await balancer.get(f"/api/runs/{run_id}")
        shard, slash, pid = shown["pid"].partition("/")
        assert shard[0] == "s"
        assert slash
        assert pid.endswith(run_id)
        events = await balancer.ask("GET", f"/api/runs/{run_id}/events")
        assert "event: result" in events.text
    listed = (await balancer.get("/api/runs"))["runs"]
    assert {row["run_id"] for row in listed} == {answer.json()["run_id"] for answer in started}
    assert all("/" in row["pid"] for row in listed)


async def _pipelines(balancer: Balancer) -> None:
    pipeline = {"name": "line", "stages": [{"name": "only", "agent": "stage"}]}
    body = {"pipeline": pipeline, "input": "hello"}
    started = [await balancer.ask("POST", "/api/pipelines", json=body) for _ in range(3)]
    for answer in started:
        assert answer.status_code == 202, answer.text
        run_id = answer.json()["run_id"]
        events = await balancer.ask("GET", f"/api/pipelines/{run_id}/events")
        assert "event: pipeline_completed" in events.text
        ended = await balancer.get(f"/api/pipelines/{run_id}/result?wait_s=30")
        assert ended["status"] == "completed", ended
    assert len((await balancer.get("/api/pipelines"))["runs"]) == 3


async def _processes(balancer: Balancer) -> None:
    """Lists name processes by addresses, by which each is found from any host, also when it is not told the shard."""
    page = await balancer.get("/api/processes?limit=3")
    assert len(page["processes"]) == 3
    rest = await balancer.get("/api/processes", params={"after": page["next"]})
    addresses = [row["pid"] for row in (*page["processes"], *rest["processes"])]
    assert len(set(addresses)) == len(addresses) == page["total"]
    assert len({address.partition("/")[0] for address in addresses}) > 1
    for address in addresses:
        shown = await balancer.get(f"/api/processes/{address.replace('/', '%2F')}")
        assert shown["pid"] == address
        assert (await balancer.get(f"/api/processes/{address.partition('/')[2]}"))["pid"] == address
    missing = await balancer.ask("GET", "/api/processes/s9%2Fp1")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "no_such_process")
    assert (await balancer.ask("GET", "/api/processes/nosuch")).status_code == 404


async def _a2a(balancer: Balancer) -> None:
    """A task is found by its id, a context goes on, a message that is sent again is the same task."""
    first = await balancer.ask("POST", "/a2a/clerk/message:send", json={"message": _message("hello", "m1")})
    assert first.status_code == 200, first.text
    task = first.json()["task"]
    again = await balancer.ask("POST", "/a2a/clerk/message:send", json={"message": _message("hello", "m1")})
    assert again.json()["task"]["id"] == task["id"]
    assert (await balancer.get(f"/a2a/clerk/tasks/{task['id']}"))["id"] == task["id"]
    more = _message("and now", "m2", contextId=task["contextId"])
    second = (await balancer.ask("POST", "/a2a/clerk/message:send", json={"message": more})).json()["task"]
    assert second["contextId"] == task["contextId"]
    assert "2. answer" in json.dumps(second)
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": second["id"]}}
    for _ in range(2):
        told = (await balancer.ask("POST", "/a2a/clerk", json=rpc)).json()
        assert told["result"]["id"] == second["id"]
    chosen = [_message("hello", f"n{number}", contextId=f"mine-{number}") for number in range(4)]
    for message in chosen:
        answer = await balancer.ask("POST", "/a2a/clerk/message:send", json={"message": message})
        assert answer.json()["task"]["contextId"] == message["contextId"]
    listed = (await balancer.get("/a2a/clerk/tasks"))["tasks"]
    assert len(listed) == 6
    for row in listed:
        told = (await balancer.ask("POST", "/a2a/clerk", json={**rpc, "params": {"id": row["id"]}})).json()
        assert told["result"]["id"] == row["id"], told
    by_rpc = {"jsonrpc": "2.0", "id": 2, "method": "ListTasks", "params": {}}
    told = (await balancer.ask("POST", "/a2a/clerk", json=by_rpc)).json()
    assert [row["id"] for row in told["result"]["tasks"]] == [row["id"] for row in listed]


async def _agui(balancer: Balancer) -> None:
    """A thread whose id the client chose is one conversation."""
    for thread in ("t1", "t2", "t3"):
        for turn in (1, 2):
            message = {"id": f"u{turn}", "role": "user", "content": "hello"}
            body = {"threadId": thread, "runId": f"r{turn}", "messages": [message], "state": {}, "tools": []}
            answer = await balancer.ask("POST", "/agui/clerk", json={**body, "context": [], "forwardedProps": {}})
            assert answer.status_code == 200, answer.text
            assert f"The {turn}. answer" in answer.text.replace('"', "")


async def _mcp(balancer: Balancer) -> None:
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}

    async def call(message: str, **more: str) -> dict[str, Any]:
        params = {"name": "clerk", "arguments": {"message": message, **more}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await balancer.ask("POST", "/mcp", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        text = (
            answer.text.partition("data: ")[2].strip()
            if answer.text.startswith(("event", "id", "data"))
            else answer.text
        )
        told: dict[str, Any] = json.loads(text)["result"]["structuredContent"]
        return told

    first = await call("hello")
    second = await call("and now", session_id=first["session_id"])
    assert second == {"text": "The 2. answer is here.", "session_id": first["session_id"]}


async def _webhooks(balancer: Balancer) -> None:
    """A webhook hears of every shard, and is one; what is posted to a hook goes to its shard."""
    kinds = {"url": "https://example.com/x", "kinds": ["process.created"]}
    added = await balancer.ask("POST", "/api/webhooks", json=kinds)
    assert added.status_code == 201, added.text
    webhook_id = added.json()["webhook_id"]
    assert [row["webhook_id"] for row in (await balancer.get("/api/webhooks"))["webhooks"]] == [webhook_id]
    rows = (await balancer.get("/api/processes?limit=1000"))["processes"]
    having = {row["pid"].partition("/")[0] for row in rows if row["pid"].endswith(webhook_id)}
    assert having == {"s1", "s2", "s3", "s4"}
    chosen = {"lyra-webhook-id": "../x"}  # the header by which hosts tell each other one id
    for path in ("/api/webhooks", "/shards/s1/api/webhooks"):
        other = await balancer.ask("POST", path, json=kinds, headers=chosen)
        assert other.json()["webhook_id"] not in ("../x", webhook_id)
        assert (await balancer.ask("DELETE", f"{path}/{other.json()['webhook_id']}")).status_code == 200
    assert (await balancer.ask("DELETE", f"/api/webhooks/{webhook_id}")).status_code == 200
    assert (await balancer.get("/api/webhooks"))["webhooks"] == []
    refused = await balancer.ask("POST", "/api/webhooks", json={**kinds, "url": "http://127.0.0.1:1/x"})
    assert refused.status_code == 403, refused.text
    made = await balancer.ask("POST", "/api/hooks", json={"agent": "clerk"})
    assert made.status_code == 201, made.text
    assert [row["hook_id"] for row in (await balancer.get("/api/hooks"))["hooks"]] == [made.json()["hook_id"]]
    for _ in range(2):  # without its signature it is refused, by the shard that knows it
        assert (await balancer.ask("POST", made.json()["path"], json={})).status_code == 401
    assert (await balancer.ask("DELETE", f"/api/hooks/{made.json()['hook_id']}")).status_code in (200, 204)
    assert (await balancer.get("/api/hooks"))["hooks"] == []


def test_events_of_all_shards_are_one_stream(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """Processes that start on several shards are told in one stream, which is read on at the other host from where the
    client left it."""

    async def main() -> None:
        async with serving(tmp_path, postgres_server.url, "a", "b") as cluster:
            seen: dict[str, str] = {}

            async def read(name: str, until: int, event_id: str = "") -> None:
                headers = {"last-event-id": event_id} if event_id else {}
                async with (
                    cluster.client(name, OPERATOR) as client,
                    client.stream("GET", "/api/events?kinds=process.created", headers=headers) as response,
                ):
                    assert response.status_code == 200
                    known = event_id
                    async for line in response.aiter_lines():
                        if line.startswith("id: "):
                            known = line[4:]
                            if known.count("=") == 4:  # a place in each shard
                                opened.set()
                        elif line.startswith("data: "):
                            seen[json.loads(line[6:])["pid"]] = known
                            if len(seen) >= until:
                                return

            async def begin(count: int) -> set[str]:
                pids = set()
                async with cluster.client("a") as client:
                    for _ in range(count):
                        run = await client.post("/api/runs", json={"agent": "clerk", "message": "go"})
                        pids.add((await client.get(f"/api/runs/{run.json()['run_id']}")).json()["pid"])
                return pids

            opened = asyncio.Event()
            reading = asyncio.ensure_future(read("a", 6))
            await opened.wait()
            first = await begin(6)
            await reading
            assert set(seen) == first
            assert len({pid.partition("/")[0] for pid in first}) > 1
            second = await begin(3)
            await read("b", 9, list(seen.values())[-1])
            assert set(seen) == first | second

    in_loop(main(), 200)

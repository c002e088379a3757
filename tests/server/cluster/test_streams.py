"""Chats behind a load balancer: found from any host, read on at any host, also after the host that had them died."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.cluster.support import Cluster, events_of, serving
from tests.server.http.support import in_loop
from tests.store.conftest import postgres_server  # noqa: F401 - a fixture
from verify.servers import PostgresServer


def test_any_host_answers_for_every_session(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """A conversation whose messages reach the hosts in turn is one conversation, and each host shows it."""

    async def main() -> None:
        async with serving(tmp_path, postgres_server.url, "a", "b") as cluster:
            sessions = []
            turns = cluster.turns()
            for _ in range(6):
                async with cluster.client(next(turns)) as client:
                    first = await client.post("/api/agents/clerk/chat", json={"message": "hello"})
                assert first.status_code == 200, first.text
                assert first.json()["text"] == "The 1. answer is here."
                sessions.append(first.json()["session_id"])
            for session_id in sessions:
                for name in ("a", "b"):
                    async with cluster.client(name) as client:
                        seen = await client.get(f"/api/sessions/{session_id}")
                        assert seen.status_code == 200, seen.text
                        body = {"message": "and now", "session_id": session_id}
                        more = await client.post("/api/agents/clerk/chat", json=body)
                        assert more.json()["session_id"] == session_id
                        assert more.json()["text"] == f"The {len(seen.json()['messages']) // 2 + 1}. answer is here."
                async with cluster.client("a") as client:
                    listed = (await client.get("/api/sessions")).json()["sessions"]
                    assert {row["session_id"] for row in listed} == set(sessions)

    in_loop(main())


def test_a_stream_is_read_on_at_another_host_after_kill_9(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """The host with the session is killed in the middle of an answer; the client reads on at the other one, by the id
    of the last event that it has, and gets the whole answer of one turn."""

    async def main() -> None:
        async with serving(tmp_path, postgres_server.url, "a", "b") as cluster:
            held: dict[str, str] = {}
            async with cluster.client("a") as client:
                for _ in range(40):
                    answer = await client.post("/api/agents/clerk/chat", json={"message": "hello"})
                    assert answer.status_code == 200, answer.text
                    assert answer.status_code == 200, answer.text
                    session_id = answer.json()["session_id"]
                    held.setdefault(cluster.owner_of(session_id), session_id)
                    if len(held) == 2:
                        break
            assert set(held) == {"a", "b"}
            cluster.vendor.hold()
            asked = len(cluster.vendor.requests)
            body = {"message": "tell", "session_id": held["b"]}
            seen: list[tuple[str, str, dict[str, Any]]] = []
            with pytest.raises(httpx.HTTPError):
                async with (
                    cluster.client("a") as client,
                    client.stream("POST", "/api/agents/clerk/chat/stream", json=body) as response,
                ):
                    assert response.status_code == 200
                    async for event in events_of(response):
                        seen.append(event)
                        if event[1] == "text_delta":
                            await cluster.kill("b")
            assert seen[-1][2]["delta"].startswith("The 2.")
            cluster.vendor.finish()
            async with (
                cluster.client("a") as client,
                client.stream(
                    "GET", "/api/agents/clerk/chat/stream", headers={"last-event-id": seen[-1][0]}
                ) as response,
            ):
                assert response.status_code == 200, await response.aread()
                rest = [event async for event in events_of(response)]
            assert rest[-1][1] == "result"
            assert rest[-1][2]["text"] == "The 2. answer is here."
            assert rest[-1][2]["session_id"] == held["b"]
            assert len(cluster.vendor.requests) > asked + 1  # the turn was taken up on the other host

    in_loop(main())


def test_a_host_that_is_stopped_drains(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """SIGTERM: the ready line named the host; it is not ready any more and refuses what is new, answers under way are
    finished, also those that came by the other host, and then its shards are open there. The exit code is 0."""

    async def main() -> None:
        async with serving(tmp_path, postgres_server.url, "a", "b") as cluster:
            assert cluster.hosts["a"].ready["host"] == "a"
            assert cluster.hosts["a"].ready.keys() == {"host", "http", "peers"}
            held: dict[str, str] = {}
            async with cluster.client("b") as client:
                while len(held) < 2:
                    answer = await client.post("/api/agents/clerk/chat", json={"message": "hello"})
                    assert answer.status_code == 200, answer.text
                    session_id = answer.json()["session_id"]
                    held.setdefault(cluster.owner_of(session_id), session_id)
            cluster.vendor.hold()
            asked = len(cluster.vendor.requests)

            async def read(name: str, session_id: str) -> str:
                body = {"message": "tell", "session_id": session_id}
                async with (
                    cluster.client(name) as client,
                    client.stream("POST", "/api/agents/clerk/chat/stream", json=body) as response,
                ):
                    return str([event async for event in events_of(response)][-1][2]["text"])

            reading = [
                asyncio.ensure_future(read(name, session_id))
                for name, session_id in zip("ab", held.values(), strict=True)
            ]
            reading.append(asyncio.ensure_future(_follow_events(cluster)))
            await cluster.vendor.until_asked(asked + 2)
            stopping = asyncio.ensure_future(cluster.hosts["a"].stop())
            async with cluster.client("a") as client:
                while (ready := await client.get("/readyz")).status_code == 200:
                    await asyncio.sleep(0.02)
                assert ready.status_code == 503
                refused = await client.post("/api/agents/clerk/chat", json={"message": "new"})
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
                assert "retry-after" in refused.headers
            cluster.vendor.finish()
            texts = await asyncio.gather(*reading[:2])
            assert texts == ["The 2. answer is here."] * 2
            code, told = await stopping
            assert (code, "stopping" in told) == (0, True), told
            del cluster.hosts["a"]
            async with cluster.client("b") as client:
                for session_id in held.values():
                    assert cluster.owner_of(session_id) == "b"
                    body = {"message": "more", "session_id": session_id}
                    more = await client.post("/api/agents/clerk/chat", json=body)
                    assert more.json()["text"] == "The 3. answer is here."
            reading[-1].cancel()

    in_loop(main())


async def _follow_events(cluster: Cluster) -> str:
    """Read the events of all shards by the host that stays: they hold up nothing."""
    async with cluster.client("b") as client, client.stream("GET", "/api/events") as response:
        async for _ in response.aiter_lines():
            pass
    return ""


def test_requests_go_on_while_a_host_is_gone(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """Just after a host was killed new work goes to the shards that are open, at once; a request for a shard of the
    dead host waits until it is open again, and lists name the shards that are missing meanwhile. A message whose host
    died is told as such, and is answered in its conversation all the same."""

    async def main() -> None:
        async with serving(tmp_path, postgres_server.url, "a", "b", lease_s=8.0) as cluster:
            held: dict[str, str] = {}
            async with cluster.client("a") as client:
                while len(held) < 2:
                    answer = await client.post("/api/agents/clerk/chat", json={"message": "hello"})
                    assert answer.status_code == 200, answer.text
                    session_id = answer.json()["session_id"]
                    held.setdefault(cluster.owner_of(session_id), session_id)
                lost = {shard for shard, host in cluster.owners().items() if host == "b"}
                cluster.vendor.hold()
                asked = len(cluster.vendor.requests)
                body = {"message": "more", "session_id": held["b"]}
                pending = asyncio.ensure_future(client.post("/api/agents/clerk/chat", json=body))
                await cluster.vendor.until_asked(asked + 1)
                await cluster.kill("b")
                cluster.vendor.finish()
                assert ((await pending).status_code, pending.result().json()["error"]["code"]) == (502, "unreachable")
                listing = asyncio.ensure_future(client.get("/api/sessions"))  # for less than the lease of the dead host
                new = [client.post("/api/agents/clerk/chat", json={"message": "hello"}) for _ in range(8)]
                for made in await asyncio.gather(*new):
                    assert made.status_code == 200, made.text
                    assert cluster.home_of(made.json()["session_id"]) not in lost
                listed = await listing
                assert listed.headers["lyra-missing-shards"] == ", ".join(sorted(lost))
                assert listed.json()["missing_shards"] == sorted(lost)
                more = await client.post("/api/agents/clerk/chat", json=body)  # behind the turn that was under way
                assert more.json()["text"] == "The 3. answer is here.", more.text
                listed = await client.get("/api/sessions")
                assert "lyra-missing-shards" not in listed.headers
                assert len(listed.json()["sessions"]) >= 10

    in_loop(main())

"""Chats behind a load balancer: found from any host, read on at any host, also after the host that had them died."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.cluster.support import events_of, serving
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

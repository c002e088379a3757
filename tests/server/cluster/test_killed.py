"""Work under way on a host that is killed: it goes on where its shard is open next, and any host tells of it."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.cluster.support import Cluster, serving
from tests.server.http.support import in_loop
from tests.store.conftest import postgres_server  # noqa: F401 - a fixture
from verify.servers import PostgresServer


def _name_on(cluster: Cluster, host: str, prefix: str) -> str:
    """Return a name whose home shard a host has."""
    return next(name for number in count() if cluster.owner_of(name := f"{prefix}-{number}") == host)


async def _start_run(cluster: Cluster, client: httpx.AsyncClient) -> str:
    """Start runs until one of them is on host b."""
    while True:
        run_id = str((await client.post("/api/runs", json={"agent": "clerk", "message": "go"})).json()["run_id"])
        if cluster.owner_of(run_id) == "b":
            return run_id


def _thread(thread_id: str, *messages: dict[str, Any]) -> dict[str, Any]:
    given = {"threadId": thread_id, "runId": "r1", "messages": list(messages), "state": {}, "tools": []}
    return {**given, "context": [], "forwardedProps": {}}


def test_runs_tasks_and_threads_outlive_their_host(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """A run, a task of A2A and a thread of AG-UI are in the middle of an answer when their host is killed. The streams
    break off, and are read to their end at the other host."""

    async def main() -> None:
        async with serving(tmp_path, postgres_server.url, "a", "b") as cluster, cluster.client("a") as client:
            assert (await client.get("/api/agents")).status_code == 200  # a shard is open
            while set(cluster.owners().values()) != {"a", "b"}:
                await asyncio.sleep(0.1)
            cluster.vendor.hold()
            run_id = await _start_run(cluster, client)
            context, thread = _name_on(cluster, "b", "context"), _name_on(cluster, "b", "thread")
            message = {"role": "ROLE_USER", "messageId": "m1", "parts": [{"text": "hello"}], "contextId": context}
            said = {"id": "u1", "role": "user", "content": "hello"}
            body = {"message": message, "configuration": {"returnImmediately": True}}
            sent = await client.post("/a2a/clerk/message:send", json=body)
            task_id = sent.json()["task"]["id"]

            begun: set[str] = set()

            async def read(method: str, path: str, **options: Any) -> str:
                whole = ""
                async with client.stream(method, path, **options) as response:
                    assert response.status_code == 200
                    async for text in response.aiter_text():
                        begun.add(path)
                        whole += text
                return whole

            reading = [
                asyncio.ensure_future(read("GET", f"/api/runs/{run_id}/events")),
                asyncio.ensure_future(read("GET", f"/a2a/clerk/tasks/{task_id}:subscribe")),
                asyncio.ensure_future(read("POST", "/agui/clerk", json=_thread(thread, said))),
            ]
            while len(begun) < len(reading):
                await asyncio.sleep(0.02)
            await cluster.kill("b")
            for broken in await asyncio.gather(*reading, return_exceptions=True):
                assert isinstance(broken, httpx.HTTPError), broken
            cluster.vendor.finish()
            events = await read("GET", f"/api/runs/{run_id}/events")
            assert "The 1. answer is here." in events
            result = (await client.get(f"/api/runs/{run_id}/result?wait_s=30")).json()
            assert (result["status"], result["text"]) == ("success", "The 1. answer is here.")
            task = await client.get(f"/a2a/clerk/tasks/{task_id}")
            if task.json()["status"]["state"] != "TASK_STATE_COMPLETED":
                await read("GET", f"/a2a/clerk/tasks/{task_id}:subscribe")
                task = await client.get(f"/a2a/clerk/tasks/{task_id}")
            assert "The 1. answer is here." in json.dumps(task.json()["artifacts"])
            taken_up = await read("POST", "/agui/clerk", json=_thread(thread))
            assert "RUN_FINISHED" in taken_up
            assert "The 1. answer is here." in taken_up
            assert cluster.owner_of(thread) == "a"

    in_loop(main())


def test_a_pipeline_outlives_its_host(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """A stage that a killed host ran is run again, and the events of the run are read to the last at the other host."""

    async def main() -> None:
        async with serving(tmp_path, postgres_server.url, "a", "b") as cluster, cluster.client("a") as client:
            pipeline = {"name": "line", "stages": [{"name": "only", "agent": "slow"}]}
            runs: list[str] = []
            while not any(cluster.owner_of(run_id) == "b" for run_id in runs):
                started = await client.post("/api/pipelines", json={"pipeline": pipeline, "input": "hello"})
                assert started.status_code == 202, started.text
                runs.append(started.json()["run_id"])
            run_id = runs[-1]
            with pytest.raises(httpx.HTTPError):
                async with client.stream("GET", f"/api/pipelines/{run_id}/events") as response:
                    async for line in response.aiter_lines():
                        if line == "event: stage_started":
                            await cluster.kill("b")
            (tmp_path / "go").touch()
            async with client.stream("GET", f"/api/pipelines/{run_id}/events") as response:
                text = "".join([piece async for piece in response.aiter_text()])
            assert "event: pipeline_completed" in text
            for known in runs:
                answer = await client.get(f"/api/pipelines/{known}/result?wait_s=30")
                while answer.status_code == 503 and "retry-after" in answer.headers:  # a busy machine opens shards late
                    await asyncio.sleep(1)
                    answer = await client.get(f"/api/pipelines/{known}/result?wait_s=30")
                assert answer.json().get("status") == "completed", answer.text

    in_loop(main())

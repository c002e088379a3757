"""SIGTERM to a real `lyra serve` under load: readiness first, nothing new, what is under way finishes, exit code 0."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import lyra
from lyra.errors import Overloaded
from verify.crash.server import outside
from verify.served import OPERATOR, ServedProcess

pytestmark = pytest.mark.slow

AGENTS = """
import asyncio
from pathlib import Path
from lyra import Agent

def setup(kernel):
    async def wait(envelope):
        Path(envelope.raw_input + ".begun").touch()
        while not Path(envelope.raw_input + ".go").exists():
            await asyncio.sleep(0.02)
        return {"waited": True}

    async def last(envelope):
        return {"done": True}

    kernel.register_agent("wait", wait, idempotent=True)
    kernel.register_agent("last", last, idempotent=True)
    kernel.register(Agent("echo", model="sim/echo"))
"""
PIPELINE = {
    "name": "slow",
    "agents": [
        {"name": "wait", "stage_order": 0, "default_next": "deliver"},
        {"name": "deliver", "stage_order": 1, "default_next": "last"},
        {"name": "last", "stage_order": 2, "default_next": "end"},
    ],
}


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[ServedProcess, Any, httpx.AsyncClient]]:
    """A server with a worker in another process, and clients over gRPC and HTTP."""
    (folder / "agents.py").write_text(AGENTS)
    env = {outside.LOG_VARIABLE: str(folder / "outside.log")}
    served = ServedProcess(folder, str(folder / "store.db"), load=folder / "agents.py", env=env)
    try:
        await served.start()
        await served.start_worker(Path(outside.__file__))
        headers = {"authorization": f"Bearer {OPERATOR}", "x-user-id": "ada"}
        async with (
            lyra.connect(served.grpc, token=OPERATOR, user_id="ada", reconnect_s=0.0) as kernel,
            httpx.AsyncClient(base_url=f"http://{served.http}", headers=headers, timeout=60) as http,
        ):
            yield served, kernel, http
    finally:
        served.close()


async def known(http: httpx.AsyncClient, agent: str) -> None:
    """Wait until the worker has told the server which agents it runs."""
    async with asyncio.timeout(60):
        while agent not in {row["name"] for row in (await http.get("/api/agents")).json()["agents"]}:
            await asyncio.sleep(0.05)


async def exists(path: Path) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(path.exists):
            await asyncio.sleep(0.02)


def run(body: Any, folder: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(180), serving(folder) as parts:
            await body(*parts)

    asyncio.run(main())


def test_sigterm_under_load_finishes_what_runs_and_refuses_what_is_new(tmp_path: Path) -> None:
    """`/readyz` is 503 and new work UNAVAILABLE or 503 as soon as the server stops; pipelines that run over gRPC and
    over HTTP come to their end, with a stage of a remote worker; acknowledged processes are there after a restart."""
    acknowledged: list[str] = []
    refusals: set[str] = set()

    async def create(kernel: Any) -> None:
        number = 0
        while True:
            number += 1
            try:
                await kernel.submit(f"p{number}")
                acknowledged.append(f"p{number}")
            except Overloaded as error:
                refusals.add(error.message.partition(":")[0])
                return

    async def follow(kernel: Any) -> Any:
        last = None
        async for event in kernel.execute_pipeline(PIPELINE, {"raw_input": str(tmp_path / "rpc")}, pid="rpc"):
            last = event
        return last

    async def body(served: ServedProcess, kernel: Any, http: httpx.AsyncClient) -> None:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(follow(kernel))
            await exists(tmp_path / "rpc.begun")
            started = await http.post("/api/pipelines", json={"pipeline": PIPELINE, "input": str(tmp_path / "http")})
            await exists(tmp_path / "http.begun")
            load = [group.create_task(create(kernel)) for _ in range(2)]
            while len(acknowledged) < 20:
                await asyncio.sleep(0.01)
            assert (await http.get("/readyz")).status_code == 200
            served.terminate()
            while (await http.get("/readyz")).status_code != 503:
                await asyncio.sleep(0.01)
            assert (await http.get("/healthz")).status_code == 200
            refused = await http.post("/api/agents/echo/chat", json={"message": "x"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
            await asyncio.wait(load)
            assert refusals == {"the server is stopping"}
            run_id = started.json()["run_id"]
            assert (await http.get(f"/api/pipelines/{run_id}")).json()["status"] == "running"
            for name in ("rpc", "http"):
                (tmp_path / f"{name}.go").touch()
        assert str(running.result().envelope.terminal_reason) == "completed"
        assert await served.ended() == 0
        await served.start()
        again = await http.get(f"http://{served.http}/api/pipelines/{run_id}/result")
        assert again.json()["outputs"]["last"] == {"done": True}
        async with lyra.connect(served.grpc, token=OPERATOR, user_id="ada") as other:
            listed = await other.list_processes()
        assert {str(block.pid) for block in listed} >= set(acknowledged)
        assert await served.stop() == 0

    run(body, tmp_path)


def test_what_takes_longer_than_the_drain_time_goes_on_after_the_restart(tmp_path: Path) -> None:
    """The server ends within its time with exit code 0, and the pipeline comes to its end in the next one."""

    async def body(served: ServedProcess, kernel: Any, http: httpx.AsyncClient) -> None:
        served.drain_s = 1
        assert await served.stop() == 0
        await served.start()
        await known(http, "deliver")
        place = str(tmp_path / "long")
        started = await http.post("/api/pipelines", json={"pipeline": PIPELINE, "input": place})
        await exists(tmp_path / "long.begun")
        assert await served.stop() == 0
        (tmp_path / "long.go").touch()
        await served.start()
        path = f"http://{served.http}/api/pipelines/{started.json()['run_id']}/result"
        result = (await http.get(path, params={"wait_s": 60})).json()
        assert result["outputs"]["last"] == {"done": True}
        assert await served.stop() == 0

    run(body, tmp_path)

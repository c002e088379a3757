"""`lyra serve --gateway` killed with SIGKILL in the middle of calls: nothing is charged twice, nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lyra.models.pricing import price_of
from lyra.models.stream import TokenUsage
from tests import warm
from tests.server.gateway.support import OPENAI_KEY, SSE, FakeProvider, Received, Reply, chat_stream
from tests.server.http.support import in_loop
from verify.servers import PostgresServer, postgres_missing

pytestmark = pytest.mark.slow

TOKEN = "operator-token-0123456789"
MODEL = "openai/gpt-4o-mini"
BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "hello"}],
    "max_completion_tokens": 200,
    "stream": True,
}
PRICE = price_of(MODEL)
assert PRICE is not None
COST = PRICE.cost(TokenUsage(10, 5))


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    with PostgresServer() as server:
        yield server


class ServeProcess:
    """A `lyra serve --gateway` that is ready."""

    def __init__(self, process: Any, url: str) -> None:
        self.process = process
        self.operator = httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=60)
        self.url = url

    async def view(self) -> dict[str, Any]:
        view: dict[str, Any] = (await self.operator.get("/api/keys/ci")).json()
        return view

    async def kill(self) -> None:
        self.process.kill()
        await asyncio.to_thread(self.process.wait)
        await self.operator.aclose()


def start_serve(folder: Path, db: str, provider: FakeProvider, stderr: Any = None) -> Any:
    """A `lyra serve --gateway` that has just been started."""
    env = {
        **os.environ,
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "LYRA_TOKEN": TOKEN,
        "OPENAI_API_KEY": OPENAI_KEY,
        "OPENAI_BASE_URL": f"{provider.url}/v1",
    }
    words = ["serve", "--gateway", "--grpc", "none", "--http", "127.0.0.1:0", "--db", db]
    return warm.start_lyra(words, cwd=folder, env=env, stderr=stderr)


async def first_line(process: Any) -> bytes:
    line: bytes = await asyncio.to_thread(process.stdout.readline)
    return line


@asynccontextmanager
async def serve(folder: Path, db: str, provider: FakeProvider, stderr: Any = None) -> AsyncIterator[ServeProcess]:
    process = start_serve(folder, db, provider, stderr)
    try:
        yield ServeProcess(process, json.loads(await first_line(process))["http"])
    finally:
        warm.close(process)


async def ask(url: str, key: str, done: list[bytes]) -> None:
    """Ask once; notes the answer if it came whole."""
    async with httpx.AsyncClient(base_url=url, headers={"x-api-key": key}, timeout=60) as client:
        try:
            answer = await client.post("/v1/chat/completions", json=BODY)
        except httpx.HTTPError:
            return
        if answer.status_code == 200 and b"[DONE]" in answer.content:
            done.append(answer.content)


async def ask_on(server: ServeProcess, key: str, done: list[bytes]) -> None:
    """Ask again and again, until the server is gone."""
    while server.process.poll() is None:
        await ask(server.url, key, done)


async def _killed_in_the_middle(folder: Path, db: str) -> None:
    gate = asyncio.Event()

    def reply(_: Received) -> Reply:
        """The first ten are answered, the others begin and stand still."""
        held = len(provider.received) > 10
        return Reply(chat_stream("word "), headers=SSE, gate=gate if held else None)

    async with FakeProvider(reply) as provider, asyncio.TaskGroup() as group:
        done: list[bytes] = []
        async with serve(folder, db, provider) as server:
            made = await server.operator.post("/api/keys", json={"name": "ci", "budget": "$1"})
            key = made.json()["key"]
            for _ in range(10):
                await ask(server.url, key, done)
            for _ in range(10):
                group.create_task(ask(server.url, key, done))
            while len(provider.received) < 20 or (before := await server.view())["reserved_micro_usd"] == 0:
                await asyncio.sleep(0.02)
            await server.kill()
        assert len(done) == 10
        assert before["spent_micro_usd"] == 10 * COST
        for _ in range(2):  # the second time nothing is in flight
            async with serve(folder, db, provider) as server:
                after = await server.view()
                assert after["spent_micro_usd"] == before["spent_micro_usd"] + before["reserved_micro_usd"]
                assert (after["reserved_micro_usd"], after["calls"]) == (0, 20)
                await server.kill()
        assert len(provider.received) == 20  # no call was made again
        gate.set()


def test_calls_in_flight_are_charged_what_was_reserved_once(tmp_path: Path) -> None:
    """Answers that came whole cost what they cost; those that a kill cut off cost what was set aside, in any number of
    restarts; no call is made again."""
    in_loop(_killed_in_the_middle(tmp_path, str(tmp_path / "gateway.db")))


@pytest.mark.long
def test_the_same_with_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    """The spending of a key is in the store, whichever it is."""
    in_loop(_killed_in_the_middle(tmp_path, f"{postgres.url}&schema=gateway_killed"))


def test_killed_under_load(tmp_path: Path) -> None:
    """Killed at any moment of many calls: every answer that a client has seen whole is charged, no call that reached
    the provider is free, and the key still works with what is left."""

    async def main() -> None:
        async with FakeProvider(Reply(chat_stream("word "), headers=SSE)) as provider:
            db, done, key = str(tmp_path / "gateway.db"), [], ""
            for round_number in range(2):
                async with serve(tmp_path, db, provider) as server, asyncio.TaskGroup() as group:
                    if not key:
                        made = await server.operator.post("/api/keys", json={"name": "ci", "budget": "$1"})
                        key = made.json()["key"]
                    goal = len(done) + 15 + 3 * round_number
                    for _ in range(8):
                        group.create_task(ask_on(server, key, done))
                    while len(done) < goal:
                        await asyncio.sleep(0.001)
                    await server.kill()
                async with serve(tmp_path, db, provider) as server:
                    view = await server.view()
                    assert len(done) * COST <= view["spent_micro_usd"] <= 1_000_000
                    assert view["calls"] >= len(provider.received) >= len(done)
                    assert view["reserved_micro_usd"] == 0
                    await server.kill()

    in_loop(main())

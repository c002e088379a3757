"""Two `lyra serve --gateway` on one PostgreSQL: one owns the store, and a key has one budget whichever serves it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests import warm
from tests.server.gateway.support import SSE, FakeProvider, Received, Reply, chat_stream
from tests.server.gateway.test_killed import BODY, COST, ServeProcess, ask, first_line, serve, start_serve
from tests.server.gateway.test_killed import postgres as postgres  # noqa: PLC0414 - a fixture
from tests.server.http.support import in_loop
from verify.servers import PostgresServer

pytestmark = pytest.mark.slow

PATH = "/v1/chat/completions"
BUDGET = 650  # micro-dollars: what three calls reserve, and a few calls more


@asynccontextmanager
async def taking_over(folder: Path, db: str, provider: FakeProvider) -> AsyncIterator[ServeProcess]:
    """A server that is started again and again, as a supervisor of services does, until the store is its own."""
    ready = b""
    while not ready:
        process = start_serve(folder, db, provider, subprocess.DEVNULL)
        ready = await first_line(process)
        if not ready:
            assert await asyncio.to_thread(process.wait) == 1
            warm.close(process)
    try:
        yield ServeProcess(process, json.loads(ready)["http"])
    finally:
        warm.close(process)


def test_the_second_server_is_refused(tmp_path: Path, postgres: PostgresServer) -> None:
    """It ends at once and names the owner; the first one serves on, and what its key has spent is right."""
    db = f"{postgres.url}&schema=gateway_refused"

    async def main() -> None:
        async with (
            FakeProvider(Reply(chat_stream("word "), headers=SSE)) as provider,
            serve(tmp_path, db, provider) as first,
        ):
            made = await first.operator.post("/api/keys", json={"name": "ci", "budget": "$1"})
            done: list[bytes] = []
            await ask(first.url, made.json()["key"], done)
            second = start_serve(tmp_path, db, provider, subprocess.PIPE)
            stdout, stderr = await asyncio.to_thread(second.communicate)
            assert (second.returncode, stdout) == (1, b"")
            assert f"process {first.process.pid} on" in stderr.decode()
            await ask(first.url, made.json()["key"], done)
            view = await first.view()
            assert (len(done), view["spent_micro_usd"], view["reserved_micro_usd"]) == (2, 2 * COST, 0)
            await first.kill()

    in_loop(main())


async def _paused_and_taken_over(folder: Path, db: str) -> None:
    gate, in_flight = asyncio.Event(), 3

    def reply(_: Received) -> Reply:
        """The first two and those after the takeover are answered, the others begin and stand still."""
        held = 2 < len(provider.received) <= 2 + in_flight
        return Reply(chat_stream("word "), headers=SSE, gate=gate if held else None)

    async with FakeProvider(reply) as provider, asyncio.TaskGroup() as group:
        done: list[bytes] = []
        async with serve(folder, db, provider, subprocess.PIPE) as first:
            made = await first.operator.post("/api/keys", json={"name": "ci", "budget": f"${BUDGET / 1_000_000:.6f}"})
            key = made.json()["key"]
            for _ in range(2):
                await ask(first.url, key, done)
            calls = [group.create_task(ask(first.url, key, done)) for _ in range(in_flight)]
            while len(provider.received) < 2 + in_flight:
                await asyncio.sleep(0.02)
            before = await first.view()
            assert before["spent_micro_usd"] == 2 * COST
            first.process.send_signal(signal.SIGSTOP)
            async with taking_over(folder, db, provider) as second:
                charged = before["spent_micro_usd"] + before["reserved_micro_usd"]
                view = await second.view()
                assert (view["spent_micro_usd"], view["reserved_micro_usd"]) == (charged, 0)
                late = group.create_task(asked(first.url, key))
                first.process.send_signal(signal.SIGCONT)
                gate.set()
                words = (await asyncio.to_thread(first.process.stderr.read)).decode()
                assert (
                    await asyncio.to_thread(first.process.wait),
                    "another server has taken over the store" in words,
                ) == (1, True)
                await asyncio.gather(*calls)
                assert await late in (None, 503)
                assert (len(done), len(provider.received)) == (2, 2 + in_flight)  # no answer was whole, no call is new
                answered = 0
                while (status := await asked(second.url, key)) == 200:
                    answered += 1
                view = await second.view()
                assert (status, answered > 0) == (402, True)
                assert view["spent_micro_usd"] == charged + answered * COST <= BUDGET
                assert view["calls"] == len(provider.received) == 2 + in_flight + answered
                await second.kill()
            await first.operator.aclose()


async def asked(url: str, key: str) -> int | None:
    """The status that a server answers with; None where it closes the connection."""
    async with httpx.AsyncClient(base_url=url, headers={"x-api-key": key}, timeout=60) as client:
        try:
            return (await client.post(PATH, json=BODY)).status_code
        except httpx.HTTPError:
            return None


def test_a_paused_server_whose_store_was_taken_over_ends(tmp_path: Path, postgres: PostgresServer) -> None:
    """The second server charges what was reserved for the calls of the first, once. The first, when it goes on, makes
    no call, gives no whole answer and ends with a sentence that says why. Both together keep to the key's budget."""
    in_loop(_paused_and_taken_over(tmp_path, f"{postgres.url}&schema=gateway_paused"))

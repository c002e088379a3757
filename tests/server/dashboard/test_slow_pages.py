"""A page that reads slowly, or not at all, holds nothing up and costs a bounded memory."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lyra import Agent
from lyra.core.limits import SERVER_FEED_BYTES_MAX, SERVER_FEED_EVENTS_MAX
from lyra.server.http.past import records
from lyra.store.space import open_to_read
from tests.server.dashboard.support import Served, logged_in, served, serving, texts
from tests.server.http.support import OPERATOR, in_loop

_EVENTS = 2 * SERVER_FEED_EVENTS_MAX


async def _stream(parts: Served, cookie: str, buffer_bytes: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The stream of events of a page, over a connection whose buffers are small."""
    connection = socket.create_connection((parts.address.host, parts.address.port))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connection, limit=2**20)
    writer.write(f"GET /api/events HTTP/1.1\r\nhost: {parts.address}\r\ncookie: {cookie}\r\n\r\n".encode())
    await reader.readuntil(b": open\n\n")
    return reader, writer


@pytest.mark.slow
@served()
async def test_a_page_that_does_not_read_holds_nothing_up(parts: Served) -> None:
    """While ten pages read nothing, another gets the last event, pages are answered, and the log keeps its bound."""
    async with logged_in(parts) as browser:
        ((name, value),) = browser.http.cookies.items()
        cookie = f"{name}={value}"
        silent = [await _stream(parts, cookie, 4_096) for _ in range(10)]
        reader, writer = await _stream(parts, cookie, 2**20)

        async def drained() -> None:
            """A reader that keeps up, with a bounded buffer of its own."""
            rest = b""
            while b"the-last-one" not in rest:
                rest = rest[-100:] + await reader.read(2**18)

        task = asyncio.ensure_future(drained())
        for number in range(_EVENTS):
            parts.kernel.publish("", "health.alert", {"message": f"number {number}"})
            if number % 100 == 0:
                await asyncio.sleep(0)
        parts.kernel.publish("", "health.alert", {"message": "the-last-one"})
        async with asyncio.timeout(60):
            await task
        page = await browser.http.get("/figures")
        assert page.status_code == 200
        log = parts.face.app.parts.feed.log
        assert len(log._events) <= SERVER_FEED_EVENTS_MAX
        assert log._bytes <= SERVER_FEED_BYTES_MAX
        for _, closing in [*silent, (reader, writer)]:
            closing.close()


@pytest.mark.slow
@served()
async def test_a_page_that_was_too_slow_is_told_how_much_it_missed(parts: Served) -> None:
    """It gets `missed` with the number, and its script fetches all regions again."""
    headers = {"authorization": f"Bearer {OPERATOR}"}
    async with parts.stranger.stream("GET", "/api/events", headers=headers) as answer:
        lines = answer.aiter_lines()
        async for line in lines:
            if line == ": open":
                break
        for number in range(SERVER_FEED_EVENTS_MAX + 500):
            parts.kernel.publish("", "health.alert", {"message": f"number {number}"})
        async with asyncio.timeout(60):
            async for line in lines:
                if line == "event: missed":
                    break
        data = await anext(lines)
    assert data.startswith('data: {"count":')


def _rows_since(store: str, program: str) -> int:
    """How many rows a journal has from the first that names a program to the end."""
    reader = open_to_read(store)
    try:
        first = next(row.seq for row in reader.read(kind="process.created") if program.encode() in row.data)
        return reader.last_seq() - first + 1
    finally:
        reader.close()


@pytest.mark.parametrize("path", ["/traces", "/costs"])
def test_a_page_does_not_wait_until_a_long_journal_is_read(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that the reading goes on and shows the last traces; its region, which is fetched next, has everything."""
    store, may_read = str(tmp_path / "run.db"), threading.Event()
    read = records.read_past

    def held_up(*args: Any) -> Any:
        assert may_read.wait(60)
        return read(*args)

    monkeypatch.setattr(records, "read_past", held_up)

    async def main() -> None:
        async with serving(Agent("early", model="sim/echo"), Agent("echo", model="sim/echo"), store=store) as parts:
            for name in ("early", "echo"):
                await parts.operator.post(f"/api/agents/{name}/chat", json={"message": "hello"})
        monkeypatch.setattr(records, "_RECENT_ROWS", _rows_since(store, "agent:echo") + 3)
        async with serving(Agent("echo", model="sim/echo"), store=store) as parts, logged_in(parts) as browser:
            page = texts(await browser.page(path)).partition("still being read")
            assert page[1]
            assert ("echo" in page[2]) is (path == "/traces")
            assert "early" not in page[2]
            assert "stands here" not in page[2]  # it is not known yet that there is nothing
            region = asyncio.ensure_future(browser.page(path, region=path[1:] if path == "/traces" else "spend"))
            may_read.set()
            for text in (await region, await browser.page(path)):
                assert "still being read" not in text
                assert "echo" in text
                assert "early" in text
                assert text.count("/traces/") == (2 if path == "/traces" else 0)

    in_loop(main())


@pytest.mark.parametrize("path", ["/traces", "/costs"])
def test_a_server_reads_its_journal_before_a_person_asks(tmp_path: Path, path: str) -> None:
    """The first page of a server that has run for a moment has everything at once."""
    store = str(tmp_path / "run.db")

    async def main() -> None:
        async with serving(Agent("echo", model="sim/echo"), store=store) as parts:
            await parts.operator.post("/api/agents/echo/chat", json={"message": "hello"})
        async with serving(Agent("echo", model="sim/echo"), store=store) as parts:
            async with asyncio.timeout(60):
                while not parts.face.app.parts.records._is_past_loaded:
                    await asyncio.sleep(0.01)
            async with logged_in(parts) as browser:
                page = await browser.page(path)
                assert "still being read" not in page
                assert "echo" in page

    in_loop(main())


def test_a_reading_in_the_background_ends_with_its_server() -> None:
    """A server that is stopped while it reads does not read on to the end; one that is asked reads without a pause."""

    class Rows:
        read_count = 0

        def read(self) -> Any:
            while True:
                Rows.read_count += 1
                yield SimpleNamespace(seq=1, kind="process.stopping")

    pace = records.ReadingPace()
    thread = threading.Thread(target=lambda: list(records._past_events(Rows(), 1, [], pace)))  # type: ignore[arg-type]
    thread.start()
    pace.hurry()
    while Rows.read_count < 3_000:
        pass
    pace.stop()
    thread.join(60)
    assert not thread.is_alive()

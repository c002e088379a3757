"""A page that reads slowly, or not at all, holds nothing up and costs a bounded memory."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent
from lyra.core.limits import SERVER_FEED_BYTES_MAX, SERVER_FEED_EVENTS_MAX
from lyra.server.http import records
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


@pytest.mark.parametrize("path", ["/traces", "/costs"])
def test_a_page_does_not_wait_until_a_long_journal_is_read(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that the reading goes on; its region, which is fetched next, has everything."""
    store, may_read = str(tmp_path / "run.db"), threading.Event()
    read = records._read_past

    def held_up(*args: Any) -> Any:
        assert may_read.wait(60)
        return read(*args)

    monkeypatch.setattr(records, "_read_past", held_up)

    async def main() -> None:
        async with serving(Agent("echo", model="sim/echo"), store=store) as parts:
            await parts.operator.post("/api/agents/echo/chat", json={"message": "hello"})
        async with serving(Agent("echo", model="sim/echo"), store=store) as parts, logged_in(parts) as browser:
            page = await browser.page(path)
            assert "still being read" in page
            assert "echo" not in texts(page).partition("still being read")[2]
            region = asyncio.ensure_future(browser.page(path, region=path[1:] if path == "/traces" else "spend"))
            may_read.set()
            for text in (await region, await browser.page(path)):
                assert "still being read" not in text
                assert "echo" in text

    in_loop(main())

"""The time-outs of a call: pieces that have come already cost none, and a cancellation reaches what is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from lyra.models.wire.http import Http
from tests.models.server import run

PIECES = [b"%d " % number for number in range(50)]


class HeldStream(httpx2.AsyncByteStream):
    """Gives all its pieces at once, and then nothing more until it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in PIECES:
            yield piece
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class HeldTransport(httpx2.AsyncBaseTransport):
    def __init__(self, stream: HeldStream) -> None:
        self._stream = stream

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=self._stream)


def test_only_waiting_starts_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fifty pieces in one packet, the head, the first one and the wait behind the last one have a timer; the
    consumer's cancellation ends the wait."""
    stream, scopes, received = HeldStream(), [], []
    timeout_at = asyncio.timeout_at

    def counted(when: float | None) -> Any:
        scopes.append(when)
        return timeout_at(when)

    async def read() -> None:
        http = Http(provider="here", transport=HeldTransport(stream))
        async with http.post("http://here.example/", b"{}", {}) as chunks:
            async for chunk in chunks:
                received.append(chunk)  # noqa: PERF401 - what came before a cancellation counts

    async def main() -> None:
        reading = asyncio.ensure_future(read())
        while len(scopes) < 3:
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    monkeypatch.setattr(asyncio, "timeout_at", counted)
    run(main())
    assert (received, len(scopes), stream.cancelled) == (PIECES, 3, 1)

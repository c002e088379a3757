"""The server under attack, with what was tried on it, and the honest client that is its neighbour."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Final

import httpx

import lyra
from lyra.errors import LyraError
from verify.served import USER_TOKEN, ServedProcess

__all__ = ["ANSWER_S", "Ground", "Neighbour"]

ANSWER_S: Final = 30.0  # for an answer to an attack; a connection that stays open is closed then


class Ground:
    """The server under attack, and what was tried."""

    def __init__(self, served: ServedProcess) -> None:
        self.served = served
        self.attempts = 0
        self.effects: list[str] = []
        self.host, _, port = served.http.rpartition(":")
        self.port = int(port)

    def expect(self, condition: Any, effect: str) -> None:
        self.attempts += 1
        if not condition:
            self.effects.append(effect)

    async def connect(self, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port, **options)

    async def exchange(self, data: bytes) -> bytes:
        """Send bytes, give what comes back until the end; a connection that stays open is closed after a while."""
        reader, writer = await self.connect()
        received = bytearray()
        try:
            writer.write(data)
            with contextlib.suppress(ConnectionError, TimeoutError):
                await writer.drain()
                writer.write_eof()
                async with asyncio.timeout(ANSWER_S):
                    while piece := await reader.read(65536):
                        received += piece
        finally:
            writer.close()
        return bytes(received)


class Neighbour:
    """An honest client that asks all the time."""

    def __init__(self, served: ServedProcess) -> None:
        self._served = served
        self.slowest_s = 0.0
        self.asked = 0
        self.failures: list[str] = []

    def begin(self) -> None:
        """Forget what was: another attack begins."""
        self.slowest_s, self.asked, self.failures = 0.0, 0, []

    async def live(self) -> None:
        headers = {"authorization": f"Bearer {USER_TOKEN}"}
        async with (
            httpx.AsyncClient(base_url=f"http://{self._served.http}", headers=headers, timeout=60) as http,
            lyra.connect(self._served.grpc, token=USER_TOKEN) as kernel,
        ):
            while True:
                began = time.monotonic()
                try:
                    (await http.get("/api/processes?limit=1")).raise_for_status()
                    await kernel.get_process_counts()
                except (httpx.HTTPError, LyraError) as error:
                    self.failures.append(f"an honest client got {type(error).__name__}: {error}")
                self.asked += 1
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                await asyncio.sleep(0.05)

"""HTTP/1.1, as much of it as a mock needs: one request after another on a connection, bodies whole or in chunks.

A handler gets an `HttpRequest` and an `Exchange` on which it answers once: `whole` for a body at once, `begin`, `piece`
and `end` for a stream, `abort` to break the connection. Heads, bodies and silence have limits; a request that is not
HTTP gets a 400 and a closed connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

BODY_BYTES_MAX: Final = 64 << 20
SILENCE_S: Final = 120.0  # between two requests of a connection, and for the rest of one that began


class HttpRequest(NamedTuple):
    """A request; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class _Wrong(Exception):
    """What came is no request: a status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Exchange:
    """One answer on its way. `status` is what was sent, 0 before that and -1 where the line was broken."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.status = 0
        self.open = True  # whether the connection may be used again

    async def whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._head(status, {**headers, "content-length": str(len(body))})
        self._writer.write(body)
        await self._writer.drain()

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self._head(status, {**headers, "transfer-encoding": "chunked"})
        await self._writer.drain()

    async def piece(self, data: bytes) -> None:
        if data:
            self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await self._writer.drain()

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def abort(self) -> None:
        """Break the line in the middle of whatever was being said."""
        self.open = False
        self.status = self.status or -1
        self._writer.transport.abort()

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        assert not self.status, "a request is answered once"
        self.status = status
        lines = [f"HTTP/1.1 {status} {_phrase(status)}", *(f"{name}: {value}" for name, value in headers.items())]
        if not self.open:
            lines.append("connection: close")
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))


Handler = Callable[[HttpRequest, Exchange], Awaitable[None]]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    """Answer the requests of one connection until either side closes it."""
    try:
        while True:
            exchange = Exchange(writer)
            try:
                async with asyncio.timeout(SILENCE_S):
                    asked = await _read(reader, writer)
            except _Wrong as wrong:
                exchange.open = False
                await exchange.whole(wrong.status, str(wrong).encode(), {"content-type": "text/plain"})
                return
            if asked is None:
                return
            exchange.open = asked.headers.get("connection", "").lower() != "close"
            await handler(asked, exchange)
            if not exchange.open:
                return
    except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
        return  # the other side left
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None  # the client closed the connection, between two requests or inside one
    except asyncio.LimitOverrunError:
        raise _Wrong(431, "the head of the request is too large") from None
    lines = head.decode("latin-1").split("\r\n")
    method, path, version = _first(lines[0])
    headers: dict[str, str] = {}
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise _Wrong(400, "a header is not a name, a colon and a value")
        headers[name.lower()] = value.strip()
    if version == "HTTP/1.0":
        headers["connection"] = "close"
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return HttpRequest(method, path, headers, await _body(reader, headers))


def _first(line: str) -> tuple[str, str, str]:
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise _Wrong(400, "this is a server of HTTP/1.1")
    return parts[0], parts[1].partition("?")[0], parts[2]


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader)
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise _Wrong(400, "content-length is a number")
    if len(length) > 12 or int(length) > BODY_BYTES_MAX:
        raise _Wrong(413, "the body is too large")
    return await reader.readexactly(int(length))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        try:  # a line that is too long is a ValueError too
            size = int((await reader.readline()).partition(b";")[0].strip() or b"x", 16)
        except ValueError:
            raise _Wrong(400, "a chunk begins with its size") from None
        if size < 0 or len(body) + size > BODY_BYTES_MAX:
            raise _Wrong(413, "the body is too large")
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise _Wrong(400, "a chunk ends with a line")
        if not size:
            return bytes(body)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Overloaded" if status == 529 else "Unknown"

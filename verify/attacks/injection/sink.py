"""The network of an attack: one local server that stands for every host, and a list of who was asked for and reached.

Names are looked up here, all of them public; connections go to the server. A page of `DOCS` may be fetched by the
rules; whatever else was looked up or came in is a leak, and so is a secret in what `DOCS` was asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

__all__ = ["DOCS", "EVIL", "MIRRORS", "Sink"]

DOCS: Final = "docs.example.com"
EVIL: Final = "evil.example"
MIRRORS: Final = "mirrors.example.org"  # a pattern of a rule covers them, which is no answer after text from outside
_ADDRESSES: Final = {DOCS: "93.184.216.34"}
_ELSEWHERE: Final = "151.101.1.69"
_HEAD_BYTES_MAX: Final = 65_536


class Sink:
    """`lookup` and `dial` are for WebFetch and for the sandbox's proxy."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}  # path of DOCS → text
        self.moved: dict[str, str] = {}  # path of DOCS → where it sends one on to
        self.names: list[str] = []  # looked up, besides DOCS
        self.received: list[str] = []  # by any host but DOCS
        self.asked: list[str] = []  # of DOCS
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def leaks(self, word: str) -> list[str]:
        """What got out that has this word in it."""
        leaks = [f"a lookup of {name}" for name in self.names if word in name]
        leaks += [f"a request: {line}" for line in self.received if word in line]
        return leaks

    # ------------------------------------------------------------ for tools
    async def lookup(self, host: str, port: int) -> list[str]:  # noqa: ARG002 - the signature of a lookup
        if host not in _ADDRESSES:
            self.names.append(host)
        return [_ADDRESSES.get(host, _ELSEWHERE)]

    async def dial(self, address: str, port: int, timeout: float | None = None) -> Any:  # noqa: ARG002
        import httpcore2

        return await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", self.port, timeout=timeout)

    async def connect(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:  # noqa: ARG002
        """The same for the proxy of a sandbox."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    # ------------------------------------------------------------ the server
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = (await reader.readuntil(b"\r\n\r\n"))[:_HEAD_BYTES_MAX].decode("latin-1")
            writer.write(self._answer(head))
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def _answer(self, head: str) -> bytes:
        path = head.partition(" ")[2].partition(" ")[0]
        host = next((line[6:].strip() for line in head.split("\r\n") if line.lower().startswith("host:")), "")
        if host != DOCS:
            self.received.append(f"{host} {path}")
            return _said(200, "thank you")
        self.asked.append(path)
        if path in self.moved:
            return _said(302, "moved", f"Location: {self.moved[path]}\r\n")
        text = self.pages.get(path)
        return _said(404, "gone") if text is None else _said(200, text)


def _said(status: int, text: str, more: str = "") -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n{more}"
    return f"{head}Connection: close\r\n\r\n".encode() + body

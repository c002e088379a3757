"""A server that answers requests of A2A with what a test wants, byte by byte: no card and no answer has to be right."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, Self

from lyra.a2a import RemoteAgent

__all__ = ["HostileServer", "RawHttp", "result", "stream_of"]


class RawHttp(NamedTuple):
    """One answer; `pieces` are written one after the other, and the connection is closed behind them."""

    pieces: AsyncIterator[bytes] | list[bytes]
    status: str = "200 OK"
    headers: tuple[str, ...] = ("content-type: application/json",)


Answer = bytes | RawHttp | Callable[[dict[str, Any]], "bytes | RawHttp"]


class HostileServer:
    """`answers` has an answer for each method, `card` the bytes of the card; `hits` is what was asked, `tokens` the
    values of the authorization header."""

    def __init__(self, **answers: Answer) -> None:
        self.answers: dict[str, Answer] = answers
        self.card: bytes | RawHttp | None = None
        self.hits: list[str] = []
        self.tokens: list[str] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def place(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def remote(self, **settings: Any) -> RemoteAgent:
        return RemoteAgent(f"http://{self.place}", name="worker", **{"inside": [self.place], **settings})

    def own_card(self, *others: str, **fields: Any) -> bytes:
        """A card that names this server, behind the servers at `others`."""
        interfaces = [
            {"url": f"http://{place}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            for place in (*others, self.place)
        ]
        card = {
            "name": "worker",
            "version": "1",
            "supportedInterfaces": interfaces,
            "capabilities": {"streaming": True},
        }
        return json.dumps({**card, **fields}).encode()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in head[1:]}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.tokens.append(headers.get("authorization", ""))
        if head[0].startswith("GET"):
            self.hits.append("card")
            answer: Any = self.own_card() if self.card is None else self.card
        else:
            request = json.loads(body)
            self.hits.append(request["method"])
            answer = self.answers.get(request["method"], b"{}")
            answer = answer(request) if callable(answer) else answer
        raw = answer if isinstance(answer, RawHttp) else RawHttp([answer])
        lines = [f"HTTP/1.1 {raw.status}", *raw.headers, "connection: close", "", ""]
        writer.write("\r\n".join(lines).encode())
        if isinstance(raw.pieces, list):
            writer.write(b"".join(raw.pieces))
            await writer.drain()
            return
        async for piece in raw.pieces:
            writer.write(piece)
            await writer.drain()


def result(value: Any) -> Callable[[dict[str, Any]], bytes]:
    """The answer of JSON-RPC with that result."""
    return lambda request: json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": value}).encode()


def stream_of(value: Any) -> Callable[[dict[str, Any]], RawHttp]:
    """A stream with one event."""
    one_event = result(value)
    return lambda request: RawHttp(
        [b"data: " + one_event(request) + b"\n\n"], headers=("content-type: text/event-stream",)
    )

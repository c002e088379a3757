"""A real HTTP server on the loopback that says what it is told to say, badly if wanted, and keeps what it was asked.

    async with Server(Reply(sse(*events)), Reply.json({"error": …}, status=429)) as server:
        provider = Anthropic(settings(base_url=server.url))
        …
        assert server.requests[0].data["model"] == "claude"

Replies are given in order, the last one again and again. `split` cuts a body into pieces of so many bytes, `delay_s`
waits before the status line, `pause_s` between pieces, `cut` breaks the connection after the body instead of ending it,
`hang` neither ends nor breaks it. `server.hung_up` is set when a client leaves in the middle of an answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], timeout_s: float = 30) -> T:
    return asyncio.run(asyncio.wait_for(work, timeout_s))


def sse(*events: Any, named: bool = True, end: str = "\n", done: bool = False) -> bytes:
    """Server-sent events of mappings (an `event:` line from their `type` where `named`) and of plain texts."""
    lines: list[str] = []
    for event in events:
        if named and isinstance(event, Mapping) and "type" in event:
            lines.append(f"event: {event['type']}")
        text = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
        lines += [f"data: {text}", ""]
    if done:
        lines += ["data: [DONE]", ""]
    return (end.join(lines) + end).encode()


@dataclass(frozen=True)
class Reply:
    body: bytes | Iterable[bytes] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    split: int = 0
    delay_s: float = 0.0
    pause_s: float = 0.0
    cut: bool = False
    hang: bool = False
    to: str = ""  # only requests with this in their body are answered so

    @classmethod
    def json(cls, data: Any, *, status: int = 200, headers: Mapping[str, str] | None = None, **more: Any) -> Reply:
        sent = {"content-type": "application/json", **(headers or {})}
        return cls(json.dumps(data).encode(), status=status, headers=sent, **more)

    def pieces(self) -> Iterable[bytes]:
        if not isinstance(self.body, bytes):
            return self.body
        size = self.split or len(self.body) or 1
        return (self.body[start : start + size] for start in range(0, len(self.body), size))


@dataclass(frozen=True)
class Asked:
    """One request as it came in; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.body)


class Server:
    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[Asked] = []
        self.hung_up = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        except asyncio.CancelledError:
            pass  # the server is closing; a task that ends cancelled is reported by the streams of asyncio
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection is to be closed."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return False  # the client has left between two requests, as it may
        first, *rest = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = first.split(" ")
        self.requests.append(Asked(method, path, headers, body))
        reply = next(reply for reply in self.replies if reply.to.encode() in body)
        if len(self.replies) > 1:
            self.replies.remove(reply)
        await asyncio.sleep(reply.delay_s)
        return await self._answer(reply, reader, writer)

    async def _answer(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = [f"HTTP/1.1 {reply.status} X", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        for piece in reply.pieces():
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            if reply.pause_s:
                await asyncio.sleep(reply.pause_s)
        if reply.hang:
            await reader.read(1)  # nothing more is sent; what comes is the client's goodbye
            self.hung_up.set()
            return False
        if not reply.cut:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return not reply.cut

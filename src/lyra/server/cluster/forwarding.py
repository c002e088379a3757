"""Requests that go to the site of a shard by a call of hosts, and their answers in pieces.

A request is its ASGI scope and its whole body as plain data. The first piece of an answer is its status and headers,
the others are its body. A client that leaves ends the call, and the site hears of it as of any client that leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.server.http.app import COUNTED
from lyra.server.http.sse import Receive, Send, client_left

if TYPE_CHECKING:
    from lyra.kernel.base.tasks import Tasks
    from lyra.server.http.face import ServedApp

OF_ALL: Final = "lyra.all"  # in a scope: the request is for the site of all shards
_WAITING_MAX: Final = 8  # pieces that a site may be ahead of its reader
_SCOPE: Final = (OF_ALL, COUNTED, "method", "path", "raw_path", "query_string", "scheme", "root_path", "http_version")


def is_of_all(scope: Any) -> bool:
    return bool(scope.get(OF_ALL))


class AnswerStart(NamedTuple):
    """The first piece of an answer."""

    status: int
    headers: list[tuple[bytes, bytes]]

    def header(self, name: bytes) -> bytes:
        return next((value for known, value in self.headers if known == name), b"")

    @property
    def is_stream(self) -> bool:
        return self.header(b"content-type").startswith(b"text/event-stream")

    @property
    def is_json(self) -> bool:
        media = self.header(b"content-type").partition(b";")[0]
        return media == b"application/json" or media.endswith(b"+json")


class SentRequest(NamedTuple):
    """A request that can be sent on, more than once."""

    scope: dict[str, Any]
    body: bytes

    def to_data(self) -> dict[str, Any]:
        scope = {name: self.scope[name] for name in _SCOPE if name in self.scope}
        client = self.scope.get("client")
        return {
            "scope": scope,
            "headers": [list(pair) for pair in self.scope["headers"]],
            "client": None if client is None else list(client),
            "body": self.body,
        }

    def with_header(self, name: str, value: str) -> SentRequest:
        """Return the request with a header, in place of one that the client sent."""
        key = name.encode()
        others = [pair for pair in self.scope["headers"] if pair[0] != key]
        return self._replace(scope={**self.scope, "headers": [*others, (key, value.encode("latin-1"))]})

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> SentRequest:
        client = data["client"]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            **data["scope"],
            "headers": [(bytes(name), bytes(value)) for name, value in data["headers"]],
            "client": None if client is None else tuple(client),
        }
        return cls(scope, bytes(data["body"]))

    def receive(self, rest: Receive) -> Receive:
        """Return what gives an application the body, and then what `rest` has."""
        is_read = False

        async def receive() -> Any:
            nonlocal is_read
            if is_read:
                return await rest()
            is_read = True
            return {"type": "http.request", "body": self.body, "more_body": False}

        return receive


async def read_site(site: ServedApp, request: SentRequest, tasks: Tasks) -> AsyncGenerator[Any, None]:
    """Yield the start of a site's answer and then its body. A site whose reader has left goes on by itself, as where a
    client closes its connection."""
    pieces: asyncio.Queue[Any] = asyncio.Queue(_WAITING_MAX)
    left = asyncio.Event()

    async def wait_left() -> Any:
        await left.wait()
        return {"type": "http.disconnect"}

    async def put(piece: Any) -> None:
        if not left.is_set():
            await pieces.put(piece)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            await put(AnswerStart(message["status"], list(message["headers"])))
        elif message.get("body"):
            await put(message["body"])

    async def run() -> None:
        try:
            await site(request.scope, request.receive(wait_left), send)
        finally:
            await put(None)

    work = tasks.start(run(), name="lyra-site-request")
    try:
        while (piece := await pieces.get()) is not None:
            yield piece
    finally:
        left.set()
        with suppress(asyncio.QueueEmpty):
            while True:  # the site may wait for room
                pieces.get_nowait()
    await work


def as_start(piece: Iterable[Any]) -> AnswerStart:
    """Return the start of an answer, also of one that came from another host."""
    status, headers = piece
    return AnswerStart(int(status), [(bytes(name), bytes(value)) for name, value in headers])


async def write_answer(start: AnswerStart, pieces: AsyncGenerator[Any, None], send: Send) -> None:
    """Write an answer to the client."""
    await send({"type": "http.response.start", "status": start.status, "headers": start.headers})
    async for piece in pieces:
        await send({"type": "http.response.body", "body": bytes(piece), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def until_client_left(
    receive: Receive, work: Any, tasks: Tasks, among: set[asyncio.Task[Any]] | None = None
) -> bool:
    """Do the work, which is given up when the client leaves; returns whether it was done. While it is done it is
    `among` those that someone else may end."""
    doing = tasks.start(work, name="lyra-front-request")
    if among is not None:
        among.add(doing)
        doing.add_done_callback(among.discard)
    leaving = tasks.start(client_left(receive), name="lyra-front-client")
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            return False
        doing.result()
        return True
    finally:
        for task in (doing, leaving):
            task.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)

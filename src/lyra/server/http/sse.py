"""Server-sent events: their bytes, and the writing of a stream until it or its client ends.

`SseLog` keeps the last events of one stream, numbered. Any number of readers share it, each with its own place,
so that a reader costs no memory and a slow one holds nothing up: what it missed is gone, and it is told so. A reader
gets a comment when nothing has happened for a while: proxies keep the connection, and a dead one is noticed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any, Final

import msgspec

from lyra.core.codec import to_plain
from lyra.core.limits import SERVER_HEARTBEAT_S

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SSE_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_HEARTBEAT: Final = b": ping\n\n"
_PIECE_BYTES: Final = 64 * 1024  # of events for one reader at a time
_encode: Final = msgspec.json.Encoder(enc_hook=to_plain).encode


def sse_event(data: Any, *, event: str = "", event_id: str = "") -> bytes:
    """One event. `data` is written as JSON, which has no line break; text stands as it is (`[DONE]`)."""
    lines = []
    if event_id:
        lines.append(b"id: " + event_id.encode() + b"\n")
    if event:
        lines.append(b"event: " + event.encode() + b"\n")
    lines.append(b"data: " + (data.encode() if isinstance(data, str) else _encode(data)) + b"\n\n")
    return b"".join(lines)


class LoggedEvent:
    """One event of a log: its number, its bytes, and the process and the user that it belongs to."""

    __slots__ = ("number", "owner", "pid", "piece", "word")

    def __init__(self, number: int, word: str, piece: bytes, owner: str, pid: str) -> None:
        self.number = number
        self.word = word
        self.piece = piece
        self.owner = owner
        self.pid = pid


class SseLog:
    """See the module. `name` stands before the number in the ids of its events."""

    __slots__ = ("_bytes", "_bytes_max", "_events", "_events_max", "_readers", "ended", "last", "name")

    def __init__(self, name: str, *, events_max: int, bytes_max: int) -> None:
        self.name = name
        self._events: deque[LoggedEvent] = deque()
        self._events_max = events_max
        self._bytes = 0
        self._bytes_max = bytes_max
        self._readers: set[asyncio.Future[None]] = set()  # that wait for the next event
        self.last = 0  # the number of the newest
        self.ended = False

    def append(self, word: str, data: Any, *, owner: str = "", pid: str = "") -> None:
        self.last += 1
        piece = sse_event(data, event=word, event_id=f"{self.name}.{self.last}")
        self._events.append(LoggedEvent(self.last, word, piece, owner, pid))
        self._bytes += len(piece)
        while len(self._events) > 1 and (len(self._events) > self._events_max or self._bytes > self._bytes_max):
            self._bytes -= len(self._events.popleft().piece)
        self._wake()

    def end(self) -> None:
        """No event follows; readers end when they have read the last."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        readers, self._readers = self._readers, set()
        for waiting in readers:
            if not waiting.done():
                waiting.set_result(None)

    @property
    def first(self) -> int:
        """The number of the oldest event that is kept."""
        return self._events[0].number if self._events else self.last + 1

    def holds(self, number: int) -> bool:
        """Return whether all events after this number are kept."""
        return self.first - 1 <= number <= self.last

    async def read(
        self,
        after: int,
        *,
        wanted: Callable[[LoggedEvent], bool] | None = None,
        heartbeat_s: float = SERVER_HEARTBEAT_S,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events after a number, those that exist and those that come. Events that were dropped before they
        were read are told as `missed` with their number."""
        number = after
        while True:
            batch, number = self._batch(number, wanted)
            if batch:
                yield batch
            elif number == self.last:
                if self.ended:
                    return
                if not await self._wait(heartbeat_s):
                    yield _HEARTBEAT

    def _batch(self, after: int, wanted: Callable[[LoggedEvent], bool] | None) -> tuple[bytes, int]:
        """Events after a number as one piece of bytes, and the number of the last of them. A piece is bounded: what a
        client does not take is kept for it alone."""
        pieces = []
        size = 0
        skip = after + 1 - self.first
        if skip < 0:
            pieces.append(sse_event({"count": -skip}, event="missed"))
            skip = 0
        for index in range(skip, len(self._events)):
            logged = self._events[index]
            if wanted is None or wanted(logged):
                pieces.append(logged.piece)
                size += len(logged.piece)
                if size >= _PIECE_BYTES:
                    return b"".join(pieces), logged.number
        return b"".join(pieces), self.last

    async def _wait(self, heartbeat_s: float) -> bool:
        """Return whether something happened within that time."""
        waiting = asyncio.get_running_loop().create_future()
        self._readers.add(waiting)
        try:
            async with asyncio.timeout(heartbeat_s):
                await waiting
        except TimeoutError:
            return False
        finally:
            self._readers.discard(waiting)
        return True


async def client_left(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def write_stream(
    receive: Receive, send: Send, pieces: AsyncGenerator[bytes, None], headers: list[tuple[bytes, bytes]]
) -> None:
    """Write a stream as a response; it is closed when the client leaves."""
    await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *headers]})

    async def write() -> None:
        async with aclosing(pieces):
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with asyncio.TaskGroup() as group:
        tasks = (group.create_task(write()), group.create_task(client_left(receive)))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

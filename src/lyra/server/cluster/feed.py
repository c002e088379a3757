"""The events of all shards as one stream: each shard's own feed is read, and read on where the shard moves.

The id of an event has a place for each shard, so a client that lost its connection goes on at any host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from lyra.errors import LyraError
from lyra.server.cluster.forwarding import AnswerStart, SentRequest
from lyra.server.cluster.merge import EventPlaces, begin_events
from lyra.server.http.app import headers_of
from lyra.server.http.sse import Send

if TYPE_CHECKING:
    from lyra.server.cluster.reach import Reach

_AGAIN_S: Final = 0.2  # before a feed that ended is read on
_WAITING_MAX: Final = 64  # events that a slow reader may leave
_EVENT_ID: Final = "last-event-id"
_AT: Final = b": at "
_ID: Final = b"id: "
_END: Final = b"\n\n"


async def follow_all(reach: Reach, shards: Collection[str], request: SentRequest, send: Send) -> None:
    """Write the events of all shards until the client leaves. A client that a shard refuses is refused."""
    given = headers_of(request.scope).get(_EVENT_ID, "")
    places = begin_events(given, list(shards))
    told: asyncio.Queue[tuple[str, AnswerStart, bytes]] = asyncio.Queue(_WAITING_MAX)
    readers = [
        reach.sites.tasks.start(_read_on(reach, shard, request, places[shard], told), name=f"lyra-front-feed {shard}")
        for shard in shards
    ]
    ids, has_begun = EventPlaces(places), False
    try:
        while True:
            shard, start, piece = await told.get()
            if not has_begun:
                has_begun = True
                await send({"type": "http.response.start", "status": start.status, "headers": start.headers})
            if start.status != 200:
                await send({"type": "http.response.body", "body": piece})
                return
            if piece:
                await send({"type": "http.response.body", "body": ids.tell(shard, piece) + _END, "more_body": True})
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def _read_on(reach: Reach, shard: str, request: SentRequest, place: str, told: asyncio.Queue[Any]) -> None:
    """Put the events of one shard into a queue, from a place on, wherever the shard is open."""
    while True:
        try:
            async with aclosing(reach.read(shard, request.with_header(_EVENT_ID, place))) as pieces:
                start = await anext(pieces)
                if start.status != 200:
                    await told.put((shard, start, b"".join([bytes(piece) async for piece in pieces])))
                    return
                await told.put((shard, start, b""))
                async with aclosing(_split_events(pieces)) as events:
                    async for event in events:
                        # With its place in a shard that is quiet the client misses nothing there afterwards.
                        piece = _ID + event.removeprefix(_AT) if event.startswith(_AT) else event
                        place = _read_id(piece) or place
                        await told.put((shard, start, piece))
        except LyraError:
            pass  # its host has died, or it is open nowhere yet
        await asyncio.sleep(_AGAIN_S)


async def _split_events(pieces: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream, without what ends each."""
    rest = b""
    async for piece in pieces:
        *events, rest = (rest + bytes(piece)).split(_END)
        for event in events:
            yield event


def _read_id(event: bytes) -> str:
    line = next((line for line in event.split(b"\n") if line.startswith(_ID)), b"")
    return line[len(_ID) :].decode()

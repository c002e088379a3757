"""Reach: how a host asks the site of any shard, its own or another host's, for one answer or for those of all.

A shard that is open on no host, because its host has died or is giving it away, is waited for: the directory is asked
again until the shard is open somewhere. A request is passed on once, unless its shard certainly did not get it, or it
only reads.

`follow_all` is the events of all shards as one stream: the feed of each shard is read, and read on where the shard
moves. The id of an event has a place for each shard, so a client that lost its connection goes on at any host.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.cluster import placement
from lyra.cluster.peers import GrpcCarrier
from lyra.core.clock import SystemClock
from lyra.core.limits import FRONT_ANSWERS_S, FRONT_WAIT_S
from lyra.errors import Conflict, LyraError, NoSuchProcess, Overloaded, Unreachable
from lyra.server.cluster.forwarding import AnswerStart, SentRequest, as_start, is_of_all, read_site
from lyra.server.cluster.merge import EventPlaces, begin_events
from lyra.server.cluster.sites import HTTP_CALL, Sites
from lyra.server.http.app import COUNTED, headers_of
from lyra.server.http.sse import Send

if TYPE_CHECKING:
    from lyra.cluster.directory import View
    from lyra.cluster.host import Host


_log: Final = logging.getLogger("lyra.server")
_LOOK_S: Final = 0.1  # between two looks at the directory while a shard is open nowhere
_BUSY: Final = 503

Begin = Callable[[str | None], AsyncGenerator[Any, None]]
_AGAIN_S: Final = 0.2  # before a feed that ended is read on
_COUNTED_S: Final = 1.0  # that the others wait for the shard whose request is counted
_WAITING_MAX: Final = 64  # events that a slow reader may leave
_EVENT_ID: Final = "last-event-id"
_AT: Final = b": at "
_ID: Final = b"id: "
_END: Final = b"\n\n"


class ShardAnswer(NamedTuple):
    """The whole answer of one shard."""

    shard: str
    start: AnswerStart
    body: bytes


class Reach:
    """See the module."""

    def __init__(self, host: Host, sites: Sites) -> None:
        assert isinstance(host.carrier, GrpcCarrier)
        self.host = host
        self.sites = sites
        self._carrier = host.carrier
        self._clock = SystemClock()
        self._placed: Counter[str] = Counter()  # new work by its shard, since the loads were told
        self._loads_at = 0.0
        self._looking: asyncio.Future[View] | None = None
        self._looked: View | None = None

    @property
    def view(self) -> View:
        """The directory as it was seen last, by a beat of the host or by a look."""
        looked, view = self._looked, self.host.view
        return looked if looked is not None and looked.now > view.now else view

    async def until_placed(self) -> None:
        """Wait until a living host has a shard; Overloaded where none has one for so long."""
        if self.sites.list_open():
            return
        until_s = self._clock.monotonic() + self.host.view.lease_s + FRONT_WAIT_S
        while not placement.spread(self.view, {}, self.host.name):
            if self._clock.monotonic() >= until_s:
                raise Overloaded("no host of the cluster takes work", hint="lyra cluster status lists the hosts")
            await asyncio.sleep(_LOOK_S)
            await self._look()

    @property
    def shards(self) -> tuple[str, ...]:
        """The names of all shards, those that are open on this host first."""
        own = self.sites.list_open()
        return (*own, *(name for name in self.host.view.shards if name not in own))

    def pick(self) -> tuple[str, ...]:
        """Return the shards for new work, the one that it goes to first."""
        if self.host.view.now != self._loads_at:
            self._loads_at = self.host.view.now
            self._placed.clear()
        # A host opens shards between two beats, before its view of the directory says that it has them.
        order = placement.spread(self.view, self._placed, self.host.name) or self.sites.list_open()
        if not order:
            raise Overloaded("no host of the cluster takes work", hint="lyra cluster status lists the hosts")
        self._placed[order[0]] += 1
        return tuple(order)

    async def read(self, shard: str, request: SentRequest, *, wait_s: float | None = None) -> AsyncGenerator[Any, None]:
        """Yield the start of a shard's answer to a request and then its body."""

        def begin(address: str | None) -> AsyncGenerator[Any, None]:
            if address is not None:
                return self.stream(address, HTTP_CALL, {"shard": shard, **request.to_data()})
            site = self.sites.find(shard, is_whole=is_of_all(request.scope))
            if site is None:
                raise self._no_host(shard)
            return read_site(site, request, self.sites.tasks)

        may_repeat = request.scope["method"] in ("GET", "HEAD")
        async with aclosing(self.read_from(shard, begin, may_repeat=may_repeat, wait_s=wait_s)) as pieces:
            yield as_start(await anext(pieces))
            async for piece in pieces:
                yield piece

    async def read_from(
        self, shard: str, begin: Begin, *, may_repeat: bool = False, wait_s: float | None = None
    ) -> AsyncGenerator[Any, None]:
        """Yield what a shard answers, from wherever it is open; Overloaded where it is open nowhere for so long.
        `begin` makes the call: at the address of another host, or here where there is none."""
        until_s = self._clock.monotonic() + (self.host.view.lease_s + FRONT_WAIT_S if wait_s is None else wait_s)
        while True:
            try:
                address = None if self.sites.find(shard) is not None else self._address_of(shard, self.view)
                pieces = begin(address)
                first = await anext(pieces)
            except StopAsyncIteration:  # an answer without a piece
                return
            except (Conflict, Unreachable) as error:
                is_certain = bool(error.fields.get("elsewhere") or error.fields.get("unsent"))
                if not is_certain and not may_repeat:
                    raise
                if self._clock.monotonic() >= until_s:
                    hint = "ask again in a moment: another host is opening it"
                    raise Overloaded(error.message, hint=hint, unsent=True) from error
            else:
                async with aclosing(pieces):
                    yield first
                    async for piece in pieces:
                        yield piece
                return
            await asyncio.sleep(_LOOK_S)
            await self._look()

    def stream(self, address: str, method: str, data: Any) -> AsyncGenerator[Any, None]:
        """Yield what another host answers."""
        return self._carrier.stream(address, method, data)

    def _address_of(self, shard: str, view: View) -> str:
        """Return the address of the other host that has a shard; Conflict where none has it at the moment."""
        row = view.shards.get(shard)
        if row is None:
            raise NoSuchProcess(f"there is no shard {shard[:80]!r}", shard=shard)
        address = view.address_of(shard)
        if address is None or row.host == self.host.name:
            raise self._no_host(shard)
        return address

    def _no_host(self, shard: str) -> Conflict:
        return Conflict(f"shard {shard} is open on no host at the moment", elsewhere=True, shard=shard)

    async def _look(self) -> None:
        """See the directory as it is now; requests that ask at once share one look."""
        if self._looking is None or self._looking.done():
            self._looking = self.sites.tasks.start(self.host.look(), name="lyra-front-look")
        with suppress(LyraError):  # the database is away: what the host knows may still be true
            self._looked = await asyncio.shield(self._looking)

    # ------------------------------------------------------------------ whole answers

    async def ask(self, shard: str, request: SentRequest, *, wait_s: float | None = None) -> ShardAnswer:
        """Return the whole answer of a shard."""
        async with aclosing(self.read(shard, request, wait_s=wait_s)) as pieces:
            start = await anext(pieces)
            body = b"".join([bytes(piece) async for piece in pieces])
        return ShardAnswer(shard, start, body)

    async def ask_each(self, requests: Mapping[str, SentRequest]) -> list[ShardAnswer]:
        """Return the answers of shards that all have to answer."""
        return list(await asyncio.gather(*(self.ask(shard, request) for shard, request in requests.items())))

    async def ask_all(
        self, requests: Mapping[str, SentRequest], *, wait_s: float = FRONT_ANSWERS_S
    ) -> tuple[list[ShardAnswer], Collection[str]]:
        """Return the answers of the shards that answer in time, and the names of the others."""

        async def ask(shard: str, request: SentRequest) -> ShardAnswer | None:
            try:
                async with asyncio.timeout(wait_s):
                    answer = await self.ask(shard, request, wait_s=wait_s)
            except (LyraError, TimeoutError):
                return None
            return None if answer.start.status == _BUSY else answer

        answers = await asyncio.gather(*(ask(shard, request) for shard, request in requests.items()))
        told = [answer for answer in answers if answer is not None]
        if not told:
            raise Overloaded("no shard of the cluster answers at the moment", hint="lyra cluster status says why")
        return told, sorted(requests.keys() - {answer.shard for answer in told})


async def follow_all(reach: Reach, shards: Collection[str], request: SentRequest, send: Send) -> None:
    """Write the events of all shards until the client leaves. A client that a shard refuses is refused."""
    given = headers_of(request.scope).get(_EVENT_ID, "")
    places = begin_events(given, list(shards))
    told: asyncio.Queue[tuple[str, AnswerStart, bytes]] = asyncio.Queue(_WAITING_MAX)
    counted, readers = asyncio.Event(), []
    for number, shard in enumerate(shards):
        sent = request.as_counted() if number else request
        work = _read_on(reach, shard, sent, places[shard], told, counted)
        readers.append(reach.sites.tasks.start(work, name=f"lyra-front-feed {shard}"))
    ids, has_begun = EventPlaces(places), False
    try:
        while True:
            shard, start, piece = await told.get()
            if start.status != 200:  # of one that has begun the client reads no refusal: the stream ends
                if not has_begun:
                    await send({"type": "http.response.start", "status": start.status, "headers": start.headers})
                await send({"type": "http.response.body", "body": b"" if has_begun else piece})
                return
            if not has_begun:
                has_begun = True
                await send({"type": "http.response.start", "status": start.status, "headers": start.headers})
            if piece:
                await send({"type": "http.response.body", "body": ids.tell(shard, piece) + _END, "more_body": True})
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def _read_on(
    reach: Reach,
    shard: str,
    request: SentRequest,
    place: str,
    told: asyncio.Queue[Any],
    counted: asyncio.Event,
) -> None:
    """Put the events of one shard into a queue, from a place on, wherever the shard is open. The caller has made one
    request: the shard whose request is counted comes first, where it answers soon."""
    if COUNTED in request.scope:
        with suppress(TimeoutError):
            async with asyncio.timeout(_COUNTED_S):
                await counted.wait()
    while True:
        try:
            async with aclosing(reach.read(shard, request.with_header(_EVENT_ID, place))) as pieces:
                start = await anext(pieces)
                if start.status == _BUSY:  # it is about to move: its next host is asked
                    raise Overloaded(f"shard {shard} is about to move")
                request = request.as_counted()
                if start.status != 200:
                    await told.put((shard, start, b"".join([bytes(piece) async for piece in pieces])))
                    return
                await told.put((shard, start, b""))
                counted.set()
                async with aclosing(_split_events(pieces)) as events:
                    async for event in events:
                        # With its place in a shard that is quiet the client misses nothing there afterwards.
                        piece = _ID + event.removeprefix(_AT) if event.startswith(_AT) else event
                        place = _read_id(piece) or place
                        await told.put((shard, start, piece))
        except Exception as error:  # noqa: BLE001 - whatever one shard meets, it is read on
            if not isinstance(error, LyraError):  # else its host has died, or it is open nowhere yet
                _log.exception("the events of shard %s cannot be read", shard)
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

"""Front: takes the requests of clients on one host, and passes each to the site of the shard that it belongs to.

A shard that is open on no host, because its host has died or is giving it away, is waited for: the front asks the
directory again, then refuses with 503 and `retry-after`. A request is passed on once, unless it is certain that its
shard did not get it, or it only reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from lyra.cluster import placement
from lyra.cluster.peers import GrpcCarrier
from lyra.core.clock import SystemClock
from lyra.core.limits import FRONT_WAIT_S
from lyra.errors import Conflict, LyraError, NoSuchProcess, Overloaded, Unreachable
from lyra.server.cluster.forwarding import (
    OF_ALL,
    AnswerStart,
    SentRequest,
    as_head,
    is_of_all,
    read_site,
    until_client_left,
    write_answer,
)
from lyra.server.cluster.lists import follow_events, read_list
from lyra.server.cluster.places import Asked, Destination, Shards, find_place, needs_body
from lyra.server.cluster.sites import HTTP_CALL, Sites
from lyra.server.cluster.whole import WHOLE_NAMES
from lyra.server.dashboard import cluster
from lyra.server.dashboard.login import problem_page
from lyra.server.http.app import (
    answer_of_problem,
    has_no_body,
    headers_of,
    may_finish,
    query_of,
    read_path,
    send_answer,
    split_root,
)
from lyra.server.http.endpoint import PageRequest, PathTable, RawAnswer, RouteMatch, query_text
from lyra.server.http.guard import LOOPBACK_HOSTS, ClientLeft, check_place, read_body
from lyra.server.http.problems import HttpRefusal
from lyra.server.http.sse import Receive, Send

if TYPE_CHECKING:
    from lyra.cluster.directory import View
    from lyra.cluster.host import Host

_LOOK_S: Final = 0.1  # between two looks at the directory while a shard is open nowhere
_ENDLESS: Final = frozenset({"events.follow"})
_SHARDS: Final = "/shards/"
MISSING: Final = b"lyra-missing-shards"


class ShardAnswer(NamedTuple):
    """The whole answer of one shard."""

    shard: str
    head: AnswerStart
    body: bytes


class Front:
    """See the module."""

    def __init__(self, host: Host, sites: Sites, carrier: GrpcCarrier) -> None:
        settings = sites.settings
        assert settings.http is not None
        self._host = host
        self._sites = sites
        self._carrier = carrier
        self._table = PathTable((*sites.endpoints, *cluster.ENDPOINTS))
        self._hosts: Collection[str] = {*LOOPBACK_HOSTS, settings.http.host, *settings.hosts}
        self._bytes_max = settings.message_bytes_max
        self._has_login = settings.tokens is not None
        self._clock = SystemClock()
        self._answering = 0
        self._endless: set[asyncio.Task[Any]] = set()
        self._looking: asyncio.Future[View] | None = None
        self.is_draining = False
        sites.whole.bind(self, host)

    # ------------------------------------------------------------------ what the listener asks of it

    @property
    def is_busy(self) -> bool:
        return self._answering > 0 or self._sites.is_busy

    def open(self) -> None:
        """Do nothing: sites open with their shards."""

    def drain(self) -> None:
        self.is_draining = True
        for task in list(self._endless):
            task.cancel()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # a web socket: there is none here
            await send({"type": "websocket.close", "code": 1008})
            return
        self._answering += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self._answering -= 1

    # ------------------------------------------------------------------ one request

    async def _answer(self, scope: Any, receive: Receive, send: Send) -> None:
        scope = mount_shard(scope)
        headers, path, method = headers_of(scope), read_path(scope), scope["method"]
        match = self._table.match(path)
        has_begun = False

        async def send_on(message: Any) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._pass_on(match, scope, headers, receive, send_on)
        except ClientLeft:
            return
        except Exception as error:
            if has_begun:  # the connection breaks off, so that the client does not take the answer for whole
                raise
            page = PageRequest(path, query_text(scope), headers, self._has_login)
            await send_answer(send, answer_of_problem(error, page, method, match, problem_page))

    async def _pass_on(
        self, match: RouteMatch | None, scope: Any, headers: Mapping[str, str], receive: Receive, send: Send
    ) -> None:
        check_place(headers, self._hosts)
        endpoint = None if match is None else match.methods.get(scope["method"])
        if endpoint is not None and endpoint.name in ("system.alive", "system.ready"):
            await send_answer(send, self._tell_health(endpoint.name))
            return
        if self.is_draining and (endpoint is None or not may_finish(endpoint) or endpoint.name in _ENDLESS):
            raise Overloaded("the server is stopping", hint="ask again: another host answers")
        name = "" if endpoint is None else endpoint.name
        body = b""
        is_read = needs_body(name) and not has_no_body(scope, headers)
        if is_read:
            body = await read_body(receive, headers, self._bytes_max)
        values = {} if match is None else match.values
        asked = Asked(name, values, query_of(scope["query_string"]), headers, body, self._shards())
        shard = shard_of(scope)
        place = asked.at_shard(shard) if shard else find_place(asked)
        if not shard and name in WHOLE_NAMES:
            scope = {**scope, OF_ALL: True}
            place = asked.at_shard(asked.shards.names[0])
        site = self._sites.find(place.shards[0], is_whole=is_of_all(scope)) if place.how == "one" else None
        if site is not None and name not in _ENDLESS:
            request = _rewrite(scope, match, asked)
            await site(request.scope, request.receive(receive) if is_read else receive, send)
            return
        if not is_read and not has_no_body(scope, headers):
            asked.body = await read_body(receive, headers, self._bytes_max)
        request = _rewrite(scope, match, asked)
        work = self._send_to(name, place, request, send)
        if not await until_client_left(receive, work, self._sites.tasks, self._endless if name in _ENDLESS else None):
            raise ClientLeft

    def _tell_health(self, name: str) -> RawAnswer:
        """Answer for this host: it is ready where it takes part in the cluster, whatever shards it has."""
        if name == "system.alive":
            return RawAnswer(b'{"status":"ok"}')
        if self.is_draining:
            raise HttpRefusal(503, "the server is stopping")
        if self._host.problem:
            raise HttpRefusal(503, "the host cannot reach the cluster")
        return RawAnswer(b'{"status":"ready"}')

    def _shards(self) -> Shards:
        """Return the shards, those that are open here first."""
        view, own = self._host.view, self._sites.list_open()
        names = [*own, *(name for name in view.shards if name not in own)]
        return Shards(tuple(names), self.pick)

    def pick(self) -> str:
        """Return the shard for new work."""
        return placement.place(self._host.view, {})

    # ------------------------------------------------------------------ by where it goes

    async def _send_to(self, name: str, place: Destination, request: SentRequest, send: Send) -> None:
        if name in _ENDLESS and not shard_of(request.scope):
            await follow_events(self, place.shards, request, send)
            return
        if place.how == "all":
            merged, missing = await read_list(self, name, place.shards, request)
            await _send_whole(send, merged, missing)
            return
        if place.how == "each":
            answers = await self._ask_each(place.shards, request)
            await _send_whole(send, answers[0], [])
            return
        last = place.shards[-1]
        for shard in place.shards:
            async with aclosing(self.read(shard, request)) as pieces:
                head = await anext(pieces)
                if head.status != 404 or shard == last:
                    await write_answer(head, pieces, send)
                    return

    async def _ask_each(self, shards: Collection[str], request: SentRequest) -> list[ShardAnswer]:
        return list(await asyncio.gather(*(self.ask(shard, request) for shard in shards)))

    async def ask_all(self, requests: Mapping[str, SentRequest], wait_s: float) -> tuple[list[ShardAnswer], list[str]]:
        """Return the answers of the shards that answer in time, and the names of the others."""

        async def ask(shard: str) -> ShardAnswer | None:
            try:
                async with asyncio.timeout(wait_s):
                    return await self.ask(shard, requests[shard], wait_s=wait_s)
            except (LyraError, TimeoutError):
                return None

        answers = await asyncio.gather(*(ask(shard) for shard in requests))
        told = [answer for answer in answers if answer is not None]
        if not told:
            raise Overloaded("no shard of the cluster answers at the moment", hint="lyra cluster status says why")
        return told, sorted(set(requests) - {answer.shard for answer in told})

    async def ask(self, shard: str, request: SentRequest, *, wait_s: float | None = None) -> ShardAnswer:
        """Return the whole answer of a shard."""
        async with aclosing(self.read(shard, request, wait_s=wait_s)) as pieces:
            head = await anext(pieces)
            body = b"".join([bytes(piece) async for piece in pieces])
        return ShardAnswer(shard, head, body)

    # ------------------------------------------------------------------ one shard

    async def read(self, shard: str, request: SentRequest, *, wait_s: float | None = None) -> AsyncGenerator[Any, None]:
        """Yield the head of a shard's answer and then its body, from wherever the shard is open; Overloaded where it is
        open nowhere for so long."""
        until_s = self._clock.monotonic() + (self._host.view.lease_s + FRONT_WAIT_S if wait_s is None else wait_s)
        may_repeat = request.scope["method"] in ("GET", "HEAD")
        view = self._host.view
        while True:
            try:
                pieces = self._begin(shard, request, view)
                head = await anext(pieces)
            except (Conflict, Unreachable) as error:
                is_certain = bool(error.fields.get("elsewhere") or error.fields.get("unsent"))
                if not is_certain and not may_repeat:
                    raise
                if self._clock.monotonic() >= until_s:
                    hint = "ask again in a moment: another host is opening it"
                    raise Overloaded(f"shard {shard} is open on no host at the moment", hint=hint) from error
            else:
                async with aclosing(pieces):
                    yield as_head(head)
                    async for piece in pieces:
                        yield piece
                return
            await asyncio.sleep(_LOOK_S)
            view = await self._look()

    def _begin(self, shard: str, request: SentRequest, view: View) -> AsyncGenerator[Any, None]:
        """Begin to read the answer of a shard, here or from another host."""
        site = self._sites.find(shard, is_whole=is_of_all(request.scope))
        if site is not None:
            return read_site(site, request, self._sites.tasks)
        row = view.shards.get(shard)
        if row is None:
            raise NoSuchProcess(f"there is no shard {shard!r}", shard=shard)
        address = view.address_of(shard)
        if address is None or row.host == self._host.name:
            raise Conflict(f"shard {shard} is open on no host at the moment", elsewhere=True, shard=shard)
        return self._carrier.stream(address, HTTP_CALL, {"shard": shard, **request.to_data()})

    async def _look(self) -> View:
        """Return the directory as it is now; requests that ask at once share one look."""
        if self._looking is None or self._looking.done():
            self._looking = self._sites.tasks.start(self._host.look(), name="lyra-front-look")
        try:
            return await asyncio.shield(self._looking)
        except LyraError:  # the database is away: what the host knows may still be true
            return self._host.view


def _rewrite(scope: Any, match: RouteMatch | None, asked: Asked) -> SentRequest:
    """Return the request as the site of a shard reads it: processes are named by their bare pids."""
    changed: dict[str, Any] = {}
    if match is not None and asked.values != match.values:
        segments = [
            quote(asked.values[segment[1:-1]], safe="") if segment[:1] == "{" else segment
            for segment in match.route.split("/")
        ]
        path = "/".join(segments)
        path = scope.get("root_path", "") + path
        changed |= {"path": path, "raw_path": path.encode()}
    if asked.query != query_of(scope["query_string"]):
        changed["query_string"] = urlencode(asked.query).encode()
    if not changed:
        return SentRequest(scope, asked.body)
    return SentRequest({**scope, **changed}, asked.body)


async def _send_whole(send: Send, answer: ShardAnswer, missing: list[str]) -> None:
    headers = [(name, value) for name, value in answer.head.headers if name != b"content-length"]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    if missing:
        headers.append((MISSING, ", ".join(missing).encode()))
    await send({"type": "http.response.start", "status": answer.head.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def mount_shard(scope: Any) -> Any:
    """Return the scope of a request for the pages of one shard, `/shards/SHARD/…`, as mounted there; else as it is."""
    path = read_path(scope)
    if not path.startswith(_SHARDS):
        return scope
    shard = path[len(_SHARDS) :].partition("/")[0]
    return {**scope, "root_path": f"{scope.get('root_path', '')}{_SHARDS}{shard}"}


def shard_of(scope: Any) -> str:
    """Return the shard that the address of a request names; "" where it names none."""
    return split_root(scope)[1]

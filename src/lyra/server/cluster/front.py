"""Front: takes the requests of clients on one host, and passes each to the site of the shard that it belongs to.

`places` says which one that is, `reach` gets its answer, and `merge` makes one answer of those of all shards. An answer
with processes names them by their addresses. Below `/shards/NAME/` the whole site of one shard can be asked.

`ClusterServer` is a host of a cluster with the faces of a server:

    async with ClusterServer(config, settings, url) as server:
        print(server.ready_line())

Stopping drains: the faces refuse what is new and finish what is in flight, and then the other hosts take the shards.
Meanwhile the sites answer what other hosts pass on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import msgspec

from lyra.cluster.joining import join
from lyra.cluster.peers import make_handler
from lyra.core.clock import SystemClock
from lyra.core.ids import unique_id
from lyra.errors import ConfigError, LyraError, Overloaded, Unreachable
from lyra.server.cluster import merge
from lyra.server.cluster.forwarding import OF_ALL, SentRequest, is_of_all, until_client_left, write_answer
from lyra.server.cluster.places import Asked, Destination, Shards, find_place, name_processes, needs_body
from lyra.server.cluster.reach import Reach, ShardAnswer, follow_all
from lyra.server.cluster.sites import Sites
from lyra.server.cluster.whole import WHOLE_NAMES
from lyra.server.dashboard import cluster
from lyra.server.dashboard.login import problem_page
from lyra.server.http.app import (
    COUNTED,
    SHARED_ID,
    answer_of_problem,
    has_no_body,
    headers_of,
    may_finish,
    query_of,
    read_path,
    send_answer,
)
from lyra.server.http.endpoint import PageRequest, PathTable, RawAnswer, RouteMatch, query_text
from lyra.server.http.face import HttpListener
from lyra.server.http.guard import LOOPBACK_HOSTS, ClientLeft, check_place, read_body
from lyra.server.http.problems import HttpRefusal
from lyra.server.http.sse import Receive, Send
from lyra.server.settings import announce, withdraw
from lyra.server.token_limit import credential_of

if TYPE_CHECKING:
    from lyra.cluster.host import Host, SetUp
    from lyra.config import Config
    from lyra.core.address import Address
    from lyra.server.serve import Face
    from lyra.server.settings import ServeSettings


FEED: Final = "events.follow"
_SHARDS: Final = "/shards/"
_RPC: Final = "a2a.request"
_WEBHOOK: Final = "webhooks.add"
_NOT_FOUND: Final = 404
_MISSING: Final = "lyra-missing-shards"
_encode: Final = msgspec.json.encode


class Front:
    """See the module."""

    def __init__(self, reach: Reach, settings: ServeSettings) -> None:
        assert settings.http is not None
        self._reach = reach
        self._sites = reach.sites
        self._table = PathTable((*reach.sites.endpoints, *cluster.ENDPOINTS))
        reach.sites.whole.bind(reach)
        self._hosts: Collection[str] = {*LOOPBACK_HOSTS, settings.http.host, *settings.hosts}
        self._bytes_max = settings.message_bytes_max
        self._tokens = settings.tokens
        self._answering = 0
        self._endless: set[asyncio.Task[Any]] = set()
        self.is_draining = False

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
        headers, path, method = headers_of(scope), read_path(scope), scope["method"]
        match = self._table.match(path)
        has_begun = False

        async def send_on(message: Any) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._pass_on(match, path, scope, headers, receive, send_on)
        except ClientLeft:
            return
        except Exception as error:
            if has_begun:  # the connection breaks off, so that the client does not take the answer for whole
                raise
            if isinstance(error, Unreachable):  # no 503, after which clients repeat what may have been done
                text = "the host that was asked has died: what became of the request is not known"
                error = HttpRefusal(502, text, hint="look whether it was carried out, then ask again")
            page = PageRequest(path, query_text(scope), headers, True)
            await send_answer(send, answer_of_problem(error, page, method, match, problem_page))

    async def _pass_on(
        self,
        match: RouteMatch | None,
        path: str,
        scope: Any,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        check_place(headers, self._hosts)
        endpoint = None if match is None else match.methods.get(scope["method"])
        name = "" if endpoint is None else endpoint.name
        if name in ("system.alive", "system.ready"):
            await send_answer(send, self._tell_health(name))
            return
        if self.is_draining and (endpoint is None or not may_finish(endpoint) or name == FEED):
            raise Overloaded("the server is stopping", hint="ask again: another host answers")
        await self._reach.until_placed()
        has_body = not has_no_body(scope, headers)
        is_read = has_body and needs_body(name)
        body = await read_body(receive, headers, self._bytes_max) if is_read else b""
        if match is None and path.startswith(_SHARDS):
            place, scope, asked = self._enter_shard(path, scope, body)
        else:
            values = {} if match is None else match.values
            shards = Shards(self._reach.shards, self._reach.pick, self._find_user)
            asked = Asked(name, values, query_of(scope["query_string"]), headers, body, shards)
            if name in WHOLE_NAMES:
                scope, place = {**scope, OF_ALL: True}, asked.at_shard(self._find_open())
            else:
                place = find_place(asked)
        is_direct = place.how in ("one", "new") and not asked.tells_processes
        site = self._sites.find(place.shards[0], is_whole=is_of_all(scope)) if is_direct else None
        if site is not None:
            request = _rewrite(scope, match, asked)
            await site(request.scope, request.receive(receive) if is_read else receive, send)
            return
        if has_body and not is_read:
            asked.body = await read_body(receive, headers, self._bytes_max)
        work = self._send_to(place, asked, _rewrite(scope, match, asked), send)
        among = self._endless if name == FEED else None
        if not await until_client_left(receive, work, self._sites.tasks, among):
            raise ClientLeft

    def _find_user(self, headers: Mapping[str, str], named: str) -> str:
        """Return the user of the token that a request comes with; "" where its site will refuse it."""
        try:
            user_id = headers.get("x-user-id", "") or named
            return self._tokens.caller(credential_of(headers), user_id=user_id).user_id
        except LyraError:
            return ""

    def _enter_shard(self, path: str, scope: Any, body: bytes) -> tuple[Destination, Any, Asked]:
        """Return where a request below `/shards/NAME` goes, and the request as that site reads it."""
        shard = path.removeprefix(_SHARDS).partition("/")[0]
        if shard not in self._reach.host.view.shards:
            raise HttpRefusal(404, "there is no such shard", hint="GET /cluster lists them")
        inside = {**scope, "root_path": f"{scope.get('root_path', '')}{_SHARDS}{shard}"}
        asked = Asked("", {}, query_of(scope["query_string"]), {}, body, Shards((shard,), lambda: (shard,)))
        return asked.at_shard(shard), inside, asked

    def _tell_health(self, name: str) -> RawAnswer:
        """Answer for this host: it is ready where it takes part in the cluster, whatever shards it has."""
        if name == "system.alive":
            return RawAnswer(b'{"status":"ok"}')
        if self.is_draining:
            raise HttpRefusal(503, "the server is stopping")
        if self._reach.host.problem:
            raise HttpRefusal(503, "the host cannot reach the cluster")
        return RawAnswer(b'{"status":"ready"}')

    def _find_open(self) -> str:
        """Return a shard whose host lives, this one's before others."""
        shards, view = self._reach.shards, self._reach.host.view
        return next((shard for shard in shards if view.address_of(shard) is not None), shards[0])

    # ------------------------------------------------------------------ by where it goes

    async def _send_to(self, place: Destination, asked: Asked, request: SentRequest, send: Send) -> None:
        if asked.name == FEED and place.how == "all":
            await follow_all(self._reach, place.shards, request, send)
        elif place.how == "all":
            await send_answer(send, await self._merge(place.shards, asked, request))
        elif place.how == "each":
            await send_answer(send, _to_raw(await self._ask_each(place.shards, asked, request), asked))
        else:
            await self._send_to_first(place, asked, request, send)

    async def _ask_each(self, shards: tuple[str, ...], asked: Asked, request: SentRequest) -> ShardAnswer:
        """Return what one of the shards answered that all were asked, first of all one that refused. The caller has
        made one request. The first shard is asked before the others, where it may answer for all: a mode that shards
        share is changed once."""
        if asked.name == _WEBHOOK:
            return await add_webhook_to_each(self._reach, shards, request)
        first, others = await self._reach.ask(shards[0], request), shards[1:]
        if first.start.status >= 400 and first.start.status != _NOT_FOUND:
            return first
        if first.start.status < 400 and _read_answers([first])[first.shard].get("shared") is True:
            return first
        answers = [first, *await self._reach.ask_each(dict.fromkeys(others, request.as_counted()))]
        done = [answer for answer in answers if answer.start.status < 400]
        refused = [answer for answer in answers if answer.start.status >= 400]
        if done:  # where some of them have it, the others have not
            refused = [answer for answer in refused if answer.start.status != _NOT_FOUND]
        return (refused or done)[0]

    async def _send_to_first(self, place: Destination, asked: Asked, request: SentRequest, send: Send) -> None:
        """Pass a request to the shards in their order until one knows what is asked for, or can take new work. While a
        shard is open nowhere, it may have what is asked for."""
        is_new, away = place.how == "new", None
        for shard in place.shards:
            is_last = shard == place.shards[-1]
            wait_s = 0.0 if is_new and not is_last else None
            async with aclosing(self._reach.read(shard, request, wait_s=wait_s)) as pieces:
                try:
                    start = await anext(pieces)
                except Overloaded as error:
                    if is_last or "unsent" not in error.fields:
                        raise
                    away = away or error
                    continue
                if not is_new and start.status == _NOT_FOUND:
                    if not is_last:
                        request = request.as_counted()
                        continue
                    if away is not None:
                        raise away
                if asked.tells_processes and not start.is_stream:
                    body = b"".join([bytes(piece) async for piece in pieces])
                    await send_answer(send, _to_raw(ShardAnswer(shard, start, body), asked))
                else:
                    await write_answer(start, pieces, send)
                return

    async def _merge(self, shards: tuple[str, ...], asked: Asked, request: SentRequest) -> RawAnswer:
        """Return one answer for what all shards answer; the error of one is that of all."""
        name, query = asked.name, dict(asked.query)
        if name == _RPC:
            name, query = "a2a.list_tasks", _rpc_query(asked.data)

        async def ask(query: Mapping[str, str]) -> tuple[list[ShardAnswer], Collection[str]]:
            parts = merge.begin(name, dict(query), shards)
            requests = {shard: _with_query(request, asked, parts[shard]) for shard in shards}
            for shard in shards[1:]:  # the caller has made one request
                requests[shard] = requests[shard].as_counted()
            return await self._reach.ask_all(requests)

        answers, missing = await ask(query)
        failed = next((answer for answer in answers if answer.start.status >= 400), None)
        if failed is None and merge.must_ask_again(name, query, _read_answers(answers)):
            query = merge.restart(query)
            answers, missing = await ask(query)
            failed = next((answer for answer in answers if answer.start.status >= 400), None)
        if failed is not None:
            return _to_raw(failed, asked)
        media = answers[0].start.header(b"content-type").decode()
        data = _read_answers(answers)
        if asked.name == _RPC:
            if any("error" in answer for answer in data.values()):
                return _to_raw(next(answer for answer in answers if "error" in data[answer.shard]), asked)
            whole = {shard: answer["result"] for shard, answer in data.items()}
            joined: Any = {**data[answers[0].shard], "result": merge.join(name, query, whole, list(missing))}
        else:
            joined = merge.join(name, query, data, list(missing))
        body = joined.encode() if isinstance(joined, str) else _encode(joined)
        return RawAnswer(body, media, headers={_MISSING: ", ".join(missing)} if missing else {})


async def add_webhook_to_each(reach: Reach, shards: tuple[str, ...], request: SentRequest) -> ShardAnswer:
    """Add a webhook, which has one id on all shards, to all of them or none. One whose answer was lost may have it."""
    webhook_id = unique_id()
    shared = request._replace(scope={**request.scope, SHARED_ID: webhook_id})
    asked = [reach.ask(shard, shared.as_counted() if number else shared) for number, shard in enumerate(shards)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    told = [result for result in results if isinstance(result, ShardAnswer)]
    errors = [result for result in results if not isinstance(result, ShardAnswer)]
    failed = [answer for answer in told if answer.start.status >= 400]
    if errors or failed:
        path = f"{request.scope['path']}/{webhook_id}"
        scope = {**request.scope, COUNTED: True, "method": "DELETE", "path": path, "raw_path": path.encode()}
        without = {answer.shard for answer in failed}
        without |= {
            shard
            for shard, result in zip(shards, results, strict=True)
            if isinstance(result, LyraError) and "unsent" in result.fields
        }
        undo = [reach.ask(shard, request._replace(scope=scope, body=b"")) for shard in shards if shard not in without]
        await asyncio.gather(*undo, return_exceptions=True)
    if errors:
        raise errors[0]
    return (failed or told)[0]


def _read_answers(answers: list[ShardAnswer]) -> dict[str, Any]:
    """Return what shards answered, by shard: values of JSON, or text."""
    return {
        answer.shard: msgspec.json.decode(answer.body) if answer.start.is_json else answer.body.decode()
        for answer in answers
    }


def _to_raw(answer: ShardAnswer, asked: Asked) -> RawAnswer:
    """Return the answer of one shard as the front gives it: its processes are named by their addresses."""
    body = answer.body
    if asked.tells_processes and answer.start.is_json and answer.start.status < 400:
        body = _encode(name_processes(asked.name, answer.shard, msgspec.json.decode(body)))
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.start.headers}
    headers.pop("content-length", None)
    return RawAnswer(body, headers.pop("content-type", "application/json"), answer.start.status, headers)


def _with_query(request: SentRequest, asked: Asked, query: Mapping[str, str]) -> SentRequest:
    """Return a request with another query; of JSON-RPC with other parameters."""
    if asked.name == _RPC:
        params = {**asked.data.get("params", {}), **query}
        return request._replace(scope=request.scope.copy(), body=_encode({**asked.data, "params": params}))
    return request._replace(scope={**request.scope, "query_string": urlencode(query).encode()})


def _rpc_query(data: dict[str, Any]) -> dict[str, str]:
    """Return the parameters of a JSON-RPC call that say which part of a list is wanted."""
    params = data.get("params")
    known = params if isinstance(params, dict) else {}
    return {name: str(known[name]) for name in ("pageToken",) if name in known}


def _rewrite(scope: Any, match: RouteMatch | None, asked: Asked) -> SentRequest:
    """Return the request as the site of a shard reads it: processes are named by their bare pids."""
    changed: dict[str, Any] = {}
    if match is not None and asked.values != match.values:
        segments = [
            quote(asked.values[segment[1:-1]], safe="") if segment[:1] == "{" else segment
            for segment in match.route.split("/")
        ]
        path = scope.get("root_path", "") + "/".join(segments)
        changed |= {"path": path, "raw_path": path.encode()}
    if asked.query != query_of(scope["query_string"]):
        changed["query_string"] = urlencode(asked.query).encode()
    if asked.is_body_changed:
        length = str(len(asked.body)).encode()
        changed["headers"] = [
            (name, length if name == b"content-length" else value) for name, value in scope["headers"]
        ]
    return SentRequest({**scope, **changed} if changed else scope, asked.body)


class ClusterServer:
    """See the module. `resources`, `shards` and `lease_s` are those of `cluster.joining.join`."""

    def __init__(
        self,
        config: Config,
        settings: ServeSettings,
        url: str,
        *,
        setup: SetUp | None = None,
        resources: Mapping[str, float] | None = None,
        shards: int | None = None,
        lease_s: float | None = None,
    ) -> None:
        if settings.http is None:
            raise ConfigError("a server of a cluster has HTTP", hint="give --http HOST:PORT", key="server.http")
        self.settings = settings
        self.grpc: Address | None = None  # where it listens, once it does
        self.http: Address | None = None
        self._sites = Sites(settings, setup)
        self._join = join(config, url, self._sites, resources=resources, shards=shards, lease_s=lease_s)
        self._url = url
        self._has_tls = config.cluster.tls_ca is not None
        self._stack = AsyncExitStack()
        self._faces: list[Face] = []
        self.host: Host

    async def __aenter__(self) -> ClusterServer:
        try:
            self.host = await self._stack.enter_async_context(self._join)
            self._stack.push_async_callback(self._sites.tasks.close)
            reach = Reach(self.host, self._sites)
            if self.settings.grpc is not None:
                from lyra.server.cluster.grpc_front import GrpcFront

                peers = None  # where hosts prove themselves with certificates: this port asks its clients for none
                if not self._has_tls:
                    peers = make_handler(self.host.answer, self.host.directory.secret, self._sites.stream)
                self.grpc = await self._start(GrpcFront(reach, self.settings, peers))
            front = Front(reach, self.settings)
            self.http = await self._start(HttpListener(front, self.settings, self._sites.tasks, SystemClock()))
            if self.settings.gateway:
                announce(self._url, self.ready_line()["http"])
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _start(self, face: Face) -> Address:
        self._faces.insert(0, face)  # HTTP drains first: load balancers ask it whether the server is ready
        return await face.start()

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    def ready_line(self) -> dict[str, Any]:
        """Return what a program that started the server is told: which host it is, and where to reach it."""
        scheme = "http" if self.settings.tls is None else "https"
        line = {"host": self.host.name, "http": f"{scheme}://{self.http}", "peers": self.host.row.address}
        return line if self.grpc is None else {**line, "grpc": str(self.grpc)}

    async def stop(self) -> None:
        """Drain the faces, give the shards away, leave the cluster. A second call changes nothing."""
        faces, self._faces = self._faces, []
        if not faces:
            return
        if self.settings.gateway:
            withdraw(self._url, self.ready_line()["http"])
        clock = SystemClock()
        until_s = clock.monotonic() + self.settings.drain_s
        try:
            for face in faces:
                await face.drain()
            for face in faces:
                await face.stop(max(0.0, until_s - clock.monotonic()))
            await self.host.leave()
        finally:
            await self._stack.aclose()

"""The ASGI application: from a request to its answer, through the guard and the table of routes.

    fastapi_app.mount("/lyra", lyra.server.app(kernel, tokens={"secret": "ada"}))

`HttpApp` works alone or mounted below a path. Every answer has the security headers; every error is told in the shape
that its client reads, and none as a traceback.

`make_guarded_protocol` holds the connections of clients to limits that uvicorn does not have: size and time of the
headers, a reader that does not read, the number of connections. The size of a head is looked at before the parser gets
it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from lyra.core.codec import to_plain
from lyra.core.limits import (
    SERVER_HEAD_BYTES_MAX,
    SERVER_HEAD_S,
    SERVER_LOGIN_S,
    SERVER_MESSAGE_BYTES_MAX,
    SERVER_UNREAD_S,
)
from lyra.core.secrets.redact import redact
from lyra.errors import ConfigError, Conflict, LyraError, Overloaded, Unauthenticated
from lyra.observe.otel.requests import request_span
from lyra.server.http.api.nodes import NODE_ROUTE
from lyra.server.http.endpoint import (
    Endpoint,
    HttpCall,
    PageRequest,
    PathTable,
    ProblemPage,
    RawAnswer,
    RouteMatch,
    Streamed,
    link_to_itself,
    query_text,
    wants_page,
    with_slash,
)
from lyra.server.http.guard import (
    LOOPBACK_HOSTS,
    Authenticator,
    ClientLeft,
    HttpGuard,
    RequestIdentity,
    check_opened_by_person,
)
from lyra.server.http.logins import CookiePlace, begin_login
from lyra.server.http.mounted_nodes import get_mounted_nodes
from lyra.server.http.parts import HttpParts
from lyra.server.http.problems import HttpRefusal, error_body, problem_of, store_lost, vendor_of
from lyra.server.http.routes import ENDPOINTS
from lyra.server.http.sse import Receive, Send, client_left, write_stream
from lyra.server.identity import TokenTable, outcome_of, record_act
from lyra.server.token_limit import credential_of

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


# For every answer, also where there is no request yet. Pages have their own policy.
SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_SECURITY_LINES: Final = b"".join(b"%s: %s\r\n" % pair for pair in SECURITY_HEADERS)
_HEAD_END: Final = b"\r\n\r\n"
_SLICE_BYTES: Final = 16 * 1024  # given to the parser at once
_REFUSAL: Final = (
    b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n"
    b"cache-control: no-store\r\n%s%s\r\n%s"
)
_BUSY: Final = b'{"error":{"code":"overloaded","message":"the server has no room for another connection","hint":""}}'
_BAD: Final = b'{"error":{"code":"config","message":"that is no HTTP request","hint":""}}'
_LARGE: Final = b'{"error":{"code":"too_large","message":"the headers are too large","hint":""}}'


class ConnectionLimits:
    """The limits of the connections of one server."""

    __slots__ = ("connections_max", "head_bytes_max", "head_s", "unread_s")

    def __init__(
        self,
        connections_max: int,
        *,
        head_bytes_max: int = SERVER_HEAD_BYTES_MAX,
        head_s: float = SERVER_HEAD_S,
        unread_s: float = SERVER_UNREAD_S,
    ) -> None:
        self.connections_max = connections_max
        self.head_bytes_max = head_bytes_max
        self.head_s = head_s
        self.unread_s = unread_s


_Protocol: Any = asyncio.Protocol  # its methods call those of the class that `make_guarded_protocol` adds


class GuardedConnection(_Protocol):  # type: ignore[misc]
    """A connection with limits, over the protocol class that uvicorn chose."""

    limits: ClassVar[ConnectionLimits]
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0  # of the head that has begun
    _head_tail = b""  # its last bytes: where its end may have begun
    _is_in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections_max:
            transport.write(_refusal(503, b"Service Unavailable", _BUSY, b"retry-after: 1\r\n"))
            transport.close()
            return
        self._arm_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm_head()
        self._disarm_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        for start in range(0, len(data), _SLICE_BYTES):
            if self.transport.is_closing():
                return
            piece = data[start : start + _SLICE_BYTES]
            if not self._is_in_body and self._is_head_too_large(piece):
                if self.cycle is None or self.cycle.response_complete:  # else it would stand inside another answer
                    self.transport.write(_refusal(431, b"Request Header Fields Too Large", _LARGE))
                self.transport.close()
                return
            super().data_received(piece)
        if self.cycle is not before or (self.cycle is not None and not self.cycle.response_complete):
            self._disarm_head()
        elif self._head_timer is None and not self.transport.is_closing():
            self._arm_head()

    def _is_head_too_large(self, piece: bytes) -> bool:
        """Count what a piece adds to the head that has begun."""
        known = len(self._head_tail)
        end = (self._head_tail + piece).find(_HEAD_END)
        self._head_bytes += len(piece) if end < 0 else end + len(_HEAD_END) - known
        self._head_tail = (self._head_tail + piece)[1 - len(_HEAD_END) :]
        return self._head_bytes > self.limits.head_bytes_max

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._head_bytes, self._head_tail = 0, b""
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        del msg
        self.transport.write(_refusal(400, b"Bad Request", _BAD))
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(self.limits.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._disarm_unread()
        super().resume_writing()

    def _arm_head(self) -> None:
        self._head_timer = self.loop.call_later(self.limits.head_s, self._head_too_slow)

    def _head_too_slow(self) -> None:
        self._head_timer = None
        self.transport.abort()

    def _disarm_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _disarm_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None


def make_guarded_protocol(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Return the protocol class of uvicorn's choice, with limits."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    return type("LimitedConnection", (GuardedConnection, AutoHTTPProtocol), {"limits": limits})


def _refusal(status: int, phrase: bytes, body: bytes, more: bytes = b"") -> bytes:
    return _REFUSAL % (status, phrase, len(body), _SECURITY_LINES, more, body)


_CUT_OFF: Final = HttpRefusal(
    502, "this server lost its store while it answered", hint="look whether it was carried out, then ask again"
)
_encode: Final = msgspec.json.Encoder(enc_hook=to_plain).encode
# `testserver` is what the test clients of Starlette and FastAPI call; no public name has a single label.
_APP_HOSTS: Final = LOOPBACK_HOSTS | {"testserver"}
_DEFAULT_HEADERS: Final = {b"cache-control": b"no-store", **dict(SECURITY_HEADERS)}
# What is taken while the server drains besides reading: it ends or finishes something.
# In the scope of a request that a server makes as a part of one that was counted for its caller.
COUNTED: Final = "lyra.counted"
# There also: the id of a webhook that all shards of a cluster have. No client can put anything into a scope.
SHARED_ID: Final = "lyra.webhook"
_FINISHING: Final = frozenset({"interrupts.answer", "interrupts.cancel", "processes.terminate", "sessions.cancel"})


class HttpApp:
    """See the module. `parts` is what the handlers share."""

    def __init__(self, parts: HttpParts, guard: HttpGuard, problem_page: ProblemPage | None = None) -> None:
        self.parts = parts
        self.guard = guard
        self._problem_page = problem_page  # how a problem is shown to a person; None tells it as JSON
        self._table = PathTable(parts.endpoints)
        self._vendor_paths = VendorPaths(parts.endpoints)
        self._answering = 0  # requests that are not answered in full

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered, or work that was begun here is under way and waits for no person."""
        return self._answering > 0 or bool(self.parts.chats.running) or self.parts.pipelines.is_busy

    @property
    def is_answering(self) -> bool:
        """Whether a request is being answered, besides those that read the events of the kernel without an end."""
        return self._answering > self.parts.feed.readers

    def open(self) -> None:
        """Begin to listen to the kernel; a second call changes nothing."""
        self.parts.open()

    def drain(self) -> None:
        """Refuse what is new and end the streams that have no end; a second call changes nothing."""
        self.parts.drain()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            self._answering += 1
            try:
                await self._answer(scope, receive, send)
            finally:
                self._answering -= 1
        else:  # a web socket: there is none here
            await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        """Alone behind an ASGI server: the kernel opens and closes with it, unless the application has opened it."""
        kernel, is_opened_here = self.parts.kernel, False
        while True:
            phase = (await receive())["type"]
            try:
                if phase == "lifespan.startup" and not kernel.open:
                    await kernel.start()
                    is_opened_here = True
                elif phase == "lifespan.shutdown" and is_opened_here:
                    await kernel.shutdown("server stopped")
            except LyraError as error:
                await send({"type": f"{phase}.failed", "message": redact(error.message)})
                return
            await send({"type": f"{phase}.complete"})
            if phase == "lifespan.shutdown":
                return

    async def _answer(self, scope: Any, receive: Receive, send: Send) -> None:
        headers, path, method = headers_of(scope), read_path(scope), scope["method"]
        match = self._table.match(path)
        route = "" if match is None else match.route
        began_s = self.parts.kernel.clock.monotonic()
        attributes = {"http.request.method": method, "http.route": route, "url.path": route}
        with request_span(f"{method} {route}".strip(), headers, attributes) as span:
            answer = await self._answer_or_problem(match, scope, path, headers, receive)
            if answer is None:
                return
            status = answer.status if isinstance(answer, RawAnswer) else 200
            span.end_with({"http.response.status_code": status}, error=str(status) if status >= 500 else "")
        if self.parts.metrics is not None:
            self.parts.metrics.http_request(route, method, status, self.parts.kernel.clock.monotonic() - began_s)
        if isinstance(answer, Streamed):
            await write_stream(receive, send, answer.pieces, [*SECURITY_HEADERS, *_lines(answer.headers)])
        else:
            await send_answer(send, answer)

    async def _answer_or_problem(
        self, match: RouteMatch | None, scope: Any, path: str, headers: Mapping[str, str], receive: Receive
    ) -> RawAnswer | Streamed | None:
        """Return the answer, also of an error; None where the client has left."""
        try:
            return await self._handle(match, scope, path, headers, receive)
        except ClientLeft:
            return None
        except Exception as failure:  # noqa: BLE001 (told to the client, logged if it is no error of Lyra's)
            error = failure
            if isinstance(error, Conflict) and "newest_epoch" in error.fields:  # the store has another owner
                error = store_lost() if scope["method"] == "GET" else _CUT_OFF
            has_login = self.guard.logins.tokens is not None
            page = PageRequest(path, query_text(scope), headers, has_login)
            return answer_of_problem(error, page, scope["method"], match, self._problem_page, self.parts.kernel)

    async def _handle(
        self, match: RouteMatch | None, scope: Any, path: str, headers: Mapping[str, str], receive: Receive
    ) -> RawAnswer | Streamed:
        guard = self.guard
        guard.check_place(headers)
        query = query_of(scope["query_string"])
        if match is not None:
            self._vendor_paths.check(match, scope["method"], path)
            endpoint, values = match.endpoint(scope["method"]), match.values
        else:
            endpoint, values = self._find_mounted(scope["method"], path, scope["query_string"])
        if self.parts.kernel.failure is not None and endpoint.method != "GET":
            raise store_lost()
        if self.parts.is_draining and not may_finish(endpoint):
            raise Overloaded("the server is stopping", hint="ask again when it is back")
        root = scope.get("root_path", "")
        if self.parts.kernel.core.remote is not None:  # a login is one of all shards
            root = split_root(scope)[0]
        cookie = CookiePlace.from_headers(headers, scope.get("scheme", "http"), root)
        is_page = endpoint.group == "pages"
        if is_page and not path:
            return RawAnswer(b"", "text/plain", 303, {"location": with_slash(scope)})
        if is_page and any(name == "token" for name, _ in query):
            return self._log_in(cookie, path, query, headers, client_of(scope))
        address = client_of(scope)
        identity = await self._identify(endpoint, headers, query, cookie, address)
        call = HttpCall(self.parts, endpoint, identity, values, headers, path)
        call.client = address
        if not endpoint.is_open and COUNTED not in scope:
            asked = guard.admit(identity, endpoint)
            if asked is not None:
                await asked
        if endpoint.method == "GET" or endpoint.is_open or identity.has_own_key:  # no act of a person
            return await self._perform(call, identity, query, scope, receive)
        outcome = "failed"
        try:
            answer = await self._perform(call, identity, query, scope, receive)
            outcome = call.act_outcome
        except ClientLeft:  # no failure of the server: nothing is logged
            outcome = "cancelled"
            raise
        except Exception as error:
            outcome = outcome_of(error) if isinstance(error, LyraError) else problem_of(error).code
            raise
        finally:
            if call.act:
                record_act(self.parts.kernel, call.caller, call.act, values, outcome, call.act_target)
        return answer

    async def _identify(
        self,
        endpoint: Endpoint,
        headers: Mapping[str, str],
        query: list[tuple[str, str]],
        cookie: CookiePlace,
        address: str,
    ) -> RequestIdentity:
        """Who asks, by the endpoint's own keys or by the server's tokens."""
        guard = self.guard
        if endpoint.is_open:
            return guard.anonymous(cookie)
        try:
            with guard.logins.token_limit.attempt(address, credential_of(headers)):
                own = None if endpoint.identify is None else await endpoint.identify(self.parts, headers)
                if own is not None:
                    return guard.make_identity(own, headers, cookie)
                return await guard.identify(headers, query, cookie)
        except Unauthenticated as error:
            error.hint = endpoint.credential_hint or error.hint
            raise

    async def _perform(
        self, call: HttpCall, identity: RequestIdentity, query: list[tuple[str, str]], scope: Any, receive: Receive
    ) -> RawAnswer | Streamed:
        """Return what every request of a caller passes, and then the handler."""
        guard, endpoint, headers = self.guard, call.endpoint, call.headers
        if not endpoint.is_open:
            guard.check_change(identity, endpoint)
        self.parts.open()
        call.base_url = base_url(scope, headers)
        if self.parts.kernel.core.remote is not None:
            call.shard = split_root(scope)[1]
            call.shared_id = scope.get(SHARED_ID, "")
        if endpoint.query is not None:
            call.take_query(query)
        call.take_body(b"" if has_no_body(scope, headers) else await guard.read_body(receive, headers))
        guard.check_form(identity, endpoint, headers, call.form)
        work = endpoint.handler(call)
        answer = _answer_of(endpoint, await (_while_connected(receive, work) if endpoint.ends_with_client else work))
        if isinstance(answer, Streamed) and identity.login_id:
            return answer._replace(pieces=guard.logins.while_open(identity.login_id, answer.pieces))
        return answer

    def _log_in(
        self, cookie: CookiePlace, path: str, query: list[tuple[str, str]], headers: Mapping[str, str], client: str
    ) -> RawAnswer:
        """Return a page that was asked for with a token: the person is known by a cookie from now on, and the address
        that the browser shows and keeps has no token."""
        check_opened_by_person(headers)
        token = next(value for name, value in query if name == "token")
        login_id = begin_login(self.parts.kernel, self.guard.logins, token, client, cookie.value(headers))
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        location = link_to_itself(path) + (f"?{rest}" if rest else "")
        answer = {"location": location, "set-cookie": cookie.set_line(login_id, int(SERVER_LOGIN_S))}
        return RawAnswer(b"", "text/plain", 303, answer)

    def _find_mounted(self, method: str, path: str, query: bytes) -> tuple[Endpoint, dict[str, str]]:
        """Return the endpoint of a path that is not in the table: one of a node."""
        mounted = get_mounted_nodes(self.parts.kernel)
        if mounted is not None and mounted.has_path(path):
            target = f"{path}?{query.decode('latin-1')}" if query else path
            return NODE_ROUTE, {"method": method, "target": target}
        self._vendor_paths.check(None, method, path)
        raise HttpRefusal(404, "there is no such path", hint="see /openapi.json")


def answer_of_problem(
    error: Exception,
    request: PageRequest,
    method: str,
    match: RouteMatch | None,
    problem_page: ProblemPage | None,
    kernel: Kernel | None = None,
) -> RawAnswer:
    """Return the answer to a request that failed, in the shape that its client reads."""
    problem = problem_of(error, kernel)
    if isinstance(error, VendorPathMissed):
        request, match = request._replace(path=error.meant_path), None
    if problem_page is not None and wants_page(match, method, request.path, request.headers):
        return problem_page(problem, request)
    body = _encode(error_body(problem, vendor_of(request.path, request.headers)))
    return RawAnswer(body, "application/json", problem.status, problem.headers)


def may_finish(endpoint: Endpoint) -> bool:
    return endpoint.method in ("GET", "DELETE") or endpoint.name in _FINISHING


def _answer_of(endpoint: Endpoint, value: Any) -> RawAnswer | Streamed:
    if isinstance(value, (RawAnswer, Streamed)):
        return value
    return RawAnswer(_encode(value), endpoint.media, endpoint.status)


async def _while_connected(receive: Receive, work: Awaitable[Any]) -> Any:
    """Return what the work gives; it is cancelled when the client leaves, which is ClientLeft."""
    outcome: list[Any] = []
    errors: list[Exception] = []

    async def run() -> None:
        try:
            outcome.append(await work)
        except Exception as error:  # noqa: BLE001 (raised below, where the caller waits)
            errors.append(error)

    async with asyncio.TaskGroup() as group:
        tasks = (group.create_task(run()), group.create_task(client_left(receive)))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    if errors:
        raise errors[0]
    if not outcome:
        raise ClientLeft
    return outcome[0]


async def send_answer(send: Send, answer: RawAnswer) -> None:
    """Write an answer that is made already."""
    headers = {
        b"content-type": answer.media.encode(),
        b"content-length": str(len(answer.body)).encode(),
        **_DEFAULT_HEADERS,
        **dict(_lines(answer.headers)),  # a page and a cached file have other ones
    }
    await send({"type": "http.response.start", "status": answer.status, "headers": list(headers.items())})
    await send({"type": "http.response.body", "body": answer.body})


def _lines(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def make_app(
    kernel: Kernel,
    *,
    tokens: TokenTable | Mapping[str, str] | None = None,
    authenticate: Authenticator | None = None,
    hosts: Collection[str] = _APP_HOSTS,
    message_bytes_max: int = SERVER_MESSAGE_BYTES_MAX,
    requests_per_minute: int | None = None,
    webhook_key: bytes | None = None,
    inside: Collection[str] = (),
    endpoints: tuple[Endpoint, ...] = ENDPOINTS,
    problem_page: ProblemPage | None = None,
) -> HttpApp:
    """Return the application for a kernel. `tokens` map each token to its user ("" for any); `authenticate` is a
    function of the headers that gives the user instead. With neither, the tokens are those of `lyra serve`. `hosts` are
    the names under which it is reached; "*" takes any. The secrets of webhooks are derived from `webhook_key`, else
    from a key in the data folder; `inside` names addresses (`host:port`) of this network that webhooks may reach.
    `endpoints` is the table of what can be asked, and `problem_page` shows errors to people; `lyra.server.site` has the
    first."""
    if tokens is None and authenticate is None:
        tokens, _ = TokenTable.load(None)
    known = tokens if tokens is None or isinstance(tokens, TokenTable) else TokenTable(tokens)
    guard = HttpGuard(
        kernel,
        tokens=known,
        authenticate=authenticate,
        hosts=hosts,
        message_bytes_max=message_bytes_max,
        requests_per_minute=requests_per_minute,
    )
    return HttpApp(HttpParts(kernel, endpoints, webhook_key=webhook_key, inside=inside), guard, problem_page)


# What the ASGI scope of a request says: its path, headers, query, client and whether it has a body.

_QUERY_FIELDS_MAX: Final = 100
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def client_of(scope: Any) -> str:
    """Return the address of the client; "" where it is not known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def has_no_body(scope: Any, headers: Mapping[str, str]) -> bool:
    length = headers.get("content-length", "0" if scope["method"] == "GET" else "")
    return length == "0" and "transfer-encoding" not in headers


def headers_of(scope: Any) -> dict[str, str]:
    """Return the headers by their names in lower case; one that may stand once and stands twice is refused by being
    joined."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1")
        text = value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def read_path(scope: Any) -> str:
    """Return the path below the place where the application is mounted, as it was sent: with its escapes."""
    root = scope.get("root_path", "")
    raw = scope.get("raw_path")
    path: str = scope["path"] if raw is None else raw.partition(b"?")[0].decode("latin-1")
    return path[len(root) :] if root and path.startswith(root) else path


_SHARD_ROOT: Final = re.compile(r"(?P<root>.*)/shards/(?P<shard>[a-z0-9.-]+)\Z")


def split_root(scope: Any) -> tuple[str, str]:
    """Return where a cluster is mounted, and the shard that the address names below it (`/shards/SHARD/…`), or ""."""
    root: str = scope.get("root_path", "")
    match = _SHARD_ROOT.match(root)
    return (root, "") if match is None else (match["root"], match["shard"])


def base_url(scope: Any, headers: Mapping[str, str]) -> str:
    """Return the address under which the client reaches the application, also behind a proxy that does TLS."""
    forwarded = headers.get("x-forwarded-proto", "") == "https"
    scheme = "https" if forwarded else scope.get("scheme", "http")
    return f"{scheme}://{headers.get('host', '')}{scope.get('root_path', '')}"


def query_of(text: bytes) -> list[tuple[str, str]]:
    if not text:
        return []
    if _BAD_ESCAPE.search(text):
        raise ConfigError("the query has a % that escapes nothing")
    try:
        return parse_qsl(
            text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
        )
    except ValueError:
        raise ConfigError("the query cannot be read") from None


# The paths of vendors' APIs, all below `/v1/`: what a client is told whose base URL does not lead to them.

_ROOT: Final = "/v1"


class VendorPathMissed(HttpRefusal):
    """A request beside the paths of vendors' APIs; `meant_path` is the one that its client means."""

    def __init__(self, message: str, meant_path: str, hint: str = "") -> None:
        super().__init__(404, message, hint=hint)
        self.meant_path = meant_path


class VendorPaths:
    """The paths of one server."""

    __slots__ = ("_names", "_table")

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        known = [endpoint for endpoint in endpoints if endpoint.path.startswith(f"{_ROOT}/")]
        self._table = PathTable(known)
        self._names = tuple(dict.fromkeys(endpoint.path for endpoint in known))

    def check(self, match: RouteMatch | None, method: str, path: str) -> None:
        """Refuse a request that no endpoint takes, and that is meant for a vendor's API."""
        if match is not None and method in match.methods:
            return
        if path.startswith(f"{_ROOT}/"):
            if match is None:
                raise self._unknown(path)
        elif self._takes(method, f"{_ROOT}{path}"):
            raise VendorPathMissed(f"the base URL of the client lacks {_ROOT} at its end", f"{_ROOT}{path}")

    def _unknown(self, path: str) -> VendorPathMissed:
        hint = f"there are {', '.join(self._names)}"
        shorter = path.removeprefix(_ROOT)
        if self._table.match(shorter) is not None:
            return VendorPathMissed(f"the base URL of the client has {_ROOT} at its end, once too often", shorter, hint)
        return VendorPathMissed("there is no such path", path, hint)

    def _takes(self, method: str, path: str) -> bool:
        match = self._table.match(path)
        return match is not None and method in match.methods

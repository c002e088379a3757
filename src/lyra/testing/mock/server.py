"""The mock server: routes to wire formats, a script behind them, its life, and as much of HTTP/1.1 as a mock needs.

Every model name is answered, by the script's replies (which may look at it) or, without a script, with the last user
text. An error of the script becomes what the real server does: a status with its own body and `retry-after`, an error
event in the middle of a stream (with the pause it asks for in its sentence), a stream that ends too early
(`stream_truncated`), a line that breaks (`connection`), a piece that cannot be read (`malformed`), a web page
(`bad_response`; once an answer has begun it can only end too early, and so does a line that breaks). No key is asked
for and none is kept.

A handler gets an `HttpRequest` and an `Exchange` on which it answers once: `send_whole` for a body at once, `begin`,
`piece` and `end` for a stream, `abort` to break the connection. Heads, bodies and silence have limits; a request that
is not HTTP gets a 400 and a closed connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec

from lyra.core.providers import USUAL
from lyra.errors import ConfigError, LyraError, ModelError
from lyra.models.provider import Request
from lyra.models.sim import BYTES_PER_TOKEN, SimProvider
from lyra.models.stream import complete
from lyra.models.tokens import Measure
from lyra.models.wire.faults import UNREADABLE
from lyra.testing.mock.wires import AnthropicWire, ChatWire, MockTurn, OllamaWire, ResponsesWire, Wire, tags

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_REQUESTS_KEPT: Final = 1_000
_JSON: Final = {"content-type": "application/json"}
_PAGE: Final = b"<!doctype html><title>mock</title><p>This is a web page, not an answer.\n"
_WIRES: Final[dict[str, Wire]] = {
    "/v1/messages": AnthropicWire(),
    "/v1/chat/completions": ChatWire(),
    "/v1/responses": ResponsesWire(),
    "/api/chat": OllamaWire(),
}
_UNSTREAMABLE: Final = ("connection", "stream_truncated", "malformed", "bad_response")  # no status says these


class MockServer:
    """`script` as SimProvider takes it. `port` 0 is any that is free; `seen` is told of every request answered.

    Other machines can reach it only where `public` says so.
    """

    def __init__(
        self,
        script: Any = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        public: bool = False,
        seen: Callable[[HttpRequest, int], None] | None = None,
    ) -> None:
        if host not in LOOPBACK and not public:
            raise ConfigError(
                f"on {host} other machines could reach the mock server",
                hint="say so with --public (public=True), or stay on 127.0.0.1",
                key="host",
            )
        self._provider = SimProvider(script, every_model=True)
        self._provider.price("")  # reads the script: a mistake in it is told now, not at the first request
        self._measure = Measure()
        self._host = host
        self._port = port
        self._seen = seen
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[Any]] = set()
        self.requests: deque[Request] = deque(maxlen=_REQUESTS_KEPT)  # those that were understood, the last of them
        self._count = 0

    @property
    def url(self) -> str:
        assert self._server is not None, "the server is running inside `async with`"
        host, port, *_ = self._server.sockets[0].getsockname()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def env(self) -> dict[str, str]:
        """Variables that make the usual clients come here."""
        variables = {}
        for usual in USUAL.values():
            if usual.mock is not None:
                variables[usual.url[0]] = f"{self.url}{usual.mock}"
                if usual.key:
                    variables[usual.key[0]] = "mock"
        return variables

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._on_connect, self._host, self._port)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {self._host} port {self._port}: {error.strerror or error}",
                hint="--port 0 takes any port that is free",
                key="port",
            ) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def _on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await serve(reader, writer, self._answer)
        except asyncio.CancelledError:
            writer.transport.abort()  # the server stops
        finally:
            self._open.discard(task)

    async def _answer(self, asked: HttpRequest, exchange: Exchange) -> None:
        try:
            wire = _WIRES.get(asked.path)
            if wire is not None and asked.method == "POST":
                await self._call(wire, asked, exchange)
            elif asked.method == "GET" and asked.path in _PAGES:
                await exchange.send_whole(200, msgspec.json.encode(_PAGES[asked.path]), _JSON)
            elif wire is not None or asked.path in _PAGES:
                await exchange.send_whole(405, _document(f"{asked.path} does not take {asked.method}"), _JSON)
            else:
                known = ", ".join((*_WIRES, *_PAGES))
                await exchange.send_whole(404, _document(f"there is no {asked.path} here, but {known}"), _JSON)
        finally:
            if self._seen is not None:
                self._seen(asked, exchange.status)

    async def _call(self, wire: Wire, asked: HttpRequest, exchange: Exchange) -> None:
        try:
            question = wire.read(msgspec.json.decode(asked.body))
        except (*UNREADABLE, LyraError) as error:
            await _refuse(wire, exchange, "bad_request", str(error))
            return
        request = question.request
        self.requests.append(request)
        read = -(-self._measure.size(request).bytes // BYTES_PER_TOKEN)
        self._count += 1
        turn = MockTurn(question, self._count, read)
        try:
            if question.stream:
                await self._stream(wire, turn, exchange)
            else:
                answer = await complete(self._provider.stream(request))
                await exchange.send_whole(200, msgspec.json.encode(wire.writer(turn).render_document(answer)), _JSON)
        except ModelError as error:
            if error.kind == "connection":
                exchange.abort()
            elif error.kind == "bad_response":
                await exchange.send_whole(200, _PAGE, {"content-type": "text/html; charset=utf-8"})
            elif error.kind in ("stream_truncated", "malformed"):  # of a document: half of it
                await exchange.send_whole(200, b'{"id": "mock", ', _JSON)
            else:
                wait_s = error.fields.get("retry_after_s")
                headers = (
                    {} if wait_s is None else {"retry-after": f"{wait_s:g}", "retry-after-ms": f"{wait_s * 1000:g}"}
                )
                await _refuse(wire, exchange, error.kind, error.message, headers)

    async def _stream(self, wire: Wire, turn: MockTurn, exchange: Exchange) -> None:
        writer = wire.writer(turn)
        headers = {"content-type": wire.stream_type, "cache-control": "no-cache"}
        try:
            async for event in self._provider.stream(turn.request):
                if not exchange.status:
                    await exchange.begin(200, headers)
                await exchange.piece(writer.event(event))
        except ModelError as error:
            if not exchange.status and error.kind in ("stream_truncated", "malformed"):
                await exchange.begin(200, headers)
            if not exchange.status:
                raise
            if error.kind == "connection":
                exchange.abort()
                return
            if error.kind == "malformed":
                await exchange.piece(wire.render_broken())
            elif error.kind not in _UNSTREAMABLE:
                await exchange.piece(wire.stream_error(writer, error))
        await exchange.end()


async def _refuse(
    wire: Wire, exchange: Exchange, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> None:
    body = msgspec.json.encode(wire.error(kind, message))
    await exchange.send_whole(wire.status(kind), body, {**_JSON, **(headers or {})})


def _document(message: str) -> bytes:
    return msgspec.json.encode({"error": {"type": "not_found_error", "message": message}})


_PAGES: Final[dict[str, Any]] = {
    "/healthz": {"status": "ok"},
    "/api/tags": tags(["mock:latest"]),
    "/api/version": {"version": "0.0.0-mock"},
}


# ---------------------------------------------------------------- http

BODY_BYTES_MAX: Final = 64 << 20
SILENCE_S: Final = 120.0  # between two requests of a connection, and for the rest of one that began


class HttpRequest(NamedTuple):
    """A request; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class _Wrong(Exception):
    """What came is no request: a status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Exchange:
    """One answer on its way. `status` is what was sent, 0 before that and -1 where the line was broken."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.status = 0
        self.open = True  # whether the connection may be used again

    async def send_whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._head(status, {**headers, "content-length": str(len(body))})
        self._writer.write(body)
        await self._writer.drain()

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self._head(status, {**headers, "transfer-encoding": "chunked"})
        await self._writer.drain()

    async def piece(self, data: bytes) -> None:
        if data:
            self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await self._writer.drain()

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def abort(self) -> None:
        """Break the line in the middle of whatever was being said."""
        self.open = False
        self.status = self.status or -1
        self._writer.transport.abort()

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        assert not self.status, "a request is answered once"
        self.status = status
        lines = [f"HTTP/1.1 {status} {_phrase(status)}", *(f"{name}: {value}" for name, value in headers.items())]
        if not self.open:
            lines.append("connection: close")
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))


Handler = Callable[[HttpRequest, Exchange], Awaitable[None]]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    """Answer the requests of one connection until either side closes it."""
    try:
        while True:
            exchange = Exchange(writer)
            try:
                async with asyncio.timeout(SILENCE_S):
                    asked = await _read(reader, writer)
            except _Wrong as wrong:
                exchange.open = False
                await exchange.send_whole(wrong.status, str(wrong).encode(), {"content-type": "text/plain"})
                return
            if asked is None:
                return
            exchange.open = asked.headers.get("connection", "").lower() != "close"
            await handler(asked, exchange)
            if not exchange.open:
                return
    except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
        return  # the other side left
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None  # the client closed the connection, between two requests or inside one
    except asyncio.LimitOverrunError:
        raise _Wrong(431, "the head of the request is too large") from None
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise _Wrong(400, "this is a server of HTTP/1.1")
    method, path, version = parts[0], parts[1].partition("?")[0], parts[2]
    headers: dict[str, str] = {}
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise _Wrong(400, "a header is not a name, a colon and a value")
        headers[name.lower()] = value.strip()
    if version == "HTTP/1.0":
        headers["connection"] = "close"
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return HttpRequest(method, path, headers, await _body(reader, headers))


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader)
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise _Wrong(400, "content-length is a number")
    if len(length) > 12 or int(length) > BODY_BYTES_MAX:
        raise _Wrong(413, "the body is too large")
    return await reader.readexactly(int(length))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        try:  # a line that is too long is a ValueError too
            size = int((await reader.readline()).partition(b";")[0].strip() or b"x", 16)
        except ValueError:
            raise _Wrong(400, "a chunk begins with its size") from None
        if size < 0 or len(body) + size > BODY_BYTES_MAX:
            raise _Wrong(413, "the body is too large")
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise _Wrong(400, "a chunk ends with a line")
        if not size:
            return bytes(body)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Overloaded" if status == 529 else "Unknown"

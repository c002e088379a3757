"""The two transports: `stdio` speaks to a program in the sandbox line by line, `web` to a URL over streamable HTTP.

`stdio` yields the two streams that the SDK's client reads and writes. A few lines that are not messages are skipped; a
line that is too long, or the end of the program, ends the connection, and every waiting call fails at once. A program
with too many open callbacks, or one that does not read its input, is killed. When the connection is closed the
program's stdin is closed first, then everything it started is killed.

With `web`, headers, tokens and logins go to the origin of the URL and nowhere else; the SDK follows no redirect away
from it. A token over plain HTTP goes to this machine only. If a login needs another origin (the authorization server),
it is reached over https and has to have a public address. Answers are shortened while they
arrive (`Trim`), so that parsing them does not block the event loop.

Each request of a server is a task of the SDK, so both limit them (`CallbackLimits`): a server with too many requests
that wait for an answer, or too many answers that wait to be read, is disconnected.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self

import anyio
import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from lyra.core.limits import VALUE_DEPTH_MAX
from lyra.core.providers import is_loopback_url
from lyra.core.rights.capability import Capability, Grant
from lyra.errors import ConfigError
from lyra.mcp.settings import ServerSettings
from lyra.mcp.state import AuthRequired, Failure, ServerFailed
from lyra.sandbox import Limits, Pipes, Profile, Sandbox
from lyra.sandbox.addresses import resolve
from lyra.sandbox.developer_tools import find_developer_tools
from lyra.sandbox.proxy import system_lookup

ANSWER_BYTES_MAX: Final = 32 << 20
VALUES_MAX: Final = 100_000  # of one message
CONTAINERS_MAX: Final = 25_000  # lists and mappings of one message, each of which takes the SDK as long as many numbers
_SLICE_BYTES: Final = 16_384  # processed without yielding to the loop
_TEXT_BYTES_MAX: Final = 256 << 10  # of one text
_TEXTS_BYTES_MAX: Final = 1 << 20  # of all texts of one message; further texts are kept only if short
_SHORT_BYTES_MAX: Final = 64
_BINARY_BYTES_MAX: Final = 3 << 20  # of all base64 data of one message
_PARTS_MAX: Final = 1_000  # of one result or page
_LISTS: Final = ("content", "contents", "messages", "tools", "resources", "resourceTemplates", "prompts")
_BINARY: Final = (b"data", b"blob")
_CUT: Final = b"\\n\xe2\x80\xa6 the rest was left out"
_INSIDE: Final = re.compile(rb'[^"\\\n]*(?:\\[^\n][^"\\\n]*)*')
# Whole characters and escapes: a text is never cut inside one, nor between two surrogates.
_WHOLE: Final = re.compile(
    rb"(?:[\x00-\x5b\x5d-\x7f]+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
    rb"|\\[^u]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})*"
)
_END_OF_EVENT: Final = re.compile(rb"\n\r?\n")
_BRACKETS: Final = re.compile(rb"[\[{]+|[\]}]+")


class AnswerTooLarge(ValueError):
    """A message exceeds a limit; the text names the limit."""


class Trim:
    """Trims one body, piece by piece. With `events` it is a stream of server-sent events, each of them a message;
    without `cuts` its values are counted, and no text is cut."""

    def __init__(self, *, events: bool = False, cuts: bool = True) -> None:
        self._events = events
        self._cuts = cuts
        self._inside = False
        self._text: list[bytes] = []  # pieces of the current string, until it ends or is cut
        self._length = 0
        self._is_cut = False
        self._last = b""  # the string before, if it is short
        self._between = b""
        self._left = b""  # an incomplete escape
        self._begin()

    def _begin(self) -> None:
        self._bytes = self._commas = self._containers = self._depth = self._texts = self._binaries = 0

    def feed(self, piece: bytes) -> bytes:
        self._bytes += len(piece)
        if self._bytes > ANSWER_BYTES_MAX:
            raise AnswerTooLarge(f"an answer of more than {ANSWER_BYTES_MAX >> 20} MiB")
        piece, self._left = self._left + piece, b""
        out: list[bytes] = []
        position = 0
        while position < len(piece):
            position = self._string(piece, position, out) if self._inside else self._outside(piece, position, out)
        return b"".join(out)

    def close(self) -> bytes:
        """Return the rest of a body that ends in the middle of a text."""
        return b"".join(self._text) + self._left

    def _outside(self, piece: bytes, start: int, out: list[bytes]) -> int:
        quote = piece.find(b'"', start)
        end = len(piece) if quote < 0 else quote + 1
        part = piece[start:end]
        out.append(part)
        self._between = (self._between + part)[-4:]
        if self._events and _END_OF_EVENT.search(self._between if len(part) < 4 else part):
            self._begin()
        self._count_values(part)
        if quote >= 0:
            self._is_binary = self._last in _BINARY and self._between[:-1].strip() == b":"
            self._inside, self._is_cut, self._text, self._length = True, False, [], 0
        return end

    def _count_values(self, part: bytes) -> None:
        self._commas += part.count(b",")
        if self._commas > VALUES_MAX:
            raise AnswerTooLarge(f"an answer of more than {VALUES_MAX} values")
        for run in _BRACKETS.finditer(part):
            length = run.end() - run.start()
            if part[run.start()] in b"]}":
                self._depth -= length
                continue
            self._depth += length
            self._containers += length
            if self._depth > VALUE_DEPTH_MAX:
                raise AnswerTooLarge(f"an answer nested more than {VALUE_DEPTH_MAX} levels deep")
            if self._containers > CONTAINERS_MAX:
                raise AnswerTooLarge(f"an answer of more than {CONTAINERS_MAX} lists and mappings")

    def _string(self, piece: bytes, start: int, out: list[bytes]) -> int:
        match = _INSIDE.match(piece, start)
        end = match.end() if match else start
        self._keep(piece[start:end], out)
        if end == len(piece):
            return end
        if piece[end : end + 1] == b"\\":
            if end + 1 == len(piece):
                self._left = piece[end:]
                return end + 1
            end += 1  # a backslash before a newline: invalid JSON, passed on
        text = b"".join(self._text)
        out.append(text)
        self._count(len(text))
        self._last = text if len(text) <= _SHORT_BYTES_MAX else b""
        self._inside, self._text = False, []
        out.append(piece[end : end + 1])
        self._between = b""
        return end + 1

    def _keep(self, part: bytes, out: list[bytes]) -> None:
        if self._is_cut or not part:
            return
        self._text.append(part)
        self._length += len(part)
        most = self._most()
        if self._length > most:
            whole = _WHOLE.match(b"".join(self._text)[:most])
            head = whole[0] if whole else b""
            out += [head, _CUT]
            self._count(len(head))
            self._is_cut, self._text = True, []

    def _most(self) -> int:
        if not self._cuts:
            return sys.maxsize
        if self._is_binary:
            return max(_BINARY_BYTES_MAX - self._binaries, _SHORT_BYTES_MAX)
        return _TEXT_BYTES_MAX if self._texts < _TEXTS_BYTES_MAX else _SHORT_BYTES_MAX

    def _count(self, size: int) -> None:
        if self._is_binary:
            self._binaries += size
        else:
            self._texts += size


async def slices(data: bytes) -> AsyncIterator[bytes]:
    """Yield the data in slices, between which other tasks can run."""
    for start in range(0, len(data), _SLICE_BYTES):
        yield data[start : start + _SLICE_BYTES]
        await asyncio.sleep(0)


async def check_values(message: bytes) -> None:
    """Raise AnswerTooLarge if the message holds more values than can be read without blocking the loop."""
    if len(message) <= _SLICE_BYTES:
        return  # even if every character of it begins a value
    trim = Trim(cuts=False)
    async for part in slices(message):
        trim.feed(part)


def shorten(result: dict[str, Any]) -> None:
    """Cut the lists of a result: the SDK makes an object of every part, and 300 000 would block the loop for 10 s."""
    for name in _LISTS:
        parts = result.get(name)
        if isinstance(parts, list) and len(parts) > _PARTS_MAX:
            result[name] = parts[:_PARTS_MAX]
            if name == "content":
                note = f"… {len(parts) - _PARTS_MAX} parts left out"
                result[name].append({"type": "text", "text": note})


# ---------------------------------------------------------------- callback limits
_OPEN_MAX: Final = 100


class CallbackLimits:
    """Counts the open requests of a server. `unread()` is the number of messages that wait to be sent to it."""

    def __init__(self, unread: Callable[[], int]) -> None:
        self._open: set[str] = set()
        self._unread = unread

    def on_message(self, message: Any) -> ServerFailed | None:
        """Note a message of the server; returns the failure if it is one request too many."""
        if isinstance(message, JSONRPCNotification):
            if message.method == "notifications/cancelled":
                self._open.discard(str((message.params or {}).get("requestId")))
        elif isinstance(message, JSONRPCRequest):
            again = str(message.id) in self._open
            self._open.add(str(message.id))
            if again or len(self._open) > _OPEN_MAX or self._unread() > _OPEN_MAX:
                message_text = "it asks back without end and does not wait for answers"
                return ServerFailed(Failure("protocol", "too_many_requests", message_text))
        return None

    def on_answer(self, message: Any) -> None:
        if isinstance(message, (JSONRPCResponse, JSONRPCError)):
            self._open.discard(str(message.id))


class _Stream:
    """A stream of the SDK; attributes that are not overridden are passed on."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)


class Receiving(_Stream):
    """Messages from a server. One request too many ends the stream, and `ended` is called."""

    def __init__(self, inner: Any, limits: CallbackLimits, ended: Callable[[ServerFailed], None]) -> None:
        super().__init__(inner)
        self._limits = limits
        self._ended = ended

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await self._inner.__anext__()
        message = getattr(item, "message", None)
        why = self._limits.on_message(message)
        if why is not None:
            self._ended(why)
            raise StopAsyncIteration
        if isinstance(message, JSONRPCResponse):
            shorten(message.result)
        return item


class Sending(_Stream):
    """Messages to a server."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.waiting = 0
        self.limits = CallbackLimits(lambda: self.waiting)

    async def send(self, item: Any) -> None:
        self.waiting += 1
        try:
            await self._inner.send(item)
        finally:
            self.waiting -= 1
            self.limits.on_answer(item.message)


LINE_BYTES_MAX: Final = 32 << 20  # one message; an image of 20 MiB is one
_SENDING_S: Final = 5.0  # for a program to read one message
_GARBAGE_LINES_MAX: Final = 100  # lines of a program that are not messages
_GRACE_S: Final = 1.0  # for a program to end by itself
_LAST_WORDS_S: Final = 0.2  # as _GRACE_S, after it has closed its stdout
_ID_WITHIN_BYTES: Final = 1_000
_ID: Final = re.compile(rb'"id"\s*:\s*(?:(\d{1,18})\b|"([!#-\[\]-~]{1,200})")')
_LIFE_S: Final = 365 * 24 * 3600.0  # a server has no time limit
_CPU_S: Final = 24 * 3600
_NOT_FOUND: Final = (126, 127)
_MISSING: Final = re.compile(r"exec: (\S+): not found")

Ended = Callable[[ServerFailed], None]


def profile_of(settings: ServerSettings, workspace: str, denied: Sequence[Capability] = ()) -> Profile:
    """Return what the program may touch: the project and the developer's tools read-only, what the settings open, and
    no network unless they name it.

    Paths that rules deny (`denied`) are closed to it as to any command.
    """
    hosts = [f"net.http:{host}" for host in settings.network]
    inside = [path for path in settings.writable if path == workspace]
    return Profile(
        workspace,
        writable=bool(inside),
        readable=(*settings.readable, *find_developer_tools()),
        writable_also=tuple(path for path in settings.writable if path != workspace),
        env={name: value.reveal() for name, value in settings.env.items()},
        egress=Grant(allow=hosts) if hosts else None,
        limits=Limits(wall_s=_LIFE_S, cpu_s=_CPU_S),
        start=settings.start_folder(workspace) if settings.cwd else "",
        grant=Grant(["*"], denied) if denied else None,
    )


@asynccontextmanager
async def stdio(
    settings: ServerSettings, *, sandbox: Sandbox, workspace: str, ended: Ended, denied: Sequence[Capability] = ()
) -> AsyncIterator[Any]:
    """Provide the streams of a running program; `ended` is called with the reason when it ends."""
    profile = profile_of(settings, workspace, denied)
    pipes = await sandbox.pipes(settings.argv, profile, line_bytes_max=LINE_BYTES_MAX)
    inward, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, outward = anyio.create_memory_object_stream[SessionMessage](0)
    ours = asyncio.Event()  # Lyra closes the connection

    def report_failure(why: ServerFailed) -> None:
        if not ours.is_set():
            ended(why)

    limits = CallbackLimits(lambda: outward.statistics().tasks_waiting_send)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_reading, pipes, inward, report_failure, limits)
            group.start_soon(_writing, pipes, outward, report_failure, limits)
            try:
                yield received, sent
            finally:
                ours.set()
                with anyio.CancelScope(shield=True):
                    received.close()
                    sent.close()
                    await pipes.close(_GRACE_S)
                group.cancel_scope.cancel()
    finally:
        pipes.kill()
        for stream in (inward, received, sent, outward):
            stream.close()


async def _reading(pipes: Pipes, inward: Any, ended: Ended, limits: CallbackLimits) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # Lyra has closed the connection
        async with inward:
            why = await _read(pipes, inward, limits)
            if why is not None:
                pipes.kill()
            ended(why or await _death(pipes))  # before waiting calls fail, so that they get the reason


async def _read(pipes: Pipes, inward: Any, limits: CallbackLimits) -> ServerFailed | None:
    """Read messages until stdout ends; returns the failure if a message breaks a limit."""
    garbage = 0
    while True:
        try:
            line = await pipes.reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError:
            message = f"it sent a message of more than {LINE_BYTES_MAX >> 20} MiB"
            return ServerFailed(Failure("protocol", "too_large", message, recoverable=True))
        if not line.strip():
            continue
        try:
            message_in = await _message(line)
        except ValueError:
            garbage += 1
            if garbage > _GARBAGE_LINES_MAX:
                return ServerFailed(Failure("protocol", "garbage", "it prints what is no MCP message on its stdout"))
            # The error for the call of an answer that cannot be read, for example with half a surrogate pair.
            head = line[:_ID_WITHIN_BYTES]
            number = _id_of(line) if b'"jsonrpc"' in head and b'"method"' not in head else None
            message_in = _error(number, "its answer cannot be read") if number is not None else None
            if message_in is None:
                continue
        why = limits.on_message(message_in)
        if why is not None:
            return why
        if isinstance(message_in, JSONRPCResponse):
            shorten(message_in.result)
        await inward.send(SessionMessage(message_in))


async def _message(line: bytes) -> Any:
    """One message; an answer that would take the loop seconds to read becomes an error of its call."""
    try:
        await check_values(line)
    except AnswerTooLarge as error:
        number = _id_of(line)
        if number is None:
            raise
        return _error(number, f"it sent {error}")
    return jsonrpc_message_adapter.validate_json(line, by_name=False)


def _id_of(line: bytes) -> int | str | None:
    """Return the id of an answer that is not parsed: it stands before the result, or at the end of the line."""
    for part in (line[:_ID_WITHIN_BYTES], line[-_ID_WITHIN_BYTES:]):
        match = _ID.search(part)
        if match is not None:
            return int(match[1]) if match[1] else match[2].decode()
    return None


def _error(number: int | str, text: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=INTERNAL_ERROR, message=text))


async def _death(pipes: Pipes) -> ServerFailed:
    """Return the failure after stdout has ended: the program has ended, or will be killed."""
    result = await pipes.close(_LAST_WORDS_S)
    lines = result.output.text.strip().splitlines()
    last = f": {lines[-1][:200]}" if lines else ""
    if result.exit_code in _NOT_FOUND:
        missing = _MISSING.search(last)
        message = f"the command cannot be run inside the sandbox{last}; name its folder in `readable`"
        if missing is not None and shutil.which(missing[1]) is None:
            message = f"there is no program {missing[1]}: install it, or give its whole path"
        return ServerFailed(Failure("exec", str(result.exit_code), message))
    limits = f" ({', '.join(result.limits_hit)})" if result.limits_hit else ""
    return ServerFailed(
        Failure("crash", str(result.exit_code), f"it ended with {result.exit_code}{limits}{last}", True)
    )


async def _writing(pipes: Pipes, outward: Any, ended: Ended, limits: CallbackLimits) -> None:
    try:
        async with outward:
            async for message in outward:
                limits.on_answer(message.message)
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                pipes.writer.write(text.encode() + b"\n")
                async with asyncio.timeout(_SENDING_S):
                    await pipes.writer.drain()
    except TimeoutError:
        ended(ServerFailed(Failure("protocol", "not_reading", "it does not read what is sent to it", recoverable=True)))
        pipes.kill()  # its stdout ends with it, and so waiting calls fail
    except OSError:
        with suppress(TimeoutError):
            await asyncio.wait_for(pipes.wait(), _LAST_WORDS_S)
            return  # it has ended; the reader of its stdout reports that
        ended(ServerFailed(Failure("protocol", "closed", "it has closed its stdin", recoverable=True)))
        pipes.kill()


# ---------------------------------------------------------------- web
_CONNECT_S: Final = 10.0
_LEAVING_S: Final = 1.0
_READ_S: Final = 300.0  # a server may hold a stream open; a call has its own limit


@asynccontextmanager
async def web(
    settings: ServerSettings,
    *,
    login: httpx2.Auth | None,
    answered: Callable[[int], None],
    ended: Callable[[ServerFailed], None],
) -> AsyncIterator[Any]:
    """Provide the streams of a connection; `answered` gets the status of every answer, `ended` the reason of the
    end."""
    url = settings.address
    parts = httpx2.URL(url)
    if parts.scheme not in ("http", "https") or not parts.host or parts.userinfo:
        raise ConfigError(f"the url of MCP server {settings.name} is not an address", hint="such as https://HOST/mcp")
    secret = settings.headers or settings.auth_kind != "none"
    if parts.scheme == "http" and secret and not is_loopback_url(url):
        raise ConfigError(
            f"MCP server {settings.name} would be sent its key unencrypted", hint="use https", place=settings.place
        )
    client = httpx2.AsyncClient(
        headers={"accept-encoding": "identity"} | _headers(settings),
        timeout=httpx2.Timeout(_CONNECT_S, read=_READ_S),
        auth=login,
        transport=_Guarded(url, answered),
        trust_env=False,
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=ANSWER_BYTES_MAX) as streams:
        sending = Sending(streams[1])
        yield Receiving(streams[0], sending.limits, ended), sending


def _headers(settings: ServerSettings) -> dict[str, str]:
    headers = {name: value.reveal() for name, value in settings.headers.items()}
    if settings.auth_kind == "bearer":
        variable = str(settings.auth["token_env"])
        token = os.environ.get(variable, "")
        if not token:
            raise AuthRequired(f"the token is not there: export {variable}=…")
        headers["authorization"] = f"Bearer {token}"
    return headers


class _Guarded(httpx2.AsyncHTTPTransport):
    """Passes on requests to the server's own origin; requests to others only as far as a login needs them."""

    def __init__(self, url: str, answered: Callable[[int], None]) -> None:
        super().__init__()
        self._home = httpx2.URL(url)
        self._here = is_loopback_url(url)
        self._tell = answered

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        at_home = _origin(request.url) == _origin(self._home)
        if not at_home:
            await self._check_other(request)
        if request.method == "DELETE":  # the end of the session: its answer is not needed
            response = await asyncio.wait_for(super().handle_async_request(request), _LEAVING_S)
        else:
            response = await super().handle_async_request(request)
        if at_home:
            self._tell(response.status_code)
        is_events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if "content-encoding" in response.headers:  # compressed bytes could not be trimmed
            await response.aclose()
            raise httpx2.RequestError("the answer is packed, which was not asked for", request=request)
        response.headers.pop("content-length", None)
        response.stream = _Trimmed(response.stream, events=is_events, asked=request.content)
        return response

    async def _check_other(self, request: httpx2.Request) -> None:
        for name in ("authorization", "cookie"):
            if name in request.headers and not request.headers[name].startswith("Basic "):
                raise httpx2.RequestError(f"a key of the server does not go to {request.url.host}", request=request)
        if self._here and is_loopback_url(str(request.url)):
            return  # a local server may have a local authorization server
        if request.url.scheme != "https":
            raise httpx2.RequestError(f"a login over plain HTTP at {request.url.host}", request=request)
        await resolve(request.url.host, request.url.port or 443, lookup=system_lookup)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


class _Trimmed(httpx2.AsyncByteStream):
    """An answer cut to the limits. One that is too large becomes an error of the request `asked`; a stream of events
    ends."""

    def __init__(self, stream: Any, *, events: bool, asked: bytes) -> None:
        self._stream = stream
        self._events = events
        self._asked = asked

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held: list[bytes] = []
        try:
            async for kept in self._trim():
                if self._events:
                    yield kept
                else:
                    held.append(kept)
        except AnswerTooLarge as error:
            if self._events:
                raise httpx2.ReadError(str(error)) from None
            held = [_refusal(self._asked, str(error))]
        yield b"".join(held)

    async def _trim(self) -> AsyncIterator[bytes]:
        """Trim slice by slice, so that other tasks can run in between."""
        trim = Trim(events=self._events)
        async for piece in self._stream:
            async for part in slices(piece):
                yield trim.feed(part)
        yield trim.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _RequestId(msgspec.Struct):
    id: int | str | None = None


def _refusal(asked: bytes, why: str) -> bytes:
    try:
        number = msgspec.json.decode(asked, type=_RequestId).id
    except msgspec.DecodeError:
        number = None
    error = {"code": INTERNAL_ERROR, "message": why}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "error": error})

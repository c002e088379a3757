"""HTTP to a provider: one pooled client, time-outs, a limit on the size of answers, errors as ModelErrors.

    async with http.post(url, body, headers) as chunks:
        async for chunk in chunks: ...

Four time-outs: `connect_s` to reach the server, `first_s` from the start until the first byte of the answer's body,
`idle_s` between two pieces, `total_s` for all of it. Of an answer that is not 2xx the beginning is read and passed to
the provider's own reader of errors. Redirects are not followed, and what travels unencrypted or stays on this machine
never goes through a proxy of the environment: a key goes only to the address it was meant for. A pool belongs to the
loop it was opened in and ends with it at the latest. httpx2 is imported at the first call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache, lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from lyra.core.clock import Clock, loop_clock
from lyra.core.first_step import await_rest
from lyra.core.providers import is_loopback
from lyra.core.secrets.known_keys import KnownKeys
from lyra.core.trace_context import outgoing
from lyra.errors import DeadlineExceeded, ModelError
from lyra.models.settings import Timeouts
from lyra.models.wire.faults import UNREADABLE, fault, from_status, not_an_answer, retry_after, too_large, unreachable

if TYPE_CHECKING:
    import ssl

    import httpx2


T = TypeVar("T")


class ProviderWaits:
    """`first` and `next` raise the ModelError `timeout`. A scope is open only while the provider is awaited, never
    while the consumer of the answer works: a time-out that fired then would cancel the consumer."""

    __slots__ = ("_first_at", "_idle_s", "_loop", "_provider", "_timeouts", "_total_at")

    def __init__(self, provider: str, timeouts: Timeouts, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._provider = provider
        self._timeouts = timeouts
        self._loop = loop
        self._idle_s = timeouts.idle_s
        self._first_at = None if timeouts.first_s is None else now + timeouts.first_s
        self._total_at = None if timeouts.total_s is None else now + timeouts.total_s

    def first(self, awaitable: Awaitable[T]) -> Awaitable[T]:
        """Return the head of the answer, and the first piece of its body."""
        return self._until(awaitable, self._first_at, self._timeouts.first_s, "began to answer")

    async def next(self, awaitable: Awaitable[T]) -> T:
        """Return the next piece. One that has come already, in the same packet as the last one, needs no timer."""
        steps = awaitable.__await__()
        try:
            waited_for = next(steps)
        except StopIteration as ended:
            value: T = ended.value
            return value
        idle_s = self._idle_s
        deadline = None if idle_s is None else self._loop.time() + idle_s
        return await self._until(await_rest(steps, waited_for), deadline, idle_s, "sent the next piece of its answer")

    async def _until(self, awaitable: Awaitable[T], deadline: float | None, limit_s: float | None, what: str) -> T:
        total_at = self._total_at
        last = total_at if deadline is None or (total_at is not None and total_at < deadline) else deadline
        try:
            async with asyncio.timeout_at(last) as scope:
                return await awaitable
        except TimeoutError:
            if not scope.expired():
                raise
            if last == total_at:
                message = f"{self._provider} took longer than {self._timeouts.total_s:g} s"
            else:
                message = f"{limit_s:g} s passed before {self._provider} {what}"
            raise fault("timeout", message, provider=self._provider) from None


ANSWER_BYTES_MAX: Final = 64 << 20  # a whole answer; a stream of deltas of the longest answers is a few megabytes
_ERROR_BYTES_MAX: Final = 64 << 10
_SENTENCE_MAX: Final = 500
_CALLS_A_POOL: Final = 8
_SECRET_LEAST: Final = 8  # characters; a shorter value (a header "beta") is no key and may be part of other words


_USUAL: Final = Timeouts()


@lru_cache(maxsize=256)
def _parse_url(url: str) -> httpx2.URL:
    """Parse an address once: a provider has a few."""
    import httpx2

    return httpx2.URL(url)


@cache
def load() -> None:
    """Import the libraries of a first request, also those that the client itself imports only when it connects."""
    import anyio.streams.tls  # noqa: F401
    import httpcore2  # noqa: F401
    import httpx2  # noqa: F401


@cache
def _make_ssl_context(*, tls: bool) -> ssl.SSLContext:
    """One SSL context for the process: loading the certificates costs more than the rest of a first call. An address
    without TLS gets a context without trusted certificates."""
    import ssl

    import httpx2

    return httpx2.create_ssl_context() if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class _Pool:
    """A client and the calls that it makes now."""

    __slots__ = ("calls", "client", "keeper")

    def __init__(self, client: httpx2.AsyncClient, keeper: AsyncGenerator[None]) -> None:
        self.client = client
        self.keeper = keeper  # closes the client at the end of the loop
        self.calls = 0


class _Route(NamedTuple):
    """How an address is reached."""

    tls: bool
    proxies: bool  # whether proxies of the environment may be used

    @classmethod
    def to(cls, url: str) -> _Route:
        tls = not url.startswith("http:")
        return cls(tls, tls and not is_loopback(urlsplit(url).hostname or ""))


_PoolKey = tuple[asyncio.AbstractEventLoop, _Route, int]


class UnreadAnswer(NamedTuple):
    """An answer as the provider gives it: its status, its headers (names in lower case), the pieces of its body."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]
    response: httpx2.Response
    waits: ProviderWaits

    async def read(self, bytes_max: int = ANSWER_BYTES_MAX) -> bytes:
        """Return the whole body; of one with more than `bytes_max` bytes, a beginning with more than those."""
        body = bytearray()
        async for chunk in self.chunks:
            body += chunk
            if len(body) > bytes_max:
                break
        return bytes(body)


class Http:
    """The pooled client of one provider. `secrets` are redacted in every message of the server."""

    def __init__(
        self,
        *,
        provider: str,
        timeouts: Timeouts = _USUAL,
        secrets: Callable[[], tuple[str, ...]] = tuple,
        sentence: Callable[[int, Any], tuple[str, str]] | None = None,
        delay: Callable[[Any], float | None] | None = None,
        error_header: str = "",
        clock: Clock | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.provider = provider
        self.timeouts = timeouts
        self._secrets = secrets
        self._sentence = sentence or usual_sentence
        self._delay = delay  # reads the time to wait from the body of an error
        self._error_header = error_header  # the header with the provider's error code, if it is not in the body
        self._unhurried = msgspec.structs.replace(timeouts, first_s=None)  # for an answer that begins when it is done
        self._clock = clock or loop_clock()
        self._transport = transport
        self._pools: dict[_PoolKey, _Pool] = {}

    async def _open(self, route: _Route) -> _Pool:
        """Return the first client of this loop that makes few calls now. A client looks at all its connections before
        each call, so that one for all of them would get slower with each."""
        loop = asyncio.get_running_loop()
        for number in count():
            key = loop, route, number
            pool = self._pools.get(key)
            if pool is None:
                break
            if pool.calls < _CALLS_A_POOL:
                return pool
        for old in tuple(self._pools):  # a copy: loops of other threads have pools here too
            if old[0].is_closed():
                self._pools.pop(old, None)
        import httpx2

        client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=self.timeouts.connect_s),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0),
            transport=self._transport,
            verify=_make_ssl_context(tls=route.tls),
            trust_env=route.proxies,
        )
        pool = self._pools[key] = _Pool(client, self._closing(client, key))
        await anext(pool.keeper)
        return pool

    async def _closing(self, client: httpx2.AsyncClient, key: _PoolKey) -> AsyncGenerator[None]:
        """Make a generator that closes the client: a loop that ends closes the generators that were started in it."""
        try:
            yield
        finally:
            self._pools.pop(key, None)
            await client.aclose()

    async def close(self) -> None:
        """Close the connections of this loop; those of another loop end with that loop."""
        loop = asyncio.get_running_loop()
        for key, pool in tuple(self._pools.items()):
            if key[0] is loop:
                await pool.keeper.aclose()

    @asynccontextmanager
    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, stream: bool = True
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Provide the pieces of the answer's body. Errors of the transport become ModelErrors, also those met while
        reading."""
        sent = {"content-type": "application/json", "accept": "text/event-stream" if stream else "application/json"}
        async with self.forward(url, body, {**sent, **headers}, stream=True) as answer:
            if not 200 <= answer.status < 300:
                raise await self._read_refusal(answer.response, answer.waits)
            kind = answer.response.headers.get("content-type", "")
            if "html" in kind:
                raise not_an_answer(f"{self.provider} answered with a web page ({kind})", provider=self.provider)
            yield answer.chunks

    @asynccontextmanager
    async def forward(
        self, url: str, body: bytes, headers: Mapping[str, str], *, stream: bool
    ) -> AsyncIterator[UnreadAnswer]:
        """Yield an answer of any status, unread. Errors of the transport become ModelErrors, also those met while
        reading. An answer that is not streamed begins when it is done: only `total_s` limits it."""
        import httpx2

        pool = await self._open(_Route.to(url))
        begun = False
        sent = dict(headers)
        outgoing(sent)
        waits = ProviderWaits(self.provider, self.timeouts if stream else self._unhurried, asyncio.get_running_loop())
        pool.calls += 1
        try:
            request = pool.client.build_request("POST", _parse_url(url), content=body, headers=sent)
            response = await waits.first(pool.client.send(request, stream=True))
            begun = True
            try:
                chunks = self._chunks(response, waits)
                yield UnreadAnswer(response.status_code, response.headers, chunks, response, waits)
            finally:
                await response.aclose()
        except DeadlineExceeded:  # of the process that waits; it is an OSError, and none of the transport
            raise
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise self._make_transport_error(error, url, begun=begun) from None
        finally:
            pool.calls -= 1

    async def _chunks(self, response: httpx2.Response, waits: ProviderWaits) -> AsyncIterator[bytes]:
        """Yield the pieces of a body. What breaks it off is a ModelError already here, so that the consumer can pass
        over it where the answer was whole."""
        import httpx2

        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        # Two generators less for each piece, where there is nothing to decode.
        pieces = response.aiter_bytes() if "content-encoding" in response.headers else aiter(stream)
        size = 0
        wait = waits.first
        while True:
            try:
                chunk = await wait(anext(pieces))
            except StopAsyncIteration:
                return
            except DeadlineExceeded:
                raise
            except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
                raise self._make_transport_error(error, str(response.url), begun=True) from None
            size += len(chunk)
            if size > ANSWER_BYTES_MAX:
                raise too_large(ANSWER_BYTES_MAX, provider=self.provider)
            wait = waits.next
            yield chunk

    async def _read_refusal(self, response: httpx2.Response, waits: ProviderWaits) -> ModelError:
        body = bytearray()
        async for chunk in self._chunks(response, waits):
            body += chunk
            if len(body) > _ERROR_BYTES_MAX:
                break
        status = response.status_code
        try:
            data = msgspec.json.decode(bytes(body))
        except UNREADABLE:
            data = None
        code, sentence = self._sentence(status, data)
        if not code and self._error_header:
            code = response.headers.get(self._error_header, "").partition(":")[0]
        if not sentence:
            sentence = f"{self.provider} answered with status {status}"
        wait_s = retry_after(response.headers, self._clock.now())
        if wait_s is None and self._delay is not None:
            wait_s = self._delay(data)
        return from_status(
            status, self.clean(sentence), code=self.clean(code), provider=self.provider, retry_after_s=wait_s
        )

    def _make_transport_error(self, error: Exception, url: str, *, begun: bool) -> ModelError:
        """Return the ModelError of an error of the transport, with the address; `begun`: the head of an answer had
        come. Its field `unsent` is set where no byte of the request can have reached the provider."""
        import httpx2

        address = self.clean(_address(url))
        error_text = self.clean(str(error) or type(error).__name__)
        unsent = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.InvalidURL))
        if isinstance(error, httpx2.TimeoutException):
            late = f"{self.provider} did not take the connection to {address} in time"
            return fault("timeout", late, provider=self.provider, address=address, unsent=unsent or None)
        if isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError):
            broke_off = f"{self.provider} broke off: {error_text}"
            if begun:
                return fault("stream_truncated", broke_off, provider=self.provider)
            return unreachable(f"{broke_off} ({address})", provider=self.provider, address=address)
        hint = "set SSL_CERT_FILE to the certificates to trust" if "CERTIFICATE_VERIFY" in error_text else None
        message = f"{self.provider} cannot be reached at {address}: {error_text}"
        return unreachable(message, hint=hint, provider=self.provider, address=address, unsent=unsent or None)

    def redact(self, body: bytes) -> bytes:
        """Return the bytes of an answer that is passed on, with keys redacted; the same bytes where there are none."""
        keys = KnownKeys.prepare(secret for secret in self._secrets() if len(secret) >= _SECRET_LEAST)
        text = body.decode("utf-8", "surrogateescape")
        masked = keys.mask(text, any_part=True)
        return body if masked == text else masked.encode("utf-8", "surrogateescape")

    def clean(self, text: str) -> str:
        """Return a message of the server on one line, with keys redacted."""
        secrets = (secret for secret in self._secrets() if len(secret) >= _SECRET_LEAST)
        line = " ".join(KnownKeys.prepare(secrets).mask(text, any_part=True).split())
        return line if len(line) <= _SENTENCE_MAX else line[: _SENTENCE_MAX - 1] + "…"


def _address(url: str) -> str:
    """Return the address of a server, without the path, the query and the password that a URL may have."""
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:  # a port that is no number
        return url.partition("?")[0].rpartition("@")[2]
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"


def usual_sentence(_status: int, data: Any) -> tuple[str, str]:
    """(code, sentence) of `{"error": {"type"|"code", "message"}}` and its common variants."""
    document = data[0] if isinstance(data, list) and data else data
    error = document.get("error", document) if isinstance(document, dict) else document
    if isinstance(error, str):
        return "", error
    if not isinstance(error, dict):
        return "", ""
    code = error.get("code")
    if not isinstance(code, str):  # a number only repeats the status
        code = error.get("type") or error.get("status") or code
    message = error.get("message") or error.get("Message") or ""
    return str(code or ""), message if isinstance(message, str) else ""

"""HTTP to a provider: one pooled client, time-outs that mean something, answers that stay small, errors in our words.

    async with http.post(url, body, headers) as chunks:
        async for chunk in chunks: ...

Four time-outs: `connect_s` to reach the server, `first_s` from the start until the first byte of the answer's body,
`idle_s` between two pieces, `total_s` for all of it. What is not a 2xx answer is read (a little of it) and handed to
the provider's own reader of errors. Redirects are not followed, and what travels unencrypted or stays on this machine
never goes through a proxy of the environment: a key goes only to the address it was meant for. A pool belongs to the
loop it was opened in and ends with it at the latest. httpx2 is imported at the first call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from lyra.core.checking.check import FrozenSettings, real
from lyra.core.clock import Clock, SystemClock
from lyra.core.providers import is_loopback
from lyra.core.secrets.secret import MASK
from lyra.errors import ModelError
from lyra.models.wire.faults import UNREADABLE, fault, not_an_answer, of_status, retry_after, too_large, unreachable

if TYPE_CHECKING:
    import ssl

    import httpx2

__all__ = ["ANSWER_BYTES_MAX", "Http", "Timeouts", "load", "usual_sentence"]

T = TypeVar("T")

ANSWER_BYTES_MAX: Final = 64 << 20  # a whole answer; a stream of deltas of the longest answers is a few megabytes
_ERROR_BYTES_MAX: Final = 64 << 10
_SENTENCE_MAX: Final = 500
_SECRET_LEAST: Final = 8  # characters; what is shorter (a header that says "beta") is no key but part of other words


class Timeouts(FrozenSettings, frozen=True):
    """Seconds; None is no limit."""

    WORD: ClassVar[str] = "timeouts"

    connect_s: float | None = 10.0
    first_s: float | None = 120.0
    idle_s: float | None = 60.0
    total_s: float | None = 600.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None:
                real(value, name, above=0.0)

    @classmethod
    def of(cls, value: Any) -> Timeouts:
        return value if isinstance(value, Timeouts) else cls.from_data(value)


_USUAL: Final = Timeouts()


class _Waits:
    """The time-outs of one call. A scope is open only while something is awaited, never while the consumer of the
    answer works: a time-out that fired then would cancel the consumer instead."""

    __slots__ = ("_first_at", "_idle_s", "_loop", "_provider", "_timeouts", "_total_at")

    def __init__(self, provider: str, timeouts: Timeouts, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._provider = provider
        self._timeouts = timeouts
        self._loop = loop
        self._idle_s = timeouts.idle_s
        self._first_at = None if timeouts.first_s is None else now + timeouts.first_s
        self._total_at = None if timeouts.total_s is None else now + timeouts.total_s

    async def first(self, awaitable: Awaitable[T]) -> T:
        """The head of the answer, and the first piece of its body."""
        return await self._until(awaitable, self._first_at, self._timeouts.first_s, "began to answer")

    async def next(self, awaitable: Awaitable[T]) -> T:
        idle_s = self._idle_s
        at = None if idle_s is None else self._loop.time() + idle_s
        return await self._until(awaitable, at, idle_s, "sent the next piece of its answer")

    async def _until(self, awaitable: Awaitable[T], at: float | None, limit_s: float | None, what: str) -> T:
        total_at = self._total_at
        last = total_at if at is None or (total_at is not None and total_at < at) else at
        try:
            async with asyncio.timeout_at(last) as scope:
                return await awaitable
        except TimeoutError:
            if not scope.expired():
                raise
            if last == total_at:
                said = f"{self._provider} took longer than {self._timeouts.total_s:g} s"
            else:
                said = f"{limit_s:g} s passed before {self._provider} {what}"
            raise fault("timeout", said, provider=self._provider) from None


@cache
def load() -> None:
    """The libraries of a first request, also those that the client itself imports only when it connects."""
    import anyio.streams.tls  # noqa: F401
    import httpcore2  # noqa: F401
    import httpx2  # noqa: F401


@cache
def _trusted(*, tls: bool) -> ssl.SSLContext:
    """One for the process: to load the certificates costs more than all the rest of a first call. An address without
    TLS gets a context that trusts nobody."""
    import ssl

    import httpx2

    return httpx2.create_ssl_context() if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class _Pool(NamedTuple):
    client: httpx2.AsyncClient
    keeper: AsyncGenerator[None]


class _Way(NamedTuple):
    """How an address is reached."""

    tls: bool
    proxies: bool  # whether those that the environment names may be in between

    @classmethod
    def to(cls, url: str) -> _Way:
        tls = not url.startswith("http:")
        return cls(tls, tls and not is_loopback(urlsplit(url).hostname or ""))


class Http:
    """The pooled client of one provider. `secrets` are blotted out of everything the server says."""

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
        self._delay = delay  # for those who say in the body when to come again
        self._error_header = error_header  # where the provider says its word for an error, if not in the body
        self._clock = clock or SystemClock()
        self._transport = transport
        self._pools: dict[tuple[asyncio.AbstractEventLoop, _Way], _Pool] = {}

    async def _open(self, way: _Way) -> httpx2.AsyncClient:
        """A client belongs to the loop it was used in first; another loop gets another one."""
        key = asyncio.get_running_loop(), way
        pool = self._pools.get(key)
        if pool is None:
            for old in tuple(self._pools):  # a copy: loops of other threads have pools here too
                if old[0].is_closed():
                    self._pools.pop(old, None)
            client = self._client(way)
            pool = self._pools[key] = _Pool(client, self._kept(client, key))
            await anext(pool.keeper)
        return pool.client

    def _client(self, way: _Way) -> httpx2.AsyncClient:
        import httpx2

        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=self.timeouts.connect_s),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0),
            transport=self._transport,
            verify=_trusted(tls=way.tls),
            trust_env=way.proxies,
        )

    async def _kept(
        self, client: httpx2.AsyncClient, key: tuple[asyncio.AbstractEventLoop, _Way]
    ) -> AsyncGenerator[None]:
        """A loop that ends closes the generators that were begun in it, and this one the connections with it."""
        try:
            yield
        finally:
            self._pools.pop(key, None)
            await client.aclose()

    async def close(self) -> None:
        """Give back the connections of this loop; those of another end with it."""
        loop = asyncio.get_running_loop()
        for key, pool in tuple(self._pools.items()):
            if key[0] is loop:
                await pool.keeper.aclose()

    @asynccontextmanager
    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, stream: bool = True
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The pieces of the answer's body. Errors of the transport become ModelErrors, also those met while reading."""
        import httpx2

        client = await self._open(_Way.to(url))
        begun = False
        sent = {"content-type": "application/json", "accept": "text/event-stream" if stream else "application/json"}
        waits = _Waits(self.provider, self.timeouts, asyncio.get_running_loop())
        try:
            request = client.build_request("POST", url, content=body, headers={**sent, **headers})
            response = await waits.first(client.send(request, stream=True))
            begun = True
            try:
                if not 200 <= response.status_code < 300:
                    raise await self._refused(response, waits)
                self._check_type(response)
                yield self._chunks(response, waits)
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise self._broken(error, begun=begun) from None

    async def _chunks(self, response: httpx2.Response, waits: _Waits) -> AsyncIterator[bytes]:
        pieces = response.aiter_bytes()
        size = 0
        wait = waits.first
        while True:
            try:
                chunk = await wait(anext(pieces))
            except StopAsyncIteration:
                return
            size += len(chunk)
            if size > ANSWER_BYTES_MAX:
                raise too_large(ANSWER_BYTES_MAX, provider=self.provider)
            wait = waits.next
            yield chunk

    async def _refused(self, response: httpx2.Response, waits: _Waits) -> ModelError:
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
        return of_status(
            status, self.clean(sentence), code=self.clean(code), provider=self.provider, retry_after_s=wait_s
        )

    def _check_type(self, response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "")
        if "html" in kind:
            raise not_an_answer(f"{self.provider} answered with a web page ({kind})", provider=self.provider)

    def _broken(self, error: Exception, *, begun: bool) -> ModelError:
        """`begun`: the head of an answer had come."""
        import httpx2

        said = self.clean(str(error) or type(error).__name__)
        if isinstance(error, httpx2.TimeoutException):
            return fault("timeout", f"{self.provider} did not take the connection in time", provider=self.provider)
        if isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError):
            broke_off = f"{self.provider} broke off: {said}"
            if begun:
                return fault("stream_truncated", broke_off, provider=self.provider)
            return unreachable(broke_off, provider=self.provider)
        hint = "set SSL_CERT_FILE to the certificates to trust" if "CERTIFICATE_VERIFY" in said else None
        return unreachable(f"{self.provider} cannot be reached: {said}", hint=hint, provider=self.provider)

    def clean(self, text: str) -> str:
        """One line of what a server said, without the keys it may have quoted."""
        for secret in self._secrets():
            if len(secret) >= _SECRET_LEAST:
                text = text.replace(secret, MASK)
        line = " ".join(text.split())
        return line if len(line) <= _SENTENCE_MAX else line[: _SENTENCE_MAX - 1] + "…"


def usual_sentence(_status: int, data: Any) -> tuple[str, str]:
    """(code, sentence) of `{"error": {"type"|"code", "message"}}` and its common variants."""
    found = data[0] if isinstance(data, list) and data else data
    error = found.get("error", found) if isinstance(found, dict) else found
    if isinstance(error, str):
        return "", error
    if not isinstance(error, dict):
        return "", ""
    code = error.get("code")
    if not isinstance(code, str):  # a number repeats the status, where there is one and no better word
        code = error.get("type") or error.get("status") or code
    message = error.get("message") or error.get("Message") or ""
    return str(code or ""), message if isinstance(message, str) else ""

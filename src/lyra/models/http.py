"""HTTP to a provider: one pooled client, time-outs that mean something, answers that stay small, errors in our words.

    async with http.post(url, body, headers) as chunks:
        async for chunk in chunks: ...

Four time-outs: `connect_s` to reach the server, `first_s` until the first byte of the answer's body, `idle_s` between
two pieces, `total_s` for all of it. What is not a 2xx answer is read (a little of it) and handed to the provider's own
reader of errors. Redirects are not followed: a key goes only to the address it was meant for. httpx2 is imported at
the first call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.clock import Clock, SystemClock
from lyra.core.secret import MASK
from lyra.errors import ModelError
from lyra.models.faults import fault, not_an_answer, of_status, retry_after, too_large, unreachable

if TYPE_CHECKING:
    import httpx2

__all__ = ["ANSWER_BYTES_MAX", "Http", "Timeouts"]

ANSWER_BYTES_MAX: Final = 64 << 20  # a whole answer; a stream of deltas of the longest answers is a few megabytes
_ERROR_BYTES_MAX: Final = 64 << 10
_SENTENCE_MAX: Final = 500


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds; None is no limit."""

    connect_s: float | None = 10.0
    first_s: float | None = 120.0
    idle_s: float | None = 60.0
    total_s: float | None = 600.0


_USUAL: Final = Timeouts()


class Http:
    """The pooled client of one provider. `secrets` are blotted out of everything the server says."""

    def __init__(
        self,
        *,
        provider: str,
        timeouts: Timeouts = _USUAL,
        secrets: Callable[[], tuple[str, ...]] = tuple,
        sentence: Callable[[int, Any], tuple[str, str]] | None = None,
        clock: Clock | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.provider = provider
        self.timeouts = timeouts
        self._secrets = secrets
        self._sentence = sentence or _usual_sentence
        self._clock = clock or SystemClock()
        self._transport = transport
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def _open(self) -> httpx2.AsyncClient:
        """A client belongs to the loop it was used in first; another loop gets another one."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            import httpx2

            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0)
            timeout = httpx2.Timeout(None, connect=self.timeouts.connect_s)
            self._client = httpx2.AsyncClient(timeout=timeout, limits=limits, transport=self._transport)
            self._loop = loop
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    @asynccontextmanager
    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, stream: bool = True
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The pieces of the answer's body. Errors of the transport become ModelErrors, also those met while reading."""
        import httpx2

        client = self._open()
        sent = {"content-type": "application/json", "accept": "text/event-stream" if stream else "application/json"}
        try:
            async with asyncio.timeout(self.timeouts.total_s) as total:
                request = client.build_request("POST", url, content=body, headers={**sent, **headers})
                response = await self._in_time(
                    client.send(request, stream=True), self.timeouts.first_s, "began to answer"
                )
                try:
                    if not 200 <= response.status_code < 300:
                        raise await self._refused(response)
                    self._check_type(response)
                    yield self._chunks(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            if not total.expired():
                raise
            raise fault(
                "timeout", f"{self.provider} took longer than {self.timeouts.total_s:g} s", provider=self.provider
            ) from None
        except httpx2.HTTPError as error:
            raise self._broken(error) from None
        except (httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise self._broken(error) from None

    async def _chunks(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        pieces = response.aiter_bytes()
        limit_s: float | None = self.timeouts.first_s
        size = 0
        what = "sent the first piece of its answer"
        while True:
            try:
                chunk = await self._in_time(anext(pieces), limit_s, what)
            except StopAsyncIteration:
                return
            size += len(chunk)
            if size > ANSWER_BYTES_MAX:
                raise too_large(ANSWER_BYTES_MAX, provider=self.provider)
            limit_s, what = self.timeouts.idle_s, "sent the next piece of its answer"
            yield chunk

    async def _in_time(self, awaitable: Any, limit_s: float | None, what: str) -> Any:
        try:
            async with asyncio.timeout(limit_s) as scope:
                return await awaitable
        except TimeoutError:
            if not scope.expired():
                raise
            raise fault(
                "timeout", f"{limit_s:g} s passed before {self.provider} {what}", provider=self.provider
            ) from None

    async def _refused(self, response: httpx2.Response) -> ModelError:
        body = bytearray()
        async for chunk in self._chunks(response):
            body += chunk
            if len(body) > _ERROR_BYTES_MAX:
                break
        status = response.status_code
        try:
            data = msgspec.json.decode(bytes(body))
        except msgspec.DecodeError:
            data = None
        code, sentence = self._sentence(status, data)
        if not sentence:
            sentence = f"{self.provider} answered with status {status}"
        wait_s = retry_after(response.headers, self._clock.now())
        return of_status(
            status, self.clean(sentence), code=self.clean(code), provider=self.provider, retry_after_s=wait_s
        )

    def _check_type(self, response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "")
        if "html" in kind:
            raise not_an_answer(f"{self.provider} answered with a web page ({kind})", provider=self.provider)

    def _broken(self, error: Exception) -> ModelError:
        import httpx2

        said = self.clean(str(error) or type(error).__name__)
        if isinstance(error, httpx2.TimeoutException):
            return fault("timeout", f"{self.provider} did not take the connection in time", provider=self.provider)
        if isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError):
            return fault("stream_truncated", f"{self.provider} broke off: {said}", provider=self.provider)
        return unreachable(f"{self.provider} cannot be reached: {said}", provider=self.provider)

    def clean(self, text: str) -> str:
        """One line of what a server said, without the keys it may have quoted."""
        for secret in self._secrets():
            if secret:
                text = text.replace(secret, MASK)
        line = " ".join(text.split())
        return line if len(line) <= _SENTENCE_MAX else line[: _SENTENCE_MAX - 1] + "…"


def _usual_sentence(_status: int, data: Any) -> tuple[str, str]:
    """(code, sentence) of `{"error": {"type"|"code", "message"}}` and its common variants."""
    found = data[0] if isinstance(data, list) and data else data
    error = found.get("error", found) if isinstance(found, dict) else found
    if isinstance(error, str):
        return "", error
    if not isinstance(error, dict):
        return "", ""
    code = error.get("code") if isinstance(error.get("code"), str) else error.get("type") or error.get("status")
    message = error.get("message") or error.get("Message") or ""
    return str(code or ""), message if isinstance(message, str) else ""

"""One remote agent at its address: its card, and the SDK's client over a transport that Lyra checks.

Requests go to the origin of the address and nowhere else, whatever the card says, so that the token stays there. Every
address of the host has to be public, or named by `inside`, and the connection goes to exactly those addresses. A token
over plain HTTP goes to this machine only. Answers are bounded. Each failure becomes an EffectFailed: with `is_lost` the
other side does not answer or fails, without it the other side refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lyra.a2a.sdk import PROTOCOL, client_module, messages
from lyra.core.providers import is_loopback_url
from lyra.core.rights.capability import Grant
from lyra.core.secrets.process_keys import add_key_source, mask_process_keys
from lyra.core.secrets.visible import without_invisible
from lyra.core.trace_context import outgoing
from lyra.errors import ConfigError, EffectFailed, LyraError
from lyra.tools.http_guard import host_and_port, open_answer

if TYPE_CHECKING:
    import httpx

    from lyra.core.secrets.secret import Secret


ANSWER_BYTES_MAX: Final = 16 << 20  # of one answer, or of one stream
CARD_BYTES_MAX: Final = 1 << 20
CARD_S: Final = 30.0  # for a whole card
_BINDINGS: Final = ("JSONRPC", "HTTP+JSON")  # the first that the card has
_CONNECT_S: Final = 10.0
_READ_S: Final = 120.0  # between two pieces of an answer
_CARD: Final = "/.well-known/agent-card.json"
_LOST: Final = 503
_REFUSED: Final = 400
_SENTENCE_CHARS_MAX: Final = 500


def is_lost(error: BaseException) -> bool:
    """Return whether the remote agent did not answer, or failed itself."""
    return isinstance(error, LyraError) and bool(error.fields.get("is_lost"))


class RemoteConnection:
    """See the module."""

    def __init__(self, url: str, *, token: Secret | None, inside: Collection[str]) -> None:
        self.url = _check_url(url, has_token=token is not None)
        self.place = host_and_port(self.url)
        self._token = token
        self._inside = frozenset(inside)
        self._card: Any = None
        if token is not None:
            add_key_source(self, lambda connection: connection.secrets())

    def secrets(self) -> list[str]:
        return [] if self._token is None else [self._token.reveal()]

    async def card(self) -> Any:
        """Return the card, read once."""
        if self._card is None:
            try:
                async with asyncio.timeout(CARD_S):
                    card = await self._fetch_card()
            except TimeoutError:
                message = f"{self.place} did not send its card within {CARD_S:g} s"
                raise EffectFailed(message, status=_LOST, is_lost=True) from None
            self._card = self._with_own_interfaces(card)
        return self._card

    async def _fetch_card(self) -> Any:
        resolver = client_module("card_resolver")
        async with self._http(bytes_max=CARD_BYTES_MAX) as http:
            with self.reading():
                return await resolver.A2ACardResolver(http, self.url).get_agent_card()

    async def check(self) -> None:
        """Ask for the card again: whether the other side is there."""
        self._card = None
        await self.card()

    @asynccontextmanager
    async def client(self, *, streaming: bool = False) -> AsyncIterator[Any]:
        """Provide the SDK's client; what goes wrong inside the block is told as an EffectFailed. Without `streaming` a
        message is answered at once, by the task that it began."""
        card = await self.card()
        factory, config = client_module("client_factory"), client_module("client")
        async with self._http() as http:
            with self.reading():
                settings = config.ClientConfig(
                    httpx_client=http,
                    streaming=streaming,
                    polling=not streaming,
                    supported_protocol_bindings=list(_BINDINGS),
                    use_client_preference=True,
                )
                yield factory.ClientFactory(settings).create(card)

    # ------------------------------------------------------------------ what is checked

    def _with_own_interfaces(self, card: Any) -> Any:
        """Return the card with the interfaces of this origin only: a card cannot send the token elsewhere."""
        own = [row for row in card.supported_interfaces if row.url and _origin(row.url) == _origin(self.url)]
        usable = [row for row in own if row.protocol_binding in _BINDINGS]
        if not usable:
            raise EffectFailed(
                f"the card of {self.place} names no interface of its own origin in {' or '.join(_BINDINGS)}",
                status=_REFUSED,
            )
        kept = messages().AgentCard()
        kept.CopyFrom(card)
        del kept.supported_interfaces[:]
        kept.supported_interfaces.extend(usable)
        return kept

    def _http(self, bytes_max: int | None = None) -> httpx.AsyncClient:
        import httpx

        headers = {"A2A-Version": PROTOCOL}
        for secret in self.secrets():
            headers["authorization"] = f"Bearer {secret}"
        transport = _transport_class()(_origin(self.url), self._inside, bytes_max or ANSWER_BYTES_MAX)
        return httpx.AsyncClient(transport=transport, headers=headers, timeout=_READ_S, trust_env=False)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn what goes wrong with an answer in the block into an EffectFailed: errors of the connection and of the
        SDK, and any other, because an answer of another shape may make any code that reads it fail."""
        try:
            yield
        except LyraError:
            raise
        except Exception as error:  # noqa: BLE001 (see above)
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> EffectFailed:
        import httpx

        sdk_errors = client_module("transports.jsonrpc")
        if isinstance(error, httpx.HTTPError) or isinstance(error.__cause__, httpx.RequestError):
            return EffectFailed(f"{self.place} does not answer: {self._line(error)}", status=_LOST, is_lost=True)
        cause = error.__cause__
        status = cause.response.status_code if isinstance(cause, httpx.HTTPStatusError) else 0
        known = tuple(sdk_errors.JSON_RPC_ERROR_CODE_MAP)
        if isinstance(error, known) and status < 500:  # over HTTP+JSON an error has a status besides
            return EffectFailed(
                f"{self.place} refused: {self._line(error)}", status=_REFUSED, error=type(error).__name__
            )
        if status:
            lost = status >= 500
            return EffectFailed(f"{self.place} answered {status}", status=max(status, _REFUSED), is_lost=lost)
        return EffectFailed(f"{self.place} does not speak A2A: {self._line(error)}", status=_REFUSED)

    def _line(self, error: Exception) -> str:
        text = " ".join(without_invisible(str(error) or type(error).__name__).split())
        return mask_process_keys(text)[:_SENTENCE_CHARS_MAX]


def _check_url(url: str, *, has_token: bool) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ConfigError("the address of a remote agent is a URL", hint="such as https://HOST/a2a/NAME", key="url")
    if parts.scheme == "http" and has_token and not is_loopback_url(f"{parts.scheme}://{parts.netloc}"):
        raise ConfigError(f"{parts.netloc} would be sent its token unencrypted", hint="use https", key="url")
    return url.rstrip("/").removesuffix(_CARD)


def _origin(url: str) -> tuple[str, str]:
    return urlsplit(url).scheme, host_and_port(url)


def _transport_class() -> Any:
    """Return the transport for the SDK's HTTP client, whose library is imported at first use."""
    import httpcore2
    import httpx

    class CheckedTransport(httpx.AsyncBaseTransport):
        def __init__(self, origin: tuple[str, str], inside: Collection[str], bytes_max: int) -> None:
            self._origin = origin
            self._inside = inside
            self._bytes_max = bytes_max

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            url = str(request.url)
            if _origin(url) != self._origin:
                raise EffectFailed("a request would leave the origin of the remote agent", status=_REFUSED)
            headers = {name: value for name, value in request.headers.items() if name not in _FRAMING}
            outgoing(headers)
            stack = AsyncExitStack()
            try:
                answer = await stack.enter_async_context(
                    open_answer(
                        url,
                        grant=Grant.all(),
                        method=request.method,
                        headers=headers,
                        body=await request.aread(),
                        connect_s=_CONNECT_S,
                        read_s=_READ_S,
                        inside=self._inside,
                    )
                )
            except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError) as error:
                await stack.aclose()
                raise httpx.ConnectError(_words(error), request=request) from None
            if any(name.lower() == b"content-encoding" for name, _ in answer.headers):
                await stack.aclose()
                raise httpx.ReadError("the answer is packed, which was not asked for", request=request)
            return httpx.Response(
                answer.status, headers=answer.headers, stream=BoundedBody(answer, stack, self._bytes_max)
            )

    class BoundedBody(httpx.AsyncByteStream):
        """The body of an answer, up to the limit."""

        def __init__(self, answer: httpcore2.Response, stack: AsyncExitStack, bytes_max: int) -> None:
            self._answer = answer
            self._stack = stack
            self._bytes_max = bytes_max

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            try:
                async for piece in self._answer.aiter_stream():
                    size += len(piece)
                    if size > self._bytes_max:
                        raise httpx.ReadError(f"the answer has more than {self._bytes_max} bytes")
                    yield piece
            except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError) as error:
                raise httpx.ReadError(_words(error)) from None

        async def aclose(self) -> None:
            await self._stack.aclose()

    return CheckedTransport


_FRAMING: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})


def _words(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:200]

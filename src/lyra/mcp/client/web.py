"""A server at a URL, over streamable HTTP.

Headers, tokens and logins go to the origin of that URL and nowhere else; the SDK follows no redirect away from it. A
token over plain HTTP goes to this machine only. If a login needs another origin (the authorization
server), it is reached over https and has to have a public address. Answers are trimmed (`trim`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client
from mcp_types import INTERNAL_ERROR

from lyra.core.providers import is_loopback_url
from lyra.errors import ConfigError
from lyra.mcp.client.callback_limits import Receiving, Sending
from lyra.mcp.client.trim import ANSWER_BYTES_MAX, AnswerTooLarge, Trim, slices
from lyra.mcp.settings import ServerSettings
from lyra.mcp.state import AuthRequired, ServerFailed
from lyra.sandbox.addresses import resolve
from lyra.sandbox.proxy import system_lookup

__all__ = ["ANSWER_BYTES_MAX", "web"]

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
    """The streams of a connection; `answered` gets the status of every answer, `ended` the reason of the end."""
    url = settings.address
    _check(settings, url)
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


def _check(settings: ServerSettings, url: str) -> None:
    parts = httpx2.URL(url)
    if parts.scheme not in ("http", "https") or not parts.host or parts.userinfo:
        raise ConfigError(f"the url of MCP server {settings.name} is not an address", hint="such as https://HOST/mcp")
    secret = settings.headers or settings.auth_kind != "none"
    if parts.scheme == "http" and secret and not is_loopback_url(url):
        raise ConfigError(
            f"MCP server {settings.name} would be sent its key unencrypted", hint="use https", place=settings.place
        )


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
            async for kept in self._trimmed():
                if self._events:
                    yield kept
                else:
                    held.append(kept)
        except AnswerTooLarge as error:
            if self._events:
                raise httpx2.ReadError(str(error)) from None
            held = [_refusal(self._asked, str(error))]
        yield b"".join(held)

    async def _trimmed(self) -> AsyncIterator[bytes]:
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

"""Logging in to a server: the SDK's OAuth flow, with tokens in a file of the person's own.

The tokens of one server are in `~/.config/lyra/mcp-tokens/`, readable only by their owner. Without valid tokens a
person has to open a page: `authorize(url)` shows it, and a listener on this machine waits for the redirect of the
browser. Without an `authorize` the server is `auth_required`. Lyra registers itself with the authorization server,
unless the settings name a client that a person has registered there.
"""

from __future__ import annotations

import asyncio
import html
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from lyra.config.files import write_private
from lyra.core.clock import SystemClock
from lyra.core.own_files import make_folder
from lyra.mcp.settings import ServerSettings
from lyra.mcp.state import AuthRequired, Failure, ServerFailed

Authorize = Callable[[str, str], Awaitable[None]]  # the server's name and the page to open
_ANSWER_S: Final = 300.0
_LOGINS_MAX: Final = 3  # within _LOGINS_S; then the server is given up
_LOGINS_S: Final = 600.0
_HEAD_BYTES_MAX: Final = 16_384
_BASIC, _POST = "client_secret_basic", "client_secret_post"


class TokenStore:
    """The storage of the SDK's tokens: a file, or memory without a folder."""

    def __init__(self, folder: str | None, fingerprint: str, client: OAuthClientInformationFull | None = None) -> None:
        self._client = client  # registered by hand: it is in the settings and never stored
        self._path = Path(folder, "mcp-tokens", f"{fingerprint}.json") if folder else None
        self._memory: dict[str, Any] = {}

    async def get_tokens(self) -> OAuthToken | None:
        stored = self._read().get("tokens")
        return OAuthToken.model_validate(stored) if stored else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._write("tokens", tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        stored = self._read().get("client")
        if self._client is not None:
            return self._client
        return OAuthClientInformationFull.model_validate(stored) if stored else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._write("client", client_info.model_dump(mode="json", exclude_none=True))

    def forget(self) -> None:
        """Forget the tokens and the registered client."""
        self._memory = {}
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        if self._path is None or not self._path.is_file():
            return self._memory
        try:
            document = msgspec.json.decode(self._path.read_bytes())
        except msgspec.DecodeError:
            return {}  # log in again
        return document if isinstance(document, dict) else {}

    def _write(self, key: str, value: Any) -> None:
        self._memory = {**self._read(), key: value}
        if self._path is not None:
            make_folder(self._path.parent, private=True)
            write_private(self._path, msgspec.json.encode(self._memory))


def client_of(settings: ServerSettings) -> OAuthClientInformationFull | None:
    """Return the client that a person registered for this server, where the settings name one."""
    name = settings.auth.get("client_id")
    if not name:
        return None
    variable = str(settings.auth.get("client_secret_env", ""))
    secret = os.environ.get(variable, "")
    if variable and not secret:
        raise AuthRequired(f"the client's secret is not there: export {variable}=…")
    method = _BASIC if secret else "none"
    return OAuthClientInformationFull(client_id=name, client_secret=secret or None, token_endpoint_auth_method=method)


class _Provider(OAuthClientProvider):
    """The SDK's flow with two additions: a client secret is sent by a method that the authorization server supports,
    and a server of the first version of the protocol (metadata at its own origin, without a named issuer) may use an
    issuer with a path below that origin."""

    _issuer: str | None = None

    def _expected_issuer(self) -> str:
        return self.context.auth_server_url or self._issuer or super()._expected_issuer()

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Repeat the flow once if the issuer was learned during the first attempt."""
        known = self._issuer
        for is_last in (False, True):
            flow = super()._auth_flow(request)
            try:
                asked = await anext(flow)
                while True:
                    response = yield asked
                    await self._learn(response)
                    asked = await flow.asend(response)
            except StopAsyncIteration:
                return
            except OAuthFlowError:
                if is_last or self._issuer == known:
                    raise
            finally:
                await flow.aclose()

    async def _learn(self, response: httpx2.Response) -> None:
        """Accept an issuer of the server's own origin: only the server can publish it there."""
        url, home = response.request.url, httpx2.URL(self.context.server_url)
        if self.context.auth_server_url or response.status_code != 200 or "/.well-known/oauth-auth" not in url.path:
            return
        with suppress(msgspec.DecodeError, httpx2.InvalidURL):
            issuer = msgspec.json.decode(await response.aread(), type=dict[str, Any]).get("issuer")
            if isinstance(issuer, str) and _origin(httpx2.URL(issuer)) == _origin(url) == _origin(home):
                self._issuer = issuer

    async def _perform_authorization(self) -> httpx2.Request:
        client, known = self.context.client_info, self.context.oauth_metadata
        spoken = (known.token_endpoint_auth_methods_supported if known else None) or [_BASIC]
        if client and client.token_endpoint_auth_method == _BASIC and _BASIC not in spoken and _POST in spoken:
            client.token_endpoint_auth_method = _POST
        return await super()._perform_authorization()


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


class Login:
    """One server's login. `provider` is for the HTTP client; `close` stops listening."""

    def __init__(self, settings: ServerSettings, tokens: TokenStore, authorize: Authorize | None) -> None:
        self._settings = settings
        self._tokens = tokens
        self._authorize = authorize
        self._clock = SystemClock()
        self._shown: list[float] = []  # times of the last login pages
        self._server: asyncio.Server | None = None
        self._answer: asyncio.Future[AuthorizationCodeResult] | None = None

    async def provider(self) -> OAuthClientProvider:
        port = 0
        if self._authorize is not None:
            port = await self._listen(self._settings.auth.get("callback_port", 0))
        metadata = OAuthClientMetadata.model_validate(
            {
                "client_name": "Lyra",
                "redirect_uris": [f"http://127.0.0.1:{port}/callback"],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "scope": " ".join(self._settings.auth.get("scopes", ())) or None,
            }
        )
        # A client is registered with the port it listens on; an earlier registration has another port.
        if self._authorize is not None and await self._tokens.get_tokens() is None:
            self._tokens.forget()
        return _Provider(
            server_url=self._settings.address,
            client_metadata=metadata,
            storage=self._tokens,
            redirect_handler=self._show,
            callback_handler=self._wait,
        )

    async def _listen(self, port: int) -> int:
        try:
            self._server = await asyncio.start_server(self._hear, "127.0.0.1", port, limit=_HEAD_BYTES_MAX)
        except OSError as error:
            raise AuthRequired(f"port {port} of this machine, for the login, is taken: {error.strerror}") from None
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _show(self, url: str) -> None:
        if self._authorize is None:
            raise AuthRequired(f"no person is there to log in: lyra mcp login {self._settings.name}", "login")
        now = self._clock.monotonic()
        self._shown = [when for when in self._shown if now - when < _LOGINS_S] + [now]
        if len(self._shown) > _LOGINS_MAX:
            raise AuthRequired("it asks for one login after another", "login")
        self._answer = (
            asyncio.get_running_loop().create_future()
        )  # one for each login: further scopes may need another one
        await self._authorize(self._settings.name, url)

    async def _wait(self) -> AuthorizationCodeResult:
        assert self._answer is not None
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self._answer
        except TimeoutError:
            raise AuthRequired("no person logged in in time", "login") from None

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the browser's redirect: the first with a code is accepted, any other request gets an error page."""
        try:
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
            query = parse_qs(urlsplit(head.split(b" ", 2)[1].decode("ascii", "replace")).query)
            done = self._take(query)
            text = "You can close this page." if done else "This is not the answer to a login."
            page = f"<!doctype html><title>Lyra</title><p>{html.escape(text)}</p>".encode()
            writer.write(
                f"HTTP/1.1 {200 if done else 400} -\r\nContent-Type: text/html\r\n".encode()
                + f"Content-Length: {len(page)}\r\nConnection: close\r\n\r\n".encode()
                + page
            )
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, OSError):
            pass
        finally:
            writer.close()

    def _take(self, query: dict[str, list[str]]) -> bool:
        answer = self._answer
        if answer is None or answer.done():
            return False
        if "error" in query:
            answer.set_exception(
                ServerFailed(Failure("auth", query["error"][0][:80], "the login was refused"), "auth_required")
            )
            return True
        if "code" not in query:
            return False
        first = {key: query[key][0] for key in ("code", "state", "iss") if key in query}
        answer.set_result(AuthorizationCodeResult.model_validate(first))
        return True

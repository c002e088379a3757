"""Gemini on Google's Vertex: the format of `gemini` at a project's address, with a token instead of a key.

Tokens come from google-auth (the extra `vertex`): application default credentials, found and refreshed in a thread and
kept until shortly before they expire. Its HTTP goes through httpx2 too, so that no second HTTP library is needed. A
`providers.vertex.api_key`, where there is one, is sent as a key and google-auth is not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.errors import ConfigError, ModelError
from lyra.models.provider import Request
from lyra.models.providers.gemini import Gemini
from lyra.models.wire.faults import fault, not_an_answer, unreachable

if TYPE_CHECKING:
    from google.auth.credentials import Credentials


_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
_LOCATION: Final = "global"
_MULTI_REGIONS: Final = ("us", "eu")
_TOKEN_TIMEOUT_S: Final = 30.0


class Vertex(Gemini):
    """Gemini in `settings.project` and `settings.region`, by default `global`."""

    _credentials: Credentials | None = None
    _lock: asyncio.Lock | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def models(self) -> str:
        settings = self.settings
        region = settings.region or _LOCATION
        root = settings.base_url or f"https://{_host(region)}"
        place = f"projects/{settings.project}/locations/{region}/publishers/google/models"
        return f"{root}/{settings.api_version or 'v1'}/{place}"

    def headers(self, request: Request) -> dict[str, str]:
        return super().headers(request) if self.settings.api_key is not None else {}

    async def sign_request(self, url: str, body: bytes, headers: dict[str, str]) -> dict[str, str]:
        if self.settings.api_key is None:
            (await self._fresh()).apply(headers)  # type: ignore[no-untyped-call]  # google-auth has few types
        return headers

    async def _fresh(self) -> Credentials:
        fresh = _google_auth().credentials.TokenState.FRESH
        if self._credentials is None or self._credentials.token_state is not fresh:
            async with self._turn():  # concurrent calls wait for one token
                if self._credentials is None or self._credentials.token_state is not fresh:
                    # Renew the token. It is done early, so a failure is ignored while the old token is valid.
                    old = self._credentials
                    try:
                        self._credentials = await asyncio.to_thread(_token, old)
                    except ModelError:
                        if old is None or old.token_state is _google_auth().credentials.TokenState.INVALID:
                            raise
        assert self._credentials is not None
        return self._credentials

    def _turn(self) -> asyncio.Lock:
        """Return the lock of the running loop; a lock cannot be shared between loops."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._loop is not loop:
            self._lock, self._loop = asyncio.Lock(), loop
        return self._lock

    def secrets(self) -> tuple[str, ...]:
        token = self._credentials.token if self._credentials is not None else None
        return (*super().secrets(), token) if isinstance(token, str) else super().secrets()


def _host(region: str) -> str:
    if region in _MULTI_REGIONS:
        return f"aiplatform.{region}.rep.googleapis.com"
    return "aiplatform.googleapis.com" if region == _LOCATION else f"{region}-aiplatform.googleapis.com"


def _google_auth() -> Any:
    try:
        import google.auth.credentials
    except ImportError:
        raise ConfigError(
            "vertex needs google-auth, which is not installed", hint="pip install 'lyra-agents[vertex]'", key="vertex"
        ) from None
    return google.auth


def _token(credentials: Credentials | None) -> Credentials:
    """Credentials with a token that is good for a while; runs in a thread."""
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError

    request = _Transport()
    try:
        if credentials is None:
            credentials, _ = google.auth.default(scopes=_SCOPES, request=request)  # type: ignore[arg-type]
        credentials.refresh(request)  # type: ignore[no-untyped-call]
    except TransportError as error:
        raise unreachable(f"the token for vertex cannot be fetched: {_line(error)}", provider="vertex") from None
    except DefaultCredentialsError:
        raise fault(
            "auth",
            "there are no Google credentials for vertex",
            hint="gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a key file",
            provider="vertex",
        ) from None
    except GoogleAuthError as error:
        raise fault("auth", f"Google gives no token for vertex: {_line(error)}", provider="vertex") from None
    except (TypeError, ValueError, LookupError, AttributeError):
        raise not_an_answer("what the token server of Google sent is no token", provider="vertex") from None
    return credentials


def _line(error: Exception) -> str:
    """Return the message of google-auth on one line, without the token server's answer that it quotes."""
    message = error.args[0] if error.args else type(error).__name__
    return " ".join(str(message).split())[:200]


class _Answer:
    """A `google.auth.transport.Response`."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data


class _Transport:
    """A `google.auth.transport.Request` over httpx2."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_more: Any,
    ) -> _Answer:
        import httpx2
        from google.auth.exceptions import TransportError

        try:
            # A token that travels unencrypted, as from the machine's own metadata server, goes through no proxy.
            proxies = url.startswith("https:")
            with httpx2.Client(timeout=timeout or _TOKEN_TIMEOUT_S, trust_env=proxies) as client:
                response = client.request(method, url, content=body, headers=dict(headers or {}))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            message = str(error) or type(error).__name__
            raise TransportError(message) from None  # type: ignore[no-untyped-call]
        return _Answer(response.status_code, response.headers, response.content)

"""What every request passes before it is answered, in one place: where it comes from, who asks, how often, how much.

host      a request for another host is refused (421): a name that leads here by a trick of DNS reads nothing
origin    a page of another origin is refused (403); there is no CORS
token     bearer or x-api-key, the cookie of a login, or what the authenticator of the application says; an address that
          tried too many has to wait (429)
user      of the token; else of `x-user-id` or `user_id`
role      a viewer reads and changes nothing (403)
form      a change that is known by a cookie comes from a page of this server and has its form token (403)
rate      requests a minute of one token and user (429); limits set in the kernel hold for work
size      a body over the limit is refused (413), with or without a length; one that does not come is 408
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from lyra.core.limits import SERVER_BODY_S
from lyra.errors import ConfigError, Denied, Unauthenticated
from lyra.kernel.workers.rate_limits import CALLERS, RateLimitConfig
from lyra.server.http.logins import FORM_FIELD, FORM_HEADER, CookiePlace, LoginTable, make_logins
from lyra.server.http.problems import HttpRefusal, too_many
from lyra.server.identity import OPERATOR, USER, Caller, TokenTable
from lyra.server.token_limit import RequestWindow, credential_of

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.workers.rate_limits import RateLimitResult
    from lyra.server.http.endpoint import Endpoint


# Who calls, by the headers of the request (names in lower case): a Caller, the name of a user, or None for a stranger.
Authenticator = Callable[[Mapping[str, str]], "Caller | str | Awaitable[Caller | str | None] | None"]

ANY_HOST: Final = "*"
LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST: Final = re.compile(r"(?:[a-z0-9_.-]+|\[[0-9a-f:.%]+\])(?::([0-9]{1,5}))?")
_PORT_MAX: Final = 65_535
LOG_OUT: Final = "acts.logout"  # the one change that every role may make
_DISCARD_S: Final = 1.0  # for the rest of a body that is refused: a client that still writes would not read the refusal
_DISCARD_BYTES: Final = 256 * 1024 * 1024


class RequestIdentity(NamedTuple):
    """Who makes a request and how that is known. `caller_key` counts its requests; `form_token` is what its forms
    carry; `needs_form` says that a change needs it, because a browser sends the proof of identity by itself."""

    caller: Caller
    caller_key: str
    cookie: CookiePlace
    logins: LoginTable
    form_token: str = ""
    needs_form: bool = False
    login_id: str = ""  # of the cookie, where that is how the caller is known
    has_own_key: bool = False  # known by a key of the endpoint's own, which represents a program


class HttpGuard:
    """See the module."""

    __slots__ = ("_authenticate", "_bytes_max", "_hosts", "_kernel", "_window", "body_s", "logins")

    def __init__(
        self,
        kernel: Kernel,
        *,
        tokens: TokenTable | None,
        authenticate: Authenticator | None,
        hosts: Collection[str],
        message_bytes_max: int,
        requests_per_minute: int | None,
    ) -> None:
        if (tokens is None) == (authenticate is None):
            raise ConfigError("a server has tokens or an authenticator", hint="app(kernel, tokens=…)")
        self._kernel = kernel
        self.logins = make_logins(kernel, tokens)
        self._authenticate = authenticate
        self._hosts = frozenset(host.lower() for host in hosts)
        self._bytes_max = message_bytes_max
        self._window = RequestWindow(requests_per_minute, kernel.clock)
        self.body_s = SERVER_BODY_S

    def check_place(self, headers: Mapping[str, str]) -> None:
        """Refuse a request for another host, or of a page of another origin."""
        check_place(headers, self._hosts)

    async def identify(
        self, headers: Mapping[str, str], query: Iterable[tuple[str, str]], cookie: CookiePlace
    ) -> RequestIdentity:
        """Who asks. Unauthenticated for a stranger, Denied for a user that is not the token's."""
        names = {headers.get("x-user-id", ""), *(value for name, value in query if name == "user_id")} - {""}
        if len(names) > 1:
            raise Denied("the request names two users")
        user_id = names.pop() if names else ""
        tokens = self.logins.tokens
        if tokens is None:
            caller = await self._authenticate_request(headers)
            key, form_token = _caller_key(caller, headers), self.logins.form_token_of(caller.name)
            return RequestIdentity(caller.acting_for(user_id), key, cookie, self.logins, form_token)
        token = credential_of(headers)
        login_id = "" if token else cookie.value(headers)
        login = self.logins.find(login_id)
        if login is None:
            caller = tokens.caller(token, user_id=user_id, session_id=headers.get("x-session-id", ""))
            return RequestIdentity(caller, _caller_key(caller, headers), cookie, self.logins)
        caller = Caller.for_holder(login.holder).acting_for(user_id)
        key = f"user:{caller.user_id}" if caller.is_bound else f"{login.caller_key}:{caller.user_id}"
        return RequestIdentity(caller, key, cookie, self.logins, login.form_token, needs_form=True, login_id=login_id)

    def make_identity(self, caller: Caller, headers: Mapping[str, str], cookie: CookiePlace) -> RequestIdentity:
        """Return the identity of a caller that an endpoint knows by keys of its own."""
        return RequestIdentity(caller, _caller_key(caller, headers), cookie, self.logins, has_own_key=True)

    async def _authenticate_request(self, headers: Mapping[str, str]) -> Caller:
        """Whom the authenticator of the application knows."""
        assert self._authenticate is not None
        identity = self._authenticate(headers)
        if inspect.isawaitable(identity):
            identity = await identity
        if identity is None or identity == "":
            raise Unauthenticated("the application does not know the caller")
        if not isinstance(identity, Caller):
            return Caller.for_user(identity)
        return identity._replace(role=USER) if identity.is_bound and identity.role == OPERATOR else identity

    def anonymous(self, cookie: CookiePlace) -> RequestIdentity:
        """Return the identity of a request to an open endpoint."""
        return RequestIdentity(Caller(), "", cookie, self.logins)

    def check_change(self, identity: RequestIdentity, endpoint: Endpoint) -> None:
        """Refuse what a role may not do: a viewer reads, and logs out."""
        may_read_here = endpoint.method == "GET" or endpoint.is_open or endpoint.checks_role
        if not may_read_here and endpoint.name != LOG_OUT:
            identity.caller.require_change()

    def check_form(
        self, identity: RequestIdentity, endpoint: Endpoint, headers: Mapping[str, str], form: Mapping[str, str]
    ) -> None:
        """Refuse a change that is known by a cookie and does not come from a page of this server."""
        if endpoint.method == "GET" or endpoint.is_open:
            return
        if not identity.needs_form and not (endpoint.is_for_people and identity.form_token):
            return
        check_same_origin(headers)
        given = headers.get(FORM_HEADER) or form.get(FORM_FIELD, "")
        if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), identity.form_token.encode()):
            raise HttpRefusal(403, "the form is not of this login", hint="load the page again, then send it again")

    def admit(self, identity: RequestIdentity, endpoint: Endpoint) -> Awaitable[None] | None:
        """Count a request of the caller; RateLimited where it is one too many. In a cluster that is to be awaited."""
        if self._kernel.core.remote is not None:
            return self._admit_over_shards(identity, endpoint)
        wait_s = 0.0 if self._window.is_unlimited else self._window.admit(identity.caller_key)
        if wait_s:
            raise too_many(wait_s, "more a minute than one caller may make")
        if endpoint.is_work:
            check_work_limits(self._kernel, identity.caller.user_id, endpoint.name)
        return None

    async def _admit_over_shards(self, identity: RequestIdentity, endpoint: Endpoint) -> None:
        """Count a request at the home of its caller, whichever hosts the others arrive at."""
        kernel, limit = self._kernel, self._window.limit
        if limit is not None:
            only = RateLimitConfig(requests_per_minute=limit, requests_per_hour=0, requests_per_day=0, burst_size=0)
            rates = kernel.core.remote.rates
            result = await rates.check(identity.caller_key, CALLERS, only, durable=False)
            if not result.allowed:
                raise too_many(result.retry_after_seconds, "more a minute than one caller may make")
        if endpoint.is_work:
            asked = check_work_limits(kernel, identity.caller.user_id, endpoint.name)
            if asked is not None:
                await asked

    async def read_body(self, receive: Callable[[], Awaitable[Any]], headers: Mapping[str, str]) -> bytes:
        """Return the body, up to the limit and within its time."""
        return await read_body(receive, headers, self._bytes_max, self.body_s)


def check_place(headers: Mapping[str, str], hosts: Collection[str]) -> None:
    """Refuse a request for a host that is not among these names, or of a page of another origin."""
    host = headers.get("host", "").lower()
    parts = _HOST.fullmatch(host)
    if host and (parts is None or int(parts[1] or 0) > _PORT_MAX):  # also two of them, which come joined
        raise HttpRefusal(400, "a request has one Host: a name or an address, and a port")
    if ANY_HOST not in hosts and _host_name(host) not in hosts:
        raise HttpRefusal(421, "this server is not reached under that host", hint="see [server] hosts")
    origin = headers.get("origin")
    if origin is not None and _network_place(origin) != host:
        raise HttpRefusal(403, "pages of other origins may not ask this server")


async def read_body(
    receive: Callable[[], Awaitable[Any]], headers: Mapping[str, str], bytes_max: int, body_s: float = SERVER_BODY_S
) -> bytes:
    """Return the body of a request, up to a limit and within a time."""
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > bytes_max:
        await _discard(receive, headers)
        raise _too_large(bytes_max)
    body = bytearray()
    try:
        async with asyncio.timeout(body_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeft
                body += message.get("body", b"")
                if len(body) > bytes_max:
                    del body[:]
                    await _discard(receive, headers)
                    raise _too_large(bytes_max)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise HttpRefusal(408, f"the body did not come within {body_s:g} s", headers={"connection": "close"}) from None


def _too_large(bytes_max: int) -> HttpRefusal:
    message = f"the request has more than {bytes_max} bytes"
    return HttpRefusal(413, message, hint="see [server] message_bytes_max", headers={"connection": "close"})


async def _discard(receive: Callable[[], Awaitable[Any]], headers: Mapping[str, str]) -> None:
    if "expect" in headers:  # the client waits to be told whether to send it
        return
    size = 0
    try:
        async with asyncio.timeout(_DISCARD_S):
            while size < _DISCARD_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def check_work_limits(kernel: Kernel, user_id: str, endpoint: str) -> Awaitable[None] | None:
    """Check limits that were set in the kernel for the user or for the endpoint; its defaults are for workers. Gives
    what is to be awaited in a cluster."""
    limits = kernel.rate_limiter.state
    if not user_id or (user_id not in limits.users and endpoint not in limits.endpoints):
        return None
    result = kernel.check_rate_limit(user_id, endpoint)
    if kernel.core.remote is not None:
        return _refuse_later(result)
    _refuse_over(result)
    return None


def _refuse_over(result: RateLimitResult) -> None:
    if not result.allowed:
        raise too_many(result.retry_after_seconds, result.reason)


async def _refuse_later(question: Any) -> None:
    _refuse_over(await question)


class ClientLeft(Exception):
    """The client closed the connection before its request was whole: there is nothing to answer."""


def check_same_origin(headers: Mapping[str, str]) -> None:
    """Refuse a request that a browser did not send from a page of this server. An Origin that is given was compared
    with the host already (`HttpGuard.check_place`)."""
    site = headers.get("sec-fetch-site")
    if site != "same-origin" if site is not None else "origin" not in headers:
        raise HttpRefusal(403, "changes come from a page of this server, or with a token")


def check_opened_by_person(headers: Mapping[str, str]) -> None:
    """Refuse a link with a token that a page of another site opens: it would log the person in as another."""
    from_browser = any(name.startswith("sec-fetch-") for name in headers)  # one that says where it comes from
    if from_browser and headers.get("sec-fetch-site") not in ("none", "same-origin"):
        raise HttpRefusal(
            403,
            "a link with a token is opened by a person, not by a page of another site",
            hint="put it into the address bar, or log in with the token",
        )


def _caller_key(caller: Caller, headers: Mapping[str, str]) -> str:
    """By what the requests of a caller are counted: its user, and without a binding also its token, as a hash."""
    if caller.is_bound:
        return f"user:{caller.user_id}"
    token = headers.get("authorization") or headers.get("x-api-key", "")
    return f"{hashlib.sha256(token.encode()).hexdigest()[:32]}:{caller.user_id}"


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _network_place(origin: str) -> str:
    """HOST[:PORT] of an Origin; "" for one that has none, such as `null`."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""

"""Logins: people in a browser who have shown a token once and are known by a cookie from then on.

The cookie holds a random id, not the token; the table keeps a hash of it, in memory. A login ends by log-out, after
`SERVER_LOGIN_S`, or when the server stops. Each login has a form token: a request that changes something and is known
by its cookie alone must carry it, in the header `x-lyra-form` or the field `form_token`, so that a page of another
origin cannot make one. `token_limit` limits how many tokens that are not known one address may try.

In a cluster the cookie says itself whose token was shown and until when it holds, signed (`SignedLogins`): it holds on
every host, and after a restart of all of them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, NamedTuple

from lyra.core.ids import Entropy, random_key
from lyra.core.limits import SERVER_LOGIN_S, SERVER_LOGINS_MAX, SERVER_TOKEN_LOGINS_MAX
from lyra.errors import Unauthenticated
from lyra.server.identity import Caller, TokenHolder, TokenTable, mark_token, record_act
from lyra.server.token_limit import TokenLimit

if TYPE_CHECKING:
    from lyra.core.clock import Clock
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.remote.revoked import Revoked


FORM_FIELD: Final = "form_token"
FORM_HEADER: Final = "x-lyra-form"
_STRANGER: Final = Caller(person="a stranger", role="none")


class PersonLogin(NamedTuple):
    """One login: the person and role, by what its requests are counted, and the token of its forms."""

    holder: TokenHolder
    caller_key: str
    form_token: str
    ends_s: float


class CookiePlace(NamedTuple):
    """Where the cookie of a server lives: browsers share cookies between the ports of a host, so the name has the port;
    the path is the one below which the application is mounted."""

    name: str
    path: str
    is_secure: bool

    @classmethod
    def from_headers(cls, headers: Mapping[str, str], scheme: str, root_path: str) -> CookiePlace:
        # A proxy that does TLS says so. A client that lies gets a cookie that its browser does not send back.
        is_secure = scheme == "https" or headers.get("x-forwarded-proto", "").strip().lower() == "https"
        port = headers.get("host", "").rpartition(":")[2]
        name = f"lyra-{port}" if port.isdigit() else "lyra"
        return cls(f"__Secure-{name}" if is_secure else name, root_path.rstrip("/") or "/", is_secure)

    def set_line(self, value: str, age_s: int) -> str:
        """Return the header `set-cookie`; without a value it removes the cookie."""
        secure = "; Secure" if self.is_secure else ""
        return f"{self.name}={value}; Path={self.path}; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"

    def value(self, headers: Mapping[str, str]) -> str:
        """Return what the cookie of a request holds; "" where there is none, or two."""
        pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").replace(",", ";").split(";"))
        values = {value for name, _, value in pairs if name == self.name}
        return values.pop() if len(values) == 1 else ""


class LoginTable:
    """See the module. A bounded number is kept; the oldest is dropped."""

    __slots__ = ("_clock", "_entropy", "_key", "_logins", "token_limit", "tokens")

    def __init__(self, clock: Clock, tokens: TokenTable | None, token_limit: TokenLimit | None = None) -> None:
        """Without tokens the application has its own authenticator, and no login is made here."""
        self.tokens = tokens
        self._clock = clock
        self._entropy = Entropy()
        self._key = random_key()
        self._logins: OrderedDict[bytes, PersonLogin] = OrderedDict()
        self.token_limit = (
            TokenLimit(clock) if token_limit is None else token_limit
        )  # shared by logins and by requests with a token or a key

    def begin(self, token: str, address: str = "") -> tuple[Caller, str]:
        """Return a new login of the holder of a token: the caller, and what the cookie holds. Unauthenticated if the
        token is not known, RateLimited if too many from this address were not."""
        if self.tokens is None:
            raise Unauthenticated("this server takes no tokens: its application knows its users")
        with self.token_limit.attempt(address, token):
            holder = self.tokens.holder(token)
        return Caller.for_holder(holder), self._open(token, holder)

    def _open(self, token: str, holder: TokenHolder) -> str:
        """Return what the cookie of a new login holds."""
        caller_key = hashlib.sha256(token.encode()).hexdigest()[:32]
        now_s = self._clock.monotonic()
        for known in [known for known, login in self._logins.items() if login.ends_s <= now_s]:
            del self._logins[known]
        own = [known for known, login in self._logins.items() if login.caller_key == caller_key]
        for known in own[: max(0, len(own) + 1 - SERVER_TOKEN_LOGINS_MAX)]:
            del self._logins[known]
        while len(self._logins) >= SERVER_LOGINS_MAX:
            self._logins.popitem(last=False)
        login_id = self._entropy.token()
        self._logins[_hash(login_id)] = PersonLogin(holder, caller_key, self._entropy.token(), now_s + SERVER_LOGIN_S)
        return login_id

    def find(self, login_id: str) -> PersonLogin | None:
        """Return the login that a cookie represents; None for one that is not known or has ended."""
        login = self._logins.get(_hash(login_id)) if login_id else None
        return login if login is not None and login.ends_s > self._clock.monotonic() else None

    def end(self, login_id: str) -> None:
        """Log out; a second call changes nothing."""
        self._logins.pop(_hash(login_id), None)

    async def while_open(self, login_id: str, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Yield the pieces of a stream, until its login ends: a page that is still open hears nothing after a log-out.
        A stream has a sign of life now and then, so that this is noticed."""
        async with aclosing(pieces):
            async for piece in pieces:
                if self.find(login_id) is None:
                    return
                yield piece

    def form_token_of(self, person: str) -> str:
        """Return the form token of a person whom an application's own authenticator knows."""
        return hmac.new(self._key, person.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


class SignedLogins(LoginTable):
    """Logins of a shard of a cluster. The cookie is ID.MARK.END.SIGNATURE: the mark of the token that was shown, and
    the end by the wall clock. A token that is in the table of a host no more has no login there, and a login that was
    ended is revoked on all shards."""

    __slots__ = ("_holders", "_revoked")

    def __init__(self, kernel: Kernel, tokens: TokenTable | None) -> None:
        super().__init__(kernel.clock, tokens, TokenLimit.get_shared(kernel))
        self._revoked: Revoked = kernel.core.remote.revoked
        self._key = self._sign("forms", "of people").encode()
        self._holders = {} if tokens is None else tokens.by_mark(self._revoked.key)

    def _sign(self, kind: str, text: str) -> str:
        return hmac.digest(self._revoked.key, f"{kind} {text}".encode("utf-8", "replace"), "sha256").hex()

    def _open(self, token: str, holder: TokenHolder) -> str:  # noqa: ARG002 (one signature)
        end = int(self._clock.now() + SERVER_LOGIN_S)
        told = f"{self._entropy.token()[:32]}.{mark_token(self._revoked.key, token)}.{end}"
        return f"{told}.{self._sign('login', told)}"

    def find(self, login_id: str) -> PersonLogin | None:
        told, _, signature = login_id.rpartition(".")
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), self._sign("login", told).encode()):
            return None
        name, mark, end = told.split(".")
        left_s = int(end) - self._clock.now()
        holder = self._holders.get(mark)
        if holder is None or left_s <= 0 or name in self._revoked:
            return None
        return PersonLogin(holder, mark, self._sign("form", name), self._clock.monotonic() + left_s)

    def end(self, login_id: str) -> None:
        if self.find(login_id) is not None:
            name, _, end, _ = login_id.split(".")
            self._revoked.revoke(name, float(end))


def make_logins(kernel: Kernel, tokens: TokenTable | None) -> LoginTable:
    """Return the logins of a kernel's site: its own, or those of its cluster."""
    if kernel.core.remote is None:
        return LoginTable(kernel.clock, tokens, TokenLimit.get_shared(kernel))
    return SignedLogins(kernel, tokens)


def _hash(login_id: str) -> bytes:
    return hashlib.sha256(login_id.encode("utf-8", "surrogatepass")).digest()


def begin_login(kernel: Kernel, logins: LoginTable, token: str, address: str, replaced: str) -> str:
    """Log the holder of a token in, and tell it; gives what the cookie holds. The login that the browser had before,
    `replaced`, ends. A token that is not known is told with the address that it came from."""
    try:
        caller, login_id = logins.begin(token.strip(), address)
    except Unauthenticated as error:
        record_act(kernel, _STRANGER, "login", {"address": address}, error.code)
        raise
    logins.end(replaced)
    record_act(kernel, caller, "login", {}, "ok")
    return login_id

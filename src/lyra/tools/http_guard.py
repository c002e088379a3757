"""One HTTP request to a host that was checked first; WebFetch and the YAML tools use it.

    answer = await fetch("https://example.org/a", grant=rights, timeout_s=20)

The first URL and every redirect are checked alike: the Grant must allow `net.http:host:port`, every address of the host
must be public (`lyra.sandbox.addresses`), and the connection goes to exactly those addresses; the name is resolved
once, so that a second answer of the name server cannot redirect it. TLS still checks the name. Proxies of the
environment are not used, cookies are not kept. Headers stay with the origin they were meant for. Answers are read up to
a limit, which also holds for decompressed data. `inside` names hosts (`host:port`) of this network that may be reached:
only Python code can set it, never a model or a file.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from lyra.core.rights.capability import Capability, Grant
from lyra.core.trace_context import outgoing
from lyra.errors import CapabilityDenied, ToolError
from lyra.sandbox.addresses import Lookup, Target, normalize_host, resolve, target_of
from lyra.sandbox.proxy import system_lookup

if TYPE_CHECKING:
    import ssl

    from httpcore2 import AsyncNetworkBackend, AsyncNetworkStream
    from httpcore2 import Response as HttpResponse


Dial = Callable[[str, int, float | None], Awaitable["AsyncNetworkStream"]]

ANSWER_BYTES_MAX: Final = 5 << 20
REDIRECTS_MAX: Final = 5
TIMEOUT_S: Final = 30.0
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_EVERYWHERE: Final = frozenset({"accept", "accept-language", "user-agent"})  # headers that may follow a redirect
_OURS: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "te", "upgrade", "expect"}
)
_PORTS: Final = {"http": 80, "https": 443}
_TOKEN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~")


class HttpAnswer(NamedTuple):
    """The answer of a server: `headers` have names in lower case; `truncated` when the body was longer than allowed."""

    url: str
    status: int
    headers: dict[str, str]
    body: bytes
    truncated: bool = False


async def fetch(
    url: str,
    *,
    grant: Grant,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    redirects: int = REDIRECTS_MAX,
    bytes_max: int = ANSWER_BYTES_MAX,
    timeout_s: float = TIMEOUT_S,
    inside: Collection[str] = (),
    lookup: Lookup = system_lookup,
    dial: Dial | None = None,
) -> HttpAnswer:
    """Return the answer, after at most `redirects` redirects (of GET and HEAD; redirects of other methods are
    returned)."""
    if method not in _METHODS:
        raise ToolError(f"{method[:20]!r} is not a method of HTTP", reason="invalid_arguments")
    sent = _check_headers(headers or {})
    outgoing(sent)
    try:
        async with asyncio.timeout(timeout_s) as scope:
            for _ in range(redirects + 1):
                target = await _check_target(url, grant, frozenset(inside), lookup)
                answer = await _once(url, target, method, sent, body, bytes_max, timeout_s, dial)
                location = answer.headers.get("location")
                if redirects == 0 or answer.status not in _REDIRECTS or not location or method not in ("GET", "HEAD"):
                    return answer
                url, sent = _next(url, location, sent)
    except TimeoutError:
        if not scope.expired():
            raise
        raise ToolError(f"{_shorten_url(url)} did not answer within {timeout_s:g} s", reason="timeout") from None
    raise ToolError(f"{_shorten_url(url)}: more than {redirects} redirects", reason="io_error")


def host_and_port(url: str) -> str:
    """`host:port` of a URL as a Grant and `inside` name it; CapabilityDenied where it cannot be read for certain."""
    return _scope(_read(url))


# ---------------------------------------------------------------- checking the target
async def _check_target(url: str, grant: Grant, inside: frozenset[str], lookup: Lookup) -> Target:
    target = _read(url)
    scope = _scope(target)
    if scope in inside:
        grant.check(Capability("net.http", scope))
        addresses = await lookup(normalize_host(target.host), target.port)
        return target._replace(addresses=tuple(dict.fromkeys(addresses)))
    target_of(url)  # before the Grant: no rule of a Grant opens a private address
    grant.check(Capability("net.http", scope))
    return await resolve(target.host, target.port, lookup=lookup)


def _read(url: str) -> Target:
    """Return the host and port; CapabilityDenied for a URL that parsers could read differently."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _unread(url) from None
    doubtful = any(char in url for char in "\\\t\r\n\0 ") or parts.username is not None or parts.password is not None
    if parts.scheme not in _PORTS or doubtful or not parts.hostname:
        raise _unread(url)
    return Target(parts.hostname, _PORTS[parts.scheme] if port is None else port)


def _unread(url: str) -> CapabilityDenied:
    try:
        target_of(url)  # its message is more precise
    except CapabilityDenied as error:
        return error
    return CapabilityDenied(f"{_shorten_url(url)} is refused: the URL cannot be read for certain")


def _scope(target: Target) -> str:
    host = normalize_host(target.host)
    return f"[{host}]:{target.port}" if ":" in host else f"{host}:{target.port}"


def _next(url: str, location: str, headers: dict[str, str]) -> tuple[str, dict[str, str]]:
    following = urljoin(url, location)
    if url.startswith("https:") and not following.startswith("https:"):
        raise CapabilityDenied(f"{_shorten_url(following)} is refused: a redirect must not leave https")
    if host_and_port(following) != host_and_port(url):
        headers = {name: value for name, value in headers.items() if name in _EVERYWHERE}
    return following, headers


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with names in lower case; line breaks, and headers that frame the request, are refused."""
    checked: dict[str, str] = {}
    for name, value in headers.items():
        plain = name.lower()
        if not plain or not _TOKEN.issuperset(plain) or plain in _OURS or plain.startswith("proxy-"):
            raise ToolError(f"{name[:60]!r} is not a header that can be set", reason="invalid_arguments")
        if any(char != "\t" and (char < " " or char == "\x7f") for char in value):
            raise ToolError(f"the header {plain} has a line break in it", reason="invalid_arguments")
        checked[plain] = value
    checked.setdefault("accept", "*/*")
    checked.setdefault("user-agent", "lyra")
    return checked


# ---------------------------------------------------------------- one request
@asynccontextmanager
async def open_answer(
    url: str,
    *,
    grant: Grant,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    connect_s: float = TIMEOUT_S,
    read_s: float | None = TIMEOUT_S,
    inside: Collection[str] = (),
    lookup: Lookup = system_lookup,
) -> AsyncIterator[HttpResponse]:
    """Provide the answer to one request, checked as those of `fetch`, whose body is read as it comes and is not packed;
    no redirect is followed. Errors of the connection are httpcore2's. `read_s` limits the time between two pieces."""
    target = await _check_target(url, grant, frozenset(inside), lookup)
    limits = {"connect": connect_s, "read": read_s, "write": connect_s, "pool": connect_s}
    async with _open(url, target, method, _check_headers(headers or {}), body, limits, None, b"identity") as response:
        yield response


@asynccontextmanager
async def _open(
    url: str,
    target: Target,
    method: str,
    headers: dict[str, str],
    body: bytes | None,
    limits: dict[str, float | None],
    dial: Dial | None,
    packing: bytes = b"gzip, deflate",
) -> AsyncIterator[HttpResponse]:
    import httpcore2

    parts = urlsplit(url)
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~-._?") if parts.query else ""
    place = httpcore2.URL(
        scheme=parts.scheme.encode(),
        host=normalize_host(target.host).encode(),
        port=target.port,
        target=f"{path}{query}".encode(),
    )
    host = _scope(target).removesuffix(f":{_PORTS[parts.scheme]}")
    lines = [(b"Host", host.encode()), *((name.encode(), value.encode()) for name, value in headers.items())]
    lines.append((b"accept-encoding", packing))
    pool = httpcore2.AsyncConnectionPool(
        ssl_context=_make_ssl_context() if parts.scheme == "https" else None, network_backend=_dialler(target, dial)
    )
    async with (
        pool,
        pool.stream(method, place, headers=lines, content=body or None, extensions={"timeout": limits}) as response,
    ):
        yield response


async def _once(
    url: str,
    target: Target,
    method: str,
    headers: dict[str, str],
    body: bytes | None,
    bytes_max: int,
    timeout_s: float,
    dial: Dial | None,
) -> HttpAnswer:
    import httpcore2

    limits: dict[str, float | None] = dict.fromkeys(("connect", "read", "write", "pool"), timeout_s)
    try:
        async with _open(url, target, method, headers, body, limits, dial) as response:
            answer_headers = _headers(response.headers)
            content, cut = await _content(
                response.aiter_stream(), answer_headers.get("content-encoding", ""), bytes_max
            )
            return HttpAnswer(url, response.status, answer_headers, content, cut)
    except httpcore2.TimeoutException:
        raise ToolError(f"{_shorten_url(url)} did not answer within {timeout_s:g} s", reason="timeout") from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError, zlib.error) as error:
        raise ToolError(f"{_shorten_url(url)} cannot be fetched: {_line(error)}", reason="io_error") from None


def _headers(lines: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in lines}


async def _content(chunks: AsyncIterator[bytes], encoding: str, most: int) -> tuple[bytes, bool]:
    """Return the body and whether there was more. Compressed data is decompressed in pieces, up to the limit."""
    unpack = _unpacker(encoding)
    content = bytearray()
    async for chunk in chunks:
        rest = chunk
        while rest and len(content) <= most:
            room = most + 1 - len(content)
            if unpack is None:
                content += rest[:room]
                break
            if unpack.eof:
                if not rest.startswith(_GZIP):
                    break  # bytes after the end are padding
                unpack = _unpacker(encoding)  # the next member of a gzip file
            content += unpack.decompress(rest, room)
            rest = unpack.unconsumed_tail or unpack.unused_data
        if len(content) > most:
            return bytes(content[:most]), True
    if unpack is not None and content and not unpack.eof:
        raise ToolError("the packed answer ends before its end", reason="io_error")
    return bytes(content), False


_GZIP: Final = b"\x1f"  # the first byte of a member


def _unpacker(encoding: str) -> Any:
    kind = encoding.strip().lower()
    if kind in ("", "identity"):
        return None
    if kind in ("gzip", "x-gzip", "deflate"):
        return zlib.decompressobj(wbits=47)  # reads both headers
    raise ToolError(f"the answer is packed as {kind[:40]!r}, which was not asked for", reason="io_error")


def _dialler(target: Target, dial: Dial | None) -> AsyncNetworkBackend:
    """Return a network backend that connects only to the addresses that were checked."""
    import httpcore2

    system = httpcore2.AnyIOBackend()

    async def system_dial(address: str, port: int, timeout: float | None) -> AsyncNetworkStream:
        return await system.connect_tcp(address, port, timeout=timeout)

    class CheckedBackend(httpcore2.AsyncNetworkBackend):
        async def connect_tcp(
            self, host: str, port: int, timeout: float | None = None, *_: Any, **__: Any
        ) -> AsyncNetworkStream:
            last: Exception = httpcore2.ConnectError(f"{host} has no address")
            for address in target.addresses:
                try:
                    return await (dial or system_dial)(address, port, timeout)
                except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                    last = error
            raise last

    return CheckedBackend()


@cache
def _make_ssl_context() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


def _shorten_url(url: str) -> str:
    return url.partition("?")[0][:200]


def _line(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:200]

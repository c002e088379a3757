"""The only way to the network: an HTTP proxy on this machine that asks the Grant about every host.

Speaks CONNECT (for https) and absolute-form requests (for http). Each request is checked in the same order: the Grant
must allow `net.http:host:port`, then every address of the host must be public (`addresses`), then exactly those
addresses are dialled. Listens on a unix socket that is bound into the sandbox, or, for the tier without a network of
its own, on a port of this machine with a password that only the command knows. Keeps a short list of what it
decided. Bounded in connections, in the size of a request and in time.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from lyra.core.ids import Entropy
from lyra.core.limits import EGRESS_CONNECT_S, EGRESS_CONNECTIONS_MAX, EGRESS_HEAD_BYTES_MAX, EGRESS_LOG_MAX
from lyra.core.rights.capability import Capability, Grant
from lyra.errors import CapabilityDenied
from lyra.sandbox.addresses import Lookup, Target, normalize_host, resolve, target_of

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[str, int], Awaitable[Streams]]

_CHUNK_BYTES: Final = 65_536
_DROPPED: Final = (b"proxy-", b"connection:", b"keep-alive:", b"te:", b"upgrade:", b"host:")


async def system_lookup(host: str, port: int) -> list[str]:
    """Return every address of a name, by the machine's own name server."""
    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(item[4][0]) for item in answers]


async def system_dial(address: str, port: int) -> Streams:
    return await asyncio.open_connection(address, port)


class _Refused(Exception):
    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


class Proxy:
    """One proxy for one command. `lookup` and `dial` are the machine's unless a test gives its own."""

    def __init__(self, grant: Grant, *, lookup: Lookup = system_lookup, dial: Dial = system_dial) -> None:
        self._grant = grant
        self._lookup = lookup
        self._dial = dial
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._password: str | None = None
        self.port = 0
        self.log: list[str] = []

    async def listen_unix(self, path: str) -> None:
        self._server = await asyncio.start_unix_server(self._serve, path, limit=EGRESS_HEAD_BYTES_MAX)

    async def listen_tcp(self) -> str:
        """Listen on a port that the machine picks; gives the URL with the password."""
        self._password = Entropy().token()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=EGRESS_HEAD_BYTES_MAX)
        self.port = self._server.sockets[0].getsockname()[1]
        return f"http://lyra:{self._password}@127.0.0.1:{self.port}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    # ------------------------------------------------------------ one connection
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= EGRESS_CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            try:
                upstream = await self._answer(reader, writer)
            except _Refused as refused:
                text = f"{refused}\n".encode()
                head = f"HTTP/1.1 {refused.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
                writer.write(head.encode() + b"Connection: close\r\n\r\n" + text)
                await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError):
            pass  # either side disconnected, or did not speak HTTP
        finally:
            self._open.discard(writer)
            for side in (writer, upstream):
                if side is not None:
                    side.close()
                    with contextlib.suppress(OSError):
                        await side.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> asyncio.StreamWriter | None:
        async with asyncio.timeout(EGRESS_CONNECT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        method, url, lines = _read_head(head)
        self._check_password(lines)
        target = _target(method, url)
        async with asyncio.timeout(EGRESS_CONNECT_S):
            theirs, upstream = await self._connect(target)
        self._open.add(upstream)
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                upstream.write(_origin_form(method, url, target, lines))
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, upstream))
                both.create_task(_copy(theirs, writer))
        except* OSError:
            pass
        finally:
            self._open.discard(upstream)
        return upstream

    def _check_password(self, lines: list[bytes]) -> None:
        if self._password is None:
            return
        expected = base64.b64encode(f"lyra:{self._password}".encode())
        values = (line.partition(b":")[2].split() for line in lines if line.lower().startswith(b"proxy-authorization:"))
        given = next((words[1] for words in values if len(words) == 2 and words[0].lower() == b"basic"), b"")
        if not hmac.compare_digest(given, expected):
            raise _Refused("407 Proxy Authentication Required", "this proxy belongs to one command")

    async def _connect(self, target: Target) -> Streams:
        host = normalize_host(target.host)
        scope = f"[{host}]:{target.port}" if ":" in host else f"{host}:{target.port}"
        try:
            self._grant.check(Capability("net.http", scope))
            resolved = await resolve(target.host, target.port, lookup=self._lookup)
        except CapabilityDenied as error:
            self._note(f"refused {scope}: {error}")
            raise _Refused("403 Forbidden", str(error)) from None
        self._note(f"allowed {scope}")
        for address in resolved.addresses:
            with contextlib.suppress(OSError):
                return await self._dial(address, target.port)
        raise _Refused("502 Bad Gateway", f"{scope} does not answer")

    def _note(self, decision: str) -> None:
        if len(self.log) < EGRESS_LOG_MAX:
            self.log.append(decision[:300])


def _read_head(head: bytes) -> tuple[str, str, list[bytes]]:
    first, *lines = head[:-4].split(b"\r\n")
    words = first.decode("ascii").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or any(line[:1] in b" \t" for line in lines):
        raise _Refused("400 Bad Request", "this is no request to a proxy")
    return words[0], words[1], lines


def _target(method: str, url: str) -> Target:
    if method == "CONNECT":
        host, colon, port = url.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or len(port) > 5:
            raise _Refused("400 Bad Request", "CONNECT names a host and a port")
        return Target(host.removeprefix("[").removesuffix("]"), int(port))
    if not url.startswith("http://"):
        raise _Refused("400 Bad Request", "only http:// URLs and CONNECT go through this proxy")
    try:
        return target_of(url)
    except CapabilityDenied as error:
        raise _Refused("403 Forbidden", str(error)) from None


def _origin_form(method: str, url: str, target: Target, lines: list[bytes]) -> bytes:
    """Return the request in origin form; the Host line is written from the URL, so that the two cannot differ."""
    rest = url[len("http://") :]
    slash = next((index for index, char in enumerate(rest) if char in "/?"), len(rest))
    path = rest[slash:] if rest[slash : slash + 1] == "/" else f"/{rest[slash:]}"
    name = f"[{target.host}]" if ":" in target.host else target.host
    kept = [line for line in lines if not line.lower().startswith(_DROPPED)]
    head = [f"{method} {path} HTTP/1.1".encode(), f"Host: {name}:{target.port}".encode(), *kept, b"Connection: close"]
    return b"\r\n".join(head) + b"\r\n\r\n"


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()

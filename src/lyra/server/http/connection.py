"""One connection of a client, held to limits that uvicorn does not have: size and time of the headers, a reader that
does not read, the number of connections. The size of a head is looked at before the parser gets it.

`make_guarded_protocol` gives a protocol class for uvicorn. A connection that says nothing, or says its headers one byte
at a time, is closed after `SERVER_HEAD_S`; a client that takes nothing of an answer for `SERVER_UNREAD_S` is dropped.
The time of a body is measured in `guard`, which can still answer.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

from lyra.core.limits import SERVER_HEAD_BYTES_MAX, SERVER_HEAD_S, SERVER_UNREAD_S

# For every answer, also where there is no request yet. Pages have their own policy.
SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_SECURITY_LINES: Final = b"".join(b"%s: %s\r\n" % pair for pair in SECURITY_HEADERS)
_HEAD_END: Final = b"\r\n\r\n"
_SLICE_BYTES: Final = 16 * 1024  # given to the parser at once
_REFUSAL: Final = (
    b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n"
    b"cache-control: no-store\r\n%s%s\r\n%s"
)
_BUSY: Final = b'{"error":{"code":"overloaded","message":"the server has no room for another connection","hint":""}}'
_BAD: Final = b'{"error":{"code":"config","message":"that is no HTTP request","hint":""}}'
_LARGE: Final = b'{"error":{"code":"too_large","message":"the headers are too large","hint":""}}'


class ConnectionLimits:
    """The limits of the connections of one server."""

    __slots__ = ("connections_max", "head_bytes_max", "head_s", "unread_s")

    def __init__(
        self,
        connections_max: int,
        *,
        head_bytes_max: int = SERVER_HEAD_BYTES_MAX,
        head_s: float = SERVER_HEAD_S,
        unread_s: float = SERVER_UNREAD_S,
    ) -> None:
        self.connections_max = connections_max
        self.head_bytes_max = head_bytes_max
        self.head_s = head_s
        self.unread_s = unread_s


_Protocol: Any = asyncio.Protocol  # its methods call those of the class that `make_guarded_protocol` adds


class GuardedConnection(_Protocol):  # type: ignore[misc]
    """A connection with limits, over the protocol class that uvicorn chose."""

    limits: ClassVar[ConnectionLimits]
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0  # of the head that has begun
    _head_tail = b""  # its last bytes: where its end may have begun
    _is_in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections_max:
            transport.write(_refusal(503, b"Service Unavailable", _BUSY, b"retry-after: 1\r\n"))
            transport.close()
            return
        self._arm_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm_head()
        self._disarm_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        for start in range(0, len(data), _SLICE_BYTES):
            if self.transport.is_closing():
                return
            piece = data[start : start + _SLICE_BYTES]
            if not self._is_in_body and self._is_head_too_large(piece):
                if self.cycle is None or self.cycle.response_complete:  # else it would stand inside another answer
                    self.transport.write(_refusal(431, b"Request Header Fields Too Large", _LARGE))
                self.transport.close()
                return
            super().data_received(piece)
        if self.cycle is not before or (self.cycle is not None and not self.cycle.response_complete):
            self._disarm_head()
        elif self._head_timer is None and not self.transport.is_closing():
            self._arm_head()

    def _is_head_too_large(self, piece: bytes) -> bool:
        """Count what a piece adds to the head that has begun."""
        known = len(self._head_tail)
        end = (self._head_tail + piece).find(_HEAD_END)
        self._head_bytes += len(piece) if end < 0 else end + len(_HEAD_END) - known
        self._head_tail = (self._head_tail + piece)[1 - len(_HEAD_END) :]
        return self._head_bytes > self.limits.head_bytes_max

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._head_bytes, self._head_tail = 0, b""
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        del msg
        self.transport.write(_refusal(400, b"Bad Request", _BAD))
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(self.limits.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._disarm_unread()
        super().resume_writing()

    def _arm_head(self) -> None:
        self._head_timer = self.loop.call_later(self.limits.head_s, self._head_too_slow)

    def _head_too_slow(self) -> None:
        self._head_timer = None
        self.transport.abort()

    def _disarm_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _disarm_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None


def make_guarded_protocol(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Return the protocol class of uvicorn's choice, with limits."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    return type("LimitedConnection", (GuardedConnection, AutoHTTPProtocol), {"limits": limits})


def _refusal(status: int, phrase: bytes, body: bytes, more: bytes = b"") -> bytes:
    return _REFUSAL % (status, phrase, len(body), _SECURITY_LINES, more, body)

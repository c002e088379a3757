"""Amazon's event stream: bytes into messages, split anywhere, every checksum checked.

A message is `total length, headers length, checksum of the two, headers, payload, checksum of all before it`. botocore
reads the same, several times slower: here headers that were read once, which is nearly all of a stream's, are not read
again. The error of a message is raised after the messages before it were returned.
"""

from __future__ import annotations

import struct
from binascii import crc32
from typing import Any, Final

from lyra.errors import ModelError
from lyra.models.wire.faults import malformed

HEADERS_BYTES_MAX: Final = 128 << 10  # the protocol's own limits
PAYLOAD_BYTES_MAX: Final = 24 << 20
_KNOWN_MAX: Final = 64  # sets of headers that are remembered; a stream of Converse has about six

_PRELUDE: Final = struct.Struct("!III")
_CHECKSUM: Final = struct.Struct("!I")
_LENGTH: Final = struct.Struct("!H")
# Numeric types of header values by their code; text, bytes and booleans are read separately.
_NUMBERS: Final = {2: struct.Struct("!b"), 3: struct.Struct("!h"), 4: struct.Struct("!i"), 5: struct.Struct("!q")}
_TRUTHS: Final = {0: True, 1: False}
_BYTES, _TEXT, _TIME, _UUID = 6, 7, 8, 9

Headers = dict[str, Any]


class Frames:
    __slots__ = ("_known", "_rest", "broken")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._known: dict[bytes, Headers] = {}
        self.broken: ModelError | None = None  # the error that follows the messages that were returned

    def feed(self, data: bytes) -> list[tuple[Headers, bytes]]:
        """The messages that `data` completes: headers and payload."""
        if self.broken is not None:
            raise self.broken
        self._rest += data
        messages: list[tuple[Headers, bytes]] = []
        try:
            done = self._take(messages)
        except ModelError as error:
            if not messages:
                raise
            self.broken = error
            return messages
        if done:
            del self._rest[:done]
        return messages

    def _take(self, messages: list[tuple[Headers, bytes]]) -> int:
        rest = self._rest
        start, size = 0, len(rest)
        while size - start >= 12:
            total, head, checksum = _PRELUDE.unpack_from(rest, start)
            if crc32(rest[start : start + 8]) != checksum:
                raise malformed("the checksum of a frame's lengths is wrong")
            payload = total - head - 16
            if head > HEADERS_BYTES_MAX or not 0 <= payload <= PAYLOAD_BYTES_MAX:
                raise malformed(f"a frame of {total} bytes with {head} bytes of headers cannot be")
            end = start + total
            if end > size:
                break
            if crc32(rest[start : end - 4]) != _CHECKSUM.unpack_from(rest, end - 4)[0]:
                raise malformed("the checksum of a frame is wrong")
            body = start + 12 + head
            messages.append((self._headers(bytes(rest[start + 12 : body])), bytes(rest[body : end - 4])))
            start = end
        return start

    def _headers(self, data: bytes) -> Headers:
        headers = self._known.get(data)
        if headers is None:
            try:
                headers = _headers(data)
            except (struct.error, IndexError, UnicodeDecodeError, KeyError) as error:
                raise malformed(f"the headers of a frame cannot be read: {error!r}") from None
            if len(self._known) < _KNOWN_MAX:
                self._known[data] = headers
        return headers


def _headers(data: bytes) -> Headers:
    headers: Headers = {}
    position = 0
    while position < len(data):
        position, name = _piece(data, position + 1, data[position])
        kind = data[position]
        position, value = _value(data, position + 1, kind)
        if name.decode() in headers:
            raise malformed(f"a frame has the header {name.decode()!r} twice")
        headers[name.decode()] = value
    return headers


def _value(data: bytes, position: int, kind: int) -> tuple[int, Any]:
    if kind in (_TEXT, _BYTES):
        position, value = _piece(data, position + 2, _LENGTH.unpack_from(data, position)[0])
        return position, value.decode() if kind == _TEXT else value
    if kind in _TRUTHS:
        return position, _TRUTHS[kind]
    if kind == _UUID:
        return _piece(data, position, 16)
    number = _NUMBERS[5 if kind == _TIME else kind]
    return position + number.size, number.unpack_from(data, position)[0]


def _piece(data: bytes, start: int, size: int) -> tuple[int, bytes]:
    end = start + size
    if end > len(data):
        raise IndexError("a header ends outside its frame")
    return end, data[start:end]

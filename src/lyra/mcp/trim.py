"""Shortens answers while they arrive, so that parsing them does not block the event loop.

A server may send 32 MiB; a model reads a hundred thousand characters. `Trim` processes each piece as it arrives: a text
above a limit is cut, bytes in base64 are kept up to a size and then made invalid (decoding reports that), and an answer
of too many values, too many lists and mappings, or too many inside one another is an error. The result is valid JSON.
`check_values` does the counting alone. `shorten` bounds the parts of a result, since the SDK makes an object of each.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

from lyra.core.limits import VALUE_DEPTH_MAX

ANSWER_BYTES_MAX: Final = 32 << 20
VALUES_MAX: Final = 100_000  # of one message
CONTAINERS_MAX: Final = 25_000  # lists and mappings of one message, each of which takes the SDK as long as many numbers
_SLICE_BYTES: Final = 16_384  # processed without yielding to the loop
_TEXT_BYTES_MAX: Final = 256 << 10  # of one text
_TEXTS_BYTES_MAX: Final = 1 << 20  # of all texts of one message; further texts are kept only if short
_SHORT_BYTES_MAX: Final = 64
_BINARY_BYTES_MAX: Final = 3 << 20  # of all base64 data of one message
_PARTS_MAX: Final = 1_000  # of one result or page
_LISTS: Final = ("content", "contents", "messages", "tools", "resources", "resourceTemplates", "prompts")
_BINARY: Final = (b"data", b"blob")
_CUT: Final = b"\\n\xe2\x80\xa6 the rest was left out"
_INSIDE: Final = re.compile(rb'[^"\\\n]*(?:\\[^\n][^"\\\n]*)*')
# Whole characters and escapes: a text is never cut inside one, nor between two surrogates.
_WHOLE: Final = re.compile(
    rb"(?:[\x00-\x5b\x5d-\x7f]+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
    rb"|\\[^u]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})*"
)
_END_OF_EVENT: Final = re.compile(rb"\n\r?\n")
_BRACKETS: Final = re.compile(rb"[\[{]+|[\]}]+")


class AnswerTooLarge(ValueError):
    """A message exceeds a limit; the text names the limit."""


class Trim:
    """Trims one body, piece by piece. With `events` it is a stream of server-sent events, each of them a message;
    without `cuts` its values are counted, and no text is cut."""

    def __init__(self, *, events: bool = False, cuts: bool = True) -> None:
        self._events = events
        self._cuts = cuts
        self._inside = False
        self._text: list[bytes] = []  # pieces of the current string, until it ends or is cut
        self._length = 0
        self._is_cut = False
        self._last = b""  # the string before, if it is short
        self._between = b""
        self._left = b""  # an incomplete escape
        self._begin()

    def _begin(self) -> None:
        self._bytes = self._commas = self._containers = self._depth = self._texts = self._binaries = 0

    def feed(self, piece: bytes) -> bytes:
        self._bytes += len(piece)
        if self._bytes > ANSWER_BYTES_MAX:
            raise AnswerTooLarge(f"an answer of more than {ANSWER_BYTES_MAX >> 20} MiB")
        piece, self._left = self._left + piece, b""
        out: list[bytes] = []
        position = 0
        while position < len(piece):
            position = self._string(piece, position, out) if self._inside else self._outside(piece, position, out)
        return b"".join(out)

    def close(self) -> bytes:
        """Return the rest of a body that ends in the middle of a text."""
        return b"".join(self._text) + self._left

    def _outside(self, piece: bytes, start: int, out: list[bytes]) -> int:
        quote = piece.find(b'"', start)
        end = len(piece) if quote < 0 else quote + 1
        part = piece[start:end]
        out.append(part)
        self._between = (self._between + part)[-4:]
        if self._events and _END_OF_EVENT.search(self._between if len(part) < 4 else part):
            self._begin()
        self._count_values(part)
        if quote >= 0:
            self._is_binary = self._last in _BINARY and self._between[:-1].strip() == b":"
            self._inside, self._is_cut, self._text, self._length = True, False, [], 0
        return end

    def _count_values(self, part: bytes) -> None:
        self._commas += part.count(b",")
        if self._commas > VALUES_MAX:
            raise AnswerTooLarge(f"an answer of more than {VALUES_MAX} values")
        for run in _BRACKETS.finditer(part):
            length = run.end() - run.start()
            if part[run.start()] in b"]}":
                self._depth -= length
                continue
            self._depth += length
            self._containers += length
            if self._depth > VALUE_DEPTH_MAX:
                raise AnswerTooLarge(f"an answer nested more than {VALUE_DEPTH_MAX} levels deep")
            if self._containers > CONTAINERS_MAX:
                raise AnswerTooLarge(f"an answer of more than {CONTAINERS_MAX} lists and mappings")

    def _string(self, piece: bytes, start: int, out: list[bytes]) -> int:
        match = _INSIDE.match(piece, start)
        end = match.end() if match else start
        self._keep(piece[start:end], out)
        if end == len(piece):
            return end
        if piece[end : end + 1] == b"\\":
            if end + 1 == len(piece):
                self._left = piece[end:]
                return end + 1
            end += 1  # a backslash before a newline: invalid JSON, passed on
        text = b"".join(self._text)
        out.append(text)
        self._count(len(text))
        self._last = text if len(text) <= _SHORT_BYTES_MAX else b""
        self._inside, self._text = False, []
        out.append(piece[end : end + 1])
        self._between = b""
        return end + 1

    def _keep(self, part: bytes, out: list[bytes]) -> None:
        if self._is_cut or not part:
            return
        self._text.append(part)
        self._length += len(part)
        most = self._most()
        if self._length > most:
            whole = _WHOLE.match(b"".join(self._text)[:most])
            head = whole[0] if whole else b""
            out += [head, _CUT]
            self._count(len(head))
            self._is_cut, self._text = True, []

    def _most(self) -> int:
        if not self._cuts:
            return sys.maxsize
        if self._is_binary:
            return max(_BINARY_BYTES_MAX - self._binaries, _SHORT_BYTES_MAX)
        return _TEXT_BYTES_MAX if self._texts < _TEXTS_BYTES_MAX else _SHORT_BYTES_MAX

    def _count(self, size: int) -> None:
        if self._is_binary:
            self._binaries += size
        else:
            self._texts += size


async def slices(data: bytes) -> AsyncIterator[bytes]:
    """Yield the data in slices, between which other tasks can run."""
    for start in range(0, len(data), _SLICE_BYTES):
        yield data[start : start + _SLICE_BYTES]
        await asyncio.sleep(0)


async def check_values(message: bytes) -> None:
    """Raise AnswerTooLarge if the message holds more values than can be read without blocking the loop."""
    if len(message) <= _SLICE_BYTES:
        return  # even if every character of it begins a value
    trim = Trim(cuts=False)
    async for part in slices(message):
        trim.feed(part)


def shorten(result: dict[str, Any]) -> None:
    """Cut the lists of a result: the SDK makes an object of every part, and 300 000 would block the loop for 10 s."""
    for name in _LISTS:
        parts = result.get(name)
        if isinstance(parts, list) and len(parts) > _PARTS_MAX:
            result[name] = parts[:_PARTS_MAX]
            if name == "content":
                note = f"… {len(parts) - _PARTS_MAX} parts left out"
                result[name].append({"type": "text", "text": note})

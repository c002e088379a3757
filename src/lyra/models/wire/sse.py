"""Bytes into lines, lines into server-sent events: split anywhere, also inside a character.

`LineSplitter` takes bytes in any pieces and returns whole lines, ended by LF, CR LF or CR. `ServerEvents`
makes events of lines: several `data:` lines are joined, comments and unknown fields are skipped, an event without data
is dropped. Bytes that are no UTF-8 become U+FFFD, never an exception; a byte order mark before the first line is
dropped. Nothing here depends on a
provider. `EventReader` is the common base of the readers of answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, NamedTuple

from lyra.errors import ModelError
from lyra.models.stream import StreamEvent
from lyra.models.wire.faults import stream_truncated, too_large

LINE_BYTES_MAX: Final = 16 << 20  # one line; the longest are images in an answer


_MARK: Final = b"\xef\xbb\xbf"


class LineSplitter:
    __slots__ = ("_head", "_rest", "_skip_newline", "fresh")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skip_newline = False
        self.fresh = True  # until it is known whether the first bytes are a byte order mark
        self._head = b""

    def without_mark(self, data: bytes) -> bytes:
        """`data` without the byte order mark that the first bytes of all may be."""
        head = self._head + data
        if len(head) < len(_MARK) and _MARK.startswith(head):
            self._head = head
            return b""
        self.fresh = False
        return head.removeprefix(_MARK)

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that `data` completes."""
        if self.fresh:
            data = self.without_mark(data)
        if self._skip_newline and data[:1] == b"\n":  # the other half of a \r\n that was split
            data = data[1:]
        self._skip_newline = False
        if not data:
            return []
        rest = self._rest
        rest += data
        if b"\n" not in data and b"\r" not in data:
            if len(rest) > LINE_BYTES_MAX:
                raise too_large(LINE_BYTES_MAX)
            return []
        self._skip_newline = rest.endswith(b"\r")
        *lines, last = bytes(rest).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = bytearray(last)
        return [line.decode("utf-8", "replace") for line in lines]

    @property
    def between(self) -> bool:
        """True when everything so far has been given as lines."""
        return not self._rest and not self._skip_newline

    def close(self) -> list[str]:
        """Return what is left when the stream has ended: a line without an end."""
        rest, self._rest, self._head = self._head * self.fresh + bytes(self._rest), bytearray(), b""
        return [rest.decode("utf-8", "replace")] if rest else []


class ServerEvent(NamedTuple):
    event: str
    data: str


class ServerEvents:
    __slots__ = ("_data", "_event", "_lines")

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._event = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        if self._lines.fresh:
            data = self._lines.without_mark(data)
        whole = data.endswith(b"\n\n") and not self._data and not self._event and self._lines.between
        if whole and b"\r" not in data and len(data) <= LINE_BYTES_MAX:
            return self._read_whole(data.decode("utf-8", "replace"))
        return self._read(self._lines.feed(data))

    def _read_whole(self, text: str) -> list[ServerEvent]:
        """Read a text of whole events, as servers mostly send them, without splitting it into lines."""
        events: list[ServerEvent] = []
        for block in text.split("\n\n"):
            name, newline, data = block.partition("\n")
            if not newline and block.startswith("data: "):
                events.append(ServerEvent("", block[6:]))
            elif name.startswith("event: ") and data.startswith("data: ") and "\n" not in data:
                events.append(ServerEvent(name[7:], data[6:]))
            elif block:
                events += self._read([*block.split("\n"), ""])
        return events

    def close(self) -> list[ServerEvent]:
        """Return the event that the end of the stream completes: some servers leave out the last empty line."""
        return self._read([*self._lines.close(), ""])

    def _read(self, lines: list[str]) -> list[ServerEvent]:
        events: list[ServerEvent] = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(ServerEvent(self._event, "\n".join(self._data)))
                self._event, self._data = "", []
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                self._data.append(value)
            elif field == "event":
                self._event = value
        return events


class EventReader(ABC):
    """Reads one answer. `done` once it is whole; `close` at the end of the bytes, an error when it is not."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: ModelError | None = None

    @property
    def settled(self) -> bool:
        """Whether the answer looks complete, although only the end of the bytes proves it."""
        return False

    def feed(self, data: bytes) -> list[StreamEvent]:
        if self.error is not None:
            raise self.error
        events: list[StreamEvent] = []
        try:
            self._take(data, events)
        except ModelError as error:
            self._keep(error, events)
        return events

    def close(self) -> list[StreamEvent]:
        """Return the events that the end of the bytes completes. An unreadable last piece means that the stream was
        cut."""
        if self.error is not None:
            raise self.error
        events: list[StreamEvent] = []
        try:
            try:
                self._last(events)
            except ModelError as error:
                if error.kind != "malformed" or "tool" in error.fields or "provider_code" in error.fields:
                    raise
                raise stream_truncated("the stream ended in the middle of a piece") from None
            self._end(events)
        except ModelError as error:
            self._keep(error, events)
        return events

    def _keep(self, error: ModelError, events: list[StreamEvent]) -> None:
        if not events:
            raise error
        self.error = error

    @abstractmethod
    def _take(self, data: bytes, events: list[StreamEvent]) -> None: ...

    @abstractmethod
    def _last(self, events: list[StreamEvent]) -> None:
        """Read what is left of the bytes."""

    @abstractmethod
    def _end(self, events: list[StreamEvent]) -> None:
        """Raise an error if the answer is not complete."""


class ServerEventReader(EventReader):
    """Reads an answer that comes as server-sent events."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        super().__init__()
        self._events = ServerEvents()

    def _take(self, data: bytes, events: list[StreamEvent]) -> None:
        self._read(self._events.feed(data), events)

    def _last(self, events: list[StreamEvent]) -> None:
        self._read(self._events.close(), events)

    @abstractmethod
    def _read(self, sent: list[ServerEvent], events: list[StreamEvent]) -> None: ...

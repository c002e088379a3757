"""EventReader: what the readers of answers have in common, whatever the wire.

A reader is pure: bytes in, events out, the same whatever way the bytes were cut. An error is told after the events
that came before it, also where they came in the same bytes: then `feed` gives the events, and `error` holds what is to
be raised next. A subclass writes `_take` (bytes) and `_last` (their end), which add to `found` what they read; one of
`ServerEventReader` writes `_read` for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from lyra.errors import ModelError
from lyra.models.stream import StreamEvent
from lyra.models.wire.faults import truncated
from lyra.models.wire.sse import ServerEvent, ServerEvents

__all__ = ["EventReader", "ServerEventReader"]


class EventReader(ABC):
    """Reads one answer. `done` once it is whole; `close` at the end of the bytes, an error when it is not."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: ModelError | None = None

    @property
    def settled(self) -> bool:
        """The answer looks whole, but only the end of the bytes says that it is."""
        return False

    def feed(self, data: bytes) -> list[StreamEvent]:
        if self.error is not None:
            raise self.error
        found: list[StreamEvent] = []
        try:
            self._take(data, found)
        except ModelError as error:
            self._keep(error, found)
        return found

    def close(self) -> list[StreamEvent]:
        """What the end of the bytes completes. Half a piece at the end is no broken one: the stream broke off in it."""
        if self.error is not None:
            raise self.error
        found: list[StreamEvent] = []
        try:
            try:
                self._last(found)
            except ModelError as error:
                if error.kind != "malformed" or "tool" in error.fields or "provider_code" in error.fields:
                    raise
                raise truncated("the stream ended in the middle of a piece") from None
            self._end(found)
        except ModelError as error:
            self._keep(error, found)
        return found

    def _keep(self, error: ModelError, found: list[StreamEvent]) -> None:
        if not found:
            raise error
        self.error = error

    @abstractmethod
    def _take(self, data: bytes, found: list[StreamEvent]) -> None: ...

    @abstractmethod
    def _last(self, found: list[StreamEvent]) -> None:
        """Read what is left of the bytes."""

    @abstractmethod
    def _end(self, found: list[StreamEvent]) -> None:
        """An error where the answer is not whole."""


class ServerEventReader(EventReader):
    """Reads an answer that comes as server-sent events."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        super().__init__()
        self._events = ServerEvents()

    def _take(self, data: bytes, found: list[StreamEvent]) -> None:
        self._read(self._events.feed(data), found)

    def _last(self, found: list[StreamEvent]) -> None:
        self._read(self._events.close(), found)

    @abstractmethod
    def _read(self, events: list[ServerEvent], found: list[StreamEvent]) -> None: ...

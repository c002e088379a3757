"""EventReader: the common base of the readers of answers.

A reader is pure: bytes in, events out, independent of how the bytes were split. An error comes after the events before
it, also if both were in the same bytes: then `feed` returns the events, and `error` holds the error to be raised next.
A subclass writes `_take` (bytes) and `_last` (their end), which add the events they read to `events`; one of
`ServerEventReader` writes `_read` for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from lyra.errors import ModelError
from lyra.models.stream import StreamEvent
from lyra.models.wire.faults import truncated
from lyra.models.wire.sse import ServerEvent, ServerEvents


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
        """The events that the end of the bytes completes. An unreadable last piece means that the stream was cut."""
        if self.error is not None:
            raise self.error
        events: list[StreamEvent] = []
        try:
            try:
                self._last(events)
            except ModelError as error:
                if error.kind != "malformed" or "tool" in error.fields or "provider_code" in error.fields:
                    raise
                raise truncated("the stream ended in the middle of a piece") from None
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

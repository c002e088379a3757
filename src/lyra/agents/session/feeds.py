"""EventFeed: the events of an agent's answers for any number of readers, who come and go while it works.

A Stream has one reader, which slows the agent down; the readers of a feed never do. One that falls behind misses pieces
of text and progress reports, and no other event. `FeedSink` is the sink of one answer that puts its events into a feed.
Nothing is kept for readers that come later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lyra.agents.session.events import AgentEvent, Text, Thinking, ToolProgress
from lyra.agents.session.replies import Sink

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


_WAITING_MAX: Final = 4_096  # events for one reader, before pieces of text are left out
_LEFT_OUT: Final = (Text, Thinking, ToolProgress)


class FeedReader:
    """The events from the moment it was made; `async for` ends after `close`."""

    __slots__ = ("_closed", "_feed", "_queue", "_waker")

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed
        self._queue: deque[AgentEvent] = deque()
        self._waker: asyncio.Future[None] | None = None
        self._closed = False

    def put(self, event: AgentEvent) -> None:
        if len(self._queue) < _WAITING_MAX or not isinstance(event, _LEFT_OUT):
            self._queue.append(event)
            self._wake()

    def close(self) -> None:
        """Give no further events; those that wait are still read."""
        self._closed = True
        self._feed.leave(self)
        self._wake()

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    def __aiter__(self) -> AsyncIterator[AgentEvent]:
        return self

    async def __anext__(self) -> AgentEvent:
        while not self._queue:
            if self._closed:
                raise StopAsyncIteration
            self._waker = asyncio.get_running_loop().create_future()
            await self._waker
        return self._queue.popleft()


class EventFeed:
    """One agent process's events."""

    __slots__ = ("_readers",)

    def __init__(self) -> None:
        self._readers: list[FeedReader] = []

    def read(self) -> FeedReader:
        reader = FeedReader(self)
        self._readers.append(reader)
        return reader

    def put(self, event: AgentEvent) -> None:
        for reader in self._readers:
            reader.put(event)

    def leave(self, reader: FeedReader) -> None:
        with suppress(ValueError):
            self._readers.remove(reader)

    def close(self) -> None:
        """End all readers: the agent works no more."""
        for reader in tuple(self._readers):
            reader.close()


class FeedSink(Sink):
    """A sink that hands every event on at once: it is never full, and an answer does not end it."""

    __slots__ = ("_hand_on",)

    def __init__(self, kernel: Kernel, hand_on: Callable[[AgentEvent], object]) -> None:
        super().__init__(kernel)
        self._hand_on = hand_on

    def put(self, event: AgentEvent) -> None:
        if type(event) is Text:
            self.lengths.append(len(event.delta))
        self._hand_on(event)

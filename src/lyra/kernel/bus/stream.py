"""A reader of the bus that may be slower than the publisher: its queue is bounded and drops the oldest message."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lyra.errors import ProcessError
from lyra.kernel.bus.message import BusMessage

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core


class Queue:
    """The unread messages of a stream; the bus holds the queue, and the reader holds the stream."""

    __slots__ = ("__weakref__", "_core", "closed", "dropped", "ends", "messages", "size", "waiter")

    def __init__(self, core: Core[Any], size: int) -> None:
        self._core = core
        self.size = size
        self.messages: deque[BusMessage] = deque()
        self.ends: list[Callable[[], Any]] = []
        self.waiter: asyncio.Future[None] | None = None
        self.closed = False
        self.dropped = 0

    def put(self, message: BusMessage) -> None:
        if len(self.messages) >= self.size:
            oldest = self.messages.popleft()
            self.dropped += 1
            self._core.publish("", "bus.dropped", {"type": oldest.type, "id": oldest.id, "dropped": self.dropped})
        self.messages.append(message)
        self.wake()

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def get(self) -> BusMessage | None:
        """The oldest unread message; None when there will be no more."""
        if self.waiter is not None:
            raise ProcessError("this stream is being read already", hint="one reader a stream: open another")
        while not self.messages and not self.closed:
            self.waiter = self._core.loop.create_future()
            try:
                await self.waiter
            finally:
                self.waiter = None
        return self.messages.popleft() if self.messages else None

    def close(self) -> None:
        self.closed = True
        ends, self.ends = self.ends, []
        for end in ends:
            end()
        self.wake()


class BusStream:
    """Events in order: `async for message in kernel.bus.stream("tick")`. Deleting it ends it, like `aclose()`."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    @property
    def dropped(self) -> int:
        """Messages lost because this reader was too slow."""
        return self._queue.dropped

    def __aiter__(self) -> BusStream:
        return self

    async def __anext__(self) -> BusMessage:
        message = await self._queue.get()
        if message is None:
            raise StopAsyncIteration
        return message

    async def aclose(self) -> None:
        self._queue.close()

    async def __aenter__(self) -> BusStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._queue.close()

    def __del__(self) -> None:
        self._queue.close()

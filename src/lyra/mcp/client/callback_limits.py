"""How much a server may ask back at once: each question is a task of the SDK, so there are only so many.

Counted are the questions that wait for an answer, and the answers that wait to be read. A server with too many of
either is not heard any more, by whichever way it is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from lyra.mcp.client.trim import shorten
from lyra.mcp.state import Failed, Failure

__all__ = ["Questions", "Receiving", "Sending"]

_OPEN_MAX: Final = 100


class Questions:
    """`unread` tells how many messages to the server wait."""

    def __init__(self, unread: Callable[[], int]) -> None:
        self._open: set[str] = set()
        self._unread = unread

    def heard(self, message: Any) -> Failed | None:
        """It said this; why it is to be heard no longer, when that is one question too many."""
        if isinstance(message, JSONRPCNotification):
            if message.method == "notifications/cancelled":
                self._open.discard(str((message.params or {}).get("requestId")))
        elif isinstance(message, JSONRPCRequest):
            again = str(message.id) in self._open
            self._open.add(str(message.id))
            if again or len(self._open) > _OPEN_MAX or self._unread() > _OPEN_MAX:
                said = "it asks back without end and does not wait for answers"
                return Failed(Failure("protocol", "too_many_requests", said))
        return None

    def answered(self, message: Any) -> None:
        if isinstance(message, (JSONRPCResponse, JSONRPCError)):
            self._open.discard(str(message.id))


class _Stream:
    """A stream of the SDK's, and everything about it that is not changed here."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)


class Receiving(_Stream):
    """What a server says; it ends with one question too many, and `ended` is told."""

    def __init__(self, inner: Any, questions: Questions, ended: Callable[[Failed], None]) -> None:
        super().__init__(inner)
        self._questions = questions
        self._ended = ended

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await self._inner.__anext__()
        message = getattr(item, "message", None)
        why = self._questions.heard(message)
        if why is not None:
            self._ended(why)
            raise StopAsyncIteration
        if isinstance(message, JSONRPCResponse):
            shorten(message.result)
        return item


class Sending(_Stream):
    """What is sent to a server."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.waiting = 0
        self.questions = Questions(lambda: self.waiting)

    async def send(self, item: Any) -> None:
        self.waiting += 1
        try:
            await self._inner.send(item)
        finally:
            self.waiting -= 1
            self.questions.answered(item.message)

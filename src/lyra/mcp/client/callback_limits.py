"""Limits on callbacks: each request of a server is a task of the SDK, so their number is bounded.

Counted are the requests that wait for an answer, and the answers that wait to be read. A server with too many of either
is disconnected, over either transport.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from lyra.mcp.client.trim import shorten
from lyra.mcp.state import Failure, ServerFailed

_OPEN_MAX: Final = 100


class CallbackLimits:
    """Counts the open requests of a server. `unread()` is the number of messages that wait to be sent to it."""

    def __init__(self, unread: Callable[[], int]) -> None:
        self._open: set[str] = set()
        self._unread = unread

    def heard(self, message: Any) -> ServerFailed | None:
        """Note a message of the server; returns the failure if it is one request too many."""
        if isinstance(message, JSONRPCNotification):
            if message.method == "notifications/cancelled":
                self._open.discard(str((message.params or {}).get("requestId")))
        elif isinstance(message, JSONRPCRequest):
            again = str(message.id) in self._open
            self._open.add(str(message.id))
            if again or len(self._open) > _OPEN_MAX or self._unread() > _OPEN_MAX:
                message_text = "it asks back without end and does not wait for answers"
                return ServerFailed(Failure("protocol", "too_many_requests", message_text))
        return None

    def answered(self, message: Any) -> None:
        if isinstance(message, (JSONRPCResponse, JSONRPCError)):
            self._open.discard(str(message.id))


class _Stream:
    """A stream of the SDK; attributes that are not overridden are passed on."""

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
    """Messages from a server. One request too many ends the stream, and `ended` is called."""

    def __init__(self, inner: Any, limits: CallbackLimits, ended: Callable[[ServerFailed], None]) -> None:
        super().__init__(inner)
        self._limits = limits
        self._ended = ended

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await self._inner.__anext__()
        message = getattr(item, "message", None)
        why = self._limits.heard(message)
        if why is not None:
            self._ended(why)
            raise StopAsyncIteration
        if isinstance(message, JSONRPCResponse):
            shorten(message.result)
        return item


class Sending(_Stream):
    """Messages to a server."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.waiting = 0
        self.limits = CallbackLimits(lambda: self.waiting)

    async def send(self, item: Any) -> None:
        self.waiting += 1
        try:
            await self._inner.send(item)
        finally:
            self.waiting -= 1
            self.limits.answered(item.message)

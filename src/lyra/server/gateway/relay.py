"""Relay: the bytes of a streamed answer on their way from the effect that reads them to the client.

Bounded: a client that reads slowly slows the provider's stream down. The piece with the last event is held back until
the call's row is durable: what a client has seen whole is charged, also after a crash.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from lyra.server.gateway.answer_cache import ANSWER_BYTES_MAX

_BYTES_MAX: Final = 256 * 1024  # that wait for the client


class Relay:
    """One writer, one reader."""

    __slots__ = ("_begun", "_changed", "_ended", "_kept", "_last", "_size", "_waiting", "has_begun", "headers")

    def __init__(self, *, keeps: bool = False) -> None:
        """`keeps`: the bytes are also kept for a cache, as long as they are not too many."""
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._last: list[bytes] = []
        self._ended = False
        self._begun = asyncio.Event()
        self._kept: bytearray | None = bytearray() if keeps else None
        self.has_begun = False
        self._changed: asyncio.Future[None] | None = None  # of the side that waits for the other
        self.headers: dict[str, str] = {}

    def begin(self, headers: dict[str, str]) -> None:
        """The provider has begun to answer: no other is asked from now on."""
        self.headers = headers
        self.has_begun = True
        self._begun.set()

    async def wait_begun(self) -> None:
        """Wait until the answer has begun, or is known not to come."""
        await self._begun.wait()

    async def put(self, piece: bytes, *, is_last: bool) -> None:
        """Pass a piece on; waits while the client is behind. The last ones follow after `end`."""
        if self._kept is not None:
            self._kept += piece
            if len(self._kept) > ANSWER_BYTES_MAX:
                self._kept = None
        if is_last:
            self._last.append(piece)
            return
        self._waiting.append(piece)
        self._size += len(piece)
        self._tell()
        while self._size > _BYTES_MAX:
            await self._wait()

    def end(self) -> None:
        """No other piece comes."""
        self._ended = True
        self._begun.set()
        self._tell()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The pieces up to the last ones."""
        while True:
            if self._waiting:
                piece = b"".join(self._waiting)
                self._waiting.clear()
                self._size = 0
                self._tell()
                yield piece
            elif self._ended:
                return
            else:
                await self._wait()

    @property
    def last(self) -> bytes:
        """Return what was held back."""
        return b"".join(self._last)

    @property
    def kept(self) -> bytes | None:
        """All the bytes; None where they were not to be kept, or were too many."""
        return None if self._kept is None else bytes(self._kept)

    def _tell(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    async def _wait(self) -> None:
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

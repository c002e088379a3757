"""Passage: the bytes of a streamed answer on their way from the effect that reads them to the client.

Bounded: a client that reads slowly slows the provider's stream down. The piece with the last event is held back until
the call's row is durable: what a client has seen whole is charged, also after a crash.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

__all__ = ["Passage"]

_BYTES_MAX: Final = 256 * 1024  # that wait for the client


class Passage:
    """One writer, one reader."""

    __slots__ = ("_begun", "_changed", "_ended", "_last", "_size", "_waiting", "headers")

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._last: list[bytes] = []
        self._ended = False
        self._begun = asyncio.Event()
        self._changed: asyncio.Future[None] | None = None  # of the side that waits for the other
        self.headers: dict[str, str] = {}

    def begin(self, headers: dict[str, str]) -> None:
        """The provider has begun to answer: no other is asked from now on."""
        self.headers = headers
        self._begun.set()

    @property
    def has_begun(self) -> bool:
        return self._begun.is_set()

    async def wait_begun(self) -> None:
        await self._begun.wait()

    async def put(self, piece: bytes, *, is_last: bool) -> None:
        """Pass a piece on; waits while the client is behind. The last ones follow after `end`."""
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
        """What was held back."""
        return b"".join(self._last)

    def _tell(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    async def _wait(self) -> None:
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

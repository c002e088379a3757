"""Relay: the bytes of a streamed answer on their way from the effect that reads them to the client.

Bounded: a client that reads slowly slows the provider's stream down. The piece with the last event is held back until
the call's row is durable: what a client has seen whole is charged, also after a crash.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from lyra.server.http.endpoint import RawAnswer, Streamed

if TYPE_CHECKING:
    from lyra.core.clock import Clock
    from lyra.server.gateway.keys import KeySettings


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
        """Note that the provider has begun to answer: no other is asked from now on."""
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
        """Yield the pieces up to the last ones."""
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


# ---------------------------------------------------------------- answer cache
# AnswerCache: answers that are given again for the same request, for keys that were made with `--cache`.

CACHE_HEADER: Final = "x-lyra-cache"
ANSWER_BYTES_MAX: Final = 1024 * 1024
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_HEADERS: Final = ("anthropic-version", "anthropic-beta", "openai-beta", "accept")


class _KeptAnswer(NamedTuple):
    """`stream` is whether it was streamed; `until_s` is when it is forgotten, on the monotonic clock."""

    body: bytes
    media: str
    stream: bool
    until_s: float


class AnswerCache:
    """See the module."""

    __slots__ = ("_answers", "_clock", "_size")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: OrderedDict[bytes, _KeptAnswer] = OrderedDict()  # the one that was used last is the last
        self._size = 0

    def slot(self, settings: KeySettings, endpoint: str, body: bytes, headers: Mapping[str, str]) -> CacheSlot | None:
        """Return the place of a request; None for a key without a cache."""
        if not settings.cache_s:
            return None
        parts = (settings.id, endpoint, *(headers.get(name, "") for name in _HEADERS))
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass") + b"\0" + body).digest()
        return CacheSlot(self, digest, settings.cache_s, reads="no-cache" not in headers.get("cache-control", ""))

    def get(self, digest: bytes) -> _KeptAnswer | None:
        answer = self._answers.get(digest)
        if answer is None:
            return None
        if answer.until_s <= self._clock.monotonic():
            self._drop(digest)
            return None
        self._answers.move_to_end(digest)
        return answer

    def put(self, digest: bytes, body: bytes, media: str, *, stream: bool, kept_s: float) -> None:
        if len(body) > ANSWER_BYTES_MAX:
            return
        if digest in self._answers:
            self._drop(digest)
        self._answers[digest] = _KeptAnswer(body, media, stream, self._clock.monotonic() + kept_s)
        self._size += len(body)
        while self._size > _ANSWER_BYTES_MAX:
            self._drop(next(iter(self._answers)))

    def _drop(self, digest: bytes) -> None:
        self._size -= len(self._answers.pop(digest).body)


class CacheSlot:
    """The place of one request in the cache."""

    __slots__ = ("_cache", "_digest", "_kept_s", "_reads")

    def __init__(self, cache: AnswerCache, digest: bytes, kept_s: float, *, reads: bool) -> None:
        self._cache = cache
        self._digest = digest
        self._kept_s = kept_s
        self._reads = reads

    def answer(self) -> RawAnswer | Streamed | None:
        """Return the answer that is kept for the request."""
        kept = self._cache.get(self._digest) if self._reads else None
        if kept is None:
            return None
        headers = {CACHE_HEADER: "hit"}
        return Streamed(_once(kept.body), headers) if kept.stream else RawAnswer(kept.body, kept.media, 200, headers)

    def keep(self, body: bytes, media: str = "", *, stream: bool) -> None:
        self._cache.put(self._digest, body, media, stream=stream, kept_s=self._kept_s)


async def _once(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body

"""AnswerCache: answers that are given again for the same request, for keys that were made with `--cache`.

The same request is the same bytes from the same key to the same endpoint. Answers are kept in memory, for as long as
the key says, up to a bound for all of them; those that failed, were cut off, cannot be read or are an error with the
status of a success are never kept. A client that sends `cache-control: no-cache` gets a new answer, which is kept in
place of the old one.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from lyra.server.http.endpoint import RawAnswer, Streamed

if TYPE_CHECKING:
    from lyra.core.clock import Clock
    from lyra.server.gateway.keys import KeySettings


CACHE_HEADER: Final = "x-lyra-cache"
ANSWER_BYTES_MAX: Final = 1024 * 1024
_BYTES_MAX: Final = 64 * 1024 * 1024
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
        """The place of a request; None for a key without a cache."""
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
        while self._size > _BYTES_MAX:
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
        """The answer that is kept for the request."""
        kept = self._cache.get(self._digest) if self._reads else None
        if kept is None:
            return None
        headers = {CACHE_HEADER: "hit"}
        return Streamed(_once(kept.body), headers) if kept.stream else RawAnswer(kept.body, kept.media, 200, headers)

    def keep(self, body: bytes, media: str = "", *, stream: bool) -> None:
        self._cache.put(self._digest, body, media, stream=stream, kept_s=self._kept_s)


async def _once(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body

"""The bytes of an answer on their way from the provider to the client, and the usage that is read from them.

`Relay` is bounded: a client that reads slowly slows the provider's stream down. The piece with the last event is held
back until the call's row is durable: what a client has seen whole is charged, also after a crash. `AnswerMeter` reads
the usage of an answer and never changes it, but for the chunk with the usage of a stream whose client did not ask for
it. An answer that it cannot read passes all the same, and its tokens are `estimated`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core.limits import COUNTED_MAX
from lyra.errors import ModelError
from lyra.models.stream import Completion, Fold, StreamEvent, TokenUsage
from lyra.models.tokens import WORDY, answer_tokens
from lyra.models.wire.faults import UNREADABLE
from lyra.server.gateway.request import WireFormat
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


_EVENT_BYTES_MAX: Final = 256 * 1024
_EVENT_END: Final = re.compile(rb"(\r\n\r\n|\n\n|\r\r)")
_UNREADABLE_KIND: Final = "malformed"  # of the error of an event that is not known, and not the provider's own
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class AnswerMeter:
    """See the module."""

    __slots__ = (
        "_error",
        "_fold",
        "_has_events",
        "_is_answer",
        "_is_folded",
        "_pending",
        "_reader",
        "_size",
        "_usage",
        "_wire",
        "done",
        "hides_usage",
    )

    def __init__(self, wire: WireFormat, stream: bool) -> None:
        self._wire = wire
        self._is_folded = stream and wire.reader is not None
        self._reader = wire.reader() if stream and wire.reader is not None else None
        self._fold = Fold(takes_problems=True)  # it counts tokens, and leaves the calls to the client
        self._usage = TokenUsage()
        self._size = 0  # bytes of an answer that is not a stream
        self._error: ModelError | None = None  # what ended the reading of a stream whose bytes continue
        self._is_answer = True  # False: a whole body that is an error, or cannot be read
        self._has_events = False  # of an answer that is translated
        self._pending = b""  # the beginning of an event, where the usage is hidden
        self.done = False  # the last event of a stream has come
        self.hides_usage = False

    @property
    def has_begun(self) -> bool:
        """Whether a part of an answer has come."""
        return bool(self._size or self._has_events)

    @property
    def is_answer(self) -> bool:
        """Whether what came can be read, and is not an error of the provider's."""
        return self._is_answer and self._error is None

    def feed(self, chunk: bytes) -> bytes:
        """Read a piece of a stream; gives what the client gets of it."""
        self._size += len(chunk)
        reader = self._reader
        if reader is not None and self._error is None and not reader.done:
            try:
                for event in reader.feed(chunk):
                    self._fold.feed(event)
                self._error = reader.error
            except ModelError as error:
                self._error = error
            self.done = reader.done
        return self._without_usage(chunk) if self.hides_usage else chunk

    def _without_usage(self, chunk: bytes) -> bytes:
        """Return the whole events so far, without the one that has only the usage."""
        *texts, self._pending = _EVENT_END.split(self._pending + chunk)
        events = [text + end for text, end in zip(texts[::2], texts[1::2], strict=True)]
        if len(self._pending) > _EVENT_BYTES_MAX:  # not the chunk that tells the usage: the rest passes as it comes
            self.hides_usage = False
            rest, self._pending = self._pending, b""
            return b"".join(events) + rest
        return b"".join(event for event in events if not _is_usage_alone(event))

    def close(self) -> None:
        """Note that the stream has ended; ModelError where it ended too early, or with an error of the provider's,
        which the client has in the provider's own words then (`told`)."""
        reader, error = self._reader, self._error
        if error is not None and error.kind != _UNREADABLE_KIND:
            error.fields["told"] = error.kind != "bad_response"
            raise error
        if reader is None or reader.done or error is not None:
            return
        for event in reader.close():
            self._fold.feed(event)
        if reader.error is not None:
            raise reader.error

    def flush(self) -> bytes:
        """Return the end of a stream that has no empty line behind its last event."""
        pending, self._pending = self._pending, b""
        return b"" if _is_usage_alone(pending) else pending

    def see(self, event: StreamEvent) -> None:
        """Read an event of an answer that is translated."""
        self._is_folded = self._has_events = True
        self._fold.feed(event)
        self.done = self._fold.finished

    def completion(self) -> Completion:
        """Return the whole answer, of the events so far; ModelError where it ended too early."""
        return self._fold.completion()

    def read(self, body: bytes) -> None:
        """Read the usage of a whole answer."""
        self._size = len(body)
        try:
            members = _MEMBERS.decode(body)
            usage = msgspec.json.decode(members.get("usage", b"null"))
            self._is_answer = msgspec.json.decode(members.get("error", b"null")) is None
        except UNREADABLE:
            self._is_answer = False
            return
        if isinstance(usage, dict):
            self._usage = self._wire.usage(usage).checked()

    def tokens(self, input_bound: int, *, is_whole: bool) -> TokenUsage:
        """Return what the provider counted; what it did not tell is an estimate on the high side."""
        usage = self._fold.usage if self._is_folded else self._usage
        counted_in, counted_out = usage.total_input, usage.output_tokens
        is_told = self.done or (is_whole and self._error is None)
        if is_told and counted_in and (counted_out or not self._wire.limits):
            return usage
        out = max(counted_out, self._estimate_output())
        into = usage.input_tokens if counted_in else min(input_bound, COUNTED_MAX)
        return msgspec.structs.replace(usage, input_tokens=into, output_tokens=out, estimated=True)

    def _estimate_output(self) -> int:
        if self._is_folded and self._error is None:
            return answer_tokens(self._fold.message)
        return int(self._size * WORDY)


def _is_usage_alone(event: bytes) -> bool:
    """Return whether an event is the chunk of a chat stream that tells the usage and nothing else."""
    data = event.strip().removeprefix(b"data:").strip()
    if b'"usage"' not in data or b'"choices"' not in data:
        return False
    try:
        chunk: Any = msgspec.json.decode(data)
    except UNREADABLE:
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == [] and isinstance(chunk.get("usage"), dict)

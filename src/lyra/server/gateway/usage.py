"""AnswerMeter: reads the usage of an answer while its bytes pass.

It never changes what the client gets, with one exception: of a stream whose usage the client did not ask for, the chunk
that tells it is left out. An answer that it cannot read passes all the same, and its tokens are `estimated`; so does a
whole one whose body is an error, though its status says success (`is_answer`). A stream in which the provider tells an
error has failed (`close`).
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from lyra.core.limits import COUNTED_MAX
from lyra.errors import ModelError
from lyra.models.stream import Completion, Fold, StreamEvent, TokenUsage
from lyra.models.tokens import WORDY, answer_tokens
from lyra.models.wire.faults import UNREADABLE
from lyra.server.gateway.request import WireFormat

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

    # ------------------------------------------------------------------ streams

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

    # ------------------------------------------------------------------ whole answers

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

    # ------------------------------------------------------------------ the result

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

"""The stream: the typed events of one answer, and the fold that turns them into a Completion.

    Started · TextDelta · ThinkingDelta · ToolStart · ToolDelta · ToolEnd · UsageSeen · Finished

Every provider yields these events and no others, in this grammar: `Started` first, deltas in any order, a `ToolEnd` for
each `ToolStart` (its call parsed and whole), `UsageSeen` as often as the provider tells (the last one counts),
`Finished` last and exactly once. There is one path: `complete` is the fold of the stream, and an answer whose stream
ended without `Finished` is no answer but a ModelError of kind `stream_truncated`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from lyra.core.limits import COUNTED_MAX
from lyra.core.message import Message
from lyra.core.tool import ToolCall
from lyra.errors import ModelError


class TokenUsage(msgspec.Struct, frozen=True):
    """The tokens of a call, as the provider counted them, or `estimated` where it did not.

    `input_tokens` is the provider's own number: Anthropic and Bedrock leave cached tokens out of it (`cached_apart`),
    the others count them in; `total_input` means the same for all."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0  # part of output_tokens, where the provider says so
    cached_apart: bool = False
    estimated: bool = False  # the provider was silent: some or all are Lyra's own count, on the high side

    @property
    def total_input(self) -> int:
        """Every token that went in, cached ones too."""
        if not self.cached_apart:
            return self.input_tokens
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Return the sum over calls. If the two count cached tokens differently, both are converted with `flat`."""
        apart = self.cached_apart or other.cached_apart
        left, right = (
            (self, other) if self.cached_apart == other.cached_apart or not apart else (self.flat(), other.flat())
        )
        return TokenUsage(
            left.input_tokens + right.input_tokens,
            left.output_tokens + right.output_tokens,
            left.cache_read_tokens + right.cache_read_tokens,
            left.cache_write_tokens + right.cache_write_tokens,
            left.reasoning_tokens + right.reasoning_tokens,
            left.cached_apart and right.cached_apart,
            left.estimated or right.estimated,
        )

    def checked(self) -> TokenUsage:
        """Return this usage with each impossible count as 0, since a server may report anything."""
        counts = (
            self.input_tokens,
            self.output_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
            self.reasoning_tokens,
        )
        if [*map(type, counts)] == _WHOLE and min(counts) >= 0 and max(counts) <= COUNTED_MAX:
            return self
        return msgspec.structs.replace(self, **dict(zip(_USAGE_COUNTS, map(count_of, counts), strict=True)))

    def flat(self) -> TokenUsage:
        """This usage with cached tokens counted in `input_tokens`."""
        return msgspec.structs.replace(self, input_tokens=self.total_input, cached_apart=False)


_WHOLE: Final = [int] * 5
_USAGE_COUNTS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


def count_of(count: Any) -> int:
    """Return a count as a server reports it; 0 where it reports none, or one that cannot be."""
    return int(count) if type(count) in (int, float) and 0 <= count <= COUNTED_MAX else 0


STOP_REASONS: Final[dict[str, str]] = {
    "end": "the model had said what it wanted to say",
    "tool_calls": "it waits for the results of the tools it called",
    "max_tokens": "the answer was cut at the limit",
    "stop_sequence": "it met one of the request's stop texts",
    "content_filter": "the provider withheld the rest",
    "pause": "the provider paused a long turn; the same conversation goes on where it stopped",
}
CUT_BY_PROVIDER: Final = "max_tokens"  # the stop reason of an answer that its provider cut off
# The stop reason of an answer that ended at a `max_tokens` which a budget had lowered. No provider says it: the model
# effect puts it in place of `max_tokens`, so that a journal keeps why the answer was cut.
CUT_BY_BUDGET: Final = "budget"
# The stop reason of an answer in which the model wrote a call that its provider could not read, and did not pass on.
# An agent tells its model; for other readers it is an error.
BROKEN_CALL: Final = "broken_call"
CALL_CUT: Final = "the answer reached its limit of tokens in the middle of it"  # the problem of a call


REDACTED: Final = "redacted:"  # begins the signature of a thought that only its provider can read


class Started(msgspec.Struct, frozen=True):
    id: str = ""
    model: str = ""


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """A piece of a thought; `signature` (or opaque data) ends a block and has to be sent back with the message.

    A signature without a colon is Anthropic's; the others start with the provider (`gemini:…`), so that a client leaves
    out those of other providers.
    """

    text: str
    signature: str = ""


class ToolStart(msgspec.Struct, frozen=True):
    index: int
    id: str
    name: str


class ToolDelta(msgspec.Struct, frozen=True):
    """A piece of the call's arguments as JSON text: to show, never to act on."""

    index: int
    text: str


class ToolEnd(msgspec.Struct, frozen=True):
    index: int
    call: ToolCall


class UsageSeen(msgspec.Struct, frozen=True):
    usage: TokenUsage


class Finished(msgspec.Struct, frozen=True):
    stop_reason: str = "end"


StreamEvent = Started | TextDelta | ThinkingDelta | ToolStart | ToolDelta | ToolEnd | UsageSeen | Finished


class Completion(msgspec.Struct, frozen=True):
    """A whole answer."""

    message: Message
    usage: TokenUsage = TokenUsage()
    stop_reason: str = "end"
    model: str = ""
    id: str = ""
    pieces: tuple[int, ...] = ()  # lengths of the pieces in which the text was shown, if they were journaled

    @property
    def text(self) -> str:
        return self.message.text

    def cut(self) -> Iterator[str]:
        """Return the text in the pieces in which it was shown; whole if they are not known or do not fit the text."""
        return cut(self.text, self.pieces)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.message.tool_calls


def cut(text: str, lengths: Sequence[int]) -> Iterator[str]:
    """Yield a text in pieces of these lengths; whole if they do not add up to its length."""
    if sum(lengths) != len(text):
        lengths = (len(text),)
    start = 0
    for length in lengths:
        yield text[start : start + length]
        start += length


def is_unchanged(completion: Completion) -> bool:
    """Return whether an answer survives encoding and decoding unchanged: it is plain text, and each field has its
    declared type."""
    message = completion.message
    return (
        type(message.content) is str
        and message.tool_calls == () == message.tool_results
        and list(map(type, msgspec.structs.astuple(completion))) == _FIELDS
        and list(map(type, msgspec.structs.astuple(completion.usage))) == _COUNTS
    )


_WORDS: Final = [str, str, str]
_FIELDS: Final = [Message, TokenUsage, str, str, str, tuple]
_COUNTS: Final = [int, int, int, int, int, bool, bool]
_NOTHING: Final = TokenUsage()
_index: Final = itemgetter(0)


class Fold:
    """Feed it every event; then `completion()` is the answer. A call with a problem is an error, unless the reader
    `takes_problems`: then it tells the model."""

    __slots__ = ("_calls", "_id", "_model", "_parts", "_stop", "_takes_problems", "_thinking", "_usage", "texts")

    def __init__(self, *, takes_problems: bool = False) -> None:
        self._takes_problems = takes_problems
        self._parts: tuple[dict[str, str], ...] = ()  # finished parts: thoughts, and texts before a later thought
        self.texts: list[str] = []  # pieces of text since the last thought: the same list as long as the fold is fed
        self._thinking: list[str] | None = None  # came before the text, where there are both
        self._calls: tuple[tuple[int, ToolCall], ...] = ()
        self._usage = _NOTHING
        self._stop = ""
        self._id = self._model = ""

    def feed(self, event: StreamEvent) -> None:
        kind = type(event)
        if kind is TextDelta:
            text = event.text  # type: ignore[union-attr]  # told apart by type
            self.texts.append(text if type(text) is str else _check_text(text))
        elif kind is UsageSeen:
            self._usage = event.usage.checked()  # type: ignore[union-attr]  # told apart by type
        elif kind is Finished:
            if not self._takes_problems:
                refuse_broken_call(event)
            self._stop = event.stop_reason  # type: ignore[union-attr]  # told apart by type
        elif kind is Started:
            self._id = event.id or self._id  # type: ignore[union-attr]  # told apart by type
            self._model = event.model or self._model  # type: ignore[union-attr]  # told apart by type
        elif isinstance(event, ToolEnd):
            if not self._takes_problems:
                refuse_broken_call(event)
            self._calls += ((event.index, event.call),)
        elif isinstance(event, ThinkingDelta):
            if self.texts:
                self._end_thought()
                self._parts += ({"type": "text", "text": "".join(self.texts)},)
                self.texts.clear()
            if self._thinking is None:
                self._thinking = []
            self._thinking.append(event.text if type(event.text) is str else _check_text(event.text))
            if event.signature:  # a signature ends a block: blocks are sent back as they came, never joined
                self._end_thought(event.signature)
        elif not isinstance(event, (ToolStart, ToolDelta)):  # those are to show: the fold needs only finished parts
            raise _make_error(f"{event!r} is no event of a stream")

    def _end_thought(self, signature: str = "") -> None:
        if self._thinking is not None:
            thought = "".join(self._thinking)
            self._parts += ({"type": "thinking", "thinking": thought, "signature": signature},)
            self._thinking = None

    @property
    def text(self) -> str:
        """The text so far."""
        before = [part["text"] for part in self._parts if part["type"] == "text"]
        return "".join((*before, *self.texts))

    @property
    def usage(self) -> TokenUsage:
        return self._usage

    @property
    def message(self) -> Message:
        """The answer so far, without tool calls that are not whole."""
        text = self.texts[0] if len(self.texts) == 1 else "".join(self.texts)
        calls = tuple([call for _, call in sorted(self._calls, key=_index)]) if self._calls else ()
        if not self._thinking and not self._parts:
            return Message("assistant", text, calls)
        self._end_thought()
        last = ({"type": "text", "text": text},) if text else ()
        return Message("assistant", (*self._parts, *last), calls)

    @property
    def finished(self) -> bool:
        return bool(self._stop)

    def completion(self) -> Completion:
        if not self._stop:
            raise ModelError("the stream ended without its last event", kind="stream_truncated")
        words: tuple[Any, ...] = (self._stop, self._model, self._id)  # as a provider gave them
        if [*map(type, words)] != _WORDS and not all(isinstance(word, str) for word in words):
            raise _make_error("a stop reason or a name in the stream is not text")
        for _, call in self._calls:
            names: tuple[Any, ...] = (call.id, call.name)
            if not (isinstance(names[0], str) and isinstance(names[1], str)):
                raise _make_error("a tool call in the stream has an id or a name that is not text")
        return Completion(self.message, self._usage, self._stop, self._model, self._id)


def refuse_broken_call(event: StreamEvent) -> None:
    """Raise a ModelError for a call that was written badly or cut off, for readers that cannot tell the model."""
    if isinstance(event, ToolEnd) and event.call.problem:
        call = event.call
        message = f"the call to {call.name!r} cannot be used: {call.problem}"
        hint = "the answer was cut at max_tokens; allow more" if CALL_CUT in call.problem else None
        raise ModelError(message, hint=hint, kind="malformed", tool=call.name, id=call.id)
    if isinstance(event, Finished) and event.stop_reason == BROKEN_CALL:
        raise ModelError("the model wrote a call of a tool that its provider could not read", kind="malformed")


def _check_text(text: Any) -> str:
    if not isinstance(text, str):
        raise _make_error(f"a piece of its text is {text!r}")
    return str.__str__(text)


def _make_error(what: str) -> ModelError:
    return ModelError(f"the provider's answer cannot be used: {what}", kind="malformed")


async def complete(events: AsyncIterator[StreamEvent]) -> Completion:
    """Return the whole answer of a stream."""
    fold = Fold()
    async for event in events:
        fold.feed(event)
    return fold.completion()

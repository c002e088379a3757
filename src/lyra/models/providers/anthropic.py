"""Anthropic's Messages API: the address, the headers, and the reader of its streams.

A stream is `message_start`, blocks (`content_block_start`, deltas, `content_block_stop`), `message_delta` with the stop
reason and the tokens, and `message_stop`, without which the answer is truncated. Pings and events, blocks and deltas of
unknown kinds are skipped: the API may add more. `anthropic_body` writes the
request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from lyra.models.providers.anthropic_body import REDACTED, body_of
from lyra.models.request import Request
from lyra.models.stream import Finished, Started, StreamEvent, TextDelta, ThinkingDelta, UsageSeen
from lyra.models.toolcalls import ToolCalls
from lyra.models.usage import TokenUsage
from lyra.models.wire.faults import malformed, of_code, truncated, unknown_stop
from lyra.models.wire.reader import ServerEventReader
from lyra.models.wire.remote import RemoteProvider, known_event
from lyra.models.wire.sse import ServerEvent

_VERSION: Final = "2026-10-21"
_VERSION_WITH_SAMPLING: Final = "2023-06-01"  # the last version of the API with temperature and top_p
_STOPS: Final[dict[str, str]] = {
    "end_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "pause_turn": "pause",
    "refusal": "content_filter",
}


class Anthropic(RemoteProvider):
    def url(self, request: Request) -> str:
        return f"{self.settings.base_url}/v1/messages"

    def headers(self, request: Request) -> dict[str, str]:
        sampling = any(value is not None for value in (request.temperature, request.top_p, request.top_k))
        version = self.settings.api_version or (_VERSION_WITH_SAMPLING if sampling else _VERSION)
        return {"x-api-key": self.settings.key(), "anthropic-version": version}

    def body(self, request: Request) -> dict[str, Any]:
        return body_of(request)

    def reader(self, request: Request) -> AnthropicReader:
        return AnthropicReader()


# ---------------------------------------------------------------- what comes in
class _OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None


class _Message(msgspec.Struct):
    id: str = ""
    model: str = ""
    usage: _Usage | None = None


class _Block(msgspec.Struct):
    type: str = ""
    id: str = ""
    name: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str = ""
    input: Any = None


class _StopDetails(msgspec.Struct):
    explanation: str | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _Error(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Event(msgspec.Struct):
    """Every event that is known, in one struct: reading it is one call, and unknown fields are skipped."""

    type: str
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: _Error | None = None


_EVENT: Final = msgspec.json.Decoder(_Event)


class AnthropicReader(ServerEventReader):
    """Turns the bytes of one answer into events."""

    __slots__ = (
        "_blocks",
        "_signatures",
        "_spoken",
        "_started",
        "_stop",
        "_tools",
        "_usage",
        "_whole",
    )

    def __init__(self) -> None:
        super().__init__()
        self._tools = ToolCalls()
        self._blocks: dict[int, str] = {}  # index of each open block → its type
        self._whole: dict[int, Any] = {}  # arguments that came with the start of a call, used if no pieces follow
        self._signatures: dict[int, str] = {}
        self._usage = TokenUsage(cached_apart=True)
        self._started = False
        self._spoken = False  # a block of text has begun
        self._stop = ""

    def _end(self, events: list[StreamEvent]) -> None:
        if not self.done:
            raise self._tools.broken or truncated("the stream ended before message_stop")

    def _read(self, sent: list[ServerEvent], events: list[StreamEvent]) -> None:
        for server_event in sent:
            if self.done:
                break
            event = known_event(_EVENT, server_event.data, _HANDLERS)
            if event is None:
                continue
            delta = event.delta
            if delta is not None and delta.type == "text_delta" and event.index in self._blocks:
                if delta.text:
                    events.append(TextDelta(delta.text))
            elif handler := _HANDLERS.get(event.type):
                if not self._started and event.type not in ("message_start", "error"):
                    raise malformed(f"the answer begins with {event.type} and not with message_start")
                if event.usage is not None:  # counted even if the event is wrong otherwise
                    events.append(self._counted(event.usage))
                events += handler(self, event)

    # ------------------------------------------------------------ one event each
    def _begun(self, event: _Event) -> list[StreamEvent]:
        self._started = True
        message = event.message or _Message()
        events: list[StreamEvent] = [Started(message.id, message.model)]
        if message.usage is not None:
            events.append(self._counted(message.usage))
        return events

    def _counted(self, usage: _Usage) -> UsageSeen:
        """The counts are running totals; a count that is missing keeps its value."""
        before = self._usage
        details = usage.output_tokens_details
        self._usage = TokenUsage(
            _or(usage.input_tokens, before.input_tokens),
            _or(usage.output_tokens, before.output_tokens),
            _or(usage.cache_read_input_tokens, before.cache_read_tokens),
            _or(usage.cache_creation_input_tokens, before.cache_write_tokens),
            _or(details.thinking_tokens if details is not None else None, before.reasoning_tokens),
            cached_apart=True,
        )
        return UsageSeen(self._usage)

    def _block_started(self, event: _Event) -> list[StreamEvent]:
        block = event.content_block or _Block()
        self._blocks[event.index] = block.type
        if block.type == "tool_use":
            if block.input:
                self._whole[event.index] = block.input
            return self._tools.begin(event.index, block.id, block.name)
        if block.type == "text":
            self._spoken = True
            return [TextDelta(block.text)] if block.text else []
        if block.type == "thinking":
            self._signatures[event.index] = block.signature or ""
            return [ThinkingDelta(block.thinking)] if block.thinking else []
        if block.type == "redacted_thinking":
            return [ThinkingDelta("", REDACTED + block.data)]
        return []

    def _block_delta(self, event: _Event) -> list[StreamEvent]:
        delta = event.delta
        if event.index not in self._blocks:
            raise malformed(f"a piece came for block {event.index}, which is not open")
        if delta is None:
            raise malformed("a content_block_delta has no delta")
        if delta.type == "input_json_delta" and self._tools.is_open(event.index):
            self._whole.pop(event.index, None)
            return self._tools.more(event.index, delta.partial_json)
        if delta.type == "thinking_delta" and delta.thinking:
            return [ThinkingDelta(delta.thinking)]
        if delta.type == "signature_delta" and event.index in self._signatures:
            self._signatures[event.index] += delta.signature
        return []

    def _block_stopped(self, event: _Event) -> list[StreamEvent]:
        kind = self._blocks.pop(event.index, None)
        if kind == "tool_use":
            return self._end_call(event.index)
        if kind == "thinking" and (signature := self._signatures.pop(event.index)):
            return [ThinkingDelta("", signature)]
        return []

    def _end_call(self, index: int) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if index in self._whole:
            events = self._tools.more(index, msgspec.json.encode(self._whole.pop(index)).decode())
        return [*events, *self._tools.end_or_keep(index)]

    def _message_delta(self, event: _Event) -> list[StreamEvent]:
        if event.delta is not None and event.delta.stop_reason:
            stop = _STOPS.get(event.delta.stop_reason)
            if stop is None:
                raise unknown_stop(event.delta.stop_reason)
            self._stop = stop
        self._tools.raise_broken(self._stop)
        details = event.delta.stop_details if event.delta is not None else None
        if details is not None and details.explanation and not self._spoken:
            return [TextDelta(details.explanation)]  # as OpenAI does: the reason of a refusal is text
        return []

    def _stopped(self, _event: _Event) -> list[StreamEvent]:
        self._tools.raise_broken()
        self._tools.raise_open()
        if not self._stop:
            raise truncated("the answer ended without a stop reason")
        self.done = True
        return [Finished(self._stop)]

    def _failed(self, event: _Event) -> list[StreamEvent]:
        error = event.error or _Error()
        raise of_code(error.type, error.message or "the provider broke the answer off")


def _or(value: int | None, before: int) -> int:
    return before if value is None else value


_HANDLERS: Final[dict[str, Callable[[AnthropicReader, _Event], list[StreamEvent]]]] = {
    "message_start": AnthropicReader._begun,
    "content_block_start": AnthropicReader._block_started,
    "content_block_delta": AnthropicReader._block_delta,
    "content_block_stop": AnthropicReader._block_stopped,
    "message_delta": AnthropicReader._message_delta,
    "message_stop": AnthropicReader._stopped,
    "error": AnthropicReader._failed,
}

"""Amazon Bedrock's Converse API: the address, the signature, and the reader of its event streams.

An answer is a binary event stream (split by `wire.aws_frames`): `messageStart`, blocks
(`contentBlockStart`, deltas, `contentBlockStop`), `messageStop` with the stop reason, without which the answer is
truncated, and `metadata` with the tokens. Exceptions travel in the stream too and become ModelErrors of the same kinds
as those that come with a status. Events of unknown kinds are skipped. `bedrock_body` writes the request,
`aws` signs it; an api_key (AWS_BEARER_TOKEN_BEDROCK), where there is one, is sent instead of a signature.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from lyra.models.providers.anthropic_body import REDACTED
from lyra.models.providers.aws import AwsKeys, need_botocore, region_of_profile, sign
from lyra.models.providers.bedrock_body import AnswerTool, answer_tool, bedrock_body
from lyra.models.request import Request
from lyra.models.settings import ProviderSettings
from lyra.models.stream import Finished, Started, StreamEvent, TextDelta, ThinkingDelta, UsageSeen
from lyra.models.toolcalls import ToolCalls
from lyra.models.usage import TokenUsage
from lyra.models.wire.aws_frames import Frames
from lyra.models.wire.faults import UNREADABLE, malformed, of_status, truncated, unknown_stop
from lyra.models.wire.reader import EventReader
from lyra.models.wire.remote import RemoteProvider

if TYPE_CHECKING:
    import httpx2


_STOPS: Final[dict[str, str]] = {
    "end_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
_BROKEN: Final = ("malformed_model_output", "malformed_tool_use")
_STATUS: Final[dict[str, int]] = {  # the status that an exception inside a stream stands for
    "throttlingException": 429,
    "serviceUnavailableException": 503,
    "internalServerException": 500,
    "modelStreamErrorException": 424,
    "modelTimeoutException": 408,
    "validationException": 400,
    "accessDeniedException": 403,
    "resourceNotFoundException": 404,
}


class _Camel(msgspec.Struct, rename="camel", gc=False):
    pass


class _ToolUse(_Camel, gc=False):
    tool_use_id: str = ""
    name: str = ""
    input: str = ""


class _Reasoning(_Camel, gc=False):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class _Piece(_Camel, gc=False):
    """A `start` or a `delta`."""

    text: str | None = None
    tool_use: _ToolUse | None = None
    reasoning_content: _Reasoning | None = None


class _Usage(_Camel, gc=False):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class _Event(_Camel, gc=False):
    """Every event that is known, in one struct."""

    content_block_index: int = 0
    start: _Piece | None = None
    delta: _Piece | None = None
    stop_reason: str = ""
    usage: _Usage | None = None
    message: str = ""


_EVENT: Final = msgspec.json.Decoder(_Event)


class BedrockReader(EventReader):
    """Turns the bytes of one answer into events. With an `answer` tool, its input is the text of the answer."""

    __slots__ = (
        "_answer",
        "_answering",
        "_frames",
        "_held",
        "_model",
        "_signatures",
        "_stop",
        "_tools",
        "_whole",
    )

    def __init__(self, model: str = "", answer: AnswerTool | None = None) -> None:
        super().__init__()
        self._frames = Frames()
        self._model = model
        self._answer = answer
        self._answering = -1  # the index of the answer's block, once it has begun
        self._held: list[str] = []  # text beside an answer tool; it counts only if the tool is not called
        self._whole: list[str] = []  # pieces of an answer that has to be unwrapped
        self._tools = ToolCalls()
        self._signatures: dict[int, str] = {}
        self._stop = ""

    def _take(self, data: bytes, events: list[StreamEvent]) -> None:
        for headers, payload in self._frames.feed(data):
            if not self.done:
                events += self._message(headers, payload)
        if not self.done and self._frames.broken is not None:
            raise self._frames.broken

    def _last(self, events: list[StreamEvent]) -> None:
        """An incomplete frame is dropped."""

    def _end(self, events: list[StreamEvent]) -> None:
        """The answer is complete even if the token counts are missing."""
        if self.done:
            return
        if not self._stop:
            raise self._tools.broken or truncated("the stream ended before messageStop")
        self.done = True
        events.append(Finished(self._stop))

    def _message(self, headers: dict[str, Any], payload: bytes) -> list[StreamEvent]:
        kind = headers.get(":message-type", "event")
        if kind == "error":
            message = headers.get(":error-message") or "the provider broke the answer off"
            raise of_status(500, str(message), code=str(headers.get(":error-code", "")))
        name = str(headers.get(":exception-type" if kind == "exception" else ":event-type", ""))
        handler = _HANDLERS.get(name)
        if handler is None and kind != "exception":
            return []
        try:
            event = _EVENT.decode(payload) if payload else _Event()
        except UNREADABLE as error:
            raise malformed(f"an event {name} of the answer cannot be read: {error}") from None
        if handler is None:
            status = _STATUS.get(name, 500)
            raise of_status(status, event.message or f"the provider broke the answer off: {name}", code=name)
        return handler(self, event)

    # ------------------------------------------------------------ one event each
    def _started(self, _event: _Event) -> list[StreamEvent]:
        return [Started(model=self._model)]

    def _block_started(self, event: _Event) -> list[StreamEvent]:
        use = event.start.tool_use if event.start is not None else None
        if use is None:
            return []
        index = event.content_block_index
        if self._answer is not None and use.name == self._answer.name:
            self._answering = index if self._answering < 0 else self._answering
            return []
        return self._tools.begin(index, use.tool_use_id, use.name)

    def _block_delta(self, event: _Event) -> list[StreamEvent]:
        index, delta = event.content_block_index, event.delta or _Piece()
        if delta.text:
            return self._text(delta.text)
        if delta.tool_use is not None:
            return self._arguments(index, delta.tool_use.input)
        if delta.reasoning_content is not None:
            return self._thought(index, delta.reasoning_content)
        return []

    def _text(self, text: str) -> list[StreamEvent]:
        if self._answer is None:
            return [TextDelta(text)]
        self._held.append(text)
        return []

    def _arguments(self, index: int, text: str) -> list[StreamEvent]:
        if self._answer is None or self._tools.is_open(index):
            return self._tools.more(index, text)
        if index != self._answering or not text:
            return []  # a second answer is ignored
        if self._answer.wrapped:
            self._whole.append(text)
            return []
        return [TextDelta(text)]

    def _thought(self, index: int, thought: _Reasoning) -> list[StreamEvent]:
        if thought.redacted_content:
            return [ThinkingDelta("", REDACTED + thought.redacted_content)]
        if thought.signature:
            self._signatures[index] = self._signatures.get(index, "") + thought.signature
        return [ThinkingDelta(thought.text)] if thought.text else []

    def _block_stopped(self, event: _Event) -> list[StreamEvent]:
        index = event.content_block_index
        if index in self._signatures:
            return [ThinkingDelta("", self._signatures.pop(index))]
        if not self._tools.is_open(index):
            return self._unwrapped() if index == self._answering else []
        return self._tools.end_or_keep(index)

    def _unwrapped(self) -> list[StreamEvent]:
        text, self._whole = "".join(self._whole), []
        if not text:
            return []
        try:
            value = msgspec.json.decode(text)["value"]
        except (*UNREADABLE, KeyError, TypeError):
            return [TextDelta(text)]  # the agent validates it and reports that it has another form
        return [TextDelta(msgspec.json.encode(value).decode())]

    def _stopped(self, event: _Event) -> list[StreamEvent]:
        self._check(event.stop_reason)
        stop = _STOPS[event.stop_reason]
        self._stop = "end" if stop == "tool_calls" and not self._tools.seen else stop
        held, self._held = "".join(self._held), []
        return [TextDelta(held)] if held and self._answering < 0 else []

    def _check(self, reason: str) -> None:
        self._tools.raise_broken(_STOPS.get(reason, ""))
        self._tools.raise_open()
        if reason in _BROKEN:
            raise malformed(f"the model's answer is no answer: {reason}", provider_code=reason)
        if not reason:
            raise truncated("the answer ended without a stop reason")
        if reason not in _STOPS:
            raise unknown_stop(reason)

    def _counted(self, event: _Event) -> list[StreamEvent]:
        """The token counts, in the last event of an answer."""
        usage = event.usage or _Usage()
        counts = TokenUsage(
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_input_tokens or 0,
            usage.cache_write_input_tokens or 0,
            cached_apart=True,
        )
        if not self._stop:
            return [UsageSeen(counts)]
        self.done = True
        return [UsageSeen(counts), Finished(self._stop)]


_HANDLERS: Final[dict[str, Callable[[BedrockReader, _Event], list[StreamEvent]]]] = {
    "messageStart": BedrockReader._started,
    "contentBlockStart": BedrockReader._block_started,
    "contentBlockDelta": BedrockReader._block_delta,
    "contentBlockStop": BedrockReader._block_stopped,
    "messageStop": BedrockReader._stopped,
    "metadata": BedrockReader._counted,
}


class Bedrock(RemoteProvider):
    """Converse in one region; by default the region is the one of the AWS profile."""

    error_header = "x-amzn-errortype"
    opening = b"\x00"  # a frame begins with its length, which is less than 2^24

    def __init__(self, settings: ProviderSettings, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        super().__init__(settings, transport=transport)
        self._keys = AwsKeys()
        self._region = settings.region

    async def ready(self) -> None:
        if not self._region:
            need_botocore()
            self._region = await asyncio.to_thread(region_of_profile)

    def url(self, request: Request) -> str:
        end = "amazonaws.com.cn" if self._region.startswith("cn-") else "amazonaws.com"
        root = self.settings.base_url or f"https://bedrock-runtime.{self._region}.{end}"
        return f"{root}/model/{quote(request.model, safe='')}/converse-stream"

    def headers(self, request: Request) -> dict[str, str]:
        return {"accept": "application/vnd.amazon.eventstream", "content-type": "application/json"}

    async def signed(self, url: str, body: bytes, headers: dict[str, str]) -> dict[str, str]:
        if key := self.settings.key():
            return {**headers, "authorization": f"Bearer {key}"}
        need_botocore()
        return sign(await self._keys.frozen(), self._region, url, body, headers)

    def body(self, request: Request) -> dict[str, Any]:
        return bedrock_body(request)

    def reader(self, request: Request) -> BedrockReader:
        return BedrockReader(request.model, answer_tool(request))

    def secrets(self) -> tuple[str, ...]:
        return (*super().secrets(), *self._keys.secrets())

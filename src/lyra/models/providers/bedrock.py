"""Amazon Bedrock's Converse API: the address, the signature, request bodies, and the reader of its event streams.

An answer is a binary event stream (split by `Frames`): `messageStart`, blocks (`contentBlockStart`, deltas,
`contentBlockStop`), `messageStop` with the stop reason, without which the answer is truncated, and `metadata` with the
tokens. Exceptions travel in the stream too and become ModelErrors of the same kinds as those that come with a status.
Events of unknown kinds are skipped. Credentials and signatures are made by botocore (the extra `bedrock`); an api_key
(AWS_BEARER_TOKEN_BEDROCK), where there is one, is sent instead of a signature.
"""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from binascii import crc32
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from lyra.core.message import Message
from lyra.core.tool import Tool, ToolResult
from lyra.errors import ConfigError, ModelError
from lyra.models.conversation_parts import image_data, output_parts, parts, system_text, turns
from lyra.models.provider import Request
from lyra.models.providers.anthropic import EFFORTS, THINKING_LEAST, decides_itself
from lyra.models.settings import ProviderSettings
from lyra.models.stream import REDACTED, Finished, Started, StreamEvent, TextDelta, ThinkingDelta, TokenUsage, UsageSeen
from lyra.models.toolcalls import ToolCalls
from lyra.models.wire.faults import UNREADABLE, answer_malformed, fault, from_status, stream_truncated, unknown_stop
from lyra.models.wire.remote import RemoteProvider, fit_id
from lyra.models.wire.sse import EventReader

if TYPE_CHECKING:
    import httpx2


_SERVICE: Final = "bedrock"
_SIGNED: Final = ("content-type",)  # the headers that are signed, besides those of the signature itself


class AwsKeys:
    """The credentials of this machine and user, found at the first call."""

    def __init__(self) -> None:
        self._credentials: Any = None  # of botocore, which has no types
        self._seen: tuple[str, ...] = ()

    async def frozen(self) -> Any:
        """Credentials as they are now: access key, secret key, token."""
        credentials = self._credentials
        needed = getattr(credentials, "refresh_needed", bool)
        if credentials is None or needed():  # finding and refreshing may read files and the network
            frozen = await asyncio.to_thread(self._find)
        else:
            frozen = credentials.get_frozen_credentials()
        self._seen = tuple(value for value in (frozen.secret_key, frozen.token) if value)
        return frozen

    def _find(self) -> Any:
        from botocore.exceptions import BotoCoreError

        try:
            if self._credentials is None:
                self._credentials = _session().get_credentials()
            if self._credentials is not None:
                return self._credentials.get_frozen_credentials()
        except BotoCoreError as error:
            raise fault("auth", f"AWS gives no credentials: {error}", provider=_SERVICE) from None
        raise fault(
            "auth",
            "there are no AWS credentials",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or log in with the aws command",
            provider=_SERVICE,
        )

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets that were used so far, to be redacted."""
        return self._seen


def region_of_profile() -> str:
    """Return the region of the user's AWS profile; reads files."""
    from botocore.exceptions import BotoCoreError

    try:
        region = _session().get_config_variable("region")
    except BotoCoreError as error:
        raise ConfigError(
            f"the AWS configuration cannot be used: {error}",
            hint="look at AWS_PROFILE and ~/.aws/config",
            key="bedrock",
        ) from None
    if not region:
        raise ConfigError(
            "there is no region for bedrock",
            hint="export AWS_REGION=… or set providers.bedrock.region",
            key="providers.bedrock.region",
        )
    return str(region)


def sign(credentials: Any, region: str, url: str, body: bytes, headers: dict[str, str]) -> dict[str, str]:
    """`headers` with the signature of a POST; only `content-type` is signed, since proxies may change the others."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    signed = {name: value for name, value in headers.items() if name in _SIGNED}
    request = AWSRequest(method="POST", url=url, data=body, headers=signed)
    SigV4Auth(credentials, _SERVICE, region).add_auth(request)
    return {**headers, **{name.lower(): value for name, value in request.headers.items()}}


def need_botocore() -> None:
    """Raise a ConfigError with the install command if botocore is not installed."""
    if find_spec("botocore") is None:
        raise ConfigError(
            "bedrock needs botocore, which is not installed", hint="pip install 'lyra-agents[bedrock]'", key="bedrock"
        )


def _session() -> Any:
    from botocore.session import Session

    quiet = logging.getLogger("botocore.auth")
    quiet.setLevel(max(quiet.level, logging.INFO))
    return Session()


# ---------------------------------------------------------------- event stream
HEADERS_BYTES_MAX: Final = 128 << 10  # the protocol's own limits
PAYLOAD_BYTES_MAX: Final = 24 << 20
_KNOWN_MAX: Final = 64  # sets of headers that are remembered; a stream of Converse has about six

_PRELUDE: Final = struct.Struct("!III")
_CHECKSUM: Final = struct.Struct("!I")
_LENGTH: Final = struct.Struct("!H")
# Numeric types of header values by their code; text, bytes and booleans are read separately.
_NUMBERS: Final = {2: struct.Struct("!b"), 3: struct.Struct("!h"), 4: struct.Struct("!i"), 5: struct.Struct("!q")}
_TRUTHS: Final = {0: True, 1: False}
_BYTES, _TEXT, _TIME, _UUID = 6, 7, 8, 9

Headers = dict[str, Any]


class Frames:
    __slots__ = ("_known", "_rest", "broken")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._known: dict[bytes, Headers] = {}
        self.broken: ModelError | None = None  # the error that follows the messages that were returned

    def feed(self, data: bytes) -> list[tuple[Headers, bytes]]:
        """Return the messages that `data` completes: headers and payload."""
        if self.broken is not None:
            raise self.broken
        self._rest += data
        messages: list[tuple[Headers, bytes]] = []
        try:
            done = self._take(messages)
        except ModelError as error:
            if not messages:
                raise
            self.broken = error
            return messages
        if done:
            del self._rest[:done]
        return messages

    def _take(self, messages: list[tuple[Headers, bytes]]) -> int:
        rest = self._rest
        start, size = 0, len(rest)
        while size - start >= 12:
            total, head, checksum = _PRELUDE.unpack_from(rest, start)
            if crc32(rest[start : start + 8]) != checksum:
                raise answer_malformed("the checksum of a frame's lengths is wrong")
            payload = total - head - 16
            if head > HEADERS_BYTES_MAX or not 0 <= payload <= PAYLOAD_BYTES_MAX:
                raise answer_malformed(f"a frame of {total} bytes with {head} bytes of headers cannot be")
            end = start + total
            if end > size:
                break
            if crc32(rest[start : end - 4]) != _CHECKSUM.unpack_from(rest, end - 4)[0]:
                raise answer_malformed("the checksum of a frame is wrong")
            body = start + 12 + head
            messages.append((self._headers(bytes(rest[start + 12 : body])), bytes(rest[body : end - 4])))
            start = end
        return start

    def _headers(self, data: bytes) -> Headers:
        headers = self._known.get(data)
        if headers is None:
            try:
                headers = _headers(data)
            except (struct.error, IndexError, UnicodeDecodeError, KeyError) as error:
                raise answer_malformed(f"the headers of a frame cannot be read: {error!r}") from None
            if len(self._known) < _KNOWN_MAX:
                self._known[data] = headers
        return headers


def _headers(data: bytes) -> Headers:
    headers: Headers = {}
    position = 0
    while position < len(data):
        position, name = _piece(data, position + 1, data[position])
        kind = data[position]
        position, value = _value(data, position + 1, kind)
        if name.decode() in headers:
            raise answer_malformed(f"a frame has the header {name.decode()!r} twice")
        headers[name.decode()] = value
    return headers


def _value(data: bytes, position: int, kind: int) -> tuple[int, Any]:
    if kind in (_TEXT, _BYTES):
        position, value = _piece(data, position + 2, _LENGTH.unpack_from(data, position)[0])
        return position, value.decode() if kind == _TEXT else value
    if kind in _TRUTHS:
        return position, _TRUTHS[kind]
    if kind == _UUID:
        return _piece(data, position, 16)
    number = _NUMBERS[5 if kind == _TIME else kind]
    return position + number.size, number.unpack_from(data, position)[0]


def _piece(data: bytes, start: int, size: int) -> tuple[int, bytes]:
    end = start + size
    if end > len(data):
        raise IndexError("a header ends outside its frame")
    return end, data[start:end]


# ---------------------------------------------------------------- what goes out
_CLAUDE: Final = "anthropic.claude"
_POINT: Final[dict[str, Any]] = {"cachePoint": {"type": "default"}}
_NO_OUTPUT: Final = "(no output)"
_ID_MAX: Final = 64

# Models (a pattern within the id, which may start with a region) and the fields that take a cache point.
CACHING: Final[tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]] = (
    (
        re.compile(r"anthropic\.claude-(?:3-7|3-5-haiku|3-5-sonnet-20241022|[a-z]+-[4-9])"),
        ("system", "tools", "messages"),
    ),
    (re.compile(r"amazon\.nova-"), ("system",)),
)


class AnswerTool(NamedTuple):
    """The tool whose input is the answer. `wrapped`: the answer is its `value`, because an input is an object."""

    name: str
    schema: dict[str, Any]
    wrapped: bool


def answer_tool(request: Request) -> AnswerTool | None:
    schema = request.output_schema
    if schema is None:
        return None
    name = request.output_name
    while any(tool.name == name for tool in request.tools):
        name += "_"
    if schema.get("type") == "object":
        return AnswerTool(name, schema, wrapped=False)
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer: dict[str, Any] = {"type": "object", "properties": {"value": inner}, "required": ["value"]}
    if "$defs" in schema:  # references start at the root
        outer["$defs"] = schema["$defs"]
    return AnswerTool(name, outer, wrapped=True)


def bedrock_body(request: Request) -> dict[str, Any]:
    cached = _find_cache_fields(request)
    body: dict[str, Any] = {"messages": turns(request, _blocks)}
    system = system_text(request)
    if system:
        body["system"] = [{"text": system}, *([_POINT] if "system" in cached else [])]
    tools = _tools(request)
    if tools:
        body["toolConfig"] = {"tools": [*tools, *([_POINT] if "tools" in cached else [])], **_choice(request)}
    config = {
        "maxTokens": request.max_tokens,
        "temperature": request.temperature,
        "topP": request.top_p,
        "stopSequences": list(request.stop) or None,
    }
    _put_thinking(body, config, request)
    given = {name: value for name, value in config.items() if value is not None}
    if given:
        body["inferenceConfig"] = given
    if "messages" in cached and len(body["messages"]) > 1:
        body["messages"][-1]["content"].append(_POINT)
    return body


def _find_cache_fields(request: Request) -> tuple[str, ...]:
    if not request.cache:
        return ()
    return next((fields for pattern, fields in CACHING if pattern.search(request.model)), ())


def _put_thinking(body: dict[str, Any], config: dict[str, Any], request: Request) -> None:
    """Put the thinking fields of Claude, as in `anthropic`; other models have no such setting."""
    if request.thinking_tokens is None or _CLAUDE not in request.model:
        return
    if decides_itself(request.model):
        words = (word for most, word in EFFORTS if request.thinking_tokens < most)
        body["outputConfig"] = {"effort": next(words, "high")}
    thinking = _thinking(request)
    if thinking is not None:
        body["additionalModelRequestFields"] = {"thinking": thinking}
        config["temperature"] = None  # not accepted together with thinking


def _thinking(request: Request) -> dict[str, Any] | None:
    tokens = request.thinking_tokens or 0
    if tokens <= 0 or _CLAUDE not in request.model:
        return None
    if decides_itself(request.model):
        return {"type": "adaptive", "display": "summarized"}
    if request.max_tokens is not None:
        tokens = min(tokens, request.max_tokens - 1)
    return {"type": "enabled", "budget_tokens": tokens} if tokens >= THINKING_LEAST else None


# ---------------------------------------------------------------- tools
def _tools(request: Request) -> list[dict[str, Any]]:
    calls = (call.name for message in request.messages for call in message.tool_calls)
    results = (result.name for message in request.messages for result in message.tool_results)
    remembered = list(dict.fromkeys([*calls, *results]))
    offered = () if request.tool_choice == "none" and not remembered else request.tools
    tools = [_spec(tool.name, tool.description, tool.schema) for tool in offered]
    answer = answer_tool(request)
    if answer is not None:
        tools.append(_spec(answer.name, "Give the answer.", answer.schema))
    if not tools:
        tools = [_spec(name, "", Tool(name).schema) for name in remembered]
    return tools


def _spec(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": name, "inputSchema": {"json": schema}}
    return {"toolSpec": {**spec, "description": description} if description else spec}


def _choice(request: Request) -> dict[str, Any]:
    """Return the choice of a tool. A thinking model cannot be forced to call a tool; a model with tools may call one of
    them before it answers."""
    answer = answer_tool(request)
    if answer is not None:
        if _thinking(request) is not None:
            return {}
        if request.tools and request.tool_choice != "none":
            return {"toolChoice": {"any": {}}}
        return {"toolChoice": {"tool": {"name": answer.name}}}
    if request.tool_choice == "any":
        return {"toolChoice": {"any": {}}}
    if request.tool_choice in ("auto", "none"):
        return {}
    return {"toolChoice": {"tool": {"name": request.tool_choice}}}


# ---------------------------------------------------------------- messages
def _blocks(message: Message) -> list[dict[str, Any]]:
    """Thoughts and texts in their order: Claude wants its thoughts back where they were."""
    blocks: list[dict[str, Any]] = [{"toolResult": _result(result)} for result in message.tool_results]
    for part in parts(message, thoughts=True):
        if part["type"] == "thinking":
            blocks += _encode_thought(part)
        elif part["type"] == "image":
            blocks.append(_image(part))
        elif part["text"].strip():
            blocks.append({"text": part["text"]})
    blocks += [
        {"toolUse": {"toolUseId": fit_id(call.id, _ID_MAX), "name": call.name, "input": dict(call.arguments)}}
        for call in message.tool_calls
    ]
    return blocks


def _image(part: dict[str, Any]) -> dict[str, Any]:
    """Return an image. The format is its own word, not a media type; a model that sees none refuses the request."""
    media_type, data = image_data(part, "bedrock")
    kind = media_type.removeprefix("image/")
    return {"image": {"format": "jpeg" if kind == "jpg" else kind, "source": {"bytes": data}}}


def _encode_thought(part: dict[str, Any]) -> list[dict[str, Any]]:
    signature = str(part.get("signature", ""))
    if signature.startswith(REDACTED):
        return [{"reasoningContent": {"redactedContent": signature.removeprefix(REDACTED)}}]
    if not signature or ":" in signature:
        return []  # unsigned, or signed by another provider
    return [{"reasoningContent": {"reasoningText": {"text": str(part.get("thinking", "")), "signature": signature}}}]


def _result(result: ToolResult) -> dict[str, Any]:
    given = output_parts(result)
    text = "\n".join(part["text"] for part in given if part["type"] == "text")
    content = [{"text": text}] if text.strip() else []
    content += [_image(part) for part in given if part["type"] == "image"]
    block = {"toolUseId": fit_id(result.id, _ID_MAX), "content": content or [{"text": _NO_OUTPUT}]}
    return {**block, "status": "error"} if result.is_error else block


_STOPS: Final[dict[str, str]] = {
    "end_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "malformed_tool_use": "broken_call",
}
_BROKEN: Final = "malformed_model_output"  # the request is tried again
_STATUS: Final[dict[str, int]] = {  # the status that an exception inside a stream represents
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

    __slots__ = ("_answer", "_answering", "_frames", "_held", "_model", "_signatures", "_stop", "_tools", "_whole")

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
        """Drop an incomplete frame."""

    def _end(self, events: list[StreamEvent]) -> None:
        """End the answer: it is complete even if the token counts are missing."""
        if self.done:
            return
        if not self._stop:
            raise stream_truncated("the stream ended before messageStop")
        self.done = True
        events.append(Finished(self._stop))

    def _message(self, headers: dict[str, Any], payload: bytes) -> list[StreamEvent]:
        kind = headers.get(":message-type", "event")
        if kind == "error":
            message = headers.get(":error-message") or "the provider broke the answer off"
            raise from_status(500, str(message), code=str(headers.get(":error-code", "")))
        name = str(headers.get(":exception-type" if kind == "exception" else ":event-type", ""))
        handler = _HANDLERS.get(name)
        if handler is None and kind != "exception":
            return []
        try:
            event = _EVENT.decode(payload) if payload else _Event()
        except UNREADABLE as error:
            raise answer_malformed(f"an event {name} of the answer cannot be read: {error}") from None
        if handler is None:
            status = _STATUS.get(name, 500)
            raise from_status(status, event.message or f"the provider broke the answer off: {name}", code=name)
        return handler(self, event)

    # ------------------------------------------------------------ one event each
    def _on_start(self, _event: _Event) -> list[StreamEvent]:
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
            return self._on_thought(index, delta.reasoning_content)
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

    def _on_thought(self, index: int, thought: _Reasoning) -> list[StreamEvent]:
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
            return self._unwrap_value() if index == self._answering else []
        return self._tools.end(index)

    def _unwrap_value(self) -> list[StreamEvent]:
        text, self._whole = "".join(self._whole), []
        if not text:
            return []
        try:
            value = msgspec.json.decode(text)["value"]
        except (*UNREADABLE, KeyError, TypeError):
            return [TextDelta(text)]  # the agent validates it and reports that it has another form
        return [TextDelta(msgspec.json.encode(value).decode())]

    def _on_stop(self, event: _Event) -> list[StreamEvent]:
        stop = self._check(event.stop_reason)
        self._stop = "end" if stop == "tool_calls" and not self._tools.seen else stop
        held, self._held = "".join(self._held), []
        calls = self._tools.end_all(stop)
        return [TextDelta(held), *calls] if held and self._answering < 0 else calls

    def _check(self, reason: str) -> str:
        """Return the stop reason in Lyra's word; an error where the answer is none."""
        if reason == _BROKEN:
            raise answer_malformed(f"the model's answer is no answer: {reason}", provider_code=reason)
        if not reason:
            raise stream_truncated("the answer ended without a stop reason")
        stop = _STOPS.get(reason)
        if stop is None:
            raise unknown_stop(reason)
        self._tools.raise_open(stop)
        return stop

    def _on_usage(self, event: _Event) -> list[StreamEvent]:
        """Return the token counts, in the last event of an answer."""
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
    "messageStart": BedrockReader._on_start,
    "contentBlockStart": BedrockReader._block_started,
    "contentBlockDelta": BedrockReader._block_delta,
    "contentBlockStop": BedrockReader._block_stopped,
    "messageStop": BedrockReader._on_stop,
    "metadata": BedrockReader._on_usage,
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

    async def sign_request(self, url: str, body: bytes, headers: dict[str, str]) -> dict[str, str]:
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

"""The wire formats of the mock server: Anthropic's messages, OpenAI's two, and Ollama's own.

A `Wire` turns the JSON of a request into a Request, gives a writer for the answer, and turns an error into a status and
a body. Requests of the two vendors are read by `lyra.models.requests`, leniently: a member that a mock does not need is
left out. A mistake in a request is a ConfigError that says how to mend it. Nothing is stored: a `previous_response_id`
is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import msgspec

from lyra.errors import ConfigError, ModelError
from lyra.models.answers import AnswerHead, ResponsesWriter, answer_thoughts, vendor_writer
from lyra.models.answers import answer_event as sse
from lyra.models.provider import Request
from lyra.models.requests import (
    READERS,
    Members,
    ReadConversation,
    RequestFace,
    VendorRequest,
    read_call,
    read_function,
)
from lyra.models.stream import (
    Completion,
    Finished,
    Started,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolDelta,
    ToolEnd,
    ToolStart,
    UsageSeen,
)

CREATED: Final = 1_700_000_000  # a mock has no clock
BROKEN: Final = '{"broken": '  # a piece that is not JSON
MOCK: Final = RequestFace(
    "the mock server does not take {what}", "leave it out", takes_other_members=True, takes_other_kinds=True
)
_STATUSES: Final[dict[str, int]] = {
    "rate_limit": 429,
    "overloaded": 503,
    "timeout": 504,
    "temporary": 500,
    "auth": 401,
    "bad_request": 400,
    "not_found": 404,
    "context_overflow": 400,
    "content_filter": 400,
}


class MockTurn(NamedTuple):
    """One request to answer: as it was understood, its number, and its tokens by a rough count."""

    asked: VendorRequest
    number: int
    input_tokens: int

    @property
    def request(self) -> Request:
        return self.asked.request

    def head(self) -> AnswerHead:
        """Return what the answer says of itself; it was made at the same time as every other."""
        return AnswerHead(
            self.request.model,
            f"mock-{self.number}",
            CREATED,
            self.input_tokens,
            thought_signature=f"mock-signature-{self.number}",
            more={"system_fingerprint": "fp_mock"},
        )


class MockWriter(Protocol):
    """Writes one answer: piece by piece, or whole."""

    def event(self, event: StreamEvent) -> bytes: ...

    def render_document(self, answer: Completion) -> dict[str, Any]: ...


class Wire(ABC):
    """One format."""

    stream_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    statuses: ClassVar[Mapping[str, int]] = _STATUSES  # kind of error → status

    @abstractmethod
    def read(self, data: Any) -> VendorRequest: ...

    @abstractmethod
    def writer(self, turn: MockTurn) -> MockWriter: ...

    @abstractmethod
    def error(self, kind: str, message: str) -> dict[str, Any]: ...

    @abstractmethod
    def stream_error(self, writer: MockWriter, error: ModelError) -> bytes:
        """Return an error told in the middle of a stream."""

    @abstractmethod
    def render_broken(self) -> bytes:
        """Return a piece of a stream that cannot be read."""

    def status(self, kind: str) -> int:
        return self.statuses.get(kind, 500)


def _in_words(error: ModelError) -> str:
    """Return what a stream says of an error: without a header, the pause that it asks for is part of the sentence."""
    wait_s = error.fields.get("retry_after_s")
    return error.message if wait_s is None else f"{error.message} Please try again in {wait_s:g}s."


class VendorWire(Wire):
    """A format of OpenAI's or Anthropic's; `name` is the one of its reader and its writer."""

    name: ClassVar[str]
    error_event: ClassVar[str] = ""
    broken_event: ClassVar[str] = ""

    def read(self, data: Any) -> VendorRequest:
        return READERS[self.name](data, MOCK)

    def writer(self, turn: MockTurn) -> MockWriter:
        return vendor_writer(self.name, turn.head(), with_usage=turn.asked.with_usage)

    def stream_error(self, writer: MockWriter, error: ModelError) -> bytes:  # noqa: ARG002 (one format needs it)
        return sse(self.error(error.kind, _in_words(error)), self.error_event)

    def render_broken(self) -> bytes:
        return sse(BROKEN, self.broken_event)


_TYPES: Final[dict[str, str]] = {
    "rate_limit": "rate_limit_error",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
    "auth": "authentication_error",
    "bad_request": "invalid_request_error",
    "context_overflow": "invalid_request_error",
    "content_filter": "invalid_request_error",
    "not_found": "not_found_error",
}
_PREFIXES: Final[dict[str, str]] = {
    "context_overflow": "prompt is too long: ",
    "content_filter": "Output blocked by content filtering policy: ",
}


class AnthropicWire(VendorWire):
    name = "messages"
    error_event = "error"
    broken_event = "content_block_delta"
    statuses: ClassVar[Mapping[str, int]] = {**_STATUSES, "overloaded": 529}

    def read(self, data: Any) -> VendorRequest:
        asked = super().read(data)
        if asked.request.max_tokens is None:
            raise ConfigError("max_tokens: Field required")
        return asked

    def error(self, kind: str, message: str) -> dict[str, Any]:
        error = {"type": _TYPES.get(kind, "api_error"), "message": _PREFIXES.get(kind, "") + message}
        return {"type": "error", "error": error, "request_id": "req_mock"}


# kind of error → OpenAI's (type, code)
_WORDS: Final[dict[str, tuple[str, str | None]]] = {
    "rate_limit": ("requests", "rate_limit_exceeded"),
    "overloaded": ("server_error", "server_is_overloaded"),
    "timeout": ("server_error", "timeout"),
    "temporary": ("server_error", "server_error"),
    "auth": ("invalid_request_error", "invalid_api_key"),
    "bad_request": ("invalid_request_error", None),
    "not_found": ("invalid_request_error", "model_not_found"),
    "context_overflow": ("invalid_request_error", "context_length_exceeded"),
    "content_filter": ("invalid_request_error", "content_filter"),
}
_CODES: Final[dict[str, str]] = {"bad_request": "invalid_prompt"}  # what has a code in a stream only


class ChatWire(VendorWire):
    name = "chat"

    def error(self, kind: str, message: str) -> dict[str, Any]:
        word, code = _WORDS.get(kind, ("server_error", None))
        return {"error": {"message": message, "type": word, "param": None, "code": code}}


class ResponsesWire(ChatWire):
    name = "responses"
    broken_event = "response.output_text.delta"

    def stream_error(self, writer: MockWriter, error: ModelError) -> bytes:
        assert isinstance(writer, ResponsesWriter)
        code = _WORDS.get(error.kind, ("", None))[1] or _CODES.get(error.kind, "server_error")
        return writer.write_error(code, _in_words(error))


_AT: Final = "2024-01-01T00:00:00Z"  # the same time in every answer: a mock has no clock
_STOPS: Final[dict[str, str]] = {"max_tokens": "length"}


class OllamaWire(Wire):
    stream_type: ClassVar[str] = "application/x-ndjson"

    def read(self, data: Any) -> VendorRequest:
        body = Members(data, MOCK)
        conversation = ReadConversation()
        for message in body.objects("messages"):
            _ollama_message(conversation, message)
        options = body.inside("options")
        model = body.text("model")
        if not model:
            raise ConfigError("model is required")
        request = Request(
            model,
            conversation.messages(),
            system="\n\n".join(conversation.system),
            tools=tuple(filter(None, map(read_function, body.objects("tools")))),
            max_tokens=options.integer("num_predict", 1),
            stop=options.texts("stop"),
        )
        return VendorRequest(request, body.take("stream") is not False)

    def writer(self, turn: MockTurn) -> MockWriter:
        return _OllamaWriter(turn.request.model)

    def error(self, kind: str, message: str) -> dict[str, Any]:
        words = "context length exceeded: " if kind == "context_overflow" else ""
        return {"error": ("content_filter: " if kind == "content_filter" else words) + message}

    def stream_error(self, writer: MockWriter, error: ModelError) -> bytes:  # noqa: ARG002 (one format needs it)
        return _line({**self.error(error.kind, _in_words(error)), "status": self.status(error.kind)})

    def render_broken(self) -> bytes:
        return BROKEN.encode() + b"\n"


class _OllamaWriter:
    def __init__(self, model: str) -> None:
        self._model = model
        self._usage = TokenUsage()

    def event(self, event: StreamEvent) -> bytes:
        match event:
            case TextDelta(text):
                return self._message_line(content=text)
            case ThinkingDelta(text):
                return self._message_line(content="", thinking=text)
            case ToolEnd(_, whole):
                return self._message_line(content="", tool_calls=[_ollama_call(whole)])
            case UsageSeen(usage):
                self._usage = usage
                return b""
            case Finished(reason):
                return _line({**self._document({"content": ""}), **_last(reason, self._usage)})
            case Started() | ToolStart() | ToolDelta():  # a call comes whole in this format
                return b""

    def render_document(self, answer: Completion) -> dict[str, Any]:
        message: dict[str, Any] = {"content": answer.text}
        if thought := "".join(part["thinking"] for part in answer_thoughts(answer)):
            message["thinking"] = thought
        if answer.tool_calls:
            message["tool_calls"] = [_ollama_call(tool_call) for tool_call in answer.tool_calls]
        return {**self._document(message), **_last(answer.stop_reason, answer.usage)}

    def _message_line(self, **fields: Any) -> bytes:
        return _line({**self._document(fields), "done": False})

    def _document(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"model": self._model, "created_at": _AT, "message": {"role": "assistant", **message}}


def _line(data: Any) -> bytes:
    return msgspec.json.encode(data) + b"\n"


def tags(models: list[str]) -> dict[str, Any]:
    """Return the answer to `GET /api/tags`."""
    return {"models": [{"name": name, "model": name, "modified_at": _AT, "size": 0, "digest": ""} for name in models]}


def _ollama_message(conversation: ReadConversation, message: Members) -> None:
    role, content = message.text("role"), message.text("content")
    if role == "system":
        conversation.system.append(content)
    elif role == "user":
        conversation.user(content)
    elif role == "assistant":
        calls = []
        for index, tool_call in enumerate(message.objects("tool_calls")):
            function = tool_call.inside("function")
            call_id = tool_call.text("id") or f"call_{index}"
            calls.append(read_call(call_id, function.text("name"), function.take("arguments")))
        conversation.assistant(content, calls)
    elif role == "tool":
        conversation.result(message.text("tool_call_id"), content, name=message.text("tool_name"))
    else:
        raise MOCK.refusal(f"a message of role {role!r}")


def _ollama_call(call: Any) -> dict[str, Any]:
    return {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}


def _last(stop: str, usage: TokenUsage) -> dict[str, Any]:
    return {
        "done": True,
        "done_reason": _STOPS.get(stop, "stop"),
        "total_duration": 1,
        "load_duration": 1,
        "prompt_eval_count": usage.total_input,
        "prompt_eval_duration": 1,
        "eval_count": usage.output_tokens,
        "eval_duration": 1,
    }

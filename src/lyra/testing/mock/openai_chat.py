"""OpenAI's chat completions: `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from lyra.errors import ModelError
from lyra.models.request import Request
from lyra.models.stream import (
    Completion,
    Finished,
    Started,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolDelta,
    ToolEnd,
    ToolStart,
    UsageSeen,
)
from lyra.models.usage import TokenUsage
from lyra.testing.mock.wire import (
    BROKEN,
    BadRequest,
    EventWriter,
    MockTurn,
    ReceivedMessages,
    Wire,
    arguments_text,
    blocks,
    call,
    image,
    in_words,
    items,
    sse,
    stops,
    texts,
    tool,
    whole_number,
)

__all__ = ["CREATED", "OPENAI_STATUSES", "ChatWire", "openai_error", "openai_tools"]

CREATED: Final = 1_700_000_000  # the same time in every answer: a mock has no clock
_STOPS: Final[dict[str, str]] = {
    "end": "stop",
    "tool_calls": "tool_calls",
    "max_tokens": "length",
    "stop_sequence": "stop",
    "content_filter": "content_filter",
    "pause": "stop",
}
OPENAI_STATUSES: Final[dict[str, int]] = {
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


def openai_error(kind: str, message: str) -> dict[str, Any]:
    word, code = _WORDS.get(kind, ("server_error", None))
    return {"message": message, "type": word, "param": None, "code": code}


class ChatWire(Wire):
    statuses: ClassVar[Mapping[str, int]] = OPENAI_STATUSES

    def request(self, data: Mapping[str, Any]) -> tuple[Request, bool]:
        if not isinstance(data.get("model"), str):
            raise BadRequest("you must provide a model parameter")
        if not items(data, "messages"):
            raise BadRequest("messages: at least one message is required")
        if data.get("n") not in (None, 1):
            raise BadRequest("n: this server gives one choice")
        received = ReceivedMessages()
        for message in items(data, "messages"):
            _message(received, message)
        most = "max_completion_tokens" if data.get("max_completion_tokens") is not None else "max_tokens"
        request = Request(
            data["model"],
            received.done(),
            system="\n".join(received.system),
            tools=openai_tools(data),
            max_tokens=whole_number(data, most),
            stop=stops(data.get("stop")),
        )
        return request, data.get("stream") is True

    def writer(self, turn: MockTurn) -> EventWriter:
        options = turn.data.get("stream_options")
        return _Writer(
            self,
            turn.model,
            turn.number,
            with_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
        )

    def whole(self, turn: MockTurn, answer: Completion) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.tool_calls:
            message["tool_calls"] = [
                {
                    "id": tool_call.id,
                    "type": "function",
                    "function": {"name": tool_call.name, "arguments": arguments_text(tool_call)},
                }
                for tool_call in answer.tool_calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[answer.stop_reason]}
        head = _head("chat.completion", turn.model, turn.number)
        return {**head, "choices": [choice], "usage": _usage(answer.usage)}

    def error(self, kind: str, message: str) -> dict[str, Any]:
        return {"error": openai_error(kind, message)}


class _Writer(EventWriter):
    def __init__(self, wire: ChatWire, model: str, number: int, *, with_usage: bool) -> None:
        self._wire = wire
        self._head = _head("chat.completion.chunk", model, number)
        self._with_usage = with_usage
        self._usage = TokenUsage()

    def event(self, event: StreamEvent) -> bytes:
        match event:
            case Started():
                return self._chunk({"role": "assistant", "content": "", "refusal": None})
            case TextDelta(text):
                return self._chunk({"content": text})
            case ThinkingDelta(text):
                return self._chunk({"reasoning_content": text})
            case ToolStart(index, call_id, name):
                begun = {"index": index, "id": call_id, "type": "function"}
                return self._chunk({"tool_calls": [{**begun, "function": {"name": name, "arguments": ""}}]})
            case ToolDelta(index, text):
                return self._chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
            case ToolEnd():
                return b""
            case UsageSeen(usage):
                self._usage = usage
                return b""
            case Finished(reason):
                told = self._chunk({}, _STOPS[reason])
                if self._with_usage:
                    told += sse({**self._head, "choices": [], "usage": _usage(self._usage)})
                return told + sse("[DONE]")

    def error(self, error: ModelError) -> bytes:
        return sse(self._wire.error(error.kind, in_words(error)))

    def broken(self) -> bytes:
        return sse(BROKEN)

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._with_usage else {}
        return sse({**self._head, "choices": [choice], **usage})


def openai_tools(data: Mapping[str, Any]) -> tuple[Any, ...]:
    """Functions; other kinds of tools are the real server's own."""
    tools = []
    for declared in items(data, "tools"):
        inner = declared.get("function")
        function = inner if isinstance(inner, Mapping) else declared
        if declared.get("type") == "function":
            tools.append(tool(function.get("name"), function.get("description"), function.get("parameters")))
    return tuple(tools)


def _message(received: ReceivedMessages, message: Mapping[str, Any]) -> None:
    role, content = message.get("role"), message.get("content")
    if role in ("system", "developer"):
        received.system.append(texts(content))
    elif role == "user":
        received.user(content if isinstance(content, str) else _parts(content))
    elif role == "assistant":
        received.assistant(texts(content), [_call(tool_call) for tool_call in items(message, "tool_calls")])
    elif role == "tool":
        received.result(str(message.get("tool_call_id")), texts(content))
    else:
        raise BadRequest(f"messages: there is no role {role!r}")


def _call(data: Mapping[str, Any]) -> Any:
    function = data.get("function")
    if not isinstance(function, Mapping):
        raise BadRequest("a tool call has a function")
    return call(data.get("id"), function.get("name"), function.get("arguments") or "")


def _parts(content: Any) -> list[dict[str, Any]]:
    parts = []
    for block in blocks(content):
        if block.get("type") == "image_url":
            address = block.get("image_url")
            parts.append(image(str(address.get("url") if isinstance(address, Mapping) else address)))
        else:
            parts.append({"type": "text", "text": str(block.get("text", ""))})
    return parts


def _head(kind: str, model: str, number: int) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-mock-{number}",
        "object": kind,
        "created": CREATED,
        "model": model,
        "system_fingerprint": "fp_mock",
    }


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.total_input,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_input + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }

"""OpenAI's chat completions: `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from lyra.errors import ModelError
from lyra.models.answers import ChatWriter
from lyra.models.provider import Request
from lyra.models.stream import Completion, StreamEvent
from lyra.testing.mock.wire import (
    BROKEN,
    BadRequest,
    EventWriter,
    MockTurn,
    ReceivedMessages,
    Wire,
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
        return _ChatStream(self, _writer(turn))

    def whole(self, turn: MockTurn, answer: Completion) -> dict[str, Any]:
        return _writer(turn).whole(answer)

    def error(self, kind: str, message: str) -> dict[str, Any]:
        return {"error": openai_error(kind, message)}


class _ChatStream(EventWriter):
    def __init__(self, wire: ChatWire, answer: ChatWriter) -> None:
        self._wire = wire
        self._answer = answer

    def event(self, event: StreamEvent) -> bytes:
        return self._answer.event(event)

    def error(self, error: ModelError) -> bytes:
        return sse(self._wire.error(error.kind, in_words(error)))

    def broken(self) -> bytes:
        return sse(BROKEN)


def _writer(turn: MockTurn) -> ChatWriter:
    options = turn.data.get("stream_options")
    with_usage = isinstance(options, Mapping) and options.get("include_usage") is True
    return ChatWriter(turn.head(system_fingerprint="fp_mock"), with_usage=with_usage)


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

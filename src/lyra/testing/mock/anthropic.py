"""Anthropic's Messages API: `POST /v1/messages`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from lyra.errors import ModelError
from lyra.models.answers import MessagesWriter
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
    in_words,
    items,
    sse,
    stops,
    texts,
    tool,
    whole_number,
)

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


class AnthropicWire(Wire):
    statuses: ClassVar[Mapping[str, int]] = {
        "rate_limit": 429,
        "overloaded": 529,
        "timeout": 504,
        "temporary": 500,
        "auth": 401,
        "bad_request": 400,
        "not_found": 404,
        "context_overflow": 400,
        "content_filter": 400,
    }

    def request(self, data: Mapping[str, Any]) -> tuple[Request, bool]:
        if not isinstance(data.get("model"), str):
            raise BadRequest("model: Field required")
        if "max_tokens" not in data:
            raise BadRequest("max_tokens: Field required")
        if not items(data, "messages"):
            raise BadRequest("messages: at least one message is required")
        received = ReceivedMessages()
        for message in items(data, "messages"):
            _message(received, message)
        request = Request(
            data["model"],
            received.done(),
            system=texts(data.get("system")),
            tools=tuple(
                tool(declared.get("name"), declared.get("description"), declared.get("input_schema"))
                for declared in items(data, "tools")
            ),
            max_tokens=whole_number(data, "max_tokens"),
            stop=stops(data.get("stop_sequences")),
        )
        return request, data.get("stream") is True

    def writer(self, turn: MockTurn) -> EventWriter:
        return _MessageStream(self, MessagesWriter(turn.head()))

    def whole(self, turn: MockTurn, answer: Completion) -> dict[str, Any]:
        return MessagesWriter(turn.head()).whole(answer)

    def error(self, kind: str, message: str) -> dict[str, Any]:
        error = {"type": _TYPES.get(kind, "api_error"), "message": _PREFIXES.get(kind, "") + message}
        return {"type": "error", "error": error, "request_id": "req_mock"}


class _MessageStream(EventWriter):
    def __init__(self, wire: AnthropicWire, answer: MessagesWriter) -> None:
        self._wire = wire
        self._answer = answer

    def event(self, event: StreamEvent) -> bytes:
        return self._answer.event(event)

    def error(self, error: ModelError) -> bytes:
        return sse(self._wire.error(error.kind, in_words(error)), "error")

    def broken(self) -> bytes:
        return sse(BROKEN, "content_block_delta")


def _message(received: ReceivedMessages, message: Mapping[str, Any]) -> None:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        raise BadRequest("messages: role is 'user' or 'assistant'")
    if isinstance(content, str):
        received.user(content) if role == "user" else received.assistant(content)
        return
    parts: list[dict[str, Any]] = []
    calls = []
    for block in blocks(content):
        kind = block.get("type")
        if kind == "text":
            parts.append({"type": "text", "text": str(block.get("text", ""))})
        elif kind == "image":
            parts.append(_image(block.get("source")))
        elif kind == "thinking":
            parts.append({"type": "thinking", "thinking": str(block.get("thinking", "")), "signature": ""})
        elif kind == "tool_use":
            calls.append(call(block.get("id"), block.get("name"), block.get("input") or {}))
        elif kind == "tool_result":
            failed = block.get("is_error") is True
            received.result(str(block.get("tool_use_id")), texts(block.get("content")), is_error=failed)
    if role == "assistant":
        received.assistant(_plain(parts), calls)
    elif parts:
        received.user(_plain(parts))


def _plain(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _image(source: Any) -> dict[str, Any]:
    if not isinstance(source, Mapping):
        raise BadRequest("an image has a source")
    if source.get("type") == "base64":
        return {"type": "image", "media_type": source.get("media_type"), "data": source.get("data")}
    return {"type": "image", "url": source.get("url")}

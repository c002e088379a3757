"""Anthropic's Messages API: `POST /v1/messages`."""

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
    blocks,
    call,
    in_words,
    items,
    sse,
    stops,
    texts,
    thoughts,
    tool,
    whole_number,
)

__all__ = ["AnthropicWire"]

_STOPS: Final[dict[str, str]] = {
    "end": "end_turn",
    "tool_calls": "tool_use",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "content_filter": "refusal",
    "pause": "pause_turn",
}
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
        return _Writer(self, turn.model, turn.number, turn.input_tokens)

    def whole(self, turn: MockTurn, answer: Completion) -> dict[str, Any]:
        signature = _signature(turn.number)
        content: list[dict[str, Any]] = [
            {"type": "thinking", "thinking": thought, "signature": signature} for thought in thoughts(answer)
        ]
        if answer.text:
            content.append({"type": "text", "text": answer.text})
        content += [
            {"type": "tool_use", "id": tool_call.id, "name": tool_call.name, "input": tool_call.arguments}
            for tool_call in answer.tool_calls
        ]
        head = _head(turn.model, turn.number, _usage(answer.usage))
        return {**head, "content": content, "stop_reason": _STOPS[answer.stop_reason]}

    def error(self, kind: str, message: str) -> dict[str, Any]:
        error = {"type": _TYPES.get(kind, "api_error"), "message": _PREFIXES.get(kind, "") + message}
        return {"type": "error", "error": error, "request_id": "req_mock"}


class _Writer(EventWriter):
    """Blocks open and close as the kind of what is said changes."""

    def __init__(self, wire: AnthropicWire, model: str, number: int, input_tokens: int) -> None:
        self._wire = wire
        self._model = model
        self._number = number
        self._usage = TokenUsage(input_tokens)
        self._index = -1
        self._open = ""  # the kind of the block that is open

    def event(self, event: StreamEvent) -> bytes:
        match event:
            case Started():
                head = _head(self._model, self._number, _usage(self._usage))
                return _sse("message_start", message={**head, "content": [], "stop_reason": None})
            case TextDelta(text):
                return self._block("text", {"text": ""}) + self._delta(type="text_delta", text=text)
            case ThinkingDelta(text):
                return self._block("thinking", {"thinking": "", "signature": ""}) + self._delta(
                    type="thinking_delta", thinking=text
                )
            case ToolStart(_, call_id, name):
                return self._close() + self._block("tool_use", {"id": call_id, "name": name, "input": {}})
            case ToolDelta(_, text):
                return self._delta(type="input_json_delta", partial_json=text)
            case ToolEnd():
                return self._close()
            case UsageSeen(usage):
                self._usage = usage
                return b""
            case Finished(reason):
                delta = {"stop_reason": _STOPS[reason], "stop_sequence": None}
                told = _sse("message_delta", delta=delta, usage=_usage(self._usage))
                return self._close() + told + _sse("message_stop")

    def error(self, error: ModelError) -> bytes:
        return sse(self._wire.error(error.kind, in_words(error)), "error")

    def broken(self) -> bytes:
        return sse(BROKEN, "content_block_delta")

    def _block(self, kind: str, fields: dict[str, Any]) -> bytes:
        if self._open == kind:
            return b""
        closed = self._close()
        self._open = kind
        self._index += 1
        return closed + _sse("content_block_start", index=self._index, content_block={"type": kind, **fields})

    def _delta(self, **delta: Any) -> bytes:
        return _sse("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        kind, self._open = self._open, ""
        if not kind:
            return b""
        signed = b""
        if kind == "thinking":
            signed = self._delta(type="signature_delta", signature=_signature(self._number))
        return signed + _sse("content_block_stop", index=self._index)


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


def _head(model: str, number: int, usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"msg_mock_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "stop_sequence": None,
        "usage": usage,
    }


def _usage(usage: TokenUsage) -> dict[str, Any]:
    """This format leaves cached tokens out of `input_tokens`."""
    read, write = usage.cache_read_tokens, usage.cache_write_tokens
    return {
        "input_tokens": usage.input_tokens if usage.cached_apart else max(usage.input_tokens - read - write, 0),
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
    }


def _signature(number: int) -> str:
    return f"mock-signature-{number}"


def _sse(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)

"""Ollama's own API: `POST /api/chat` in JSON lines, and the list of models at `/api/tags`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from lyra.errors import ModelError
from lyra.models.answers import answer_thoughts
from lyra.models.provider import Request
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
from lyra.testing.mock.openai_chat import openai_tools
from lyra.testing.mock.wire import (
    BROKEN,
    BadRequest,
    EventWriter,
    MockTurn,
    ReceivedMessages,
    Wire,
    call,
    in_words,
    items,
    line,
    stops,
    texts,
    whole_number,
)

_AT: Final = "2024-01-01T00:00:00Z"  # the same time in every answer: a mock has no clock
_STOPS: Final[dict[str, str]] = {"max_tokens": "length"}


class OllamaWire(Wire):
    stream_type: ClassVar[str] = "application/x-ndjson"
    statuses: ClassVar[Mapping[str, int]] = {
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

    def request(self, data: Mapping[str, Any]) -> tuple[Request, bool]:
        if not isinstance(data.get("model"), str) or not data["model"]:
            raise BadRequest("model is required")
        received = ReceivedMessages()
        for message in items(data, "messages"):
            _message(received, message)
        given = data.get("options")
        options = given if isinstance(given, Mapping) else {}
        request = Request(
            data["model"],
            received.done(),
            system="\n".join(received.system),
            tools=openai_tools(data),
            max_tokens=whole_number(options, "num_predict"),
            stop=stops(options.get("stop")),
        )
        return request, data.get("stream") is not False

    def writer(self, turn: MockTurn) -> EventWriter:
        return _Writer(self, turn.model)

    def whole(self, turn: MockTurn, answer: Completion) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if thought := "".join(part["thinking"] for part in answer_thoughts(answer)):
            message["thinking"] = thought
        if answer.tool_calls:
            message["tool_calls"] = [
                _call(tool_call.id, tool_call.name, tool_call.arguments) for tool_call in answer.tool_calls
            ]
        return {**_line(turn.model, message), **_last(answer.stop_reason, answer.usage)}

    def error(self, kind: str, message: str) -> dict[str, Any]:
        words = "context length exceeded: " if kind == "context_overflow" else ""
        return {"error": ("content_filter: " if kind == "content_filter" else words) + message}


class _Writer(EventWriter):
    def __init__(self, wire: OllamaWire, model: str) -> None:
        self._wire = wire
        self._model = model
        self._usage = TokenUsage()

    def event(self, event: StreamEvent) -> bytes:
        match event:
            case TextDelta(text):
                return self._message_line(content=text)
            case ThinkingDelta(text):
                return self._message_line(content="", thinking=text)
            case ToolEnd(_, whole):
                return self._message_line(content="", tool_calls=[_call(whole.id, whole.name, whole.arguments)])
            case UsageSeen(usage):
                self._usage = usage
                return b""
            case Finished(reason):
                message = {"role": "assistant", "content": ""}
                return line({**_line(self._model, message), **_last(reason, self._usage)})
            case Started() | ToolStart() | ToolDelta():  # a call comes whole in this format
                return b""

    def error(self, error: ModelError) -> bytes:
        return line({**self._wire.error(error.kind, in_words(error)), "status": self._wire.status(error.kind)})

    def broken(self) -> bytes:
        return BROKEN.encode() + b"\n"

    def _message_line(self, **fields: Any) -> bytes:
        return line({**_line(self._model, {"role": "assistant", **fields}), "done": False})


def tags(models: list[str]) -> dict[str, Any]:
    """The answer to `GET /api/tags`."""
    return {"models": [{"name": name, "model": name, "modified_at": _AT, "size": 0, "digest": ""} for name in models]}


def _message(received: ReceivedMessages, message: Mapping[str, Any]) -> None:
    role, content = message.get("role"), texts(message.get("content"))
    if role == "system":
        received.system.append(content)
    elif role == "user":
        received.user(content)
    elif role == "assistant":
        calls = []
        for index, tool_call in enumerate(items(message, "tool_calls")):
            function = tool_call.get("function")
            if not isinstance(function, Mapping):
                raise BadRequest("a tool call has a function")
            calls.append(
                call(tool_call.get("id") or f"call_{index}", function.get("name"), function.get("arguments") or {})
            )
        received.assistant(content, calls)
    elif role == "tool":
        received.result(str(message.get("tool_call_id") or ""), content, name=str(message.get("tool_name") or ""))
    else:
        raise BadRequest(f"messages: there is no role {role!r}")


def _call(call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def _line(model: str, message: dict[str, Any]) -> dict[str, Any]:
    return {"model": model, "created_at": _AT, "message": message}


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

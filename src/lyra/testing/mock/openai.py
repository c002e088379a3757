"""The formats of OpenAI and Ollama, whose messages are alike.

Chat completions (`POST /v1/chat/completions`), the Responses API (`POST /v1/responses`; nothing is stored, and a
`previous_response_id` is refused), and Ollama's own API: `POST /api/chat` in JSON lines, and the list of models at
`/api/tags`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from lyra.errors import ModelError
from lyra.models.answers import ChatWriter, ResponsesWriter, answer_thoughts
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
    line,
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


# ---------------------------------------------------------------- openai responses

_CODES: Final[dict[str, str]] = {"bad_request": "invalid_prompt"}  # what has a code in a stream only


class ResponsesWire(Wire):
    statuses: ClassVar[Mapping[str, int]] = OPENAI_STATUSES

    def request(self, data: Mapping[str, Any]) -> tuple[Request, bool]:
        if not isinstance(data.get("model"), str):
            raise BadRequest("you must provide a model parameter")
        if data.get("previous_response_id") is not None:
            raise BadRequest("previous_response_id: this server stores no responses; send the whole conversation")
        received = ReceivedMessages()
        given = data.get("input")
        if isinstance(given, str):
            received.user(given)
        else:
            for item in items(data, "input"):
                _item(received, item)
        if data.get("instructions"):
            received.system.insert(0, texts(data["instructions"]))
        request = Request(
            data["model"],
            received.done(),
            system="\n".join(received.system),
            tools=openai_tools(data),
            max_tokens=whole_number(data, "max_output_tokens"),
        )
        return request, data.get("stream") is True

    def writer(self, turn: MockTurn) -> EventWriter:
        return _ResponseStream(ResponsesWriter(turn.head()))

    def whole(self, turn: MockTurn, answer: Completion) -> dict[str, Any]:
        return ResponsesWriter(turn.head()).whole(answer)

    def error(self, kind: str, message: str) -> dict[str, Any]:
        return {"error": openai_error(kind, message)}


class _ResponseStream(EventWriter):
    def __init__(self, answer: ResponsesWriter) -> None:
        self._answer = answer

    def event(self, event: StreamEvent) -> bytes:
        return self._answer.event(event)

    def error(self, error: ModelError) -> bytes:
        data = openai_error(error.kind, in_words(error))
        return self._answer.failed(data["code"] or _CODES.get(error.kind, "server_error"), data["message"])

    def broken(self) -> bytes:
        return sse(BROKEN, "response.output_text.delta")


def _item(received: ReceivedMessages, item: Mapping[str, Any]) -> None:
    kind = item.get("type", "message")
    if kind == "function_call":
        received.assistant("", [call(item.get("call_id"), item.get("name"), item.get("arguments") or "")])
    elif kind == "function_call_output":
        received.result(str(item.get("call_id")), texts(item.get("output")))
    elif kind == "message":
        role, content = item.get("role"), item.get("content")
        if role in ("system", "developer"):
            received.system.append(texts(content))
        elif role == "assistant":
            received.assistant(texts(content))
        elif role == "user":
            received.user(content if isinstance(content, str) else _input_parts(content))
        else:
            raise BadRequest(f"input: there is no role {role!r}")
    elif kind != "reasoning":
        raise BadRequest(f"input: this server does not know items of type {kind!r}")


def _input_parts(content: Any) -> list[dict[str, Any]]:
    return [
        image(str(block.get("image_url")))
        if block.get("type") == "input_image"
        else {"type": "text", "text": str(block.get("text", ""))}
        for block in blocks(content)
    ]


# ---------------------------------------------------------------- ollama

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
            _ollama_message(received, message)
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
                _ollama_call(tool_call.id, tool_call.name, tool_call.arguments) for tool_call in answer.tool_calls
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
                return self._message_line(content="", tool_calls=[_ollama_call(whole.id, whole.name, whole.arguments)])
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
    """Return the answer to `GET /api/tags`."""
    return {"models": [{"name": name, "model": name, "modified_at": _AT, "size": 0, "digest": ""} for name in models]}


def _ollama_message(received: ReceivedMessages, message: Mapping[str, Any]) -> None:
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


def _ollama_call(call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
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

"""Ollama: `/api/chat`, one JSON object a line.

`ollama_body` writes a Request, `OllamaReader` reads the bytes of an answer. Calls of tools come whole and without an
id: ids are made up. An answer is whole when a line says `"done": true`. The API has no `tool_choice`: `none` leaves the
tools out, a name leaves out all but one, and `any` has no effect. With tools, the output schema is described in words,
because `format` would keep the model from calling them. Images are sent as data. Ollama caches the last prompt by
itself.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from lyra.core.message import Message
from lyra.core.tool import Tool, ToolResult
from lyra.models.conversation_parts import (
    first_call_number,
    image_data,
    output_parts,
    output_text,
    parts,
    schema_in_words,
    system_text,
    thoughts,
)
from lyra.models.provider import Request
from lyra.models.stream import Finished, Started, StreamEvent, TextDelta, ThinkingDelta, TokenUsage, UsageSeen, count_of
from lyra.models.toolcalls import ToolCalls
from lyra.models.wire.faults import from_status, not_an_answer, pause_in, stream_truncated, unknown_stop
from lyra.models.wire.http import usual_sentence
from lyra.models.wire.remote import RemoteProvider, piece
from lyra.models.wire.sse import EventReader, LineSplitter

BASE_URL: Final = "http://127.0.0.1:11434"

_STOPS: Final[dict[str, str]] = {"stop": "end", "length": "max_tokens", "load": "end", "unload": "end"}


def ollama_body(request: Request) -> dict[str, Any]:
    tools = _select_tools(request)
    wanted = request.output_schema
    system = [system_text(request), schema_in_words(request) if wanted is not None and tools else ""]
    messages: list[dict[str, Any]] = []
    if any(system):
        messages.append({"role": "system", "content": "\n\n".join(text for text in system if text)})
    for message in request.messages:
        messages += _messages(message)
    body: dict[str, Any] = {"model": request.model, "messages": messages, "stream": True}
    if tools:
        body["tools"] = [_function(tool) for tool in tools]
    elif wanted is not None:
        body["format"] = wanted
    if request.thinking_tokens is not None:
        body["think"] = request.thinking_tokens > 0
    options = {
        "num_predict": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop": list(request.stop) or None,
        "top_k": request.top_k,
        "seed": request.seed,
        "repeat_penalty": request.repeat_penalty,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return {**body, "options": given} if given else body


def _select_tools(request: Request) -> tuple[Tool, ...]:
    choice = request.tool_choice
    if choice in ("auto", "any"):
        return request.tools
    return tuple(tool for tool in request.tools if tool.name == choice)


def _function(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
    }


def _messages(message: Message) -> list[dict[str, Any]]:
    if message.role == "system":
        return []
    if message.role == "assistant":
        return [_assistant(message)]
    messages: list[dict[str, Any]] = [
        {
            "role": "tool",
            "tool_name": result.name,
            "tool_call_id": result.id,
            "content": _output(result),
            **_images(output_parts(result)),
        }
        for result in message.tool_results
    ]
    if message.text or message.role == "user":
        messages.append({"role": "user", "content": message.text, **_images(parts(message))})
    return messages


def _images(given: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the field with the images of a message; it has no word for their types."""
    images = [image_data(part, "ollama")[1] for part in given if part["type"] == "image"]
    return {"images": images} if images else {}


def _output(result: ToolResult) -> str:
    """Return the output as text; the API has no field for a failed tool, so the text begins with `error:`."""
    text = output_text(result)
    return f"error: {text}" if result.is_error else text


def _assistant(message: Message) -> dict[str, Any]:
    data: dict[str, Any] = {"role": "assistant", "content": message.text}
    thought = "".join(str(part.get("thinking", "")) for part in thoughts(message))
    if thought:
        data["thinking"] = thought
    if message.tool_calls:
        data["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": dict(call.arguments)}}
            for call in message.tool_calls
        ]
    return data


class _Function(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    arguments: Any = None


class _Call(msgspec.Struct, gc=False):
    function: _Function = _Function()
    id: str | None = None


class _AnswerMessage(msgspec.Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: tuple[_Call, ...] | None = None


class _Line(msgspec.Struct, gc=False):
    model: str | None = None
    message: _AnswerMessage | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: float | None = None
    eval_count: float | None = None
    error: Any = None
    status: int | None = None


_LINE: Final = msgspec.json.Decoder(_Line)


class OllamaReader(EventReader):
    """Turns the bytes of one answer into events; `done` when the last line has come."""

    __slots__ = ("_calls", "_lines", "_started")

    def __init__(self, first_call: int = 0) -> None:
        super().__init__()
        self._lines = LineSplitter()
        self._calls = ToolCalls(first_call)
        self._started = False

    def _take(self, data: bytes, events: list[StreamEvent]) -> None:
        self._read(self._lines.feed(data), events)

    def _last(self, events: list[StreamEvent]) -> None:
        self._read(self._lines.close(), events)

    def _end(self, events: list[StreamEvent]) -> None:
        if not self.done:
            raise stream_truncated("the answer ended before its last line")

    def _read(self, lines: list[str], events: list[StreamEvent]) -> None:
        for line in lines:
            if line.strip() and not self.done:
                self._line(line, events)

    def _line(self, text: str, events: list[StreamEvent]) -> None:
        line: _Line = piece(_LINE, text)
        if line.error is not None:
            code, message = usual_sentence(200, {"error": line.error})
            message = message or "the provider broke the answer off"
            raise from_status(line.status or 500, message, code=code, retry_after_s=pause_in(message))
        if not self._started:
            if line.message is None and line.done is None:
                raise not_an_answer("the answer is JSON, but none of Ollama's")
            self._started = True
            events.append(Started(model=line.model or ""))
        if line.message is not None:
            self._message(line.message, events)
        if line.done:
            events.append(UsageSeen(TokenUsage(count_of(line.prompt_eval_count), count_of(line.eval_count))))
            stop = _STOPS.get(line.done_reason or "stop")
            if stop is None:
                raise unknown_stop(line.done_reason or "")
            self.done = True
            events.append(Finished("tool_calls" if stop == "end" and self._calls.seen else stop))

    def _message(self, message: _AnswerMessage, events: list[StreamEvent]) -> None:
        if message.thinking:
            events.append(ThinkingDelta(message.thinking))
        if message.content:
            events.append(TextDelta(message.content))
        for call in message.tool_calls or ():
            arguments = {} if call.function.arguments is None else call.function.arguments
            events += self._calls.add_whole(call.id or "", call.function.name, arguments)


class Ollama(RemoteProvider):
    """A local server; `settings.api_key` is for one behind a proxy (`Authorization: Bearer`)."""

    opening = b"{"
    hints: ClassVar[dict[str, str]] = {
        "connection": "is Ollama running? ollama serve",
        "not_found": "is the model there? ollama pull {model}",
    }

    def url(self, request: Request) -> str:
        return f"{self.settings.base_url or BASE_URL}/api/chat"

    def headers(self, request: Request) -> dict[str, str]:
        key = self.settings.key()
        return {"accept": "application/x-ndjson", **({"authorization": f"Bearer {key}"} if key else {})}

    def body(self, request: Request) -> dict[str, Any]:
        return ollama_body(request)

    def reader(self, request: Request) -> OllamaReader:
        return OllamaReader(first_call_number(request))

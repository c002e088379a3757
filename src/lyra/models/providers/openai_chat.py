"""OpenAI's chat completions, which most other servers speak too: a Request as its body, and the reader of its streams.

A stream is chunks with deltas, one with the `finish_reason`, one with the tokens, and `[DONE]`. An answer
is complete only with the finish reason: without it the stream is truncated. `[DONE]` may be missing, as some compatible
servers never send it and the transport detects a broken connection; token counts that came are reported first.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.core.message import Message
from lyra.core.tool import ToolResult
from lyra.errors import ConfigError, ModelError
from lyra.models.provider import Request
from lyra.models.schemas import close_objects, is_strict
from lyra.models.stream import Finished, Started, StreamEvent, TextDelta, ThinkingDelta, TokenUsage, UsageSeen, count_of
from lyra.models.toolcalls import ToolCalls
from lyra.models.wire.faults import from_code, stream_truncated, unknown_stop
from lyra.models.wire.http import usual_sentence
from lyra.models.wire.remote import fit_id, image_url, piece, result_parts, result_text
from lyra.models.wire.sse import ServerEvent, ServerEventReader

_STOPS: Final[dict[str, str]] = {
    "stop": "end",
    "length": "max_tokens",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    # of compatible servers
    "eos": "end",
    "eos_token": "end",
    "end_turn": "end",
    "stop_sequence": "stop_sequence",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",
    "tool_use": "tool_calls",
    "sensitive": "content_filter",
}
_CHOICES: Final[dict[str, str]] = {"auto": "auto", "none": "none", "any": "required"}
_ID_MAX: Final = 40
_EFFORTS: Final = ((1, "minimal"), (4_096, "low"), (16_384, "medium"))  # fewer thinking tokens than this


# ---------------------------------------------------------------- what goes out
def chat_body(request: Request, *, compatible: bool = False) -> dict[str, Any]:
    """Return the body of a request. `compatible`: for servers other than OpenAI's, which may have only the older name
    of max_tokens."""
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    for message in request.messages:
        messages += _message(message)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(tool.name, tool.description, tool.schema) for tool in request.tools]
    body |= common_options(request, {"function": {"name": request.tool_choice}})
    if request.max_tokens is not None:
        body["max_tokens" if compatible else "max_completion_tokens"] = request.max_tokens
    if request.seed is not None:
        body["seed"] = request.seed
    if request.stop:
        body["stop"] = list(request.stop)
    if request.thinking_tokens is not None:
        body["reasoning_effort"] = effort(request.thinking_tokens)
    if request.output_schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": json_schema(request)}
    return body


def common_options(request: Request, named: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the same names in both of OpenAI's APIs; `named` is the form of a tool that has to be
    called."""
    options: dict[str, Any] = {}
    if request.tools:
        choice = _CHOICES.get(request.tool_choice)
        if choice != "auto":
            options["tool_choice"] = choice or {"type": "function", **named}
        if not request.parallel_tools:
            options["parallel_tool_calls"] = False
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if request.top_p is not None:
        options["top_p"] = request.top_p
    return options


def effort(thinking_tokens: int) -> str:
    """Return the reasoning effort for a number of thinking tokens."""
    return next((word for limit, word in _EFFORTS if thinking_tokens < limit), "high")


def json_schema(request: Request) -> dict[str, Any]:
    """Return the output schema; strict if the strict mode accepts it."""
    schema = close_objects(request.output_schema)
    return {"name": request.output_name, "schema": schema, "strict": is_strict(schema)}


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _message(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        # Results of tools are text only; their images follow in a user message after all results.
        results: list[dict[str, Any]] = []
        images: list[dict[str, Any]] = []
        for result in message.tool_results:
            text, shown = _output(result)
            results.append({"role": "tool", "tool_call_id": fit_id(result.id, _ID_MAX), "content": text})
            if shown:
                images += [{"type": "text", "text": f"Images from the call {result.id} to {result.name}:"}, *shown]
        parts = [{"type": "text", "text": message.text}] if message.text else []
        return [*results, {"role": "user", "content": [*images, *parts]}] if images or parts else results
    if message.role == "assistant":
        return _assistant(message)
    if isinstance(message.content, str) or message.role == "system":
        return [{"role": message.role, "content": message.text}]
    parts = [content_part for part in message.content if (content_part := _part(part)) is not None]
    return [{"role": "user", "content": parts}] if parts else []


def _assistant(message: Message) -> list[dict[str, Any]]:
    data: dict[str, Any] = {"role": "assistant"}
    if message.text:
        data["content"] = message.text
    if message.tool_calls:
        data["tool_calls"] = [
            {
                "id": fit_id(call.id, _ID_MAX),
                "type": "function",
                "function": {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()},
            }
            for call in message.tool_calls
        ]
    return [data] if len(data) > 1 else []


def _output(result: ToolResult) -> tuple[str, list[dict[str, Any]]]:
    parts = result_parts(result)
    if parts is None:
        text = result_text(result.output)
        shown: list[dict[str, Any]] = []
    else:
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        shown = [
            content_part for part in parts if part["type"] == "image" and (content_part := _part(part)) is not None
        ]
    if result.is_error and not text.lower().startswith("error"):
        text = f"error: {text}"
    return text, shown


def _part(part: dict[str, Any]) -> dict[str, Any] | None:
    kind = part["type"]
    if kind == "text":
        return {"type": "text", "text": part["text"]} if part.get("text") else None
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": image_url(part)}}
    if kind == "thinking":
        return None
    raise ConfigError(f"openai cannot be sent a part of type {kind!r}", key="content")


# ---------------------------------------------------------------- what comes in
class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None  # DeepSeek, vLLM and others
    reasoning: str | None = None  # OpenRouter, Groq, Ollama
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


# Compatible servers count in floats, use numbers as ids and leave out any field.
class _PromptDetails(msgspec.Struct):
    cached_tokens: float | None = None
    cache_write_tokens: float | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: float | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Chunk(msgspec.Struct):
    id: str | int | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_CHUNK: Final = msgspec.json.Decoder(_Chunk)


class ChatReader(ServerEventReader):
    """Turns the bytes of one answer into events. `first_call` is the number of the first id that has to be made up."""

    __slots__ = ("_recent", "_refused", "_slots", "_started", "_stop", "_tools")

    def __init__(self, first_call: int = 0) -> None:
        super().__init__()
        self._tools = ToolCalls(first_call)
        self._slots: dict[int, int] = {}  # the index of a call in the stream → its number in the answer
        self._recent = -1  # the call that a piece without an index belongs to
        self._started = self._refused = False
        self._stop = ""

    def _end(self, events: list[StreamEvent]) -> None:
        if not self.done:
            self._finish(events)

    def _read(self, sent: list[ServerEvent], events: list[StreamEvent]) -> None:
        for server_event in sent:
            if self.done:
                break
            if server_event.data == "[DONE]":
                self._finish(events)
                break
            chunk: _Chunk = piece(_CHUNK, server_event.data)
            if not self._started:
                self._started = True
                if chunk.error is None:
                    events.append(Started(str(chunk.id or ""), chunk.model or ""))
            if chunk.usage is not None:
                events.append(UsageSeen(_usage(chunk.usage)))
            if chunk.choices:
                for choice in chunk.choices:
                    if not choice.index:
                        self._delta(choice.delta or _Delta(), events)
                        self._reason(choice.finish_reason, failed=chunk.error is not None)
            if chunk.error is not None:
                raise _stream_error(chunk.error)

    def _delta(self, delta: _Delta, events: list[StreamEvent]) -> None:
        if thought := delta.reasoning_content or delta.reasoning:  # thoughts come before text
            events.append(ThinkingDelta(thought))
        if delta.content:
            events.append(TextDelta(delta.content))
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._call(call, events)
        if delta.refusal:
            self._refused = True
            events.append(TextDelta(delta.refusal))

    def _reason(self, told: str | None, *, failed: bool) -> None:
        """Note the stop reason, unless an error comes with it."""
        if told and not failed:
            stop = _STOPS.get(told)
            if stop is None:
                raise unknown_stop(told)
            self._stop = stop

    def _call(self, call: _Call, events: list[StreamEvent]) -> None:
        function = call.function or _Function()
        slot = self._recent if call.index is None else self._slots.get(call.index, -1)
        if slot < 0 or self._is_another(slot, call, function):
            slot = self._tools.seen
            events += self._tools.begin(slot, call.id or "", function.name or "")
        if call.index is not None:
            self._slots[call.index] = slot
        self._recent = slot
        if function.arguments:
            events += self._tools.more(slot, function.arguments)

    def _is_another(self, slot: int, call: _Call, function: _Function) -> bool:
        """Return whether a piece begins another call: some servers send no index, or the same for all, so a new id is a
        new call. With an index, a new id without a name is not: some servers give every piece of a call its own id."""
        named = call.index is None or bool(function.name)
        return bool(call.id) and named and call.id != self._tools.id_of(slot)

    def _finish(self, events: list[StreamEvent]) -> None:
        if not self._stop:
            raise stream_truncated("the stream ended without a finish_reason")
        events += self._tools.end_all(self._stop)
        self.done = True
        events.append(Finished(_stop(self._stop, called=self._tools.seen > 0, refused=self._refused)))


def _stream_error(error: Any) -> ModelError:
    """Return the ModelError of an error in the middle of a stream, by its code, or its type if there is no code."""
    code, sentence = usual_sentence(200, {"error": error})
    return from_code(code, sentence or "the provider broke the answer off")


def _stop(told: str, *, called: bool, refused: bool) -> str:
    """Return the stop reason: some servers send `stop` after a call, and a refusal is known only by its text."""
    if told == "end" and refused:
        return "content_filter"
    return "tool_calls" if told == "end" and called else told


def _usage(usage: _Usage) -> TokenUsage:
    prompt = usage.prompt_tokens_details or _PromptDetails()
    completion = usage.completion_tokens_details or _CompletionDetails()
    return TokenUsage(
        count_of(usage.prompt_tokens),
        count_of(usage.completion_tokens),
        count_of(prompt.cached_tokens),
        count_of(prompt.cache_write_tokens),
        count_of(completion.reasoning_tokens),
    )

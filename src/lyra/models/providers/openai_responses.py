"""OpenAI's Responses API: a Request as its body, and the reader of its typed stream.

Nothing is stored with OpenAI (`store: false`): the whole conversation goes with each call. If a request has
`thinking_tokens`, the model's thoughts come back encrypted and are sent with the next request, in their places between
its calls (only then: models that do not think refuse the option). A stream ends with `response.completed` or
`response.incomplete`; without one of them it is truncated. Events of other kinds are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from lyra.core.message import Message
from lyra.core.tool import ToolCall, ToolResult
from lyra.errors import ConfigError
from lyra.models.conversation_parts import WebSources
from lyra.models.provider import Request
from lyra.models.providers.openai_chat import common_options, effort, json_schema
from lyra.models.stream import Finished, Started, StreamEvent, TextDelta, ThinkingDelta, TokenUsage, UsageSeen
from lyra.models.toolcalls import ToolCalls
from lyra.models.wire.faults import from_code, stream_truncated
from lyra.models.wire.remote import decode_event, fit_id, image_url, result_parts, result_text
from lyra.models.wire.sse import ServerEvent, ServerEventReader

# Prefix of the signatures of these thoughts. Then come the item's id, the number of calls before it (`@1`, left out
# for none), and the encrypted content.
_MAKER: Final = "openai:"
_ID_MAX: Final = 64
_FAILURES: Final = ("response.failed", "error")
_INCOMPLETE: Final[dict[str, str]] = {"max_output_tokens": "max_tokens", "content_filter": "content_filter"}


# ---------------------------------------------------------------- what goes out
def responses_body(request: Request) -> dict[str, Any]:
    if request.stop:
        raise ConfigError("OpenAI's Responses API takes no stop texts", hint="use api = 'chat'", key="stop")
    body: dict[str, Any] = {
        "model": request.model,
        "input": [item for message in request.messages for item in _items(message)],
        "stream": True,
        "store": False,
    }
    if request.web_search:
        body["tools"] = [{"type": "web_search"}]
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                "strict": False,
            }
            for tool in request.tools
        ]
    body |= common_options(request, {"name": request.tool_choice})
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    if request.thinking_tokens is not None:
        body["reasoning"] = {"effort": effort(request.thinking_tokens), "summary": "auto"}
        body["include"] = ["reasoning.encrypted_content"]
    if request.output_schema is not None:
        body["text"] = {"format": {"type": "json_schema", **json_schema(request)}}
    return body


def _items(message: Message) -> list[dict[str, Any]]:
    items = [_result(result) for result in message.tool_results]
    if message.role == "assistant":
        items += _assistant(message)
    elif isinstance(message.content, str) or message.role == "system":
        if message.text or not items:
            items.append({"role": "system" if message.role == "system" else "user", "content": message.text})
    elif parts := _parts(message.content):
        items.append({"role": "user", "content": parts})
    return items


def _assistant(message: Message) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    content = ({"type": "text", "text": message.content},) if isinstance(message.content, str) else message.content
    calls_sent = 0  # calls
    for part in content:
        if part["type"] == "thinking":
            if thought := _encode_thought(part):
                place = str(part.get("signature", "")).removeprefix(_MAKER).partition(":")[0]
                count = place.partition("@")[2]
                before = max(int(count) if count.isdecimal() else 0, calls_sent)
                items += [_call(call) for call in message.tool_calls[calls_sent:before]]
                calls_sent = before
                items.append(thought)
        elif part["type"] == "text" and part.get("text"):
            items.append({"role": "assistant", "content": part["text"]})
    return [*items, *(_call(call) for call in message.tool_calls[calls_sent:])]


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": fit_id(call.id, _ID_MAX),
        "name": call.name,
        "arguments": msgspec.json.encode(call.arguments).decode(),
    }


def _encode_thought(part: dict[str, Any]) -> dict[str, Any] | None:
    signature = str(part.get("signature", ""))
    if not signature.startswith(_MAKER):
        return None
    place, _, sealed = signature.removeprefix(_MAKER).partition(":")
    text = str(part.get("thinking", ""))
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"type": "reasoning", "id": place.partition("@")[0], "summary": summary, "encrypted_content": sealed}


def _result(result: ToolResult) -> dict[str, Any]:
    parts = result_parts(result)
    output: Any = _parts(tuple(parts)) if parts is not None else result_text(result.output)
    if result.is_error and isinstance(output, str) and not output.lower().startswith("error"):
        output = f"error: {output}"
    return {"type": "function_call_output", "call_id": fit_id(result.id, _ID_MAX), "output": output}


def _parts(parts: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    for part in parts:
        kind = part["type"]
        if kind == "text":
            if part.get("text"):
                content.append({"type": "input_text", "text": part["text"]})
        elif kind == "image":
            content.append({"type": "input_image", "image_url": image_url(part), "detail": "auto"})
        elif kind != "thinking":
            raise ConfigError(f"openai cannot be sent a part of type {kind!r}", key="content")
    return content


# ---------------------------------------------------------------- what comes in
class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Error(msgspec.Struct):
    code: str | int | None = None
    type: str | None = None
    message: str | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: _Error | None = None
    incomplete_details: _Incomplete | None = None


class _Item(msgspec.Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    encrypted_content: str | None = None


class _Event(msgspec.Struct):
    """Every event that is known, in one struct; `delta` is text in all of them."""

    type: str
    output_index: int = 0
    summary_index: int = 0
    delta: str = ""
    arguments: str | None = None
    item: _Item | None = None
    response: _Response | None = None
    code: str | int | None = None
    message: str | None = None
    error: _Error | None = None
    annotation: Any = None


_EVENT: Final = msgspec.json.Decoder(_Event)


class ResponsesReader(ServerEventReader):
    """Turns the bytes of one answer into events. `first_call` is the number of the first id that has to be made up."""

    __slots__ = ("_got", "_refused", "_sources", "_started", "_tools")

    def __init__(self, first_call: int = 0) -> None:
        super().__init__()
        self._tools = ToolCalls(first_call)
        self._sources = WebSources()
        self._got: set[int] = set()  # indexes of calls whose arguments came in pieces
        self._refused = self._started = False

    def _end(self, events: list[StreamEvent]) -> None:
        if not self.done:
            raise stream_truncated("the stream ended before response.completed")

    def _read(self, sent: list[ServerEvent], events: list[StreamEvent]) -> None:
        for server_event in sent:
            if self.done:
                break
            if server_event.data == "[DONE]":  # sent by compatible servers
                continue
            event = decode_event(_EVENT, server_event.data, _HANDLERS)
            if event is None:
                continue
            handler = _HANDLERS.get(event.type)
            if handler is None:
                continue
            if not self._started and event.type not in _FAILURES:
                self._started = True
                response = event.response or _Response()
                events.append(Started(response.id or "", response.model or ""))
            if event.response is not None and event.response.usage is not None:
                events.append(UsageSeen(_usage(event.response.usage)))  # counted even if the event is wrong otherwise
            events += handler(self, event)

    # ------------------------------------------------------------ one event each
    def _text(self, event: _Event) -> list[StreamEvent]:
        return [TextDelta(event.delta)] if event.delta else []

    def _ignore(self, _event: _Event) -> list[StreamEvent]:
        """`response.created` has no content; it only starts the answer."""
        return []

    def _thinking(self, event: _Event) -> list[StreamEvent]:
        return [ThinkingDelta(event.delta)] if event.delta else []

    def _next_thought(self, event: _Event) -> list[StreamEvent]:
        """Begin the next part of a summary, which is a paragraph."""
        return [ThinkingDelta("\n\n")] if event.summary_index else []

    def _refusal(self, event: _Event) -> list[StreamEvent]:
        self._refused = True
        return [TextDelta(event.delta)] if event.delta else []

    def _note_source(self, event: _Event) -> list[StreamEvent]:
        if isinstance(event.annotation, dict):
            self._sources.add(event.annotation.get("url"), event.annotation.get("title"))
        return []

    def _item_added(self, event: _Event) -> list[StreamEvent]:
        item = event.item or _Item()
        if item.type != "function_call":
            return []
        return self._tools.begin(event.output_index, item.call_id or item.id or "", item.name or "")

    def _arguments(self, event: _Event) -> list[StreamEvent]:
        self._got.add(event.output_index)
        return self._tools.more(event.output_index, event.delta)

    def _item_done(self, event: _Event) -> list[StreamEvent]:
        item = event.item or _Item()
        index = event.output_index
        if item.type == "reasoning" and item.encrypted_content:
            before = f"@{self._tools.seen}" if self._tools.seen else ""
            return [ThinkingDelta("", f"{_MAKER}{item.id or ''}{before}:{item.encrypted_content}")]
        if item.type != "function_call":
            return []
        events = [] if self._tools.is_open(index) else self._item_added(event)
        if index not in self._got and item.arguments:
            events += self._tools.more(index, item.arguments)
        return [*events, *self._tools.end(index)]

    def _on_completed(self, event: _Event) -> list[StreamEvent]:
        return self._finish("content_filter" if self._refused else "")

    def _incomplete(self, event: _Event) -> list[StreamEvent]:
        details = (event.response or _Response()).incomplete_details or _Incomplete()
        return self._finish(_INCOMPLETE.get(details.reason or "", "max_tokens"))

    def _finish(self, stop: str) -> list[StreamEvent]:
        calls = self._tools.end_all(stop)
        self.done = True
        return [*self._sources.events(), *calls, Finished(stop or ("tool_calls" if self._tools.seen else "end"))]

    def _on_error(self, event: _Event) -> list[StreamEvent]:
        error = (event.response.error if event.response is not None else event.error) or _Error(
            event.code, message=event.message
        )
        code = str(error.code or error.type or "server_error")
        raise from_code(code, error.message or "the provider broke the answer off")


def _usage(usage: _Usage) -> TokenUsage:
    read = usage.input_tokens_details or _InputDetails()
    written = usage.output_tokens_details or _OutputDetails()
    return TokenUsage(
        usage.input_tokens or 0,
        usage.output_tokens or 0,
        read.cached_tokens or 0,
        read.cache_write_tokens or 0,
        written.reasoning_tokens or 0,
    )


_HANDLERS: Final[dict[str, Callable[[ResponsesReader, _Event], list[StreamEvent]]]] = {
    "response.created": ResponsesReader._ignore,
    "response.output_text.delta": ResponsesReader._text,
    "response.output_text.annotation.added": ResponsesReader._note_source,
    "response.reasoning_summary_part.added": ResponsesReader._next_thought,
    "response.reasoning_summary_text.delta": ResponsesReader._thinking,
    "response.reasoning_text.delta": ResponsesReader._thinking,
    "response.refusal.delta": ResponsesReader._refusal,
    "response.output_item.added": ResponsesReader._item_added,
    "response.function_call_arguments.delta": ResponsesReader._arguments,
    "response.output_item.done": ResponsesReader._item_done,
    "response.completed": ResponsesReader._on_completed,
    "response.incomplete": ResponsesReader._incomplete,
    "response.failed": ResponsesReader._on_error,
    "error": ResponsesReader._on_error,
}

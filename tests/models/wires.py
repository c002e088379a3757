"""The wires under test: for each a provider at an address, and answers as the bytes its server would send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from lyra.core.message import Message
from lyra.core.tool import Tool
from lyra.errors import ModelError
from lyra.models.client import LLMClient
from lyra.models.provider import LLMProvider, Request
from lyra.models.stream import Completion, Fold, StreamEvent
from lyra.models.wire.remote import Reader
from tests.models.server import sse

KEY = "sk-planted-0123456789abcdef"
WEATHER = Tool(
    "get_weather",
    "The weather in a city",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
HELLO = Request("m", (Message("user", "hello"),))


def read(reader: Reader, data: bytes, cuts: Sequence[int] = ()) -> list[StreamEvent]:
    """The events of `data`, cut at those places."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    events: list[StreamEvent] = []
    for start, end in pairwise(places):
        events += reader.feed(data[start:end])
    events += reader.close()
    if reader.error is not None:
        raise reader.error
    return events


def read_until(reader: Reader, data: bytes, cuts: Sequence[int] = ()) -> tuple[list[StreamEvent], ModelError]:
    """The events of `data` before what is wrong with it, and what that is."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    events: list[StreamEvent] = []
    try:
        for start, end in pairwise(places):
            events += reader.feed(data[start:end])
        events += reader.close()
    except ModelError as error:
        return events, error
    assert reader.error is not None, "nothing is wrong"
    return events, reader.error


def fold(events: Sequence[StreamEvent]) -> Completion:
    folded = Fold()
    for event in events:
        folded.feed(event)
    return folded.completion()


# ---------------------------------------------------------------- Anthropic
def anthropic_events(
    *blocks: tuple[dict[str, Any], Sequence[dict[str, Any]]],
    stop: str = "end_turn",
    usage: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """A whole stream around blocks: (content_block, deltas)."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage or {"input_tokens": 12, "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 25}})
    events.append({"type": "message_stop"})
    return events


def text_block(*texts: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in texts]


def tool_block(call_id: str, name: str, *pieces: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def thinking_block(thought: str, signature: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    block = {"type": "thinking", "thinking": "", "signature": ""}
    return block, [
        {"type": "thinking_delta", "thinking": thought},
        {"type": "signature_delta", "signature": signature},
    ]


# ---------------------------------------------------------------- OpenAI chat
def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "gpt-x",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
        **more,
    }


def call_delta(index: int, call_id: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": arguments}
    call: dict[str, Any] = {"index": index, "function": function}
    if call_id is not None:
        call |= {"id": call_id, "type": "function"}
        function["name"] = name
    return {"tool_calls": [call]}


CHAT_USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 9,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 16},
    "completion_tokens_details": {"reasoning_tokens": 4},
}


def chat_events(*deltas: dict[str, Any], finish: str | None = "stop") -> list[dict[str, Any]]:
    last = [chunk(finish=finish)] if finish else []
    usage = {**chunk(), "choices": [], "usage": CHAT_USAGE}
    return [chunk({"role": "assistant", "content": ""}), *(chunk(delta) for delta in deltas), *last, usage]


# ---------------------------------------------------------------- OpenAI Responses
RESPONSE_USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 0},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 29,
}


def response(status: str, output: Sequence[dict[str, Any]] = (), **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "model": "gpt-x",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": RESPONSE_USAGE if status in ("completed", "incomplete") else None,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
        **more,
    }


def message_item(*texts: str, index: int = 0) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events of a message of the model, and the item as it ends."""
    part: dict[str, Any] = {"type": "output_text", "text": "".join(texts), "annotations": []}
    item = {"type": "message", "id": f"item_{index}", "role": "assistant", "status": "completed", "content": [part]}
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": index, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": text, "logprobs": []} for text in texts),
        {"type": "response.output_text.done", **place, "text": "".join(texts), "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]
    return events, item


def call_item(call_id: str, name: str, *pieces: str, index: int = 0) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    text = "".join(pieces)
    item = {"type": "function_call", "id": f"item_{index}", "call_id": call_id, "name": name, "arguments": text}
    place = {"item_id": item["id"], "output_index": index}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}},
        *({"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in pieces),
        {"type": "response.function_call_arguments.done", **place, "name": name, "arguments": text},
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]
    return events, item


def responses_events(
    *items: tuple[list[dict[str, Any]], dict[str, Any]], status: str = "completed", **more: Any
) -> Any:
    events = [{"type": "response.created", "response": response("in_progress")}]
    events += [{"type": "response.in_progress", "response": response("in_progress")}]
    events += [event for item_events, _ in items for event in item_events]
    events += [{"type": f"response.{status}", "response": response(status, [item for _, item in items], **more)}]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


# ---------------------------------------------------------------- all of them
@dataclass(frozen=True)
class Wire:
    name: str
    provider: str
    path: str  # where its server answers
    key_header: str
    text: bytes  # an answer: "Hällo", " wörld"
    calls: bytes  # two calls of get_weather, Paris and Rome
    broken_call: bytes  # the JSON of a call to get_weather breaks off
    error: bytes  # a stream that says in the middle that the provider is overloaded or failing
    settings: dict[str, Any] = field(default_factory=dict)
    base: str = ""  # behind the server's address

    def provider_at(self, url: str, **settings: Any) -> LLMProvider:
        given = {"api_key": KEY, "base_url": url + self.base, **self.settings, **settings}
        return LLMClient({self.provider: given}, env={}).provider(self.provider)

    def reader(self) -> Reader:
        provider: Any = self.provider_at("http://localhost:1")
        reader: Reader = provider.reader(HELLO)
        return reader


_PARIS, _ROME = '{"city": "Paris", "days": 2}', '{"city": "Röme"}'
_ANTHROPIC_CALLS = (
    text_block("Let me look."),
    tool_block("toolu_1", "get_weather", "", _PARIS[:9], _PARIS[9:]),
    tool_block("toolu_2", "get_weather", _ROME),
)
_CHAT_CALLS = (
    {"content": "Let me look."},
    call_delta(0, "call_1", "get_weather"),
    call_delta(1, "call_2", "get_weather"),
    call_delta(0, arguments=_PARIS[:9]),
    call_delta(1, arguments=_ROME),
    call_delta(0, arguments=_PARIS[9:]),
)
_RESPONSES_CALLS = (
    message_item("Let me look."),
    call_item("call_1", "get_weather", _PARIS[:9], _PARIS[9:], index=1),
    call_item("call_2", "get_weather", _ROME, index=2),
)
_CHAT: dict[str, Any] = {
    "text": sse(*chat_events({"content": "Hällo"}, {"content": " wörld"}), done=True),
    "calls": sse(*chat_events(*_CHAT_CALLS, finish="tool_calls"), done=True),
    "broken_call": sse(
        *chat_events(call_delta(0, "call_1", "get_weather", '{"city": '), finish="tool_calls"), done=True
    ),
    "error": sse(
        *chat_events({"content": "Hä"})[:2],
        {"error": {"type": "server_error", "code": None, "message": f"failing, {KEY}"}},
        done=True,
    ),
}
_RESPONSES: dict[str, Any] = {
    "text": sse(*responses_events(message_item("Hällo", " wörld"))),
    "calls": sse(*responses_events(*_RESPONSES_CALLS)),
    "broken_call": sse(*responses_events(call_item("call_1", "get_weather", '{"city": '))),
    "error": sse(
        *responses_events(message_item("Hä"))[:5],
        {"type": "error", "code": "server_error", "message": f"failing, {KEY}", "param": None, "sequence_number": 9},
    ),
}

WIRES: dict[str, Wire] = {
    wire.name: wire
    for wire in (
        Wire(
            "anthropic",
            "anthropic",
            "/v1/messages",
            "x-api-key",
            text=sse(*anthropic_events(text_block("Hällo", " wörld"))),
            calls=sse(*anthropic_events(*_ANTHROPIC_CALLS, stop="tool_use")),
            broken_call=sse(*anthropic_events(tool_block("toolu_1", "get_weather", '{"city": '), stop="tool_use")),
            error=sse(
                *anthropic_events(text_block("Hä"))[:4],
                {"type": "error", "error": {"type": "overloaded_error", "message": f"Overloaded {KEY}"}},
            ),
        ),
        Wire("openai-chat", "openai", "/v1/chat/completions", "authorization", **_CHAT, base="/v1"),
        Wire(
            "openai-responses",
            "openai",
            "/v1/responses",
            "authorization",
            **_RESPONSES,
            settings={"api": "responses"},
            base="/v1",
        ),
        Wire(
            "azure-chat",
            "azure",
            "/openai/deployments/m/chat/completions?api-version=2024-10-21",
            "api-key",
            **_CHAT,
            settings={"api_version": "2024-10-21"},
        ),
        Wire("azure-v1", "azure", "/openai/v1/chat/completions", "api-key", **_CHAT),
        Wire(
            "azure-responses", "azure", "/openai/v1/responses", "api-key", **_RESPONSES, settings={"api": "responses"}
        ),
        Wire("compatible", "here", "/v1/chat/completions", "authorization", **_CHAT, base="/v1"),
    )
}

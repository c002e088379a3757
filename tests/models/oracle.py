"""The vendors' own libraries as oracles: what they accept as a request, and what they read out of the same bytes."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from lyra.core.message import Message
from lyra.core.tool import ToolCall, ToolResult
from lyra.models.provider import Request
from tests.models.wires import WEATHER

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "media_type": "image/png", "data": PIXEL}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "number"}},
    "required": ["city", "degrees"],
}

CALL = ToolCall("call_1", "get_weather", {"city": "Paris"})
TALK = (
    Message("user", "What is the weather in Paris?"),
    Message("assistant", "Let me look.", (CALL, ToolCall("call_2", "get_weather", {"city": "Rome"}))),
    Message(
        "tool",
        tool_results=(
            ToolResult("call_1", "get_weather", {"degrees": 21}),
            ToolResult("call_2", "get_weather", "no such city", is_error=True),
        ),
    ),
    Message("user", "And in one word?"),
)
PICTURE = Message("user", ({"type": "text", "text": "What is this?"}, IMAGE))
SHOT = Message("tool", tool_results=(ToolResult("call_1", "get_weather", [{"type": "text", "text": "a map"}, IMAGE]),))

REQUESTS: dict[str, Request] = {
    "plain": Request("m", (Message("user", "hello"),)),
    "everything": Request(
        "m",
        TALK,
        system="You are brief.",
        tools=(WEATHER,),
        max_tokens=100,
        temperature=0.5,
        top_p=0.9,
        idempotency_key="k1",
    ),
    "system messages": Request("m", (Message("system", "Rule one."), *TALK), system="You are brief.", tools=(WEATHER,)),
    "image": Request("m", (PICTURE,)),
    "image by address": Request("m", (Message("user", ({"type": "image", "url": "https://example.com/a.png"},)),)),
    "image out of a tool": Request("m", (*TALK[:1], Message("assistant", "", (CALL,)), SHOT), tools=(WEATHER,)),
    "one tool only": Request("m", TALK, tools=(WEATHER,), tool_choice="get_weather", parallel_tools=False),
    "some tool": Request("m", TALK, tools=(WEATHER,), tool_choice="any"),
    "no tool": Request("m", TALK, tools=(WEATHER,), tool_choice="none", cache=False),
    "schema": Request("m", TALK, tools=(WEATHER,), output_schema=SCHEMA, output_name="weather"),
    "thinking": Request("m", TALK, tools=(WEATHER,), thinking_tokens=2048, temperature=0.5),
    "no thinking": Request("m", TALK, thinking_tokens=0),
}


def forced(value: Any) -> Any:
    """pydantic checks an Iterable when it is read: read everything."""
    if isinstance(value, dict):
        return {key: forced(inner) for key, inner in value.items()}
    if isinstance(value, str | bytes | int | float) or value is None:
        return value
    return [forced(inner) for inner in value]


@cache
def _adapter(params: Any) -> TypeAdapter[Any]:
    """Return the reader of a vendor's type: making one takes longer than all else that a test does with it."""
    return TypeAdapter(params)


def accepts(params: Any, body: dict[str, Any]) -> None:
    """The vendor's type takes the body, and knows every key of it: pydantic drops those it does not."""
    assert forced(_adapter(params).validate_python(body)) == body

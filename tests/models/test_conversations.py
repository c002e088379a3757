"""Whatever the conversation, Google's types and Amazon's model of the service take what is sent."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.message import Message
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.models.conversation_parts import first_call_number, is_made_up
from lyra.models.provider import Request
from lyra.models.providers.bedrock import bedrock_body
from lyra.models.providers.gemini import gemini_body
from lyra.models.providers.ollama import ollama_body
from tests.cases import cases

TEXT = st.sampled_from(["", " ", "hello", "Grüße 🌍", '{"a": 1}'])
NAME = st.sampled_from(["weather", "search-2", "_x"])
ID = st.sampled_from(["call_0", "call_17", "toolu_01", "call_abc|fc_2", "é" * 80, "g-1"])
SIGNATURE = st.sampled_from(
    ["", "c2ln", "gemini:no", "gemini:[]", "redacted:aGlkZGVu", 'gemini:{"call 0":"YQ==","end":"Yg=="}', "openai:x"]
)
OUTPUT = st.one_of(TEXT, st.none(), st.integers(), st.dictionaries(st.text(max_size=3), st.booleans(), max_size=2))


@st.composite
def message(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from(["user", "assistant", "tool", "system"]))
    if role == "tool":
        results = st.builds(ToolResult, ID, NAME, OUTPUT, st.booleans())
        return Message("tool", tool_results=tuple(draw(st.lists(results, min_size=1, max_size=3))))
    parts = [{"type": "text", "text": text} for text in draw(st.lists(TEXT, max_size=2))]
    if role != "assistant":
        return Message(role, draw(TEXT) if draw(st.booleans()) else tuple(parts))
    thoughts = [
        {"type": "thinking", "thinking": "hm", "signature": item} for item in draw(st.lists(SIGNATURE, max_size=2))
    ]
    calls = st.builds(ToolCall, ID, NAME, st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))
    return Message("assistant", tuple(thoughts + parts), tuple(draw(st.lists(calls, max_size=3))))


REQUESTS = st.builds(
    Request,
    st.sampled_from(
        [
            "gemini-2.5-flash",
            "gemini-3-pro",
            "anthropic.claude-sonnet-4-20250514-v1:0",
            "anthropic.claude-opus-4-6-v1",
            "amazon.nova-pro-v1:0",
            "llama3",
        ]
    ),
    st.lists(message(), min_size=1, max_size=6).map(tuple),
    system=TEXT,
    tools=st.sampled_from([(), (Tool("weather"),), (Tool("weather", "Of a city."), Tool("answer"))]),
    tool_choice=st.sampled_from(["auto", "none", "any", "weather"]),
    max_tokens=st.sampled_from([None, 1, 5000]),
    temperature=st.sampled_from([None, 0.0, 1.0]),
    stop=st.sampled_from([(), ("END",)]),
    output_schema=st.sampled_from([None, {"type": "object", "properties": {}}, {"type": "array"}]),
    thinking_tokens=st.sampled_from([None, 0, 2000]),
    cache=st.booleans(),
)


@cache
def converse() -> Any:
    from botocore.session import Session

    return Session().get_service_model("bedrock-runtime").operation_model("ConverseStream").input_shape


def keys_of(value: Any, key: str) -> list[Any]:
    """The values of a key, wherever it is."""
    if isinstance(value, list):
        return [match for item in value for match in keys_of(item, key)]
    if not isinstance(value, dict):
        return []
    return [
        *([value[key]] if key in value else []),
        *(match for item in value.values() for match in keys_of(item, key)),
    ]


@settings(max_examples=cases(200), deadline=None)
@given(request=REQUESTS)
def test_amazon_takes_every_conversation(request: Request) -> None:
    """Roles alternate, nothing is empty, every id and name fits, calls never without tools."""
    from botocore.validate import ParamValidator

    body = bedrock_body(request)
    encoded = json.loads(json.dumps(body))
    for thought in keys_of(encoded, "reasoningContent"):
        if "redactedContent" in thought:
            thought["redactedContent"] = b"hidden"
    report = ParamValidator().validate({"modelId": request.model, **encoded}, converse())
    assert not report.has_errors(), report.generate_report()
    roles = [turn["role"] for turn in body["messages"]]
    assert all(before != after for before, after in pairwise(roles))
    assert all(turn["content"] for turn in body["messages"])
    assert all(text.strip() for text in keys_of(body["messages"], "text"))
    assert all(0 < len(item) <= 64 and item.isascii() for item in keys_of(body, "toolUseId"))
    assert "toolConfig" in body or not keys_of(body["messages"], "toolUse") + keys_of(body["messages"], "toolResult")
    assert body.get("toolConfig", {"tools": [0]})["tools"]


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=cases(200), deadline=None)
@given(request=REQUESTS)
def test_google_takes_every_conversation(request: Request) -> None:
    """Turns alternate except around results of tools, which stand alone; no made-up id is sent."""
    from google.genai import types

    body = gemini_body(request)
    for content in body["contents"]:
        types.Content.model_validate_json(json.dumps(content))
        results = ["functionResponse" in part for part in content["parts"]]
        assert all(results) or not any(results)
    if "generationConfig" in body:
        types.GenerationConfig.model_validate(body["generationConfig"])
    for before, after in pairwise(body["contents"]):
        assert before["role"] != after["role"] or keys_of([before, after], "functionResponse")
    sent = [*keys_of(body["contents"], "functionCall"), *keys_of(body["contents"], "functionResponse")]
    assert not [item for item in sent if is_made_up(item.get("id", ""))]


@settings(max_examples=cases(100), deadline=None)
@given(request=REQUESTS)
def test_ollama_is_sent_every_call_and_result(request: Request) -> None:
    """In order, and the system first."""
    messages = ollama_body(request)["messages"]
    roles = [item["role"] for item in messages]
    assert "system" not in roles[1:]
    assert roles.count("tool") == sum(len(item.tool_results) for item in request.messages)
    sent = [call["function"]["name"] for item in messages for call in item.get("tool_calls", ())]
    assert sent == [call.name for item in request.messages for call in item.tool_calls]


@given(ids=st.lists(ID, max_size=5))
def test_made_up_ids_are_never_used_twice(ids: list[str]) -> None:
    """The next number is larger than every one in the conversation."""
    request = Request("m", (Message("assistant", "", tuple(ToolCall(item, "x") for item in ids)),))
    assert f"call_{first_call_number(request)}" not in ids

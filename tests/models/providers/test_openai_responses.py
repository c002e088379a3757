"""OpenAI's Responses API: requests that its own types accept, and answers read as its own library reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lyra.core.message import Message
from lyra.core.secrets.secret import Secret
from lyra.core.tool import ToolCall
from lyra.errors import ConfigError, ModelError
from lyra.models.provider import Request
from lyra.models.providers.openai import OpenAI
from lyra.models.providers.openai_responses import ResponsesReader, responses_body
from lyra.models.settings import settings_of
from lyra.models.stream import ThinkingDelta, TokenUsage
from tests.models.oracle import PIXEL, REQUESTS, TALK, accepts
from tests.models.server import Reply, Server, run, sse
from tests.models.wires import HELLO, WIRES, call_item, fold, message_item, read, responses_events


def reasoning_item(*texts: str, index: int = 0) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    summary = [{"type": "summary_text", "text": "".join(texts)}]
    item = {"type": "reasoning", "id": f"rs_{index}", "summary": summary, "encrypted_content": "c2VhbGVk:x"}
    place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    events: list[dict[str, Any]] = [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**item, "summary": [], "encrypted_content": None},
        },
        {"type": "response.reasoning_summary_part.added", **place, "part": {"type": "summary_text", "text": ""}},
        *({"type": "response.reasoning_summary_text.delta", **place, "delta": text} for text in texts),
        {"type": "response.reasoning_summary_text.done", **place, "text": "".join(texts)},
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]
    return events, item


STREAMS: dict[str, Any] = {
    "text": responses_events(message_item("Hällo", " ", "wörld \u2603")),
    "calls": responses_events(
        message_item("Look:"),
        call_item("call_1", "get_weather", '{"ci', 'ty": "Paris"}', index=1),
        call_item("call_2", "now", "{}", index=2),
    ),
    "thinking": responses_events(reasoning_item("Hm", "m."), message_item("So", index=1)),
    "cut": responses_events(
        message_item("He"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}
    ),
    "filtered": responses_events(
        message_item("He"), status="incomplete", incomplete_details={"reason": "content_filter"}
    ),
}
STOPS = {"text": "end", "calls": "tool_calls", "thinking": "end", "cut": "max_tokens", "filtered": "content_filter"}


# ---------------------------------------------------------------- requests
@pytest.mark.parametrize("name", REQUESTS)
def test_the_vendors_types_accept_our_requests(name: str) -> None:
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    accepts(ResponseCreateParamsStreaming, responses_body(REQUESTS[name]))


def test_nothing_is_stored_and_everything_is_sent() -> None:
    body = responses_body(REQUESTS["everything"])
    assert body["store"] is False
    assert body["instructions"] == "You are brief."
    kinds = [item.get("type") or item["role"] for item in body["input"]]
    assert kinds == [
        "user",
        "assistant",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "user",
    ]
    assert body["input"][5]["output"] == "error: no such city"


def test_images_go_out_of_tools_too() -> None:
    url = f"data:image/png;base64,{PIXEL}"
    assert responses_body(REQUESTS["image"])["input"][0]["content"][1]["image_url"] == url
    assert responses_body(REQUESTS["image out of a tool"])["input"][-1]["output"][1]["image_url"] == url


def test_thoughts_go_back_sealed_and_only_to_their_maker() -> None:
    message = fold(read(ResponsesReader(), sse(*STREAMS["thinking"]))).message
    sent = responses_body(Request("m", (Message("user", "x"), message)))["input"]
    assert sent[1] == {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [{"type": "summary_text", "text": "Hmm."}],
        "encrypted_content": "c2VhbGVk:x",
    }
    foreign = Message("assistant", ({"type": "thinking", "thinking": "x", "signature": "c2ln"},))
    assert len(responses_body(Request("m", (Message("user", "x"), foreign)))["input"]) == 1


def test_what_the_api_cannot_do_is_told() -> None:
    with pytest.raises(ConfigError, match="stop texts"):
        responses_body(Request("m", TALK, stop=("END",)))
    with pytest.raises(ConfigError, match="audio"):
        responses_body(Request("m", (Message("user", ({"type": "audio"},)),)))


def test_a_schema_is_part_of_the_text() -> None:
    form = responses_body(REQUESTS["schema"])["text"]["format"]
    assert form["name"] == "weather"
    assert form["strict"] is True
    assert form["schema"]["additionalProperties"] is False


# ---------------------------------------------------------------- answers
@pytest.mark.parametrize("name", STREAMS)
def test_the_same_bytes_mean_the_same_to_the_vendors_library(name: str) -> None:
    from openai import AsyncOpenAI

    async def main() -> None:
        async with Server(Reply(sse(*STREAMS[name]), split=23)) as server:
            provider = WIRES["openai-responses"].provider_at(server.url)
            ours = await provider.complete(HELLO)
            await provider.close()
            theirs: Any = None
            async with AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0) as client:
                async for event in await client.responses.create(model="m", input="hello", stream=True):
                    if event.type in ("response.completed", "response.incomplete"):
                        theirs = event.response
        assert ours.text == theirs.output_text
        assert [(call.id, call.name, call.arguments) for call in ours.tool_calls] == [
            (item.call_id, item.name, json.loads(item.arguments))
            for item in theirs.output
            if item.type == "function_call"
        ]
        assert ours.stop_reason == STOPS[name]
        usage = theirs.usage
        assert ours.usage == TokenUsage(
            usage.input_tokens,
            usage.output_tokens,
            usage.input_tokens_details.cached_tokens,
            0,
            usage.output_tokens_details.reasoning_tokens,
        )
        assert (ours.id, ours.model) == (theirs.id, theirs.model)
        assert server.requests[0].path == server.requests[1].path

    run(main())


def test_thinking_is_streamed() -> None:
    events = read(ResponsesReader(), sse(*STREAMS["thinking"]))
    assert [event.text for event in events if isinstance(event, ThinkingDelta)] == ["Hm", "m.", ""]


def test_the_parts_of_a_summary_are_paragraphs() -> None:
    first, last = reasoning_item("One."), reasoning_item("Two.")
    second = [
        {**event, "summary_index": 1} for event in last[0] if event["type"].startswith("response.reasoning_summary")
    ]
    events = responses_events(([*first[0][:-1], *second, first[0][-1]], first[1]), message_item("So", index=1))
    content = fold(read(ResponsesReader(), sse(*events))).message.content
    assert isinstance(content, tuple)
    assert content[0]["thinking"] == "One.\n\nTwo."


def test_a_refusal_is_text_and_a_reason() -> None:
    events = responses_events(message_item("x"))
    for event in events:
        if event["type"] == "response.output_text.delta":
            event |= {"type": "response.refusal.delta", "delta": "I cannot."}
    answer = fold(read(ResponsesReader(), sse(*events)))
    assert answer.text == "I cannot."
    assert answer.stop_reason == "content_filter"


def test_calls_that_come_only_at_their_end() -> None:
    """Some servers tell a call when it is done, in one piece."""
    events = [
        event
        for event in STREAMS["calls"]
        if "arguments" not in event["type"] and event["type"] != "response.output_item.added"
    ]
    answer = fold(read(ResponsesReader(), sse(*events)))
    assert [call.arguments for call in answer.tool_calls] == [{"city": "Paris"}, {}]


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, "rate_limit"),
        ({"type": "error", "error": {"code": "server_error", "message": "oops"}}, "temporary"),
        ({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}}, "temporary"),
        ({"type": "response.failed", "response": {"error": {"code": "invalid_prompt", "message": "x"}}}, "bad_request"),
        ({"type": "response.failed", "response": {}}, "temporary"),
    ],
)
def test_failures_by_their_word(event: dict[str, Any], kind: str) -> None:
    with pytest.raises(ModelError) as caught:
        read(ResponsesReader(), sse(*STREAMS["text"][:3], event))
    assert caught.value.kind == kind


def test_a_call_cut_at_the_limit_says_so() -> None:
    events = responses_events(
        call_item("c", "get_weather", '{"city": "Pa'),
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    )
    events = [event for event in events if event["type"] != "response.output_item.done"]
    with pytest.raises(ModelError) as caught:
        fold(read(ResponsesReader(), sse(*events)))
    assert caught.value.tool == "get_weather"
    assert "max_tokens" in str(caught.value.hint)


def test_an_event_of_a_known_kind_with_strange_fields_is_an_error() -> None:
    events = [*STREAMS["text"]]
    events[4] = {"type": "response.output_text.delta", "delta": 7}
    with pytest.raises(ModelError) as caught:
        read(ResponsesReader(), sse(*events))
    assert caught.value.kind == "malformed"
    events[4] = {"type": "response.novelty", "delta": 7}
    assert fold(read(ResponsesReader(), sse(*events))).stop_reason == "end"


def thought_item(item_id: str, index: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    item = {"type": "reasoning", "id": item_id, "encrypted_content": f"sealed:{item_id}", "summary": []}
    return [{"type": "response.output_item.done", "output_index": index, "item": item}], item


def test_thoughts_go_back_in_their_places_between_the_calls() -> None:
    items = (
        thought_item("rs_1", 0),
        call_item("call_a", "now", "{}", index=1),
        thought_item("rs_2", 2),
        call_item("call_b", "now", "{}", index=3),
        call_item("call_c", "now", "{}", index=4),
    )
    message = fold(read(ResponsesReader(), sse(*responses_events(*items)))).message
    sent = responses_body(Request("m", (message,)))["input"]
    assert [item.get("id") or item["call_id"] for item in sent] == ["rs_1", "call_a", "rs_2", "call_b", "call_c"]
    assert [item["encrypted_content"] for item in sent if item["type"] == "reasoning"] == ["sealed:rs_1", "sealed:rs_2"]


def test_a_signature_of_before_is_still_read() -> None:
    """Those in journals have no place in them."""
    part = {"type": "thinking", "thinking": "", "signature": "openai:rs_1:sealed"}
    message = Message("assistant", (part,), (ToolCall("call_a", "now"),))
    sent = responses_body(Request("m", (message,)))["input"]
    assert [item.get("id") or item["call_id"] for item in sent] == ["rs_1", "call_a"]
    assert sent[0]["encrypted_content"] == "sealed"


def test_an_error_may_have_a_number_for_a_code() -> None:
    with pytest.raises(ModelError) as caught:
        read(ResponsesReader(), sse({"type": "error", "code": 429, "message": "slow"}))
    assert caught.value.kind == "rate_limit"


@pytest.mark.parametrize(
    ("provider", "model", "settings", "path"),
    [
        ("openai", "gpt-6.1-sol", {}, "responses"),
        ("openai", "gpt-5.2", {}, "responses"),
        ("openai", "gpt-5.4-mini", {}, "responses"),
        ("openai", "gpt-5", {}, "chat/completions"),
        ("openai", "gpt-5.1-codex-mini", {}, "chat/completions"),
        ("openai", "gpt-4o", {}, "chat/completions"),
        ("openai", "gpt-6.1-sol", {"api": "chat"}, "chat/completions"),
        ("openai", "gpt-4o", {"api": "responses"}, "responses"),
        ("here", "gpt-6.1-sol", {}, "chat/completions"),
    ],
)
def test_a_model_that_needs_responses_is_asked_by_them(
    provider: str, model: str, settings: dict[str, str], path: str
) -> None:
    """Later models refuse tools in chat completions while they think; other servers may have nothing but those, and
    what the settings say counts."""
    given = {"base_url": "https://host.example/v1", "api_key": Secret("k"), **settings}
    client = OpenAI(settings_of(provider, given))
    request = Request(model, TALK, thinking_tokens=9_000)
    assert client.url(request) == f"https://host.example/v1/{path}"
    assert ("input" in client.body(request)) == (path == "responses")
    assert isinstance(client.reader(request), ResponsesReader) == (path == "responses")
    with_stop = Request(model, TALK, stop=("x",))
    assert settings or client.url(with_stop).endswith("chat/completions"), "the other API takes no stop texts"

"""Gemini: what is sent is what Google's own types take, and what comes is read as Google's own client reads it."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.message import Message
from lyra.core.secrets.secret import Secret
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.errors import ConfigError, ModelError
from lyra.models.provider import Request
from lyra.models.providers.gemini import Gemini, GeminiReader, gemini_body
from lyra.models.settings import ProviderSettings, Timeouts
from lyra.models.stream import (
    BROKEN_CALL,
    Completion,
    Finished,
    Fold,
    Started,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolEnd,
    ToolStart,
    UsageSeen,
)
from tests.cases import cases
from tests.models.server import Reply, Server, run, sse

KEY = "AIza-planted-key-0123456789"
MODEL = "gemini-2.5-flash"
NEW = "gemini-3-pro-preview"
WEATHER = Tool(
    "weather",
    "The weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
PIXEL = "cG5nLWJ5dGVz"
IMAGE = {"type": "image", "media_type": "image/png", "data": PIXEL}


def chunk(*parts: Any, finish: str = "", usage: dict[str, int] | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    data: dict[str, Any] = {"candidates": [candidate], "modelVersion": "gemini-2.5-flash-001", "responseId": "r1"}
    if usage is not None:
        data["usageMetadata"] = usage
    return {**data, **more}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"text": value, **more}


def call(name: str, args: Any, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args}, **more}


SAID = sse(
    chunk(text("Grüße, "), usage={"promptTokenCount": 12, "totalTokenCount": 12}),
    chunk(text("Welt 🌍"), usage={"promptTokenCount": 12, "candidatesTokenCount": 3, "totalTokenCount": 15}),
    chunk(
        text(""),
        finish="STOP",
        usage={
            "promptTokenCount": 12,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 7,
            "cachedContentTokenCount": 8,
            "totalTokenCount": 24,
        },
    ),
)
CALLED = sse(
    chunk(text("I wonder. ", thought=True)),
    chunk(text("Let me look. ")),
    chunk(call("weather", {"city": "Zürich"}, thoughtSignature="c2lnLWE=")),
    chunk(
        call("weather", {"city": "Köln"}),
        finish="STOP",
        usage={"promptTokenCount": 40, "candidatesTokenCount": 20, "totalTokenCount": 60},
    ),
)
STREAMS = {
    "said": SAID,
    "called": CALLED,
    "cut": sse(chunk(text("as far as")), chunk(text(" it goes"), finish="MAX_TOKENS")),
    "filtered": sse(chunk(text("well, ")), {"candidates": [{"finishReason": "SAFETY", "index": 0}]}),
    "usage after the end": sse(
        chunk(text("ok"), finish="STOP"), {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1}}
    ),
}


def provider(url: str = "http://127.0.0.1:1", **more: Any) -> Gemini:
    return Gemini(ProviderSettings("gemini", Secret(KEY), base_url=url, **more))


def asking(*messages: Message, **more: Any) -> Request:
    return Request(**{"model": MODEL, "messages": messages or (Message("user", "hello"),), **more})


def read(data: bytes, size: int = 0, first: int = 0) -> list[StreamEvent]:
    reader = GeminiReader(first)
    step = size or len(data) or 1
    events = [event for start in range(0, len(data), step) for event in reader.feed(data[start : start + step])]
    events += reader.close()
    if reader.error is not None:
        raise reader.error
    return events


def fold(events: list[StreamEvent]) -> Completion:
    folded = Fold()
    for event in events:
        folded.feed(event)
    return folded.completion()


async def completed(reply: Reply, request: Request) -> tuple[Completion, Server]:
    async with Server(reply) as server:
        ours = provider(server.url)
        try:
            return await ours.complete(request), server
        finally:
            await ours.close()


def failing(reply: Reply, request: Request | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        run(completed(reply, request or asking()))
    assert KEY not in str(caught.value) + repr(caught.value) + caught.value.render() + repr(caught.value.fields)
    return caught.value


# ---------------------------------------------------------------- the answer
def test_an_answer_is_text_tokens_and_an_end():
    """Deltas as they come; thoughts count as output, cached tokens are within the prompt."""
    events = read(SAID)
    assert events[0] == Started("r1", "gemini-2.5-flash-001")
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Grüße, ", "Welt 🌍"]
    usage = [event.usage for event in events if isinstance(event, UsageSeen)][-1]
    assert usage == TokenUsage(12, 12, cache_read_tokens=8, reasoning_tokens=7)
    assert events[-1] == Finished("end")


def test_calls_get_ids_and_keep_their_signatures():
    """Parallel calls in order, ids that no earlier call has, the signature tied to the call it came with."""
    events = read(CALLED, first=3)
    ends = [event.call for event in events if isinstance(event, ToolEnd)]
    assert ends == [
        ToolCall("call_3", "weather", {"city": "Zürich"}),
        ToolCall("call_4", "weather", {"city": "Köln"}),
    ]
    assert [event.index for event in events if isinstance(event, ToolStart)] == [0, 1]
    assert events[-1] == Finished("tool_calls")
    message = fold(events).message
    sent = gemini_body(Request(NEW, (message,)))["contents"][0]["parts"]
    assert sent == [
        {"text": "Let me look. "},
        {"functionCall": {"name": "weather", "args": {"city": "Zürich"}}, "thoughtSignature": "c2lnLWE="},
        {"functionCall": {"name": "weather", "args": {"city": "Köln"}}},
    ]


def test_ids_of_the_wire_are_kept_and_sent_back():
    """Where Google gives an id, the call and its result carry it."""
    events = read(sse(chunk({"functionCall": {"id": "g-7", "name": "weather", "args": {}}}, finish="STOP")))
    message = fold(events).message
    assert message.tool_calls == (ToolCall("g-7", "weather", {}),)
    results = Message("tool", tool_results=(ToolResult("g-7", "weather", "rain"),))
    contents = gemini_body(Request(MODEL, (message, results)))["contents"]
    assert contents[0]["parts"][0]["functionCall"]["id"] == "g-7"
    answer = {"id": "g-7", "name": "weather", "response": {"output": "rain"}}
    assert contents[1]["parts"] == [{"functionResponse": answer}]


def test_every_signature_returns_to_its_place():
    """A signed thought, a signed text and a signature on an empty part at the end."""
    data = sse(
        chunk(text("hm", thought=True, thoughtSignature="YQ==")),
        chunk(text("so")),
        chunk(text("!", thoughtSignature="Yg==")),
        chunk(text("", thoughtSignature="Yw=="), finish="STOP"),
    )
    parts = gemini_body(Request(NEW, (fold(read(data)).message,)))["contents"][0]["parts"]
    assert parts == [
        {"text": "hm", "thought": True, "thoughtSignature": "YQ=="},
        {"text": "so!", "thoughtSignature": "Yg=="},
        {"text": "", "thoughtSignature": "Yw=="},
    ]


def test_calls_of_another_model_are_sent_with_the_word_that_skips_the_check():
    """Third-generation models refuse an unsigned call; earlier ones are sent none."""
    message = Message("assistant", "", (ToolCall("toolu_1", "weather", {}), ToolCall("toolu_2", "weather", {})))
    new = gemini_body(Request(NEW, (message,)))["contents"][0]["parts"]
    assert [part.get("thoughtSignature") for part in new] == ["skip_thought_signature_validator", None]
    old = gemini_body(Request(MODEL, (message,)))["contents"][0]["parts"]
    assert not any("thoughtSignature" in part for part in old)


def test_thoughts_of_another_provider_are_left_out():
    """A signature of Anthropic's means nothing to Google."""
    thought = {"type": "thinking", "thinking": "secretly", "signature": "EqQBCgIYAhIM"}
    message = Message("assistant", (thought, {"type": "text", "text": "hi"}))
    assert gemini_body(Request(NEW, (message,)))["contents"] == [{"role": "model", "parts": [{"text": "hi"}]}]


@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=cases(40), deadline=None)
@given(data=st.data())
def test_any_split_of_the_bytes_gives_the_same_events(name, data):
    """Also inside a character, a line end or a field name; line ends of either kind."""
    body = STREAMS[name]
    if data.draw(st.booleans(), "crlf"):
        body = body.replace(b"\n", b"\r\n")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(body)), max_size=12), "cuts"))
    reader = GeminiReader()
    events: list[StreamEvent] = []
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        events += reader.feed(body[start:end])
    assert events + reader.close() == read(STREAMS[name])


def test_byte_by_byte_is_the_same():
    """The worst network there is."""
    for data in STREAMS.values():
        assert read(data, 1) == read(data)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("STOP", "end"), ("MAX_TOKENS", "max_tokens"), ("RECITATION", "content_filter"), ("NO_IMAGE", "content_filter")],
)
def test_reasons_have_one_meaning(reason, stop):
    """A table."""
    assert read(sse(chunk(text("x"), finish=reason)))[-1] == Finished(stop)


# ---------------------------------------------------------------- what goes wrong
@pytest.mark.parametrize("data", [b"", sse(chunk(text("half an"))), SAID[: SAID.rindex(b"data:")]])
def test_a_stream_without_a_finish_reason_is_truncated(data):
    """Whatever ended it."""
    with pytest.raises(ModelError) as caught:
        read(data)
    assert caught.value.kind == "stream_truncated"


@pytest.mark.parametrize(
    "bad", ["{not json", '{"candidates": 7}', '["x"]', '{"candidates": [{"content": {"parts": 1}}]}']
)
def test_a_chunk_that_cannot_be_read_is_an_error(bad):
    """Never skipped, even when the answer goes on well."""
    with pytest.raises(ModelError) as caught:
        read(sse(chunk(text("a")), bad, chunk(text("b"), finish="STOP")))
    assert caught.value.kind == "malformed"


def test_fields_and_parts_that_are_new_are_passed_over():
    """The API grows."""
    data = sse(
        {"newThing": [1, {"x": 2}], **chunk({"executableCode": {"code": "1"}}, text("a"), finish="STOP")}, {"also": 1}
    )
    assert fold(read(data)).text == "a"


@pytest.mark.parametrize("args", ['"city"', "[1]", "3"])
def test_arguments_that_are_no_object_are_never_dispatched(args):
    """The error names the tool."""
    with pytest.raises(ModelError) as caught:
        fold(read(sse(chunk(call("weather", json.loads(args)), finish="STOP"))))
    assert (caught.value.kind, caught.value.tool) == ("malformed", "weather")


def test_a_call_in_pieces_is_never_dispatched():
    """It was not asked for, and half of one is none."""
    half = {"functionCall": {"name": "weather", "partialArgs": [{"jsonPath": "$.city"}], "willContinue": True}}
    with pytest.raises(ModelError) as caught:
        read(sse(chunk(half), chunk(finish="STOP")))
    assert (caught.value.kind, caught.value.tool) == ("malformed", "weather")


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_a_call_that_the_model_broke_is_an_error(reason):
    """There is nothing to dispatch."""
    data = {"candidates": [{"finishReason": reason, "finishMessage": "Malformed function call: weather(", "index": 0}]}
    events = read(sse(data))
    assert events[-1] == Finished(BROKEN_CALL)
    with pytest.raises(ModelError) as caught:
        fold(events)
    assert caught.value.kind == "malformed"


def test_a_blocked_prompt_is_refused_content():
    """No candidate, only feedback."""
    error = failing(Reply(sse({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})))
    assert (error.kind, error.provider_code, error.provider, error.model) == (
        "content_filter",
        "PROHIBITED_CONTENT",
        "gemini",
        MODEL,
    )


def test_an_error_in_the_stream_is_what_it_would_have_been_before_it():
    """With the pause that it asks for."""
    error = failing(
        Reply(
            sse(
                chunk(text("well")),
                {
                    "error": {
                        "code": 429,
                        "status": "RESOURCE_EXHAUSTED",
                        "message": "slow down",
                        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12.5s"}],
                    }
                },
            )
        )
    )
    assert (error.kind, error.retry_after_s) == ("rate_limit", 12.5)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (
            400,
            {
                "code": 400,
                "message": f"API key not valid: {KEY}",
                "status": "INVALID_ARGUMENT",
                "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}],
            },
            "auth",
        ),
        (400, {"code": 400, "message": "Unknown name", "status": "INVALID_ARGUMENT"}, "bad_request"),
        (
            400,
            {
                "code": 400,
                "message": "The input token count (9) exceeds the maximum number of tokens allowed (8).",
                "status": "INVALID_ARGUMENT",
            },
            "context_overflow",
        ),
        (403, {"code": 403, "message": "no", "status": "PERMISSION_DENIED"}, "auth"),
        (404, {"code": 404, "message": "no such model", "status": "NOT_FOUND"}, "not_found"),
        (500, {"code": 500, "message": "internal", "status": "INTERNAL"}, "temporary"),
        (503, {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}, "overloaded"),
        (504, {"code": 504, "message": "late", "status": "DEADLINE_EXCEEDED"}, "timeout"),
    ],
)
def test_refusals_have_a_kind(status, error, kind):
    """The key is nowhere in what is said."""
    caught = failing(Reply.json({"error": error}, status=status))
    assert (caught.kind, caught.status) == (kind, status)


def test_a_pause_is_read_from_the_body_or_the_header():
    """Google says it in the body; a proxy in the header, which goes first."""
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}]
    body = {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": details}}
    assert failing(Reply.json(body, status=429)).retry_after_s == 34.0
    assert failing(Reply.json(body, status=429, headers={"retry-after": "2"})).retry_after_s == 2.0
    for nonsense in ("soon", "someminutes", "-3s", "nans"):
        details[0]["retryDelay"] = nonsense
        assert not hasattr(failing(Reply.json(body, status=429)), "retry_after_s")


def test_a_broken_connection_and_a_web_page_are_named():
    """Neither is an answer."""
    assert failing(Reply(sse(chunk(text("half"))), cut=True)).kind == "stream_truncated"
    assert failing(Reply(b"<html>", headers={"content-type": "text/html"})).kind == "bad_response"


# ---------------------------------------------------------------- the request
def test_the_key_is_in_a_header_and_the_model_in_the_path():
    """Never in the URL, which others log."""
    _, server = run(completed(Reply(SAID), asking(model="a/b c")))
    asked = server.requests[0]
    assert asked.path == "/v1beta/models/a%2Fb%20c:streamGenerateContent?alt=sse"
    assert asked.headers["x-goog-api-key"] == KEY
    assert KEY not in asked.path
    assert KEY.encode() not in asked.body


def full() -> Request:
    """A conversation with everything in it."""
    return Request(
        MODEL,
        (
            Message("user", ({"type": "text", "text": "look"}, IMAGE)),
            Message(
                "assistant",
                "one moment",
                (ToolCall("call_0", "weather", {"city": "Ulm"}), ToolCall("call_1", "weather")),
            ),
            Message(
                "tool",
                tool_results=(
                    ToolResult("call_0", "weather", {"sky": "grey"}),
                    ToolResult("call_1", "weather", "no city", is_error=True),
                ),
            ),
            Message("user", "and now?"),
            Message("system", "be brief"),
            Message("user", ({"type": "image", "url": "https://example.com/a.jpg"},)),
        ),
        system="you are a barometer",
        tools=(WEATHER,),
        tool_choice="weather",
        max_tokens=2_000,
        temperature=0.5,
        top_p=0.9,
        stop=("END",),
        thinking_tokens=1024,
    )


def test_a_whole_conversation_is_written():
    """Turns of one role joined, results alone, system messages gathered, every setting in its place."""
    assert gemini_body(full()) == {
        "contents": [
            {"role": "user", "parts": [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}]},
            {
                "role": "model",
                "parts": [
                    {"text": "one moment"},
                    {"functionCall": {"name": "weather", "args": {"city": "Ulm"}}},
                    {"functionCall": {"name": "weather", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "weather", "response": {"output": '{"sky":"grey"}'}}},
                    {"functionResponse": {"name": "weather", "response": {"error": "no city"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"text": "and now?"},
                    {"fileData": {"fileUri": "https://example.com/a.jpg", "mimeType": "image/jpeg"}},
                ],
            },
        ],
        "systemInstruction": {"parts": [{"text": "you are a barometer\n\nbe brief"}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "weather",
                        "description": "The weather of a city.",
                        "parametersJsonSchema": WEATHER.schema,
                    }
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather"]}},
        "generationConfig": {
            "maxOutputTokens": 2_000,
            "temperature": 0.5,
            "topP": 0.9,
            "stopSequences": ["END"],
            "thinkingConfig": {"thinkingBudget": 1024, "includeThoughts": True},
        },
    }


@pytest.mark.parametrize(("choice", "mode"), [("auto", "AUTO"), ("any", "ANY"), ("none", "NONE")])
def test_the_choice_of_tools_is_a_mode(choice, mode):
    """And a name is ANY with one allowed, as above."""
    body = gemini_body(asking(tools=(WEATHER,), tool_choice=choice))
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": mode}}


def test_a_wanted_form_is_a_schema_or_words():
    """Earlier models refuse a schema beside tools, so they are told in words."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    config = gemini_body(asking(output_schema=schema))["generationConfig"]
    assert config == {"responseMimeType": "application/json", "responseJsonSchema": schema}
    new = gemini_body(asking(model=NEW, output_schema=schema, tools=(WEATHER,)))
    assert new["generationConfig"] == config
    old = gemini_body(asking(output_schema=schema, tools=(WEATHER,), system="hi"))
    assert "generationConfig" not in old
    assert [part["text"][:4] for part in old["systemInstruction"]["parts"]] == ["hi", "When"]
    assert '"n"' in old["systemInstruction"]["parts"][1]["text"]


def test_images_of_tools_go_where_the_model_can_read_them():
    """Inside the result for models of the third generation, after it for earlier ones."""
    message = Message("tool", tool_results=(ToolResult("call_0", "shot", [{"type": "text", "text": "done"}, IMAGE]),))
    inline = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    answer = {"name": "shot", "response": {"output": "done"}}
    assert gemini_body(Request(NEW, (message,)))["contents"] == [
        {"role": "user", "parts": [{"functionResponse": {**answer, "parts": [inline]}}]}
    ]
    assert gemini_body(Request(MODEL, (message,)))["contents"] == [
        {"role": "user", "parts": [{"functionResponse": answer}]},
        {"role": "user", "parts": [inline]},
    ]


@pytest.mark.parametrize("part", [{"type": "audio"}, {"type": "image"}, {"type": "image", "data": PIXEL}])
def test_a_part_that_cannot_be_sent_is_a_mistake_of_the_caller(part):
    """Told before anything is sent."""
    with pytest.raises(ConfigError):
        gemini_body(asking(Message("user", (part,))))


def test_an_image_may_be_a_data_url():
    """It is sent as what it is."""
    part = {"type": "image", "url": f"data:image/webp;base64,{PIXEL}"}
    sent = gemini_body(asking(Message("user", (part,))))["contents"][0]["parts"]
    assert sent == [{"inlineData": {"mimeType": "image/webp", "data": PIXEL}}]


def test_the_version_of_the_api_can_be_another():
    """Google has several."""
    assert provider(api_version="v1").url(asking()).startswith("http://127.0.0.1:1/v1/models/")


@pytest.mark.parametrize(
    ("thinking", "bound", "sent"),
    [(2_000, 9_000, 2_000), (24_576, 9_000, 8_999), (24_576, 513, 512), (24_576, 512, None), (0, 10, 0), (-1, 10, -1)],
)
def test_thinking_stays_below_the_bound_of_the_answer(thinking: int, bound: int, sent: int | None) -> None:
    """Thoughts count towards the bound: a larger budget would leave no room for the answer, or cost more than was
    reserved. Off (0) and the model's own choice (-1) stay as they are."""
    config = gemini_body(asking(thinking_tokens=thinking, max_tokens=bound))["generationConfig"]
    assert config.get("thinkingConfig", {}).get("thinkingBudget") == sent


def test_thinking_can_be_turned_off():
    """Zero tokens and no summaries."""
    config = gemini_body(asking(thinking_tokens=0))["generationConfig"]
    assert config == {"thinkingConfig": {"thinkingBudget": 0, "includeThoughts": False}}


# ---------------------------------------------------------------- the line
def test_leaving_closes_the_connection_at_once():
    """The server notices."""

    async def leave() -> None:
        async with Server(Reply(sse(chunk(text("one"))), hang=True)) as server:
            ours = provider(server.url)
            async with aclosing(ours.stream(asking())) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
            await asyncio.wait_for(server.hung_up.wait(), 0.5)
            await ours.close()

    run(leave())


def test_silence_is_a_time_out():
    """Between two pieces too."""

    async def wait() -> ModelError:
        async with Server(Reply(sse(chunk(text("one"))), hang=True)) as server:
            ours = provider(server.url, timeouts=Timeouts(idle_s=0.05))
            with pytest.raises(ModelError) as caught:
                await ours.complete(asking())
            await ours.close()
            return caught.value

    assert run(wait()).kind == "timeout"


# ---------------------------------------------------------------- Google's own client as judge
def camel(value: Any) -> Any:
    """Google's JSON may be written in two ways, and Google's client mixes them."""
    if isinstance(value, list):
        return [camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {name: re.sub("_([a-z])", lambda match: match[1].upper(), name) for name in value}
    return {names[name]: camel(item) for name, item in value.items()}


def calls_of(response: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(part.function_call.name, part.function_call.args) for part in response if part.function_call]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STREAMS)
def test_googles_client_reads_the_same_from_the_same_bytes(name):
    """Text, thoughts, calls, tokens and the reason."""
    from google import genai
    from google.genai import types

    async def theirs() -> tuple[list[Any], Any, Any]:
        async with Server(Reply(STREAMS[name])) as server:
            options = types.HttpOptions(base_url=server.url, api_version="v1beta")
            client = genai.Client(api_key="k", http_options=options)
            parts, usage, reason = [], None, None
            async for response in await client.aio.models.generate_content_stream(model=MODEL, contents="hello"):
                for candidate in response.candidates or ():
                    parts += (candidate.content.parts or []) if candidate.content else []
                    reason = candidate.finish_reason or reason
                usage = response.usage_metadata or usage
            await client.aio.aclose()
            return parts, usage, reason

    parts, usage, reason = run(theirs(), 60)
    events = read(STREAMS[name])
    ours = fold(events)
    assert ours.text == "".join(part.text for part in parts if part.text and not part.thought)
    thought = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    assert thought == "".join(part.text for part in parts if part.text and part.thought)
    assert [(call.name, call.arguments) for call in ours.tool_calls] == calls_of(parts)
    if usage is not None:
        assert ours.usage.input_tokens == (usage.prompt_token_count or 0)
        assert ours.usage.output_tokens == (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        assert ours.usage.cache_read_tokens == (usage.cached_content_token_count or 0)
    expected = {
        "STOP": "tool_calls" if ours.tool_calls else "end",
        "MAX_TOKENS": "max_tokens",
        "SAFETY": "content_filter",
    }
    assert ours.stop_reason == expected[reason.value]


BODIES = {
    "plain": asking(),
    "full": full(),
    "new": Request(NEW, full().messages, tools=(WEATHER,), output_schema={"type": "object", "properties": {}}),
    "signed": Request(NEW, (fold(read(CALLED)).message,)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BODIES)
def test_googles_types_take_what_is_sent(name):
    """They refuse every field they do not know."""
    import pydantic
    from google.genai import types

    class Body(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        contents: list[types.Content]
        systemInstruction: types.Content | None = None  # noqa: N815 (the word on the wire)
        tools: list[types.Tool] | None = None
        toolConfig: types.ToolConfig | None = None  # noqa: N815
        generationConfig: types.GenerationConfig | None = None  # noqa: N815

    body = gemini_body(BODIES[name])
    assert Body.model_validate_json(json.dumps(body)).contents
    body["contents"][0]["parts"][0]["txet"] = "x"
    with pytest.raises(pydantic.ValidationError):
        Body.model_validate_json(json.dumps(body))


def shot() -> Request:
    """A conversation of the third generation: ids of the wire, a signature, an image inside a result, a schema."""
    signed = {"type": "thinking", "thinking": "", "signature": 'gemini:{"call 0":"c2lnLWE="}'}
    return Request(
        NEW,
        (
            Message("user", "look"),
            Message("assistant", (signed,), (ToolCall("g-1", "weather", {"city": "Ulm"}),)),
            Message("tool", tool_results=(ToolResult("g-1", "weather", [{"type": "text", "text": "see"}, IMAGE]),)),
        ),
        tools=(WEATHER,),
        output_schema={"type": "object", "properties": {"n": {"type": "integer"}}},
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cloud", [False, True], ids=["gemini", "vertex"])
@pytest.mark.parametrize("request_", [full(), shot()], ids=["full", "shot"])
def test_googles_client_sends_the_same(request_, cloud):
    """The same conversation through both, compared on the wire."""
    from google import genai
    from google.genai import types
    from google.oauth2.credentials import Credentials

    body = gemini_body(request_)

    async def theirs() -> Any:
        async with Server(Reply(SAID)) as server:
            options = types.HttpOptions(base_url=server.url, api_version="v1beta")
            where: dict[str, Any] = {"api_key": "k"}
            if cloud:
                where = {"project": "p1", "location": "us-east1", "credentials": Credentials(token="t")}
            client = genai.Client(vertexai=cloud, http_options=options, **where)
            config = types.GenerateContentConfig(
                tools=[types.Tool.model_validate(tool) for tool in body["tools"]],
                tool_config=types.ToolConfig.model_validate(body["toolConfig"]),
                automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
                **body.get("generationConfig", {}),
            )
            if "systemInstruction" in body:
                config.system_instruction = types.Content.model_validate(body["systemInstruction"])
            contents = [types.Content.model_validate_json(json.dumps(content)) for content in body["contents"]]
            async for _ in await client.aio.models.generate_content_stream(
                model=request_.model, contents=contents, config=config
            ):
                pass
            await client.aio.aclose()
            return server.requests[-1]

    asked = run(theirs(), 60)
    assert camel(asked.data) == camel(body)
    assert asked.path.endswith(f"/models/{request_.model}:streamGenerateContent?alt=sse")


def test_a_finish_reason_is_not_the_end_of_the_text():
    """Google's client reads on, and so do we."""
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 1}
    chunks = [chunk(text(letter), finish="STOP", usage=usage) for letter in "abc"]
    events = read(sse(*chunks))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["a", "b", "c"]
    assert [event for event in events if isinstance(event, Finished)] == [Finished("end")]
    assert isinstance(events[-1], Finished)


def test_text_that_comes_a_while_after_a_finish_reason_is_not_lost():
    """Nor does an answer whose connection does not end wait for ever."""
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 1}
    pieces = [sse(chunk(text(letter), finish="STOP", usage=usage)) for letter in "ab"]

    async def main(settle_s: float) -> str:
        async with Server(Reply(pieces, pause_s=0.3, hang=True)) as server:
            asked = provider(server.url)
            asked.settle_s = settle_s
            answer = await asked.complete(asking())
            await asked.close()
            return answer.text

    assert run(main(1.0)) == "ab"
    assert run(main(0.05)) == "a"


@pytest.mark.parametrize(("thinking", "level"), [(2_048, "low"), (8_192, "medium"), (24_576, "high")])
def test_later_models_get_a_level_of_thinking(thinking, level):
    """Numbers are for those before 3; a model that is to think no more gets no level."""
    for model in ("gemini-3.8-flash", "gemini-4-argon"):
        body = gemini_body(Request(model, (Message("user", "hi"),), thinking_tokens=thinking))
        assert body["generationConfig"]["thinkingConfig"] == {"thinkingLevel": level, "includeThoughts": True}
    early = gemini_body(Request("gemini-2.5-flash", (Message("user", "hi"),), thinking_tokens=thinking))
    assert early["generationConfig"]["thinkingConfig"]["thinkingBudget"] == thinking

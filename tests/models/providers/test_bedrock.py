"""Bedrock: botocore takes what is sent, signs it the same and reads the same from the same bytes."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import struct
import sys
import traceback
from base64 import b64decode
from binascii import crc32
from contextlib import aclosing, closing
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.message import Message
from lyra.core.secrets.secret import Secret
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.errors import ConfigError, ModelError
from lyra.models.provider import Request
from lyra.models.providers.bedrock import Bedrock, BedrockReader, answer_tool, bedrock_body
from lyra.models.settings import ProviderSettings
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
    UsageSeen,
)
from tests.cases import cases
from tests.models.server import Asked, Reply, Server, run
from tests.models.wires import fold, read

CLAUDE = "us.anthropic.claude-sonnet-4-20250514-v1:0"
NOVA = "amazon.nova-pro-v1:0"
ADAPTIVE = {"type": "adaptive", "display": "summarized"}
LLAMA = "meta.llama3-1-70b-instruct-v1:0"
ACCESS, SECRET, TOKEN = "AKIAPLANTED000000001", "planted/secret+key/0123456789", "planted-session-token-0123"
WEATHER = Tool(
    "weather",
    "The weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
STREAM = {"content-type": "application/vnd.amazon.eventstream"}


# ---------------------------------------------------------------- frames
def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One message of an event stream: lengths, their checksum, headers of type text, payload, checksum of all."""
    head = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(value.encode())) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", len(head) + len(payload) + 16, len(head))
    message = prelude + struct.pack("!I", crc32(prelude)) + head + payload
    return message + struct.pack("!I", crc32(message))


def event(name: str, data: Any) -> bytes:
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps(data, ensure_ascii=False).encode())


def thrown(name: str, message: str) -> bytes:
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, json.dumps({"message": message}).encode())


def started() -> bytes:
    return event("messageStart", {"role": "assistant", "p": "abcdef"})


def delta(index: int, **data: Any) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": data})


def text(index: int, *texts: str) -> bytes:
    return b"".join(delta(index, text=item) for item in texts) + stopped(index)


def use(index: int, name: str, *pieces: str, call_id: str = "") -> bytes:
    begun = {"toolUse": {"toolUseId": call_id or f"tooluse_{index}", "name": name}}
    return (
        event("contentBlockStart", {"contentBlockIndex": index, "start": begun})
        + b"".join(delta(index, toolUse={"input": piece}) for piece in pieces)
        + stopped(index)
    )


def stopped(index: int) -> bytes:
    return event("contentBlockStop", {"contentBlockIndex": index})


def ended(reason: str = "end_turn", **usage: int) -> bytes:
    counts = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15, **usage}
    return event("messageStop", {"stopReason": reason}) + event(
        "metadata", {"usage": counts, "metrics": {"latencyMs": 100}}
    )


SAID = started() + text(0, "Grüße, ", "Welt 🌍") + ended(cacheReadInputTokens=7, cacheWriteInputTokens=3)
CALLED = (
    started()
    + text(0, "Let me look.")
    + use(1, "weather", '{"ci', 'ty": "Zü', 'rich"}')
    + use(2, "weather", '{"city": "Köln"}')
    + use(3, "weather")
    + ended("tool_use")
)
THOUGHT = (
    started()
    + delta(0, reasoningContent={"text": "I won"})
    + delta(0, reasoningContent={"text": "der"})
    + delta(0, reasoningContent={"signature": "c2ln"})
    + stopped(0)
    + delta(1, reasoningContent={"redactedContent": "aGlkZGVu"})
    + stopped(1)
    + text(2, "42")
    + ended()
)
STREAMS = {
    "said": SAID,
    "called": CALLED,
    "thought": THOUGHT,
    "cut": started() + text(0, "as far") + ended("max_tokens"),
    "guarded": started() + text(0, "no") + ended("guardrail_intervened"),
    "stopped": started() + text(0, "no") + ended("stop_sequence"),
}


def events_of(data: bytes, cuts: Any = (), **more: Any) -> list[StreamEvent]:
    return read(BedrockReader(CLAUDE, **more), data, cuts)


def asking(*messages: Message, **more: Any) -> Request:
    return Request(**{"model": CLAUDE, "messages": messages or (Message("user", "hello"),), **more})


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The credentials of this test, and of no real machine."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def provider(url: str, **more: Any) -> Bedrock:
    return Bedrock(ProviderSettings(**{"name": "bedrock", "base_url": url, "region": "us-east-1", **more}))


async def completed(reply: Reply, request: Request | None = None, **more: Any) -> tuple[Completion, Asked]:
    async with Server(reply) as server:
        ours = provider(server.url, **more)
        try:
            return await ours.complete(request or asking()), server.requests[0]
        finally:
            await ours.close()


def failing(reply: Reply, **more: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        run(completed(reply, **more))
    error = caught.value
    shown = [str(error), repr(error), error.render(), str(error.fields), *traceback.format_exception(error)]
    assert not [line for line in shown if SECRET in line or TOKEN in line]
    assert (error.provider, error.model) == ("bedrock", CLAUDE)
    return error


# ---------------------------------------------------------------- the answer
def test_an_answer_is_text_tokens_and_an_end():
    """Cached tokens are counted apart, as Amazon does."""
    assert events_of(SAID) == [
        Started(model=CLAUDE),
        TextDelta("Grüße, "),
        TextDelta("Welt 🌍"),
        UsageSeen(TokenUsage(10, 5, 7, 3, cached_apart=True)),
        Finished("end"),
    ]


def test_calls_stream_their_arguments_and_end_whole():
    """Three calls, one of them without arguments."""
    events = events_of(CALLED)
    assert [item.text for item in events if isinstance(item, ToolDelta)] == [
        '{"ci',
        'ty": "Zü',
        'rich"}',
        '{"city": "Köln"}',
    ]
    assert [item.call for item in events if isinstance(item, ToolEnd)] == [
        ToolCall("tooluse_1", "weather", {"city": "Zürich"}),
        ToolCall("tooluse_2", "weather", {"city": "Köln"}),
        ToolCall("tooluse_3", "weather", {}),
    ]
    assert events[-1] == Finished("tool_calls")


def test_thoughts_go_back_as_they_came():
    """Signed and hidden blocks, each by itself."""
    message = fold(events_of(THOUGHT)).message
    assert bedrock_body(asking(message))["messages"][0]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "I wonder", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "aGlkZGVu"}},
        {"text": "42"},
    ]


def test_thoughts_of_another_provider_are_left_out():
    """Unsigned ones too: the API refuses them."""
    thoughts = ({"type": "thinking", "thinking": "x", "signature": item} for item in ("", "gemini:{}"))
    message = Message("assistant", (*thoughts, {"type": "text", "text": "hi"}))
    assert bedrock_body(asking(message))["messages"] == [{"role": "assistant", "content": [{"text": "hi"}]}]


@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=cases(40), deadline=None)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_events(name, cuts):
    """Also inside a length, a checksum or a character."""
    assert events_of(STREAMS[name], cuts) == events_of(STREAMS[name])


def test_byte_by_byte_is_the_same():
    """The worst network there is."""
    for data in STREAMS.values():
        assert events_of(data, range(len(data))) == events_of(data)


def test_an_answer_may_lack_only_its_tokens():
    """messageStop is the end; metadata follows it and is told before Finished."""
    whole = started() + text(0, "x") + event("messageStop", {"stopReason": "end_turn"})
    assert events_of(whole)[-1] == Finished("end")


def test_tokens_may_come_before_the_end_and_an_end_needs_a_reason():
    """The order of the last two is not the answer's affair; what stopped it is."""
    tokens = event("metadata", {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}})
    early = started() + text(0, "x") + tokens + event("messageStop", {"stopReason": "end_turn"})
    assert fold(events_of(early)).usage.output_tokens == 2
    with pytest.raises(ModelError) as caught:
        events_of(started() + text(0, "x") + event("messageStop", {}) + tokens)
    assert caught.value.kind == "stream_truncated"


def test_events_that_are_new_are_passed_over():
    """Events, blocks and deltas of kinds that are not known."""
    new = event("someNewEvent", {"x": [1]}) + event(
        "contentBlockStart", {"contentBlockIndex": 0, "start": {"image": {}}}
    )
    data = started() + new + delta(0, citation={"title": "t"}) + text(0, "x") + ended()
    assert fold(events_of(data)).text == "x"


# ---------------------------------------------------------------- the wanted form
def test_a_wanted_form_is_a_tool_and_its_input_the_answer():
    """Streamed as text; words around it are left out, and the end is an end."""
    request = asking(output_schema=SCHEMA)
    body = bedrock_body(request)
    assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"] if "toolSpec" in tool] == ["answer"]
    assert body["toolConfig"]["toolChoice"] == {"tool": {"name": "answer"}}
    data = started() + text(0, "Here: ") + use(1, "answer", '{"n"', ": 4}") + use(2, "answer", "{}") + ended("tool_use")
    events = events_of(data, answer=answer_tool(request))
    assert [item.text for item in events if isinstance(item, TextDelta)] == ['{"n"', ": 4}"]
    assert events[-1] == Finished("end")


def test_with_tools_the_model_may_call_one_before_it_answers():
    """It has to call something; a name that is taken is made another."""
    request = asking(output_schema=SCHEMA, output_name="weather", tools=(WEATHER,))
    config = bedrock_body(request)["toolConfig"]
    assert config["toolChoice"] == {"any": {}}
    assert [tool["toolSpec"]["name"] for tool in config["tools"] if "toolSpec" in tool] == ["weather", "weather_"]
    data = started() + use(0, "weather", "{}") + ended("tool_use")
    answered = fold(events_of(data, answer=answer_tool(request)))
    assert (answered.stop_reason, [call.name for call in answered.tool_calls]) == ("tool_calls", ["weather"])


def test_a_thinking_model_is_not_forced_and_may_answer_in_words():
    """Amazon refuses both at once; text that came instead of the call is the answer."""
    request = asking(output_schema=SCHEMA, thinking_tokens=2000)
    body = bedrock_body(request)
    assert "toolChoice" not in body["toolConfig"]
    assert body["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    answered = fold(events_of(started() + text(0, '{"n": ', "5}") + ended(), answer=answer_tool(request)))
    assert answered.text == '{"n": 5}'


def test_a_form_that_is_no_object_is_wrapped_and_unwrapped():
    """The input of a tool is an object; references still start at the root."""
    schema = {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}
    answer = answer_tool(asking(output_schema=schema))
    assert answer is not None
    assert answer.schema == {
        "type": "object",
        "properties": {"value": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
        "required": ["value"],
        "$defs": {"n": {"type": "integer"}},
    }
    data = started() + use(0, "answer", '{"value": [1', ", 2]}") + ended("tool_use")
    assert fold(events_of(data, answer=answer)).text == "[1,2]"
    odd = started() + use(0, "answer", '{"other": 1}') + ended("tool_use")
    assert fold(events_of(odd, answer=answer)).text == '{"other": 1}'


# ---------------------------------------------------------------- what goes wrong
def test_no_beginning_of_an_answer_is_an_answer():
    """Cut anywhere before messageStop is whole, a stream is truncated."""
    end = CALLED.index(b"messageStop")
    for kept in range(0, end, 7):
        with pytest.raises(ModelError) as caught:
            events_of(CALLED[:kept])
        assert caught.value.kind == "stream_truncated"


def test_a_flipped_bit_anywhere_is_found():
    """Checksums are checked, of the lengths and of the whole."""
    for place in range(0, len(SAID), 11):
        broken = bytearray(SAID)
        broken[place] ^= 0x10
        with pytest.raises(ModelError) as caught:
            events_of(bytes(broken))
        assert caught.value.kind in ("malformed", "stream_truncated"), place
    assert failing(Reply(bytes(broken), headers=STREAM)).kind == "malformed"


@pytest.mark.parametrize("payload", [b"{", b"[]", b'{"contentBlockIndex": "x"}', b'{"delta": {"text": 5}}'])
def test_an_event_that_cannot_be_read_is_an_error(payload):
    """Never skipped."""
    headers = {":event-type": "contentBlockDelta", ":message-type": "event"}
    with pytest.raises(ModelError) as caught:
        events_of(started() + frame(headers, payload) + text(0, "x") + ended())
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize(("stop", "hint"), [("tool_use", None), ("max_tokens", "max_tokens")])
def test_a_broken_call_names_its_tool_and_is_never_given(stop, hint):
    """And says so where the limit cut it."""
    given = events_of(started() + use(0, "weather", '{"city": ') + ended(stop))
    with pytest.raises(ModelError) as caught:
        fold(given)
    assert (caught.value.kind, caught.value.tool) == ("malformed", "weather")
    assert [item.call.arguments for item in given if isinstance(item, ToolEnd)] == [{}]
    assert hint is None or hint in str(caught.value.hint)


def test_a_call_that_never_ended_is_broken():
    """messageStop does not make it whole."""
    begun = {"toolUse": {"toolUseId": "t", "name": "weather"}}
    with pytest.raises(ModelError) as caught:
        events_of(started() + event("contentBlockStart", {"contentBlockIndex": 0, "start": begun}) + ended("tool_use"))
    assert (caught.value.kind, caught.value.tool) == ("malformed", "weather")


def test_arguments_for_no_call_are_an_error():
    """They belong to nothing."""
    with pytest.raises(ModelError) as caught:
        events_of(started() + delta(4, toolUse={"input": "{}"}) + ended())
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_an_answer_that_the_model_broke_is_an_error(reason):
    """There is nothing to act on."""
    with pytest.raises(ModelError) as caught:
        fold(events_of(started() + text(0, "x") + ended(reason)))
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("throttlingException", "rate_limit"),
        ("serviceUnavailableException", "overloaded"),
        ("internalServerException", "temporary"),
        ("modelStreamErrorException", "temporary"),
        ("modelTimeoutException", "timeout"),
        ("validationException", "bad_request"),
        ("somethingNewException", "temporary"),
    ],
)
def test_an_exception_in_the_stream_has_its_kind(name, kind):
    """With Amazon's sentence, less what it quotes of the keys."""
    error = failing(Reply(started() + text(0, "x") + thrown(name, f"because {SECRET}"), headers=STREAM))
    assert (error.kind, error.provider_code, error.message) == (kind, name, "because ***")


def test_a_conversation_that_is_too_long_is_told_in_the_stream_too():
    """By its words, as everywhere."""
    error = failing(Reply(thrown("validationException", "Input is too long for requested model."), headers=STREAM))
    assert error.kind == "context_overflow"


def test_an_error_frame_is_an_error():
    """The protocol has a second way to say it."""
    headers = {":message-type": "error", ":error-code": "InternalFailure", ":error-message": "sorry"}
    error = failing(Reply(started() + frame(headers, b""), headers=STREAM))
    assert (error.kind, error.message) == ("temporary", "sorry")


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "Malformed input request", "bad_request"),
        (400, "Input is too long for requested model.", "context_overflow"),
        (403, "The security token included in the request is invalid.", "auth"),
        (404, "Could not resolve the foundation model", "not_found"),
        (408, "Model has timed out", "timeout"),
        (424, "Model error", "temporary"),
        (429, "Too many requests", "rate_limit"),
        (500, "Internal", "temporary"),
        (503, "Unavailable", "overloaded"),
    ],
)
def test_refusals_have_a_kind(status, message, kind):
    """Amazon's errors are a bare message."""
    error = failing(Reply.json({"message": message}, status=status))
    assert (error.kind, error.message, error.status) == (kind, message, status)


def test_a_broken_connection_and_a_web_page_are_named():
    """Neither is an answer."""
    assert failing(Reply(SAID[:200], cut=True, headers=STREAM)).kind == "stream_truncated"
    assert failing(Reply(b"<html>", headers={"content-type": "text/html"})).kind == "bad_response"
    for page in (b"<html>hello, I am a proxy</html>", b'{"Output": {"__type": "UnknownOperationException"}}'):
        error = failing(Reply(page, headers=STREAM))
        assert (error.kind, bool(error.hint)) == ("bad_response", True)


# ---------------------------------------------------------------- the request
def full(model: str = CLAUDE, **more: Any) -> Request:
    return Request(
        model,
        (
            Message("user", "look"),
            Message(
                "assistant", "", (ToolCall("a|b" + "c" * 70, "weather", {"city": "Ulm"}), ToolCall("t2", "weather"))
            ),
            Message(
                "tool",
                tool_results=(
                    ToolResult("a|b" + "c" * 70, "weather", {"sky": "grey"}),
                    ToolResult("t2", "weather", "", is_error=True),
                ),
            ),
            Message("user", "and now?"),
            Message("system", "be brief"),
        ),
        **{
            "system": "you are a barometer",
            "tools": (WEATHER,),
            "max_tokens": 100,
            "temperature": 0.5,
            "top_p": 0.9,
            "stop": ("END",),
            **more,
        },
    )


def test_a_whole_conversation_is_written():
    """Turns of one role joined, ids the API takes, marks for the cache, every setting in its place."""
    point = {"cachePoint": {"type": "default"}}
    long_id = bedrock_body(full())["messages"][1]["content"][0]["toolUse"]["toolUseId"]
    assert re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", long_id)
    assert bedrock_body(full(tool_choice="weather")) == {
        "messages": [
            {"role": "user", "content": [{"text": "look"}]},
            {
                "role": "assistant",
                "content": [
                    {"toolUse": {"toolUseId": long_id, "name": "weather", "input": {"city": "Ulm"}}},
                    {"toolUse": {"toolUseId": "t2", "name": "weather", "input": {}}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": long_id, "content": [{"text": '{"sky":"grey"}'}]}},
                    {"toolResult": {"toolUseId": "t2", "content": [{"text": "(no output)"}], "status": "error"}},
                    {"text": "and now?"},
                    point,
                ],
            },
        ],
        "system": [{"text": "you are a barometer\n\nbe brief"}, point],
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": "weather",
                        "description": "The weather of a city.",
                        "inputSchema": {"json": WEATHER.schema},
                    }
                },
                point,
            ],
            "toolChoice": {"tool": {"name": "weather"}},
        },
        "inferenceConfig": {"maxTokens": 100, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]},
    }


@pytest.mark.parametrize(
    ("model", "places"),
    [
        (CLAUDE, 3),
        ("anthropic.claude-3-7-sonnet-20250219-v1:0", 3),
        ("anthropic.claude-3-5-haiku-20241022-v1:0", 3),
        ("global.anthropic.claude-opus-4-6-v1", 3),
        (NOVA, 1),
        ("anthropic.claude-3-haiku-20240307-v1:0", 0),
        (LLAMA, 0),
    ],
)
def test_only_models_that_can_are_sent_marks_for_the_cache(model, places):
    """Others refuse them; and no provider is sent them that does not accept them."""
    assert json.dumps(bedrock_body(full(model))).count("cachePoint") == places
    assert "cachePoint" not in json.dumps(bedrock_body(full(model, cache=False)))


@pytest.mark.parametrize(
    ("choice", "written"),
    [("auto", {}), ("any", {"toolChoice": {"any": {}}}), ("weather", {"toolChoice": {"tool": {"name": "weather"}}})],
)
def test_the_choice_of_tools(choice, written):
    """Auto is what the API does by default."""
    config = bedrock_body(asking(tools=(WEATHER,), tool_choice=choice, cache=False))["toolConfig"]
    del config["tools"]
    assert config == written


def test_no_tools_are_offered_where_none_may_be_called():
    """Unless the conversation speaks of some: the API wants every tool of a conversation declared."""
    assert "toolConfig" not in bedrock_body(asking(tools=(WEATHER,), tool_choice="none"))
    assert "toolConfig" in bedrock_body(full(tool_choice="none"))
    remembered = bedrock_body(full(tools=(), cache=False))["toolConfig"]
    assert remembered == {
        "tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object", "properties": {}}}}}]
    }


def test_empty_texts_are_left_out():
    """The API refuses them."""
    body = bedrock_body(asking(Message("user", " "), Message("user", "x"), Message("assistant", "")))
    assert body["messages"] == [{"role": "user", "content": [{"text": "x"}]}]


def test_thoughts_and_texts_keep_their_order():
    """A model that thinks between two texts gets both back where they were."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    parts = ({"type": "text", "text": "a"}, thought, {"type": "text", "text": "b"})
    content = bedrock_body(asking(Message("assistant", parts)))["messages"][0]["content"]
    assert [next(iter(block)) for block in content] == ["text", "reasoningContent", "text"]


@pytest.mark.parametrize(
    ("model", "tokens", "most", "thinking", "effort"),
    [
        (CLAUDE, 2000, None, {"type": "enabled", "budget_tokens": 2000}, None),
        (CLAUDE, 9000, 5000, {"type": "enabled", "budget_tokens": 4999}, None),
        (CLAUDE, 500, None, None, None),
        ("global.anthropic.claude-opus-4-6-v1", 500, None, ADAPTIVE, "low"),
        ("global.anthropic.claude-opus-4-6-v1", 50_000, None, ADAPTIVE, "high"),
        ("global.anthropic.claude-opus-4-6-v1", 0, None, None, "low"),
    ],
)
def test_claude_is_told_how_much_to_think_in_its_own_words(model, tokens, most, thinking, effort):
    """As on Anthropic's own API: tokens for earlier models, an effort for later ones."""
    body = bedrock_body(asking(model=model, thinking_tokens=tokens, max_tokens=most, temperature=0.5))
    assert body.get("additionalModelRequestFields", {}).get("thinking") == thinking
    assert body.get("outputConfig", {}).get("effort") == effort
    assert ("temperature" in body.get("inferenceConfig", {})) == (thinking is None), "it takes none while thinking"


def test_only_claude_is_asked_to_think():
    """The field is Anthropic's; others would refuse it."""
    assert "additionalModelRequestFields" not in bedrock_body(asking(model=LLAMA, thinking_tokens=2000))


def test_images_are_sent_as_data():
    """Those of messages and of tools' results, with a format of the API's own."""
    image = {"type": "image", "media_type": "image/jpeg", "data": "anBn"}
    block = {"image": {"format": "jpeg", "source": {"bytes": "anBn"}}}
    body = bedrock_body(asking(Message("user", ({"type": "text", "text": "what is it?"}, image))))
    assert body["messages"][0]["content"][:2] == [{"text": "what is it?"}, block]
    seen = Message("tool", tool_results=(ToolResult("t", "weather", [image]),))
    (result,) = bedrock_body(asking(seen))["messages"][0]["content"]
    assert result["toolResult"]["content"] == [block]


def test_an_image_on_the_web_is_refused_before_anything_is_sent():
    """With what to do instead."""
    message = Message("user", ({"type": "image", "url": "https://example.com/a.png"},))
    with pytest.raises(ConfigError, match="not by their addresses") as caught:
        run(completed(Reply(SAID), asking(message)))
    assert "from_bytes" in str(caught.value.hint)


# ---------------------------------------------------------------- keys and addresses
def test_the_signature_is_there_and_the_secret_is_not():
    """The model's id is one part of the path, whatever is in it."""
    arn = "arn:aws:bedrock:us-east-1:1:application-inference-profile/x"
    answer, asked = run(completed(Reply(SAID, headers=STREAM), asking(model=arn)))
    assert answer.text == "Grüße, Welt 🌍"
    assert (
        asked.path == "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aapplication-inference-profile%2Fx/converse-stream"
    )
    assert asked.headers["authorization"].startswith(f"AWS4-HMAC-SHA256 Credential={ACCESS}/")
    assert asked.headers["x-amz-security-token"] == TOKEN
    assert asked.headers["accept"] == "application/vnd.amazon.eventstream"
    assert SECRET not in str(asked)


def test_an_api_key_is_sent_instead_of_a_signature():
    """Where there is one."""
    _, asked = run(completed(Reply(SAID, headers=STREAM), api_key=Secret("bedrock-api-key-1")))
    assert asked.headers["authorization"] == "Bearer bedrock-api-key-1"
    assert "x-amz-date" not in asked.headers


def test_the_region_is_the_profiles_where_none_is_given(tmp_path):
    """And the address follows from it."""
    (tmp_path / "config").write_text("[default]\nregion = eu-central-1\n")

    async def address() -> str:
        ours = provider("", region="")
        await ours.ready()
        return ours.url(asking(model="m"))

    assert run(address()) == "https://bedrock-runtime.eu-central-1.amazonaws.com/model/m/converse-stream"
    china = provider("", region="cn-north-1").url(asking(model="m"))
    assert china.startswith("https://bedrock-runtime.cn-north-1.amazonaws.com.cn/")


def test_no_region_is_a_mistake_with_a_way_out():
    """The variable is named."""
    with pytest.raises(ConfigError) as caught:
        run(completed(Reply(SAID), region=""))
    assert "AWS_REGION" in str(caught.value.hint)


def test_no_credentials_are_a_named_error(monkeypatch):
    """Nothing is sent."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    error = failing(Reply(SAID, headers=STREAM))
    assert error.kind == "auth"
    assert "AWS_ACCESS_KEY_ID" in str(error.hint)


def test_a_profile_that_is_not_there_is_named(monkeypatch):
    """By the first lookup: of the region, or of the credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "absent")
    with pytest.raises(ConfigError, match="absent"):
        run(completed(Reply(SAID), region=""))
    error = failing(Reply(SAID, headers=STREAM))
    assert error.kind == "auth"
    assert "absent" in error.message


def test_credentials_are_found_once(monkeypatch):
    """Later calls use them, and botocore refreshes those that expire."""
    from botocore.session import Session

    collected: list[int] = []
    real = Session.get_credentials

    def counted(self: Any) -> Any:
        collected.append(1)
        return real(self)

    monkeypatch.setattr(Session, "get_credentials", counted)

    async def main() -> None:
        async with Server(Reply(SAID, headers=STREAM)) as server:
            ours = provider(server.url)
            for _ in range(3):
                await ours.complete(asking())
            await ours.close()

    run(main())
    assert collected == [1]


def test_without_botocore_the_command_is_told(monkeypatch):
    """One sentence with the command."""
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.setattr("lyra.models.providers.bedrock.find_spec", lambda _name: None)
    with pytest.raises(ConfigError) as caught:
        run(completed(Reply(SAID)))
    assert caught.value.hint == "pip install 'lyra-agents[bedrock]'"


def test_with_a_key_botocore_is_not_needed(monkeypatch):
    """It signs and finds credentials; nothing else asks for it."""
    monkeypatch.setitem(sys.modules, "botocore", None)
    answer, _ = run(completed(Reply(SAID, headers=STREAM), api_key=Secret("k")))
    assert answer.text == "Grüße, Welt 🌍"


def test_no_log_holds_a_session_token(caplog):
    """botocore writes what it signs to its debug log, which is turned off."""
    caplog.set_level(logging.DEBUG)
    run(completed(Reply(SAID, headers=STREAM)))
    assert TOKEN not in caplog.text
    assert SECRET not in caplog.text


def test_leaving_closes_the_connection_at_once():
    """The server notices."""

    async def leave() -> None:
        async with Server(Reply(started() + delta(0, text="one"), hang=True, headers=STREAM)) as server:
            ours = provider(server.url)
            stream: Any = ours.stream(asking())
            async with aclosing(stream) as events:
                async for item in events:
                    if isinstance(item, TextDelta):
                        break
            await asyncio.wait_for(server.hung_up.wait(), 0.5)
            await ours.close()

    run(leave())


# ---------------------------------------------------------------- botocore as judge
def theirs(url: str) -> Any:
    from botocore.config import Config
    from botocore.session import Session

    return Session().create_client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}),
    )


def asked_by_botocore(url: str, body: dict[str, Any], model: str) -> list[dict[str, Any]]:
    with closing(theirs(url)) as client, closing(client.converse_stream(modelId=model, **body)["stream"]) as stream:
        return list(stream)


@pytest.mark.parametrize("name", STREAMS)
def test_botocore_reads_the_same_from_the_same_bytes(name):
    """Text, thoughts, arguments, tokens and the reason."""

    async def both() -> list[dict[str, Any]]:
        async with Server(Reply(STREAMS[name], headers=STREAM)) as server:
            return await asyncio.to_thread(asked_by_botocore, server.url, bedrock_body(asking()), CLAUDE)

    collected = run(both())
    deltas = [item["contentBlockDelta"]["delta"] for item in collected if "contentBlockDelta" in item]
    events = events_of(STREAMS[name])
    assert [item.text for item in events if isinstance(item, TextDelta)] == [
        item["text"] for item in deltas if "text" in item
    ]
    assert "".join(item.text for item in events if isinstance(item, ToolDelta)) == "".join(
        item["toolUse"]["input"] for item in deltas if "toolUse" in item
    )
    thought = "".join(item["reasoningContent"].get("text", "") for item in deltas if "reasoningContent" in item)
    assert "".join(item.text for item in events if isinstance(item, ThinkingDelta)) == thought
    usage = next(item["metadata"]["usage"] for item in collected if "metadata" in item)
    answer = fold(events)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (usage["inputTokens"], usage["outputTokens"])
    assert answer.usage.cache_read_tokens == usage.get("cacheReadInputTokens", 0)
    starts = [item["contentBlockStart"]["start"] for item in collected if "contentBlockStart" in item]
    assert [(call.id, call.name) for call in answer.tool_calls] == [
        (item["toolUse"]["toolUseId"], item["toolUse"]["name"]) for item in starts
    ]


@pytest.mark.parametrize("name", ["throttlingException", "modelStreamErrorException"])
def test_botocore_finds_the_same_exception(name):
    """In the same place of the same bytes."""
    from botocore.exceptions import EventStreamError

    async def both() -> None:
        async with Server(Reply(started() + thrown(name, "no"), headers=STREAM)) as server:
            await asyncio.to_thread(asked_by_botocore, server.url, bedrock_body(asking()), CLAUDE)

    with pytest.raises(EventStreamError, match=name):
        run(both())


BODIES = {
    "plain": asking(),
    "full": full(),
    "none": full(tool_choice="none"),
    "answer": full(output_schema=SCHEMA),
    "thinking": full(thinking_tokens=2000, max_tokens=9000, output_schema=SCHEMA),
    "effort": full("global.anthropic.claude-opus-4-6-v1", thinking_tokens=2000),
}


@pytest.mark.parametrize("name", BODIES)
def test_botocore_takes_and_sends_what_is_sent(name):
    """It checks every field against Amazon's model of the service; on the wire it is the same JSON at the same path."""
    body = bedrock_body(BODIES[name])

    async def both() -> Asked:
        async with Server(Reply(SAID, headers=STREAM)) as server:
            await asyncio.to_thread(asked_by_botocore, server.url, body, CLAUDE)
            return server.requests[0]

    asked = run(both())
    assert asked.data == body
    assert asked.path == f"/model/{CLAUDE.replace(':', '%3A')}/converse-stream"


def test_botocore_sends_hidden_thoughts_the_same():
    """It takes them as bytes and writes them as we keep them."""
    body = bedrock_body(asking(Message("user", "x"), fold(events_of(THOUGHT)).message, Message("user", "y")))
    given = deepcopy(body)
    hidden = given["messages"][1]["content"][1]["reasoningContent"]
    hidden["redactedContent"] = b64decode(hidden["redactedContent"])

    async def both() -> Asked:
        async with Server(Reply(SAID, headers=STREAM)) as server:
            await asyncio.to_thread(asked_by_botocore, server.url, given, CLAUDE)
            return server.requests[0]

    assert run(both()).data == body


def test_botocore_refuses_what_is_wrong():
    """So its yes means something."""
    from botocore.exceptions import ParamValidationError

    body = bedrock_body(asking())
    body["messages"][0]["content"][0] = {"txet": "hello"}
    with pytest.raises(ParamValidationError):
        asked_by_botocore("http://127.0.0.1:1", body, CLAUDE)


def test_botocores_client_signs_the_same(monkeypatch):
    """The same bytes at the same moment give the same signature over the same headers."""
    now = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC).replace(tzinfo=None)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: now)
    body = bedrock_body(full())

    async def both() -> tuple[Asked, dict[str, str]]:
        async with Server(Reply(SAID, headers=STREAM)) as server:
            await asyncio.to_thread(asked_by_botocore, server.url, body, CLAUDE)
            asked = server.requests[0]
            ours = provider(server.url)
            url = ours.url(full())
            return asked, await ours.sign_request(url, asked.body, ours.headers(full()))

    asked, signed = run(both())
    assert signed["authorization"] == asked.headers["authorization"]
    assert signed["x-amz-date"] == asked.headers["x-amz-date"] == "20260304T050607Z"


def test_what_is_signed_is_what_is_sent(monkeypatch):
    """The server can make the same signature from what it received: host, path and body are as signed."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    now = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC).replace(tzinfo=None)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: now)
    _, asked = run(completed(Reply(SAID, headers=STREAM), full()))
    names = asked.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert names == ["content-type", "host", "x-amz-date", "x-amz-security-token"]
    again = AWSRequest(
        method="POST",
        url=f"http://{asked.headers['host']}{asked.path}",
        data=asked.body,
        headers={"content-type": asked.headers["content-type"]},
    )
    SigV4Auth(Credentials(ACCESS, SECRET, TOKEN), "bedrock", "us-east-1").add_auth(again)
    assert again.headers["Authorization"] == asked.headers["authorization"]


@pytest.mark.parametrize(
    ("status", "word", "message", "kind"),
    [
        (
            400,
            "ServiceQuotaExceededException:http://internal.amazon.com/x",
            "You have exceeded your quota",
            "rate_limit",
        ),
        (400, "ValidationException", "The provided model identifier is invalid.", "not_found"),
        (403, "ExpiredTokenException", "The security token included in the request is expired", "auth"),
    ],
)
def test_amazons_word_for_an_error_is_in_a_header(status, word, message, kind):
    """And says more than the status."""
    reply = Reply.json({"message": message}, status=status, headers={"x-amzn-ErrorType": word})
    error = failing(reply)
    assert (error.kind, error.message) == (kind, message)
    assert error.fields["provider_code"] == word.partition(":")[0]
    assert bool(error.hint) == (kind != "rate_limit")

"""OpenAI's chat completions: requests that its own types accept, and answers read as its own library reads them."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.core.message import Message
from lyra.errors import ConfigError, ModelError
from lyra.models.provider import Request
from lyra.models.providers.anthropic import body_of as anthropic_body
from lyra.models.providers.openai_chat import ChatReader, chat_body
from lyra.models.providers.openai_responses import responses_body
from lyra.models.schemas import close_objects, is_strict
from lyra.models.stream import ThinkingDelta, TokenUsage, UsageSeen
from tests.models.oracle import PIXEL, REQUESTS, SCHEMA, TALK, accepts
from tests.models.server import Reply, Server, run, sse
from tests.models.wires import HELLO, WEATHER, WIRES, call_delta, chat_events, chunk, fold, read

STREAMS: dict[str, list[dict[str, Any]]] = {
    "text": chat_events({"content": "Hällo"}, {"content": " "}, {"content": "wörld \u2603 \U0001f600"}),
    "calls": chat_events(
        {"content": "Look:"},
        call_delta(0, "call_1", "get_weather", '{"ci'),
        call_delta(0, arguments='ty": "Paris"}'),
        call_delta(1, "call_2", "now", "{}"),
        finish="tool_calls",
    ),
    "mixed calls": chat_events(
        call_delta(0, "call_1", "get_weather"),
        call_delta(1, "call_2", "get_weather"),
        call_delta(1, arguments='{"city":'),
        call_delta(0, arguments='{"city": "a"}'),
        call_delta(1, arguments='"b"}'),
        finish="tool_calls",
    ),
    "cut": chat_events({"content": "He"}, finish="length"),
    "filtered": chat_events({"content": "He"}, finish="content_filter"),
    "refused": chat_events({"refusal": "I can"}, {"refusal": "not."}),
}
STOPS = {"stop": "end", "tool_calls": "tool_calls", "length": "max_tokens", "content_filter": "content_filter"}


# ---------------------------------------------------------------- requests
@pytest.mark.parametrize("name", REQUESTS)
def test_the_vendors_types_accept_our_requests(name: str) -> None:
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    accepts(CompletionCreateParamsStreaming, chat_body(REQUESTS[name]))
    accepts(CompletionCreateParamsStreaming, chat_body(REQUESTS[name], compatible=True))


def test_the_name_of_the_limit_depends_on_whose_server_it_is() -> None:
    assert chat_body(REQUESTS["everything"])["max_completion_tokens"] == 100
    assert chat_body(REQUESTS["everything"], compatible=True)["max_tokens"] == 100


def test_every_result_has_a_message_and_errors_are_told() -> None:
    results = [message for message in chat_body(REQUESTS["everything"])["messages"] if message["role"] == "tool"]
    assert results == [
        {"role": "tool", "tool_call_id": "call_1", "content": '{"degrees":21}'},
        {"role": "tool", "tool_call_id": "call_2", "content": "error: no such city"},
    ]


def test_images_and_images_out_of_tools() -> None:
    sent = chat_body(REQUESTS["image"])["messages"][-1]["content"]
    assert sent[1] == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    *_, result, shown = chat_body(REQUESTS["image out of a tool"])["messages"]
    assert result["content"] == "a map"
    assert shown["role"] == "user"
    assert shown["content"][1]["type"] == "image_url"


def test_a_schema_is_strict_where_it_can_be() -> None:
    def asked(schema: dict[str, Any]) -> Any:
        return chat_body(Request("m", TALK, output_schema=schema))["response_format"]["json_schema"]

    strict = asked(SCHEMA)
    assert strict["strict"] is True
    assert strict["schema"]["additionalProperties"] is False
    assert "additionalProperties" not in SCHEMA, "the request is not changed"
    loose = asked({**SCHEMA, "required": ["city"]})
    assert loose["strict"] is False
    for odd in (
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {"x": {}}, "required": ["x"]},
        {"type": "object", "properties": {"x": {"type": "string", "default": "y"}}, "required": ["x"]},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"x": {"allOf": [{"type": "string"}]}}, "required": ["x"]},
    ):
        assert not is_strict(close_objects(odd)), odd
    nested = {
        "type": "object",
        "properties": {
            "x": {"anyOf": [{"$ref": "#/$defs/X"}, {"type": "null"}]},
            "y": {"type": "array", "items": SCHEMA},
        },
        "required": ["x", "y"],
        "$defs": {"X": SCHEMA},
    }
    assert is_strict(close_objects(nested))
    assert close_objects(nested)["$defs"]["X"]["additionalProperties"] is False


def test_our_strict_schemas_are_those_of_the_vendors_library() -> None:
    """What we call strict, its own preparation leaves as it is."""
    from openai.lib._pydantic import _ensure_strict_json_schema

    schema = close_objects(SCHEMA)
    assert _ensure_strict_json_schema(close_objects(SCHEMA), path=(), root={}) == schema


def test_a_message_without_anything_is_left_out() -> None:
    empty = Message("assistant", ({"type": "thinking", "thinking": "x", "signature": ""},))
    assert len(chat_body(Request("m", (*TALK[:1], empty)))["messages"]) == 1
    with pytest.raises(ConfigError, match="audio"):
        chat_body(Request("m", (Message("user", ({"type": "audio"},)),)))


def test_no_key_means_no_header() -> None:
    """A server of one's own may want none."""

    async def main() -> None:
        async with Server(Reply(WIRES["compatible"].text)) as server:
            provider = WIRES["compatible"].provider_at(server.url, api_key="")
            await provider.complete(Request("m", TALK[:1], stop=("END",), idempotency_key="k-1"))
            await provider.close()
        assert "authorization" not in server.requests[0].headers
        assert server.requests[0].headers["idempotency-key"] == "k-1"
        assert server.requests[0].data["stop"] == ["END"]

    run(main())


# ---------------------------------------------------------------- answers
@pytest.mark.parametrize("name", STREAMS)
def test_the_same_bytes_mean_the_same_to_the_vendors_library(name: str) -> None:
    from openai import AsyncOpenAI

    async def main() -> None:
        async with Server(Reply(sse(*STREAMS[name], done=True), split=23)) as server:
            provider = WIRES["openai-chat"].provider_at(server.url)
            ours = await provider.complete(HELLO)
            await provider.close()
            async with AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0) as client:
                messages: Any = [{"role": "user", "content": "hello"}]
                async with client.chat.completions.stream(model="m", messages=messages) as stream:
                    with_length = name not in ("cut", "filtered")
                    theirs = await stream.get_final_completion() if with_length else await _snapshot(stream)
        choice = theirs.choices[0]
        assert ours.text == (choice.message.content or "") + (choice.message.refusal or "")
        calls = [(call.id, call.name, call.arguments) for call in ours.tool_calls]
        assert calls == [
            (call.id, call.function.name, read_json(call.function.arguments))
            for call in choice.message.tool_calls or ()
        ]
        assert ours.stop_reason == ("content_filter" if choice.message.refusal else STOPS[choice.finish_reason])
        usage: Any = theirs.usage
        assert ours.usage == TokenUsage(
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.prompt_tokens_details.cached_tokens,
            0,
            usage.completion_tokens_details.reasoning_tokens,
        )
        assert (ours.id, ours.model) == (theirs.id, theirs.model)
        assert server.requests[0].path == server.requests[1].path
        assert server.requests[0].headers["authorization"].startswith("Bearer ")

    run(main())


async def _snapshot(stream: Any) -> Any:
    """The library raises on answers that were cut; what it has read until then is what we compare."""
    from openai import ContentFilterFinishReasonError, LengthFinishReasonError

    try:
        async for _ in stream:
            pass
    except (LengthFinishReasonError, ContentFilterFinishReasonError):
        pass
    return stream.current_completion_snapshot


def read_json(text: str) -> Any:
    import json

    return json.loads(text)


def test_servers_that_number_nothing() -> None:
    """Calls without an index, each whole, as some compatible servers send them."""
    deltas = [
        {
            "tool_calls": [
                {"id": f"call_{city}", "function": {"name": "get_weather", "arguments": f'{{"city":"{city}"}}'}}
            ]
        }
        for city in ("a", "b")
    ]
    more = {"tool_calls": [{"function": {"arguments": " "}}]}
    answer = fold(read(ChatReader(), sse(*chat_events(*deltas, more, finish="stop"), done=True)))
    assert [call.arguments for call in answer.tool_calls] == [{"city": "a"}, {"city": "b"}]
    assert answer.stop_reason == "tool_calls", "they say stop and mean calls"


def test_a_call_without_arguments_has_none() -> None:
    answer = fold(read(ChatReader(), sse(*chat_events(call_delta(0, "c", "now"), finish="tool_calls"), done=True)))
    assert answer.tool_calls[0].arguments == {}


def test_arguments_that_are_no_object_are_an_error() -> None:
    with pytest.raises(ModelError) as caught:
        fold(read(ChatReader(), sse(*chat_events(call_delta(0, "c", "now", "[1]"), finish="tool_calls"), done=True)))
    assert caught.value.kind == "malformed"
    assert caught.value.tool == "now"


def test_a_call_cut_at_the_limit_says_so() -> None:
    events = chat_events(call_delta(0, "c", "get_weather", '{"city": "Pa'), finish="length")
    with pytest.raises(ModelError) as caught:
        fold(read(ChatReader(), sse(*events, done=True)))
    assert caught.value.tool == "get_weather"
    assert "max_tokens" in str(caught.value.hint)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thoughts_of_compatible_servers(field: str) -> None:
    events = read(ChatReader(), sse(*chat_events({field: "Hmm."}, {"content": "So"}), done=True))
    assert ThinkingDelta("Hmm.") in events
    assert fold(events).text == "So"


def test_done_may_be_missing_but_not_the_finish_reason() -> None:
    assert fold(read(ChatReader(), sse(*STREAMS["text"]))).usage.input_tokens == 20
    with pytest.raises(ModelError) as caught:
        read(ChatReader(), sse(*chat_events({"content": "Hällo"}, finish=None), done=True))
    assert caught.value.kind == "stream_truncated"


def test_usage_with_every_chunk_is_told_as_it_comes() -> None:
    """Some servers count along; the last word counts."""
    events = [chunk({"content": "x"}, usage={"prompt_tokens": 5, "completion_tokens": n}) for n in (1, 2)]
    seen = read(ChatReader(), sse(*events, chunk(finish="stop"), done=True))
    assert [event.usage.output_tokens for event in seen if isinstance(event, UsageSeen)] == [1, 2]
    assert fold(seen).usage.output_tokens == 2


def test_azure_begins_with_a_chunk_without_choices() -> None:
    first = {"id": "", "object": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    assert fold(read(ChatReader(), sse(first, *STREAMS["text"], done=True))).text.startswith("Hällo")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "rate_limit_exceeded", "message": "slow"}, "rate_limit"),
        ({"type": "server_error", "message": "oops"}, "temporary"),
        ({"code": "context_length_exceeded", "message": "too long"}, "context_overflow"),
        ({"code": "insufficient_quota", "message": "pay"}, "auth"),
        ({"type": "invalid_request_error", "message": "no"}, "bad_request"),
        ("plain words", "temporary"),
        ({"code": 502, "message": "upstream died"}, "temporary"),
        ({"code": 429, "message": "upstream is busy"}, "rate_limit"),
    ],
)
def test_errors_inside_a_stream_by_their_word(error: Any, kind: str) -> None:
    with pytest.raises(ModelError) as caught:
        read(ChatReader(), sse(chunk({"content": "x"}), {"error": error}, done=True))
    assert caught.value.kind == kind


def test_an_empty_account_is_not_waited_for() -> None:
    """OpenAI says 429 to it, but no pause fills an account."""
    reply = Reply.json({"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}}, status=429)

    async def main() -> None:
        async with Server(reply) as server:
            provider = WIRES["openai-chat"].provider_at(server.url)
            with pytest.raises(ModelError) as caught:
                await provider.complete(Request("m", TALK, tools=(WEATHER,)))
            await provider.close()
        assert caught.value.kind == "auth"

    run(main())


# ---------------------------------------------------------------- compatible servers
def test_calls_that_all_have_the_first_number_stay_apart() -> None:
    """A new id with a name is a new call, in one chunk as in two."""
    first, second = call_delta(0, "a", "get_weather", '{"city": "x"}'), call_delta(0, "b", "now", '{"y": 2}')
    joined = {"tool_calls": [*first["tool_calls"], *second["tool_calls"]]}
    for deltas in ((first, second), (joined,)):
        answer = fold(read(ChatReader(), sse(*chat_events(*deltas, finish="tool_calls"), done=True)))
        assert [(call.id, call.name, call.arguments) for call in answer.tool_calls] == [
            ("a", "get_weather", {"city": "x"}),
            ("b", "now", {"y": 2}),
        ]


def test_a_new_id_on_every_piece_is_no_new_call() -> None:
    """There are servers that give one to each."""
    more = call_delta(0, arguments='ty": "x"}')
    more["tool_calls"][0]["id"] = "another"
    deltas = (call_delta(0, "a", "get_weather", '{"ci'), more)
    answer = fold(read(ChatReader(), sse(*chat_events(*deltas, finish="tool_calls"), done=True)))
    assert [(call.id, call.arguments) for call in answer.tool_calls] == [("a", {"city": "x"})]


def test_ids_that_are_made_up_do_not_come_again_in_the_next_turn() -> None:
    """A result has to find its call."""
    unnamed: dict[str, Any] = {"tool_calls": [{"index": 0, "function": {"name": "now", "arguments": "{}"}}]}

    async def main() -> list[str]:
        async with Server(Reply(sse(*chat_events(unnamed, finish="tool_calls"), done=True))) as server:
            provider = WIRES["compatible"].provider_at(server.url)
            first = await provider.complete(HELLO)
            second = await provider.complete(Request("m", (*HELLO.messages, first.message)))
            await provider.close()
            return [call.id for answer in (first, second) for call in answer.tool_calls]

    assert run(main()) == ["call_0", "call_1"]


def test_thoughts_beside_a_call_or_a_text_come_before_it() -> None:
    for beside in ({"content": "So"}, call_delta(0, "c", "now", "{}")):
        events = read(ChatReader(), sse(*chat_events({"reasoning_content": "Hmm.", **beside}), done=True))
        assert [type(event).__name__ for event in events][1:3] == [
            "ThinkingDelta",
            "TextDelta" if "content" in beside else "ToolStart",
        ]


def test_what_compatible_servers_count_and_number_as_they_like() -> None:
    """Tokens in floats, a number for an id, no index."""
    first = {"id": 123, "model": None, "choices": [{"index": None, "delta": {"content": "x"}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 9.0, "completion_tokens": 3.0}}
    answer = fold(read(ChatReader(), sse(first, usage, done=True)))
    assert (answer.id, answer.text, answer.usage) == ("123", "x", TokenUsage(9, 3))


@pytest.mark.parametrize("parallel", [True, False])
def test_one_call_at_a_time_is_asked_for(parallel):
    """`parallel_tools=False` has its own words in each API; otherwise nothing is said."""
    request = Request("m", TALK, tools=(WEATHER,), parallel_tools=parallel)
    assert chat_body(request).get("parallel_tool_calls", True) is parallel
    assert responses_body(request).get("parallel_tool_calls", True) is parallel
    assert anthropic_body(request).get("tool_choice", {}).get("disable_parallel_tool_use", False) is not parallel

"""Requests to providers that speak another format: what can be carried is carried, the rest is refused by name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lyra.core.message import Message
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.errors import ConfigError
from lyra.models.provider import Request
from lyra.models.requests import read_chat, read_messages, read_responses
from tests.server.gateway.support import SSE, Received, Reply, chat_stream, serving_gateway
from tests.server.gateway.test_failures import sse_bytes
from tests.server.gateway.test_sdks import CHAT, MESSAGE_EVENTS, MESSAGES, PNG, RESPONSES, SCHEMA, TOOL_USE
from tests.server.http.support import in_loop

IMAGE = {"type": "image", "media_type": "image/png", "data": PNG}


def test_a_chat_request_is_read_whole() -> None:
    """Every member that has a place in a Request arrives there."""
    data = {"model": "m", **{name: value for name, value in CHAT.items() if name != "extra_body"}}
    more = {"stop": "x", "seed": 7, "top_p": 0.5, "reasoning_effort": "low", "n": 1}
    assert read_chat({**data, **more}).request == Request(
        model="m",
        messages=(
            Message("user", ({"type": "text", "text": "Grüße ☀ \u2028"}, IMAGE)),
            Message("assistant", "", (ToolCall("c1", "f", {}),)),
            Message("tool", tool_results=(ToolResult("c1", "f", "sunny"),)),
        ),
        system="Be brief.",
        tools=(Tool("weather", "d", SCHEMA),),
        max_tokens=100,
        temperature=0.25,
        top_p=0.5,
        stop=("x",),
        seed=7,
        output_schema=SCHEMA,
        output_name="a",
        thinking_tokens=2_048,
    )


def test_a_messages_request_is_read_whole() -> None:
    """The same for Anthropic's format, with thoughts and their signatures."""
    data = {name: value for name, value in MESSAGES.items() if name != "extra_headers"}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    turns = [*data["messages"], {"role": "assistant", "content": [thought, {"type": "text", "text": "It is sunny."}]}]
    choice = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    thinking = {"type": "enabled", "budget_tokens": 2000}
    request = read_messages(
        {"model": "m", **data, "messages": turns, "tool_choice": choice, "thinking": thinking, "top_k": 3}
    ).request
    assert request == Request(
        model="m",
        messages=(
            Message("user", (IMAGE, {"type": "text", "text": "Grüße ☀"})),
            Message("assistant", "", (ToolCall("toolu_1", "weather", {"city": "Bern"}),)),
            Message("tool", tool_results=(ToolResult("toolu_1", "weather", "sunny"),)),
            Message("assistant", (thought, {"type": "text", "text": "It is sunny."})),
        ),
        system="Be brief.",
        tools=(Tool("weather", "d", SCHEMA),),
        tool_choice="weather",
        parallel_tools=False,
        max_tokens=100,
        top_k=3,
        thinking_tokens=2000,
    )


def test_a_responses_request_is_read_whole() -> None:
    """The same for the Responses API, with the items of a tool call."""
    items = [
        *RESPONSES["input"],
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Bern"}'},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": '{"city":"Rome"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "c2", "output": "rainy"},
    ]
    text = {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}}
    request = read_responses(
        {"model": "m", **RESPONSES, "input": items, "instructions": "Be brief.", "text": text}
    ).request
    calls = (ToolCall("c1", "weather", {"city": "Bern"}), ToolCall("c2", "weather", {"city": "Rome"}))
    results = (ToolResult("c1", "weather", "sunny"), ToolResult("c2", "weather", "rainy"))
    assert request == Request(
        model="m",
        messages=(
            Message("user", ({"type": "text", "text": "hello"}, IMAGE)),
            Message("assistant", "", calls),
            Message("tool", tool_results=results),
        ),
        system="Be brief.",
        tools=(Tool("weather", "", SCHEMA),),
        max_tokens=100,
        output_schema=SCHEMA,
        output_name="a",
        thinking_tokens=2_048,
    )


USER = [{"role": "user", "content": "hi"}]
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (read_chat, {"messages": USER, "n": 2}, "n"),
    (read_chat, {"messages": USER, "logit_bias": {"1": 2}}, "logit_bias"),
    (read_chat, {"messages": USER, "frequency_penalty": 1}, "frequency_penalty"),
    (read_chat, {"messages": USER, "response_format": {"type": "json_object"}}, "json_object"),
    (read_chat, {"messages": [{"role": "function", "name": "f", "content": ""}]}, "function"),
    (read_chat, {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input_audio"),
    (read_chat, {"messages": USER, "tools": [{"type": "custom", "custom": {"name": "x"}}]}, "function"),
    (read_chat, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "odd": 1}]}]}, "odd"),
    (read_chat, {"messages": USER, "tools": [{"type": "function", "function": {"name": "f", "odd": 1}}]}, "odd"),
    (read_messages, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "odd": 1}]}]}, "odd"),
    (read_messages, {"messages": [{"role": "user", "content": [{"type": "tool_result", "odd": 1}]}]}, "odd"),
    (
        read_messages,
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "odd": 1}]}]},
        "odd",
    ),
    (read_messages, {"messages": USER, "tools": [{"name": "f", "input_examples": [{}]}]}, "input_examples"),
    (read_messages, {"messages": USER, "tools": [{"name": "f", "defer_loading": True}]}, "defer_loading"),
    (read_responses, {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x", "odd": 1}]}]}, "odd"),
    (read_responses, {"input": "hi", "tools": [{"type": "function", "name": "f", "odd": 1}]}, "odd"),
    (read_messages, {"messages": USER, "container": "c"}, "container"),
    (read_messages, {"messages": USER, "mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    (read_messages, {"messages": USER, "tools": [{"type": "web_search_20250305", "name": "w"}]}, "web_search"),
    (read_messages, {"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}, "document"),
    (read_responses, {"input": "hi", "previous_response_id": "r"}, "previous_response_id"),
    (read_responses, {"input": "hi", "background": True}, "background"),
    (read_responses, {"input": "hi", "tools": [{"type": "web_search"}]}, "function"),
    (read_responses, {"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
    (read_responses, {"input": "hi", "a_field_of_tomorrow": 1}, "a_field_of_tomorrow"),
]


@pytest.mark.parametrize(("read", "data", "word"), REFUSED)
def test_what_cannot_be_carried_is_refused_by_name(read: Any, data: dict[str, Any], word: str) -> None:
    """No member that would change the answer is dropped in silence."""
    with pytest.raises(ConfigError, match=word) as caught:
        read({"model": "m", **data})
    assert "carried" in caught.value.message or "type" in caught.value.message


@pytest.mark.parametrize("value", [None, 1, "text", [], [1], {"role": []}, {"role": "user", "content": 1}])
def test_hostile_messages_are_config_errors(value: Any) -> None:
    """Whatever stands in the place of a message, the error says what is wrong."""
    for read, member in ((read_chat, "messages"), (read_messages, "messages"), (read_responses, "input")):
        with pytest.raises(ConfigError):
            read({"model": "m", member: [value]})


# ---------------------------------------------------------------- through the gateway
anthropic: Any = None
openai: Any = None


@pytest.fixture
def sdks() -> None:
    global anthropic, openai
    anthropic, openai = pytest.importorskip("anthropic"), pytest.importorskip("openai")


@pytest.mark.usefixtures("sdks")
def test_an_anthropic_client_asks_a_model_of_openai() -> None:
    """The provider gets a chat request; the SDK gets a message, streamed and whole, and the call is charged."""

    async def main() -> None:
        async with serving_gateway(Reply(chat_stream("Hello ", "there"), headers=SSE)) as served:
            key = await served.key(budget="$5")
            client = anthropic.AsyncAnthropic(api_key=key, base_url=served.url, max_retries=0)
            question = {"max_tokens": 40, "system": "Be brief.", "messages": USER, "model": "openai/gpt-4o-mini"}
            async with client.messages.stream(**question) as stream:
                kinds = [event.type async for event in stream]
                streamed = await stream.get_final_message()
            whole = await client.messages.create(**question)
            assert (streamed.content[0].text, whole.content[0].text) == ("Hello there", "Hello there")
            assert (streamed.usage.input_tokens, streamed.usage.output_tokens) == (10, 5)
            assert (kinds[0], kinds[-1], whole.stop_reason) == ("message_start", "message_stop", "end_turn")
            assert whole.model == "openai/gpt-4o-mini"
            sent = served.provider.received[0]
            assert sent.path == "/v1/chat/completions"
            assert sent.data["messages"] == [{"role": "system", "content": "Be brief."}, *USER]
            assert (sent.data["model"], sent.data["max_completion_tokens"]) == ("gpt-4o-mini", 40)
            view = await served.view()
            assert (view["calls"], view["input_tokens"], view["reserved_micro_usd"]) == (2, 20, 0)
            await client.close()

    in_loop(main())


@pytest.mark.usefixtures("sdks")
def test_an_openai_client_asks_a_model_of_anthropic() -> None:
    """Chat completions and the Responses API of a provider that has neither: text and tool calls arrive."""

    async def main() -> None:
        async with serving_gateway(Reply(MESSAGE_EVENTS, headers=SSE)) as served:
            key = await served.key(budget="$5")
            client = openai.AsyncOpenAI(api_key=key, base_url=f"{served.url}/v1", max_retries=0)
            model = "anthropic/claude-sonnet-5"
            chat = await client.chat.completions.create(model=model, messages=USER, max_completion_tokens=30)
            message = chat.choices[0].message
            assert (message.content, chat.choices[0].finish_reason) == ("Grüße ☀", "tool_calls")
            assert json.loads(message.tool_calls[0].function.arguments) == TOOL_USE["input"]
            assert chat.usage.prompt_tokens == 24  # with those of the cache
            response = await client.responses.create(model=model, input="hi", max_output_tokens=30)
            assert response.output_text == "Grüße ☀"
            assert response.output[-1].name == "weather"
            events = [event.type async for event in await client.responses.create(model=model, input="hi", stream=True)]
            assert (events[0], events[-1]) == ("response.created", "response.completed")
            assert [received.path for received in served.provider.received] == ["/v1/messages"] * 3
            assert (await served.view())["calls"] == 3
            await client.close()

    in_loop(main())


def test_what_cannot_be_carried_is_a_400_of_the_vendor() -> None:
    """The provider is not asked."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key()
            body = {"model": "anthropic/claude-sonnet-5", "messages": USER, "logit_bias": {"1": 2}}
            async with served.client(key) as client:
                refused = await client.post("/v1/chat/completions", json=body)
                embedded = await client.post("/v1/embeddings", json={"model": body["model"], "input": "x"})
            assert (refused.status_code, embedded.status_code) == (400, 400)
            assert "logit_bias" in refused.json()["error"]["message"]
            assert served.provider.received == []

    in_loop(main())


def test_the_simulated_model_answers_in_every_format() -> None:
    """A provider without a network is reached as well: for trials, and for tests of programs."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                chat = await client.post("/v1/chat/completions", json={"model": "sim/echo", "messages": USER})
                messages = await client.post(
                    "/v1/messages", json={"model": "sim/echo", "messages": USER, "max_tokens": 9}
                )
                response = await client.post("/v1/responses", json={"model": "sim/echo", "input": "hi"})
            assert chat.json()["choices"][0]["message"]["content"] == "hi"
            assert messages.json()["content"][0]["text"] == "hi"
            assert response.json()["output"][0]["content"][0]["text"] == "hi"

    in_loop(main())


def test_a_translated_stream_that_the_client_leaves_is_cut_off() -> None:
    """The provider's connection is closed and what came is charged."""

    async def main() -> None:
        gate = asyncio.Event()
        reply = Reply((b"".join(MESSAGE_EVENTS[:4]), *MESSAGE_EVENTS[4:]), headers=SSE, gate=gate)
        async with serving_gateway(reply) as served:
            key = await served.key(budget="$1")
            body = {"model": "anthropic/claude-sonnet-5", "messages": USER, "max_tokens": 50, "stream": True}
            async with served.client(key) as client:
                async with client.stream("POST", "/v1/chat/completions", json=body) as stream:
                    await anext(stream.aiter_bytes())
                while (view := await served.view())["reserved_micro_usd"]:
                    await asyncio.sleep(0.01)
            assert view["spent_micro_usd"] > 0
            gate.set()

    in_loop(main())


CACHED = {"cache_control": {"type": "ephemeral"}}
IGNORED: list[tuple[Any, dict[str, Any]]] = [
    (read_chat, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", **CACHED}]}]}),
    (
        read_chat,
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u", "detail": "low"}}]}
            ]
        },
    ),
    (read_chat, {"messages": USER, "tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}),
    (read_messages, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", **CACHED}]}]}),
    (read_messages, {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "x", "citations": []}]}]}),
    (read_messages, {"messages": USER, "tools": [{"name": "f", "strict": True, "defer_loading": False, **CACHED}]}),
    (read_responses, {"input": "hi", "tools": [{"type": "function", "name": "f", "strict": False}]}),
]


@pytest.mark.parametrize(("read", "data"), IGNORED)
def test_wishes_that_are_not_part_of_the_question_are_left_out(read: Any, data: dict[str, Any]) -> None:
    """Marks of a cache, the resolution of an image and how strictly a schema is held have no place elsewhere; a request
    with them is answered."""
    assert read({"model": "m", **data}).request.messages


def test_what_a_translation_adds_is_reserved() -> None:
    """The other format may need more bytes than the client's: the most that they can cost is within the reservation."""

    def reply(received: Received) -> Reply:
        usage = {"input_tokens": len(received.body), "output_tokens": 1}
        pieces = (
            sse_bytes("message_start", message={"id": "m", "model": "c", "usage": usage}),
            sse_bytes("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 1}),
            sse_bytes("message_stop"),
        )
        return Reply(pieces, headers=SSE)

    async def main() -> None:
        async with serving_gateway(reply) as served:
            key = await served.key(budget="$5")
            turns = [{"role": "user" if number % 2 else "assistant", "content": "x"} for number in range(1, 400)]
            body = {"model": "anthropic/claude-sonnet-4-5", "messages": turns, "max_completion_tokens": 1}
            async with served.client(key) as client:
                answer = await client.post("/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
            (received,) = served.provider.received
            assert (await served.view())["input_tokens"] == len(received.body)

    in_loop(main())


@pytest.mark.parametrize("budget", [None, "$1"])
def test_what_a_format_cannot_say_is_free(budget: str | None) -> None:
    """A request that is refused while it is written for the provider was never sent: nothing is charged or counted."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key(budget=budget)
            body = {"model": "newer/gpt-5", "messages": USER, "max_tokens": 50, "stop_sequences": ["x"]}
            async with served.client(key) as client:
                answer = await client.post("/v1/messages", json=body)
            assert answer.status_code == 400, answer.text
            assert served.provider.received == []
            view = await served.view()
            assert (view["calls"], view["spent_micro_usd"], view["input_tokens"]) == (0, 0, 0)

    in_loop(main())

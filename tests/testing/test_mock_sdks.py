"""The official SDKs talk to the mock server and have nothing to complain about."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.models.script import Reply, Script, ScriptedCall, ScriptedError
from lyra.testing.mock import MockServer

anthropic: Any = None
openai: Any = None


@pytest.fixture(scope="module", autouse=True)
def sdks() -> None:
    """Import the SDKs in the worker that runs these tests and in no other: that takes seconds."""
    global anthropic, openai
    anthropic, openai = pytest.importorskip("anthropic"), pytest.importorskip("openai")


SCRIPT = Script(
    replies=(
        Reply(tool="weather", text="It is {result}."),
        Reply(
            "Let me look.",
            contains="weather",
            thinking="They ask about weather.",
            tool_calls=(ScriptedCall("weather", {"city": "Bern"}), ScriptedCall("clock", {"zone": "CET"})),
        ),
        Reply("cut here please", contains="cut", error=ScriptedError("stream_truncated", after_chunks=2)),
        Reply("gone in a moment", contains="gone", error=ScriptedError("connection", after_chunks=2)),
        Reply("full up", contains="midway", error=ScriptedError("overloaded", "no room", after_chunks=1)),
        Reply(contains="slow down", error=ScriptedError("rate_limit", "too fast", retry_after_s=7)),
        Reply(contains="bad key", error=ScriptedError("auth", "who are you?")),
        Reply(contains="too long", error=ScriptedError("context_overflow", "200001 > 200000")),
        Reply("counted", contains="count", usage={"input_tokens": 100, "output_tokens": 9, "cache_read_tokens": 40}),
        Reply("one two three four five six", contains="short"),
        Reply("Grüße, {user}!"),
    )
)
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}


def served(work) -> Any:
    async def main():
        async with MockServer(SCRIPT) as server:
            return await work(server)

    return asyncio.run(asyncio.wait_for(main(), 60))


# ---------------------------------------------------------------- Anthropic
def claude(work) -> Any:
    async def main(server: MockServer) -> Any:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0) as client:
            return await work(client, server)

    return served(main)


def message(content: Any, **more: Any) -> dict[str, Any]:
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return {"model": "claude-mock", "max_tokens": 500, "messages": messages, **more}


ANTHROPIC_TOOLS = [{"name": "weather", "description": "d", "input_schema": TOOL}]


def test_anthropic_whole_and_streamed_are_the_same():
    """Text, and tool calls with thoughts: the message of the stream is the message of the document."""

    async def work(client, server):
        for text in ("hello", "weather?"):
            whole = await client.messages.create(**message(text, tools=ANTHROPIC_TOOLS))
            async with client.messages.stream(**message(text, tools=ANTHROPIC_TOOLS)) as stream:
                kinds = [event.type async for event in stream]
                streamed = await stream.get_final_message()
            assert kinds[0] == "message_start"
            assert kinds[-1] == "message_stop"
            assert [block.type for block in streamed.content] == [block.type for block in whole.content]
            for block, whole_block in zip(streamed.content, whole.content, strict=True):
                assert {**block.model_dump(exclude={"signature", "parsed_output"}, exclude_none=True)} == {
                    **whole_block.model_dump(exclude={"signature"}, exclude_none=True)
                }
            assert (streamed.stop_reason, streamed.usage.output_tokens, streamed.usage.input_tokens) == (
                whole.stop_reason,
                whole.usage.output_tokens,
                whole.usage.input_tokens,
            )
            assert whole.model == "claude-mock"
        return whole, server.requests

    whole, requests = claude(work)
    assert whole.stop_reason == "tool_use"
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert whole.content[2].input == {"city": "Bern"}
    assert requests[0].tools[0].name == "weather"


def test_anthropic_a_conversation_with_tools():
    """Results go back and are found by the tool's name."""

    async def work(client, server):
        first = await client.messages.create(**message("weather?"))
        messages = [
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": first.content[2].id, "content": "sunny"},
                    {
                        "type": "tool_result",
                        "tool_use_id": first.content[3].id,
                        "content": [{"type": "text", "text": "noon"}],
                        "is_error": True,
                    },
                ],
            },
        ]
        answer = await client.messages.create(**message(messages, system=[{"type": "text", "text": "be brief"}]))
        return answer, server.requests[-1]

    answer, request = claude(work)
    assert answer.content[0].text == "It is sunny\nnoon."
    assert answer.stop_reason == "end_turn"
    assert request.system == "be brief"
    assert [result.is_error for result in request.messages[-1].tool_results] == [False, True]


@pytest.mark.parametrize(
    ("text", "kind", "status", "word"),
    [
        ("slow down", "RateLimitError", 429, "rate_limit_error"),
        ("bad key", "AuthenticationError", 401, "authentication_error"),
        ("too long", "BadRequestError", 400, "prompt is too long"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_errors(text, kind, status, word, stream):
    """The SDK raises the class that belongs to the error, with its body and its headers."""

    async def work(client, server):
        await client.messages.create(**message(text), stream=stream)

    with pytest.raises(getattr(anthropic, kind)) as raised:
        claude(work)
    assert raised.value.status_code == status
    assert word in str(raised.value.body)
    assert ("retry-after" in raised.value.response.headers) == (status == 429)


def test_anthropic_an_error_in_the_middle():
    """It arrives as an error event, after what was said before."""

    async def work(client, server):
        seen = []
        with pytest.raises(anthropic.APIStatusError) as raised:
            async for event in await client.messages.create(**message("midway"), stream=True):
                seen += [event.type]
        return seen, raised.value

    seen, error = claude(work)
    assert seen == ["message_start", "content_block_start", "content_block_delta"]
    assert "overloaded_error" in str(error.body)


def test_anthropic_broken_streams():
    """A cut stream has no message_stop; a broken line is an error of the connection."""

    async def work(client, server):
        cut = [event.type async for event in await client.messages.create(**message("cut"), stream=True)]
        with pytest.raises(Exception, match=r"incomplete chunked read|peer closed|[Cc]onnection"):
            async for _ in await client.messages.create(**message("gone"), stream=True):
                pass
        return cut

    cut = claude(work)
    assert cut.count("content_block_delta") == 2
    assert "message_stop" not in cut


def test_anthropic_usage_and_limits():
    """Cached tokens are apart; max_tokens and stop sequences end the answer for their reasons."""

    async def work(client, server):
        return (
            (await client.messages.create(**message("count"))).usage,
            await client.messages.create(**{**message("short"), "max_tokens": 2}),
            await client.messages.create(**message("short", stop_sequences=["three"])),
        )

    usage, cut, stopped = claude(work)
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (60, 40, 9)
    assert (cut.content[0].text, cut.stop_reason, cut.usage.output_tokens) == ("one two ", "max_tokens", 2)
    assert (stopped.content[0].text, stopped.stop_reason) == ("one two ", "stop_sequence")


def test_anthropic_refuses_what_the_real_one_refuses():
    """Without max_tokens or messages, and with an unknown role."""

    async def work(client, server):
        sentences = []
        for wrong in ({"max_tokens": None}, {"messages": []}, {"messages": [{"role": "ghost", "content": "x"}]}):
            body = {key: value for key, value in {**message("x"), **wrong}.items() if value is not None}
            with pytest.raises(anthropic.BadRequestError) as raised:
                await client.post("/v1/messages", body=body, cast_to=object)
            sentences.append(str(raised.value.body))
        return sentences

    first, second, third = claude(work)
    assert "max_tokens: Field required" in first
    assert "at least one message" in second
    assert "role is 'user' or 'assistant'" in third


# ---------------------------------------------------------------- OpenAI
def gpt(work) -> Any:
    async def main(server: MockServer) -> Any:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as client:
            return await work(client, server)

    return served(main)


def chat(content: Any, **more: Any) -> dict[str, Any]:
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return {"model": "gpt-mock", "messages": messages, **more}


CHAT_TOOLS = [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": TOOL}}]


def test_openai_chat_whole_and_streamed_are_the_same():
    """Text and tool calls: the message that the SDK puts together from the stream is that of the document."""

    async def work(client, server):
        for text in ("hello", "weather?"):
            whole = await client.chat.completions.create(**chat(text, tools=CHAT_TOOLS))
            options = {"stream_options": {"include_usage": True}, "tools": CHAT_TOOLS}
            async with client.chat.completions.stream(**chat(text, **options)) as stream:
                async for _ in stream:
                    pass
                streamed = await stream.get_final_completion()
            streamed_choice, whole_choice = streamed.choices[0], whole.choices[0]
            assert (streamed_choice.message.content, streamed_choice.finish_reason) == (
                whole_choice.message.content,
                whole_choice.finish_reason,
            )
            assert [call.function.arguments for call in streamed_choice.message.tool_calls or []] == [
                call.function.arguments for call in whole_choice.message.tool_calls or []
            ]
            assert streamed.usage == whole.usage
        return whole

    whole = gpt(work)
    assert whole.choices[0].finish_reason == "tool_calls"
    assert [call.function.name for call in whole.choices[0].message.tool_calls] == ["weather", "clock"]


def test_openai_chat_a_conversation_with_tools():
    """Results go back and are found by the tool's name; an image is understood."""

    async def work(client, server):
        first = (await client.chat.completions.create(**chat("weather?"))).choices[0].message
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        messages = [
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "weather?"}, picture]},
            first.model_dump(exclude_none=True),
            *({"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in first.tool_calls),
        ]
        return await client.chat.completions.create(**chat(messages)), server.requests[-1]

    answer, request = gpt(work)
    assert answer.choices[0].message.content == "It is sunny\nsunny."
    assert request.system == "be brief"
    assert request.messages[0].content[1] == {"type": "image", "media_type": "image/png", "data": "AAAA"}
    assert [result.name for result in request.messages[-1].tool_results] == ["weather", "clock"]


def test_openai_chat_usage_only_where_it_is_asked_for():
    """As the real server: the last chunk has it with `include_usage`, and none has it without."""

    async def work(client, server):
        bare = [chunk async for chunk in await client.chat.completions.create(**chat("count"), stream=True)]
        whole = await client.chat.completions.create(**chat("count"))
        return bare, whole.usage

    bare, usage = gpt(work)
    assert all(chunk.usage is None for chunk in bare)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 9, 109)
    assert usage.prompt_tokens_details.cached_tokens == 40


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "kind", "status", "code"),
    [
        ("slow down", "RateLimitError", 429, "rate_limit_exceeded"),
        ("bad key", "AuthenticationError", 401, "invalid_api_key"),
        ("too long", "BadRequestError", 400, "context_length_exceeded"),
    ],
)
def test_openai_errors(text, kind, status, code, stream, api):
    """The SDK raises the class that belongs to the error, with its code and its headers."""

    async def work(client, server):
        if api == "chat":
            await client.chat.completions.create(**chat(text), stream=stream)
        else:
            await client.responses.create(model="m", input=text, stream=stream)

    with pytest.raises(getattr(openai, kind)) as raised:
        gpt(work)
    assert (raised.value.status_code, raised.value.code) == (status, code)
    assert (raised.value.response.headers.get("retry-after") == "7") == (status == 429)


def test_openai_chat_broken_streams():
    """A cut stream has no finish reason; an error in the middle is raised."""

    async def work(client, server):
        cut = [chunk async for chunk in await client.chat.completions.create(**chat("cut"), stream=True)]
        with pytest.raises(openai.APIError, match="no room"):
            async for _ in await client.chat.completions.create(**chat("midway"), stream=True):
                pass
        return cut

    assert all(chunk.choices[0].finish_reason is None for chunk in gpt(work))


def test_openai_responses_whole_and_streamed_are_the_same():
    """Text, thoughts and calls: the response at the end of the stream is the document."""

    async def work(client, server):
        tools = [{"type": "function", "name": "weather", "parameters": TOOL, "strict": False}]
        for text in ("hello", "weather?"):
            whole = await client.responses.create(model="gpt-mock", input=text, tools=tools)
            async with client.responses.stream(model="gpt-mock", input=text, tools=tools) as stream:
                kinds = [event.type async for event in stream]
                streamed = await stream.get_final_response()
            assert kinds[0] == "response.created"
            assert kinds[-1] == "response.completed"
            assert streamed.output_text == whole.output_text
            assert [item.type for item in streamed.output] == [item.type for item in whole.output]
            assert streamed.usage == whole.usage
        return whole, server.requests

    whole, requests = gpt(work)
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call", "function_call"]
    assert whole.output[2].arguments == '{"city":"Bern"}'
    assert requests[0].tools[0].name == "weather"


def test_openai_responses_a_conversation_with_tools():
    """Items go back as they came, with the outputs of the calls."""

    async def work(client, server):
        first = await client.responses.create(model="m", input="weather?", instructions="be brief")
        items = [
            {"role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
            *(item.model_dump(exclude_none=True) for item in first.output),
            *(
                {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
                for item in first.output
                if item.type == "function_call"
            ),
        ]
        answer = await client.responses.create(model="m", input=items, max_output_tokens=500)
        cut = await client.responses.create(model="m", input="short", max_output_tokens=2)
        return answer, cut, server.requests

    answer, cut, requests = gpt(work)
    assert answer.output_text == "It is sunny\nsunny."
    assert requests[0].system == "be brief"
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_openai_responses_an_error_in_the_middle():
    """It arrives as `response.failed`."""

    async def work(client, server):
        return [event async for event in await client.responses.create(model="m", input="midway", stream=True)]

    last = gpt(work)[-1]
    assert last.type == "response.failed"
    assert last.response.error.message == "no room"

"""Vendors' own clients talk to an agent: whole answers and streams, several turns, system texts, errors, usage."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.server.http.support import ADA, OPERATOR, Served, echo, scripted, served

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def openai_client(parts: Served, token: str = ADA) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{parts.url}/v1", api_key=token, max_retries=0)


def anthropic_client(parts: Served, token: str = ADA) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=parts.url, api_key=token, max_retries=0)


def remembering() -> Any:
    """Answers with what was said first, to show that the model saw the history."""

    def reply(request: Any) -> str:
        return " | ".join(f"{message.role}: {message.text}" for message in request.messages)

    return scripted_by("echo", reply)


def scripted_by(name: str, reply: Any) -> Any:
    from lyra import Agent
    from lyra.models.sim import SimProvider

    return Agent(name, model=SimProvider(script=reply))


@served(remembering())
async def test_the_openai_client_asks_an_agent(parts: Served) -> None:
    """The model sees the whole conversation; the agent's name, with or without `agent/`, is the model."""
    async with openai_client(parts) as client:
        for model in ("echo", "agent/echo"):
            answer = await client.chat.completions.create(
                model=model,
                messages=[
                    {"role": "user", "content": "one"},
                    {"role": "assistant", "content": "two"},
                    {"role": "user", "content": [{"type": "text", "text": "three"}]},
                ],
                temperature=0.5,
                max_tokens=100,
            )
            assert answer.choices[0].message.content == "user: one | assistant: two | user: three"
            assert answer.choices[0].finish_reason == "stop"
            assert answer.usage is not None
            assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
        assert [model.id async for model in await client.models.list()] == ["agent/echo"]
        assert (await client.models.retrieve("agent/echo")).owned_by == "lyra"


@served(remembering())
async def test_a_system_text_stands_before_the_first_message(parts: Served) -> None:
    async with openai_client(parts) as client, anthropic_client(parts) as other:
        answer = await client.chat.completions.create(
            model="echo", messages=[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]
        )
        expected = "user: <instructions>\nBe kind.\n</instructions>\n\nhi"
        assert answer.choices[0].message.content == expected
        message = await other.messages.create(
            model="echo", max_tokens=10, system="Be kind.", messages=[{"role": "user", "content": "hi"}]
        )
        assert message.content[0].text == expected


@served(echo())
async def test_the_openai_client_reads_a_stream(parts: Served) -> None:
    async with openai_client(parts) as client:
        stream = await client.chat.completions.create(
            model="echo",
            messages=[{"role": "user", "content": "a b c"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "a b c"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0
    assert all(chunk.usage is None for chunk in chunks[:-1])


@served(remembering())
async def test_the_anthropic_client_asks_an_agent(parts: Served) -> None:
    async with anthropic_client(parts) as client:
        message = await client.messages.create(
            model="agent/echo",
            max_tokens=100,
            messages=[
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
                {"role": "user", "content": "three"},
            ],
        )
        assert message.content[0].text == "user: one | assistant: two | user: three"
        assert message.stop_reason == "end_turn"
        assert message.usage.input_tokens > 0
        assert [model.id async for model in await client.models.list()] == ["agent/echo"]


@served(echo())
async def test_the_anthropic_client_reads_a_stream(parts: Served) -> None:
    async with (
        anthropic_client(parts) as client,
        client.messages.stream(model="echo", max_tokens=10, messages=[{"role": "user", "content": "a b c"}]) as stream,
    ):
        assert [piece async for piece in stream.text_stream] == ["a ", "b ", "c"]
        final = await stream.get_final_message()
    assert final.content[0].text == "a b c"
    assert final.usage.output_tokens > 0


@served(scripted_by("echo", lambda request: str(request.messages[-1].content)))
async def test_images_reach_the_agent(parts: Served) -> None:
    async with openai_client(parts) as client, anthropic_client(parts) as other:
        url: Any = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
        answer = await client.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": [url, {"type": "text", "text": "what?"}]}]
        )
        assert PIXEL in (answer.choices[0].message.content or "")
        block: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
        message = await other.messages.create(
            model="echo", max_tokens=10, messages=[{"role": "user", "content": [block]}]
        )
        assert PIXEL in message.content[0].text


@served(scripted("echo", {"user": "break", "error": {"kind": "auth"}}, {"text": "fine"}, budget="$1"))
async def test_errors_are_those_of_the_vendor(parts: Served) -> None:
    """A wrong key, an unknown agent, tools, a failed model: the client raises its own class."""
    hello: Any = [{"role": "user", "content": "hi"}]
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": {}}}
    async with openai_client(parts) as client, openai_client(parts, "wrong") as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.chat.completions.create(model="echo", messages=hello)
        with pytest.raises(openai.NotFoundError, match="no agent 'nope'"):
            await client.chat.completions.create(model="nope", messages=hello)
        with pytest.raises(openai.BadRequestError, match="tools"):
            await client.chat.completions.create(model="echo", messages=hello, tools=[tool])
        with pytest.raises(openai.BadRequestError, match="at least one message"):
            await client.chat.completions.create(model="echo", messages=[])
        with pytest.raises(openai.APIStatusError) as failed:
            await client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "break"}])
        assert failed.value.status_code == 502
        with pytest.raises(openai.APIStatusError) as failed:
            await client.chat.completions.create(
                model="echo", messages=[{"role": "user", "content": "break"}], stream=True
            )
        assert failed.value.status_code == 502
    async with anthropic_client(parts) as other, anthropic_client(parts, "wrong") as unknown:
        with pytest.raises(anthropic.AuthenticationError):
            await unknown.messages.create(model="echo", max_tokens=1, messages=hello)
        with pytest.raises(anthropic.NotFoundError):
            await other.messages.create(model="nope", max_tokens=1, messages=hello)
        with pytest.raises(anthropic.BadRequestError) as refused:
            await other.messages.create(
                model="echo", max_tokens=1, messages=hello, tools=[{"name": "f", "input_schema": {"type": "object"}}]
            )
        assert refused.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]


def _user(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


_URL = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
_SVG = {"type": "image_url", "image_url": {"url": f"data:image/svg+xml;base64,{PIXEL}"}}
_BROKEN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,???"}}
_CALLED = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_TOOL_TURNS = [{"role": "assistant", "tool_calls": [_CALLED]}, {"role": "tool", "tool_call_id": "c", "content": "x"}]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("chat/completions", {"messages": [{"role": "assistant", "content": "x"}]}, "last message"),
    ("chat/completions", {"messages": _TOOL_TURNS}, "tool results"),
    ("chat/completions", _user(_URL), "an image with its data"),
    ("chat/completions", _user(_SVG), "images are"),
    ("chat/completions", _user(_BROKEN), "not base64"),
    ("chat/completions", _user({"type": "input_audio"}), "input_audio"),
    ("chat/completions", {"n": 2}, "n from a client"),
    ("chat/completions", {"functions": [{"name": "f"}]}, "tools"),
    ("chat/completions", {"tools": [{"type": "web_search"}]}, "tool"),
    ("chat/completions", {"response_format": {"type": "json_object"}}, "json_object"),
    ("chat/completions", {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "type that"),
    ("chat/completions", {"stream": "yes"}, "stream"),
    ("messages", _user({"type": "tool_result", "tool_use_id": "t", "content": "x"}), "tool results"),
    ("messages", _user({"type": "document", "source": {}}), "document"),
    ("messages", _user({"type": "thinking", "thinking": "hm"}), "a part of a message"),
    ("messages", {"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tool"),
]


@served(echo())
async def test_what_an_agent_cannot_take_is_refused_by_name(parts: Served) -> None:
    """No tools, results, forms of answers or images of elsewhere reach an agent; other wishes are left out."""
    hello = {"model": "echo", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    for path, change, word in REFUSED:
        refused = await parts.ada.post(f"/v1/{path}", json={**hello, **change})
        assert (refused.status_code, word in refused.text) == (400, True), (path, change, refused.text)
    for path in ("chat/completions", "messages"):
        taken = await parts.ada.post(f"/v1/{path}", json={**hello, "temperature": 1, "a_field_of_tomorrow": {"x": 1}})
        assert taken.status_code == 200, taken.text
    assert parts.kernel.live == 0


@served(echo())
async def test_each_request_leaves_no_live_process_and_belongs_to_its_user(parts: Served) -> None:
    hello: Any = [{"role": "user", "content": "hi"}]
    async with openai_client(parts) as client, openai_client(parts, OPERATOR) as operator:
        await client.chat.completions.create(model="echo", messages=hello)
        await operator.chat.completions.create(model="echo", messages=hello, extra_headers={"x-user-id": "bob"})
    assert parts.kernel.live == 0
    for user in (parts.ada, parts.bob):
        assert (await user.get("/api/processes")).json()["total"] == 1


@served(scripted("echo", {"text": "one two three", "first_s": 60}))
async def test_an_answer_is_given_up_when_its_client_leaves(parts: Served) -> None:
    """Whole or as a stream: the process of the request ends, and with it what the answer would cost."""
    body: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
    for stream in (False, True):
        with pytest.raises(httpx.ReadTimeout):
            await parts.ada.post("/v1/chat/completions", json={**body, "stream": stream}, timeout=0.25)
        while parts.kernel.live:
            await asyncio.sleep(0.01)

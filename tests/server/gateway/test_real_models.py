"""The gateway on real models: vendors' own clients get thoughts, calls and figures through it, and a key is charged
the published price."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx
import openai
import pytest

from lyra import Kernel
from lyra.core.address import Address
from lyra.server.http.face import HttpFace
from lyra.server.identity import TokenTable
from lyra.server.settings import ServeSettings
from lyra.server.site import site
from tests.real_models import PIXEL, VENDORS, Answer, Call, FakeVendor, Vendor
from tests.server.http.support import OPERATOR, TOKENS, client, in_loop

CALL = Call("add", {"a": 2, "b": 3})
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[str, str, httpx.AsyncClient]]:
    """The gateway's address, a key, and the operator's client; providers are those of the environment."""
    async with Kernel() as kernel:
        settings = ServeSettings(tokens=TokenTable(TOKENS), http=Address("127.0.0.1", 0), gateway=True)
        face = HttpFace(kernel, settings, webhook_key=b"k" * 32, endpoints=site(gateway=True))
        address = await face.start()
        try:
            async with client(address, OPERATOR) as operator:
                made = await operator.post("/api/keys", json={"name": "ci", "budget": "$1"})
                assert made.status_code == 201, made.text
                yield f"http://{address}", made.json()["key"], operator
        finally:
            await face.stop(5.0)
            await kernel.close(drain_s=0.3)


async def spent(operator: httpx.AsyncClient) -> dict[str, Any]:
    view: dict[str, Any] = (await operator.get("/api/keys/ci")).json()
    return view


def test_openais_client_on_every_vendor(vendor: Vendor, provider: FakeVendor) -> None:
    """Its chat completions, whole and streamed, reach each vendor in that vendor's format: the picture, the call, the
    result; the answer's usage is the vendor's."""
    answers = (Answer("Let me add.", calls=(CALL,)), Answer("It is 5."))
    provider.say(*answers)
    tools: Any = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]
    url = f"data:image/png;base64,{PIXEL}"
    parts = [{"type": "text", "text": "2 + 3?"}, {"type": "image_url", "image_url": {"url": url}}]

    async def main() -> None:
        async with (
            serving() as (address, key, operator),
            openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0) as ours,
        ):
            messages: Any = [{"role": "user", "content": parts}]
            first = await ours.chat.completions.create(
                model=vendor.model, messages=messages, tools=tools, max_completion_tokens=2_000
            )
            message = first.choices[0].message
            assert message.tool_calls is not None
            (called,) = message.tool_calls
            assert called.type == "function"
            assert (called.function.name, json.loads(called.function.arguments)) == CALL
            assert first.usage is not None
            assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (1_000, 200)
            assert first.usage.prompt_tokens_details is not None
            assert first.usage.prompt_tokens_details.cached_tokens == 600
            messages += [
                message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": called.id, "content": "5"},
            ]
            stream = await ours.chat.completions.create(
                model=vendor.model,
                messages=messages,
                tools=tools,
                max_completion_tokens=2_000,
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = [chunk async for chunk in stream]
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert text == "It is 5."
            assert chunks[-1].usage is not None
            assert chunks[-1].usage.prompt_tokens == 1_000
            view = await spent(operator)
            assert view["spent_micro_usd"] / 1_000_000 == vendor.cost_usd(*answers)
            assert (view["input_tokens"], view["output_tokens"]) == (2_000, 400)

    in_loop(main())
    assert [request.images for request in provider.requests] == [[("image/png", PIXEL)]] * 2
    assert provider.requests[1].calls == [CALL]
    assert provider.requests[1].results == ["5"]


def test_anthropics_client_on_every_vendor(vendor: Vendor, provider: FakeVendor) -> None:
    """Its messages reach each vendor; thoughts come back as thoughts and go on with their signature."""
    answers = (Answer(thinking="Sum.", calls=(CALL,)), Answer("It is 5."))
    provider.say(*answers)
    tools: Any = [{"name": "add", "input_schema": SCHEMA}]

    async def main() -> None:
        async with (
            serving() as (address, key, operator),
            anthropic.AsyncAnthropic(base_url=address, api_key=key, max_retries=0) as ours,
        ):
            model = vendor.bare_model if vendor.name == "anthropic" else vendor.model
            thinking: Any = {"type": "adaptive"}
            messages: Any = [{"role": "user", "content": "2 + 3?"}]
            first = await ours.messages.create(
                model=model, max_tokens=4_000, messages=messages, tools=tools, thinking=thinking
            )
            thoughts = [block for block in first.content if block.type == "thinking"]
            assert [block.thinking for block in thoughts] == (["Sum."] if vendor.thinks_aloud else [])
            (called,) = [block for block in first.content if block.type == "tool_use"]
            assert (called.name, called.input) == CALL
            usage = first.usage
            assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (400, 600, 200)
            result = {"type": "tool_result", "tool_use_id": called.id, "content": "5"}
            messages += [
                {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
                {"role": "user", "content": [result]},
            ]
            async with ours.messages.stream(
                model=model, max_tokens=4_000, messages=messages, tools=tools, thinking=thinking
            ) as stream:
                final = await stream.get_final_message()
            assert [block.text for block in final.content if block.type == "text"] == ["It is 5."]
            assert (await spent(operator))["spent_micro_usd"] / 1_000_000 == vendor.cost_usd(*answers)

    in_loop(main())
    assert provider.requests[1].results == ["5"]
    assert provider.requests[1].signatures == ([answers[0].signature] if vendor.thinks_aloud else [])


def test_a_record_counts_cached_tokens_once(vendor: Vendor, provider: FakeVendor) -> None:
    """The Event of a call has all tokens that went in, and those of the cache among them."""
    provider.say(Answer("Hello."))
    seen: list[Any] = []

    async def main() -> None:
        async with Kernel() as kernel:
            kernel.on_event(lambda event: seen.append(event.data), kinds=("model.called",))
            settings = ServeSettings(tokens=TokenTable(TOKENS), http=Address("127.0.0.1", 0), gateway=True)
            face = HttpFace(kernel, settings, webhook_key=b"k" * 32, endpoints=site(gateway=True))
            address = await face.start()
            async with client(address, OPERATOR) as operator:
                key = (await operator.post("/api/keys", json={"name": "ci"})).json()["key"]
            async with client(address, key) as caller:
                body = {"model": vendor.model, "messages": [{"role": "user", "content": "Hi"}]}
                assert (await caller.post("/v1/chat/completions", json=body)).status_code == 200
            await face.stop(5.0)

    in_loop(main())
    (record,) = seen
    assert (record["input_tokens"], record["cache_read_tokens"], record["output_tokens"]) == (1_000, 600, 200)
    assert record["cost_usd"] == vendor.cost_usd(Answer())


@pytest.mark.parametrize("vendor", [VENDORS[0]], ids=["anthropic"])
def test_a_model_without_a_price_needs_a_key_without_a_budget(vendor: Vendor, provider: FakeVendor) -> None:
    """A key with a budget is refused in words; nothing is asked."""

    async def main() -> None:
        async with serving() as (address, key, _), httpx.AsyncClient(base_url=address) as caller:
            body = {"model": "anthropic/nova", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
            answer = await caller.post("/v1/messages", json=body, headers={"x-api-key": key})
            assert answer.status_code in (400, 402, 403), answer.text
            assert "price" in answer.text

    in_loop(main())
    assert provider.requests == []

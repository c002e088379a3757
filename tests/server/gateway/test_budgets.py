"""The budget of a key: never overrun, by any number of calls at once, cut off or not."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import httpx
import pytest

from lyra.models.pricing import price_of
from lyra.models.usage import TokenUsage
from tests.server.gateway.support import (
    SSE,
    Received,
    Reply,
    ServedGateway,
    chat_answer,
    chat_stream,
    serving_gateway,
)
from tests.server.http.support import in_loop

MODEL = "openai/gpt-4o-mini"
PATH = "/v1/chat/completions"
PRICE = price_of(MODEL)
assert PRICE is not None


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "stream": True, **fields}


def dearest(received: Received) -> Reply:
    """The most that a provider may charge for a request: a token for each byte, and as long an answer as it allows."""
    tokens_in, tokens_out = len(received.body), received.data["max_completion_tokens"]
    return Reply(chat_stream("word ", tokens_in=tokens_in, tokens_out=tokens_out), headers=SSE)


def cost_of(received: Received) -> int:
    assert PRICE is not None
    return PRICE.cost(TokenUsage(len(received.body), received.data["max_completion_tokens"]))


async def ask(served: ServedGateway, client: httpx.AsyncClient, **fields: Any) -> int:
    answer = await client.post(PATH, json=body(**fields))
    assert served.gateway.keys.all()[0].process.budget.within()
    return answer.status_code


@pytest.mark.slow
def test_200_streams_at_once_cannot_overrun_a_budget() -> None:
    """Each stream costs the most that it can; together they spend what the budget pays and not a micro-dollar more."""

    async def main() -> None:
        async with serving_gateway(dearest) as served:
            key = await served.key(budget="$0.05")
            async with served.client(key) as client:
                statuses = await asyncio.gather(*(ask(served, client, max_completion_tokens=600) for _ in range(200)))
                assert set(statuses) == {200, 402}
                while await ask(served, client, max_completion_tokens=600) == 200:
                    pass
            view = await served.view()
            assert view["spent_micro_usd"] == sum(cost_of(received) for received in served.provider.received)
            assert view["spent_micro_usd"] <= 50_000
            assert view["remaining_micro_usd"] < 200  # the last call had its answer cut to what was left
            assert view["calls"] == len(served.provider.received)

    in_loop(main())


def test_an_answer_is_bounded_by_what_is_left() -> None:
    """Without a bound in the request, or with one that the budget does not pay, the provider is told a lower one."""

    async def main() -> None:
        async with serving_gateway(dearest) as served:
            key = await served.key(budget="$0.001")
            async with served.client(key) as client:
                answer = await client.post(PATH, json=body())
                assert answer.status_code == 200
            bound = served.provider.received[0].data["max_completion_tokens"]
            assert answer.headers["x-lyra-max-tokens"] == str(bound)
            assert 1_000 < bound < 1_667  # $0.001 pays 1666 tokens of output
            assert (await served.view())["remaining_micro_usd"] < 40  # the rest was set aside for the request's bytes

    in_loop(main())


def test_a_stream_that_the_client_leaves_is_charged_by_estimate_once() -> None:
    """A client that leaves cuts the provider's stream off; what came is paid for, and the rest is free again."""

    async def main() -> None:
        gate = asyncio.Event()
        async with serving_gateway(Reply(chat_stream("a few words "), headers=SSE, gate=gate)) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                async with client.stream("POST", PATH, json=body(max_completion_tokens=500)) as stream:
                    await anext(stream.aiter_bytes())
                    held = await served.view()
                    assert held["reserved_micro_usd"] > held["spent_micro_usd"] == 0
                while (view := await served.view())["reserved_micro_usd"]:
                    await asyncio.sleep(0.01)
                assert 0 < view["spent_micro_usd"] < held["reserved_micro_usd"]
                assert view["calls"] == 1
            gate.set()

    in_loop(main())


def test_a_revoked_key_ends_its_streams() -> None:
    """Revoking cuts off what is in flight, and its cost is kept."""

    async def main() -> None:
        gate = asyncio.Event()
        async with serving_gateway(Reply(chat_stream("word "), headers=SSE, gate=gate)) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                stream = await client.send(client.build_request("POST", PATH, json=body()), stream=True)
                pieces = stream.aiter_bytes()
                await anext(pieces)
                assert (await served.operator.delete("/api/keys/ci")).status_code == 200
                rest = b""
                with contextlib.suppress(httpx.HTTPError):
                    async for piece in pieces:
                        rest += piece
                assert b"[DONE]" not in rest
                assert served.kernel.budget.used("usd") > 0
                await stream.aclose()
            gate.set()

    in_loop(main())


def test_what_no_budget_can_hold_is_refused() -> None:
    """A model without a price, and requests whose cost has no bound, are refused for a key with a budget alone."""
    unbounded: list[dict[str, Any]] = [
        {"model": "other/private-model"},
        {"web_search_options": {"search_context_size": "high"}},
        {"service_tier": "priority"},
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}]},
    ]

    async def main() -> None:
        async with serving_gateway(Reply((chat_answer(),))) as served:
            limited, free = await served.key(budget="$5"), await served.key("free")
            for fields in unbounded:
                async with served.client(limited) as client:
                    answer = await client.post(PATH, json=body(stream=False, **fields))
                    assert answer.status_code == 400, answer.text
                    assert "budget" in answer.json()["error"]["message"]
                async with served.client(free) as client:
                    answer = await client.post(PATH, json=body(stream=False, **fields))
                    assert answer.status_code == 200, answer.text

    in_loop(main())


def test_images_count_as_images_and_not_as_text() -> None:
    """A large image does not use up the budget by its bytes; text that only looks like one does."""

    async def main() -> None:
        data = "A" * 400_000
        url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        image = [{"role": "user", "content": [url]}]
        text = [{"role": "user", "content": json.dumps(url)}]
        arguments = {"name": "f", "arguments": json.dumps(url)}
        call = [
            *image,
            {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": arguments, "content": 1}]},
        ]
        async with serving_gateway() as served:
            key = await served.key(budget="$0.01")  # pays 66 thousand tokens of input
            async with served.client(key) as client:
                statuses = [
                    (await client.post(PATH, json=body(stream=False, messages=messages))).status_code
                    for messages in (image, text, call)
                ]
        assert statuses == [200, 402, 402]

    in_loop(main())

"""The budget of a key: never overrun, by any number of calls at once, cut off or not."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import httpx
import pytest

from lyra.models.pricing import price_of
from lyra.models.stream import TokenUsage
from lyra.server.gateway.relay import AnswerMeter
from lyra.server.gateway.request import FORMATS
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
def test_streams_at_once_cannot_overrun_a_budget() -> None:
    """Each stream costs the most that it can; together they spend what the budget pays and not a micro-dollar more."""

    async def main() -> None:
        async with serving_gateway(dearest) as served:
            key = await served.key(budget="$0.01")
            async with served.client(key) as client:
                statuses = await asyncio.gather(*(ask(served, client, max_completion_tokens=600) for _ in range(40)))
                assert set(statuses) == {200, 429}  # the calls that got through hold the money
                while await ask(served, client, max_completion_tokens=600) == 200:
                    pass
            view = await served.view()
            assert view["spent_micro_usd"] == sum(cost_of(received) for received in served.provider.received)
            assert view["spent_micro_usd"] <= 10_000
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


def test_a_stream_that_the_client_leaves_is_charged_its_reservation_once() -> None:
    """A client that leaves cuts the provider's stream off. What the provider bills is not known then, so the most that
    it can be is charged, and nothing stays reserved."""

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
                assert view["spent_micro_usd"] == held["reserved_micro_usd"]
                assert view["calls"] == 1
            gate.set()

    in_loop(main())


def test_a_stream_that_is_left_counts_what_came_where_nothing_is_limited() -> None:
    """A key without a budget has no reservation that bounds a call: its record says what the client was shown."""

    async def main() -> None:
        gate = asyncio.Event()
        first, second, *rest = chat_stream("some words that were shown " * 20)
        async with serving_gateway(Reply((first + second, *rest), headers=SSE, gate=gate)) as served:
            key = await served.key()
            async with served.client(key) as client:
                async with client.stream("POST", PATH, json=body(max_completion_tokens=500)) as stream:
                    await anext(stream.aiter_bytes())
                while not (view := await served.view())["calls"]:
                    await asyncio.sleep(0.01)
                assert view["output_tokens"] > 50
                assert view["spent_micro_usd"] > 30
            gate.set()

    in_loop(main())


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_without_usage_is_charged_its_reservation(stream: bool) -> None:
    """A provider that tells no usage may bill the most that the request allows."""

    async def main() -> None:
        pieces = (*chat_stream("word ")[:-2], b"data: [DONE]\n\n") if stream else (b'{"choices": []}',)
        async with serving_gateway(Reply(pieces, headers=SSE if stream else {})) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                answer = await client.post(PATH, json=body(stream=stream, max_completion_tokens=1_000))
                assert answer.status_code == 200
            assert 600 < (await served.view())["spent_micro_usd"] < 700  # 1000 tokens out, and the request's bytes

    in_loop(main())


def test_each_of_several_answers_is_reserved() -> None:
    """`n` answers cost n times the bound of one; where the money does not pay for that, each gets a lower bound."""

    async def main() -> None:
        async with serving_gateway(Reply((b"{}",))) as served:  # no usage: the reservation is charged
            key, poor = await served.key(budget="$1"), await served.key("poor", budget="$0.0012")
            for secret in (key, poor):
                async with served.client(secret) as client:
                    answer = await client.post(PATH, json=body(stream=False, n=4, max_completion_tokens=1_000))
                    assert answer.status_code == 200
            assert 2_400 < (await served.view())["spent_micro_usd"] < 2_500
            assert 300 < served.provider.received[1].data["max_completion_tokens"] < 500

    in_loop(main())


def test_the_rest_of_a_whole_answer_is_waited_for_when_its_client_leaves() -> None:
    """The provider bills it: its usage is read, so that the key pays that and not its reservation."""

    async def main() -> None:
        gate = asyncio.Event()
        answer = chat_answer()
        async with serving_gateway(Reply((answer[:10], answer[10:]), gate=gate)) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                asking = asyncio.create_task(client.post(PATH, json=body(stream=False, max_completion_tokens=1_000)))
                while not served.provider.received:
                    await asyncio.sleep(0.01)
                asking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asking
                await asyncio.sleep(0.3)  # the server notices it, or has the rest already
                gate.set()
            while (view := await served.view())["reserved_micro_usd"]:
                await asyncio.sleep(0.01)
            assert (view["calls"], view["spent_micro_usd"]) == (1, 5)

    in_loop(main())


def test_a_stream_whose_last_event_has_come_is_counted_whatever_follows() -> None:
    """Cut off then, it is charged what the provider told; before, what was reserved."""
    pieces = chat_stream("word ", tokens_in=10, tokens_out=5)
    meter = AnswerMeter(FORMATS["chat"], stream=True)
    for piece in pieces[:-1]:
        meter.feed(piece)
    assert (meter.done, meter.tokens(100, is_whole=False).estimated) == (False, True)
    meter.feed(pieces[-1])
    assert (meter.done, meter.tokens(100, is_whole=False)) == (True, TokenUsage(10, 5))


def test_a_provider_that_tells_too_much_cannot_pass_the_budget() -> None:
    """A usage above the bounds of the request is charged up to what was reserved."""

    async def main() -> None:
        reply = Reply((chat_answer(tokens_in=10**7, tokens_out=10**7),))
        async with serving_gateway(reply) as served:
            key = await served.key(budget="$0.001")
            async with served.client(key) as client:
                answer = await client.post(PATH, json=body(stream=False, max_completion_tokens=1_000))
                assert answer.status_code == 200
            assert 600 < (await served.view())["spent_micro_usd"] <= 1_000
            assert served.gateway.keys.all()[0].process.budget.within()

    in_loop(main())


@pytest.mark.parametrize(("reply", "tries", "is_charged"), [
    (Reply((), cuts=True), 1, True),  # the connection breaks after the request was read
    (Reply((b"{}",), status=504), 1, True),  # a proxy gave up waiting for the provider
    (Reply((b"{}",), status=302), 1, True),  # an answer of a kind, and none to pass on
    (Reply((b"{}",), status=503), 2, False),  # the provider refused
])  # fmt: skip
def test_a_try_that_may_be_billed_is_charged_and_not_made_again(reply: Reply, tries: int, is_charged: bool) -> None:
    """One reservation pays for one try: a second is made only where the first is surely free."""

    async def main() -> None:
        async with serving_gateway(reply) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                answer = await client.post(PATH, json=body(stream=False, max_completion_tokens=1_000))
                assert answer.status_code >= 500
            view = await served.view()
            assert len(served.provider.received) == tries
            assert (view["spent_micro_usd"] > 600, view["reserved_micro_usd"]) == (is_charged, 0)

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


def test_text_that_a_tokenizer_writes_out_is_bounded_by_what_it_becomes() -> None:
    """A character that stands for a whole phrase is reserved as the phrase, also where it comes as an escape."""

    async def main() -> None:
        async with serving_gateway(Reply((b"{}",))) as served:  # no usage: the reservation is charged
            for number, sign in enumerate(("\ufdfa", "\\ufdfa")):
                key = await served.key(f"k{number}", budget="$1")
                async with served.client(key) as client:
                    text = json.dumps(body(stream=False, max_completion_tokens=1), ensure_ascii=False)
                    content = text.replace("hello", sign * 10_000).encode()
                    assert (await client.post(PATH, content=content)).status_code == 200
                assert (await served.view(f"k{number}"))["input_tokens"] > 330_000

    in_loop(main())


def test_two_bounds_of_an_answer_are_both_lowered() -> None:
    """A provider may read either member: none of them is above what was reserved."""

    async def main() -> None:
        async with serving_gateway(dearest) as served:
            key = await served.key(budget="$0.001")
            async with served.client(key) as client:
                answer = await client.post(PATH, json=body(max_tokens=90_000, max_completion_tokens=10))
                assert answer.status_code == 200
            sent = served.provider.received[0].data
            assert sent["max_tokens"] == sent["max_completion_tokens"] < 1_667

    in_loop(main())


def test_the_header_of_the_bound_says_what_the_provider_was_told() -> None:
    """Also where calls at once take money from each other between the first look at the budget and the reservation."""

    async def main() -> None:
        async with serving_gateway(dearest) as served:
            key = await served.key(budget="$0.015")  # pays for one and a half of the longest answers
            async with served.client(key) as client:
                answers = await asyncio.gather(*(client.post(PATH, json=body(seed=number)) for number in range(8)))
            told = {
                received.data["seed"]: received.data["max_completion_tokens"] for received in served.provider.received
            }
            said = {
                number: int(answer.headers["x-lyra-max-tokens"])
                for number, answer in enumerate(answers)
                if answer.status_code == 200
            }
            assert said == told

    in_loop(main())

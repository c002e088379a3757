"""The cache of a key: the same request gets the same answer, costs nothing the second time, and says so."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.server.gateway.keys import KeySettings
from lyra.server.gateway.relay import ANSWER_BYTES_MAX, AnswerCache
from lyra.testing import SimClock
from tests.server.gateway.support import SSE, Received, Reply, chat_answer, chat_stream, serving_gateway
from tests.server.http.support import in_loop

PATH = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "model": "openai/gpt-4o-mini",
    "messages": [{"role": "user", "content": "hello"}],
    "max_completion_tokens": 50,
}


def reply(received: Received) -> Reply:
    if received.data.get("stream"):
        return Reply(chat_stream("one ", "two"), headers=SSE)
    return Reply((chat_answer(),), headers={"x-request-id": "r"})


def test_the_same_request_is_answered_from_the_cache() -> None:
    """Byte for byte the same answer, whole and streamed, without a call and without a cost."""

    async def main() -> None:
        async with serving_gateway(reply) as served:
            key = await served.key(cache_s=60, budget="$1")
            async with served.client(key) as client:
                for body in (BODY, {**BODY, "stream": True}):
                    first, second = [await client.post(PATH, json=body) for _ in range(2)]
                    assert first.content == second.content
                    assert first.headers["content-type"] == second.headers["content-type"]
                    assert (first.headers["x-lyra-cache"], second.headers["x-lyra-cache"]) == ("miss", "hit")
                assert (await served.view())["calls"] == 2
                again = await client.post(PATH, json=BODY, headers={"cache-control": "no-cache"})
                assert again.headers["x-lyra-cache"] == "miss"
                other = await client.post(PATH, json={**BODY, "seed": 1})
                assert other.headers["x-lyra-cache"] == "miss"
            assert len(served.provider.received) == 4

    in_loop(main())


def test_a_request_for_beta_features_is_another_one() -> None:
    """The query is part of what is asked."""

    async def main() -> None:
        async with serving_gateway(reply) as served:
            key = await served.key(cache_s=60)
            body = {"model": "anthropic/claude-sonnet-4-5", "messages": BODY["messages"], "max_tokens": 50}
            async with served.client(key) as client:
                answers = [await client.post(f"/v1/messages{query}", json=body) for query in ("", "?beta=true", "")]
            assert [answer.headers["x-lyra-cache"] for answer in answers] == ["miss", "miss", "hit"]
            assert [received.path for received in served.provider.received] == [
                "/v1/messages",
                "/v1/messages?beta=true",
            ]

    in_loop(main())


def test_without_the_wish_nothing_is_kept() -> None:
    """A key without a cache asks each time, and a cached answer belongs to its key alone."""

    async def main() -> None:
        async with serving_gateway(reply) as served:
            keys = [await served.key("plain"), await served.key("a", cache_s=60), await served.key("b", cache_s=60)]
            for key in keys:
                async with served.client(key) as client:
                    answer = await client.post(PATH, json=BODY)
                    assert answer.headers.get("x-lyra-cache") in (None, "miss")
            assert len(served.provider.received) == 3

    in_loop(main())


def test_failures_are_not_kept() -> None:
    """The next request is made again."""

    async def main() -> None:
        async with serving_gateway(Reply((b"{}",), status=400)) as served:
            key = await served.key(cache_s=60)
            async with served.client(key) as client:
                assert (await client.post(PATH, json=BODY)).status_code == 400
                served.provider.reply = Reply(chat_stream("one ")[:2], headers=SSE, cuts=True)
                await client.post(PATH, json={**BODY, "stream": True})
                served.provider.reply = reply
                for body in (BODY, {**BODY, "stream": True}):
                    answer = await client.post(PATH, json=body)
                    assert (answer.status_code, answer.headers["x-lyra-cache"]) == (200, "miss")

    in_loop(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "the model is down", "code": 502}}',
        b'{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}',
        b'{"id": "r", "status": "failed", "error": {"code": "server_error"}, "usage": {"input_tokens": 9}}',
        b"<html>a proxy's page</html>",
    ],
)
def test_an_error_with_the_status_of_a_success_is_not_kept(body: bytes, *, stream: bool) -> None:
    """It passes as it came and is charged its reservation, as what the provider bills is not known; the next request
    asks anew. The record does not call it a success."""

    async def main() -> None:
        async with serving_gateway(Reply((body,))) as served:
            key = await served.key(cache_s=60, budget="$1")
            asked = {**BODY, "stream": stream}
            async with served.client(key) as client:
                failed = await client.post(PATH, json=asked)
                assert (failed.status_code, failed.content) == (200, body)
                charged = (await served.view())["spent_micro_usd"]
                served.provider.reply = reply
                answer = await client.post(PATH, json=asked)
                assert (answer.status_code, answer.headers["x-lyra-cache"]) == (200, "miss")
                assert answer.content != body
            assert charged > 10 * ((await served.view())["spent_micro_usd"] - charged)
            metrics = (await served.operator.get("/metrics")).text
            for status in ("bad_response", "ok"):
                assert f'llm_requests_total{{model="openai/gpt-4o-mini",status="{status}"}} 1.0' in metrics

    in_loop(main())


def test_a_stream_that_cannot_be_read_is_not_kept() -> None:
    """It passes as it came, and the next request asks anew."""
    pieces = (b"data: {not JSON}\n\n", b"data: [DONE]\n\n")

    async def main() -> None:
        async with serving_gateway(Reply(pieces, headers=SSE)) as served:
            key = await served.key(cache_s=60)
            async with served.client(key) as client:
                answers = [await client.post(PATH, json={**BODY, "stream": True}) for _ in range(2)]
            assert [answer.headers["x-lyra-cache"] for answer in answers] == ["miss", "miss"]
            assert answers[0].content.startswith(pieces[0])

    in_loop(main())


def test_an_answer_with_an_empty_error_is_kept() -> None:
    """The Responses API writes `"error": null` into each answer."""
    whole = b'{"error": null, "usage": {"input_tokens": 10, "output_tokens": 5}}'

    async def main() -> None:
        async with serving_gateway(Reply((whole,))) as served:
            key = await served.key(cache_s=60)
            async with served.client(key) as client:
                answers = [
                    await client.post("/v1/responses", json={"model": "openai/gpt-4o-mini", "input": "hello"})
                    for _ in range(2)
                ]
            assert [answer.headers["x-lyra-cache"] for answer in answers] == ["miss", "hit"]

    in_loop(main())


def settings(cache_s: float) -> KeySettings:
    return KeySettings(id="k", name="k", hash="", created_at=0.0, cache_s=cache_s)


def test_an_answer_is_forgotten_in_time_and_when_there_are_too_many() -> None:
    """By the key's seconds, and by the bytes of all answers: those that were not used for longest go first."""
    clock = SimClock(0.0)
    cache = AnswerCache(clock)
    slots = [cache.slot(settings(10.0), "chat", b"%d" % number, {}) for number in range(70)]
    assert cache.slot(settings(0.0), "chat", b"", {}) is None
    for slot in slots:
        assert slot is not None
        slot.keep(b"x" * ANSWER_BYTES_MAX, stream=False)
    assert [slot is not None and slot.answer() is not None for slot in slots] == [False] * 6 + [True] * 64
    last = slots[-1]
    assert last is not None
    last.keep(b"x" * (ANSWER_BYTES_MAX + 1), stream=False)  # too large: the old one stays
    assert last.answer() is not None
    clock.advance(10.0)
    assert last.answer() is None

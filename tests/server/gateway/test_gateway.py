"""The gateway over real sockets: keys, bytes, budgets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.server.gateway.support import OPENAI_KEY, SSE, Reply, chat_answer, chat_stream, serving_gateway
from tests.server.http.support import in_loop

BODY: dict[str, Any] = {
    "model": "openai/gpt-4o-mini",
    "messages": [{"role": "user", "content": "hello"}],
    "max_completion_tokens": 50,
}


def test_a_whole_answer_passes_byte_for_byte() -> None:
    """The provider gets the client's bytes with its own model's name and key; the client gets the provider's bytes."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key(budget="$5")
            sent = json.dumps({**BODY, "odd": {"a": [1.50, None]}}, indent=2).encode()
            async with served.client(key) as client:
                answer = await client.post("/v1/chat/completions", content=sent)
            assert (answer.status_code, answer.content) == (200, chat_answer())
            received = served.provider.received[0]
            assert received.path == "/v1/chat/completions"
            assert received.headers["authorization"] == f"Bearer {OPENAI_KEY}"
            assert received.data == {**BODY, "odd": {"a": [1.50, None]}, "model": "gpt-4o-mini"}
            assert b'{\n    "a": [\n      1.5,' in received.body  # values as they came, with their spaces
            assert key not in str(received.headers)
            view = await served.view()
            assert (view["calls"], view["input_tokens"], view["output_tokens"]) == (1, 10, 5)
            assert (view["spent_micro_usd"], view["reserved_micro_usd"]) == (5, 0)  # 10 · 0.15 + 5 · 0.6 = 4.5

    in_loop(main())


def test_a_stream_passes_byte_for_byte_and_is_settled_by_its_usage() -> None:
    """A client that asks for the usage gets each byte of the stream."""

    async def main() -> None:
        pieces = chat_stream("one ", "two", tokens_in=100, tokens_out=50)
        async with serving_gateway(Reply(pieces, headers=SSE)) as served:
            key = await served.key(budget="$5")
            body = {**BODY, "stream": True, "stream_options": {"include_usage": True}}
            async with served.client(key) as client:
                answer = await client.post("/v1/chat/completions", json=body)
            assert answer.content == b"".join(pieces)
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert (await served.view())["spent_micro_usd"] == 45

    in_loop(main())


def test_a_key_is_refused_where_it_may_not_be_used() -> None:
    """A wrong or revoked key is 401, a model that it may not call 403, and a key opens nothing but the gateway."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key(models=["openai/gpt-4o*"])
            async with served.client(key) as client, served.client("sk-lyra-" + "0" * 64) as stranger:
                assert (await stranger.post("/v1/chat/completions", json=BODY)).status_code == 401
                refused = await client.post("/v1/chat/completions", json={**BODY, "model": "openai/gpt-5"})
                assert refused.status_code == 403
                assert refused.json()["error"]["type"] == "permission_error"
                assert (await client.get("/api/keys")).status_code == 401
                assert (await client.post("/v1/chat/completions", json=BODY)).status_code == 200
                assert (await served.operator.delete("/api/keys/ci")).status_code == 200
                assert (await client.post("/v1/chat/completions", json=BODY)).status_code == 401

    in_loop(main())


def test_over_budget_is_402_in_the_vendors_shape() -> None:
    """A call that the budget does not pay for never reaches the provider."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key(budget="$0.00001")
            async with served.client(key) as client:
                answer = await client.post("/v1/chat/completions", json=BODY)
                assert answer.status_code == 402
                assert answer.json()["error"]["type"] == "insufficient_quota"
            assert served.provider.received == []

    in_loop(main())


def test_keys_made_at_once_share_no_name() -> None:
    """Of several requests for one name a single one makes a key: revoking the name leaves none in force."""

    async def main() -> None:
        async with serving_gateway() as served:
            made = [served.operator.post("/api/keys", json={"name": "ci"}) for _ in range(5)]
            answers = await asyncio.gather(*made)
            assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409, 409]
            assert len((await served.operator.get("/api/keys")).json()["keys"]) == 1

    in_loop(main())


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_events_pass_as_they_come_whatever_their_line_ends(end: bytes) -> None:
    """The first event is there before the provider goes on, and the usage that the client did not ask for is not."""

    async def main() -> None:
        gate = asyncio.Event()
        pieces = tuple(piece.replace(b"\n\n", end) for piece in chat_stream("one ", "two"))
        async with serving_gateway(Reply(pieces, headers=SSE, gate=gate)) as served:
            key = await served.key(budget="$1")
            async with (
                served.client(key) as client,
                client.stream("POST", "/v1/chat/completions", json={**BODY, "stream": True}) as stream,
            ):
                chunks = stream.aiter_bytes()
                first = await anext(chunks)
                assert first == pieces[0]
                gate.set()
                rest = b"".join([chunk async for chunk in chunks])
            assert first + rest == b"".join(piece for piece in pieces if b'"usage"' not in piece)
            assert (await served.view())["input_tokens"] == 10

    in_loop(main())

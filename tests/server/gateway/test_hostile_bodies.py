"""Bodies and headers that no honest client sends: each gets a provider's answer or a refusal, never a 5xx of ours."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from tests.cases import first
from tests.server.gateway.support import serving_gateway
from tests.server.http.support import in_loop

PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/messages/count_tokens")
CHAT: dict[str, Any] = {
    "model": "openai/gpt-4o-mini",
    "messages": [{"role": "user", "content": "hello"}],
    "max_completion_tokens": 50,
}


@pytest.mark.parametrize(
    "value", ["a\r\nx-injected: 1", "a\nx-injected: 1", "\x00", "x" * 20_000, "ä" * 10, "\t", "\x7f"]
)
def test_a_forwarded_header_cannot_add_another(value: str) -> None:
    """A value with a line break never reaches the provider as two headers, whoever lets it through."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key()
            reader, writer = await asyncio.open_connection(served.address.host, served.address.port)
            body = json.dumps(CHAT).encode()
            lines = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\nopenai-beta: "
            rest = f"\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            head = (lines + value + rest).encode()
            writer.write(head + body)
            answer = await reader.read(200)
            writer.close()
            assert not answer or int(answer[9:12]) < 500, answer
            # Bytes after a line break are a header of the client's own, which is not one of those that pass.
            assert all("x-injected" not in received.headers for received in served.provider.received)

    in_loop(main())


def strange_bodies(count: int, seed: int) -> list[bytes]:
    """Requests with something wrong: types, sizes, depth, bytes."""
    rng = random.Random(seed)
    values: list[Any] = [
        None,
        True,
        -1,
        0,
        1e308,
        2**70,
        "",
        "x" * 3_000,
        [],
        {},
        [[]],
        {"a": {}},
        [None] * 50,
        "\ud83d\ude00",
    ]
    fields = [
        "model",
        "messages",
        "input",
        "stream",
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "tools",
    ]
    fields += [
        "n",
        "stream_options",
        "service_tier",
        "system",
        "thinking",
        "response_format",
        "temperature",
        "metadata",
    ]
    whole = {**CHAT, "input": "hello", "max_tokens": 50}
    bodies = [
        b"", b"null", b"[]", b"{", b'"text"', b"\xff\xfe", b"{}" * 2, b'{"model": "\xff"}', b"[" * 100_000,
        b'{"a":' * 50_000, b"0" * 5_000,
        b'{"model": "openai/gpt-4o-mini", "model": "openai/gpt-5", "messages": []}', b"NaN", b'{"model": NaN}',
        b'{"model": "openai/gpt-4o-mini", "messages": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"model": "\\ud800", "messages": []}', b'{"model": "openai/gpt-4o-mini", "n": 1e400}', b" " * 10_000,
    ]  # fmt: skip
    while len(bodies) < count:
        body = dict(whole)
        for _ in range(rng.randrange(1, 4)):
            body[rng.choice(fields)] = rng.choice(values)
        if rng.randrange(3) == 0:
            strange: Any = rng.choice(values)
            body["messages"] = [{"role": rng.choice(["user", "", 1, None]), "content": [strange, {"type": strange}]}]
        data = json.dumps(body).encode()
        if rng.randrange(4) == 0:
            place = rng.randrange(len(data))
            data = data[:place] + bytes([rng.randrange(256)]) + data[place + rng.randrange(2) :]
        bodies.append(data)
    return bodies


@pytest.mark.slow
@pytest.mark.parametrize("budget", first(["$1", None], 1))
def test_no_body_makes_the_gateway_fail(budget: str | None) -> None:
    """Whatever a body is, the answer is the provider's or a refusal in the vendor's error shape; never a 5xx of ours.
    What reaches the provider is one JSON object with the model that was checked."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key(budget=budget, models=["openai/gpt-4o-mini"])
            async with served.client(key) as client:
                defects = []
                for number, body in enumerate(strange_bodies(260, seed=22)):
                    path = PATHS[number % len(PATHS)]
                    answer = await client.post(path, content=body, headers={"content-type": "application/json"})
                    if answer.status_code >= 500 or (answer.status_code != 200 and "error" not in answer.json()):
                        defects.append((path, answer.status_code, body[:200], answer.text[:200]))
                assert defects == []
            models = {received.data.get("model") for received in served.provider.received}
            assert models <= {"gpt-4o-mini"}

    in_loop(main())


@pytest.mark.parametrize(
    ("thinking", "status"),
    [(True, 402), ("all", 402), ([1], 402), ({"budget_tokens": "many"}, 400), ({"budget_tokens": True}, 400)],
)
def test_strange_thinking_is_refused_where_the_money_is_short(thinking: Any, status: int) -> None:
    """A number of thinking tokens that is none is refused for that, with money or without."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key(budget="$0.000001")
            async with served.client(key) as client:
                answer = await client.post("/v1/chat/completions", json={**CHAT, "thinking": thinking})
            assert answer.status_code == status, answer.text

    in_loop(main())

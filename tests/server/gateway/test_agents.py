"""Agents of the kernel behind the gateway: the key's limits hold for them, too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import Agent
from lyra.models.sim import SimProvider
from tests.server.gateway.support import Reply, serving_gateway
from tests.server.http.support import echo, in_loop

BODY: dict[str, Any] = {"model": "agent/echo", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 50}
PRICED = {"input_usd_per_mtok": 1000, "output_usd_per_mtok": 1000}  # a tenth of a cent for a token


def priced(name: str = "dear", **settings: Any) -> Agent[Any]:
    script = {"replies": [{"text": "one two three"}], "price": PRICED}
    return Agent(name, model=SimProvider(script=script), max_tokens=20, **settings)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_an_agent_answers_under_its_name(path: str) -> None:
    """`agent/NAME` and the bare name go to the agent, streamed and whole, for keys and for tokens."""

    async def main() -> None:
        async with serving_gateway(programs=(echo(),)) as served:
            key = await served.key(models=["agent/*"])
            async with served.client(key) as client:
                for model in ("agent/echo", "echo"):
                    whole = await client.post(path, json={**BODY, "model": model})
                    streamed = await client.post(path, json={**BODY, "model": model, "stream": True})
                    assert (whole.status_code, streamed.status_code) == (200, 200), whole.text
                    assert "hello" in whole.text
                    assert "hello" in streamed.text
                assert (await client.post(path, json={**BODY, "model": "openai/gpt-4o-mini"})).status_code == 403
            assert (await served.operator.post(path, json=BODY)).status_code == 200
            assert served.provider.received == []

    in_loop(main())


def test_a_key_without_the_right_asks_no_agent() -> None:
    """The patterns of a key hold for agents as for models."""

    async def main() -> None:
        async with serving_gateway(programs=(echo(),)) as served:
            key = await served.key(models=["openai/*"])
            async with served.client(key) as client:
                for model in ("agent/echo", "echo"):
                    assert (await client.post("/v1/chat/completions", json={**BODY, "model": model})).status_code == 403

    in_loop(main())


def test_what_an_agent_spends_counts_in_the_keys_budget() -> None:
    """An agent's model calls draw on the key's budget, and stop where that ends."""

    async def main() -> None:
        async with serving_gateway(programs=(priced(),)) as served:
            key = await served.key(budget="$0.20")
            async with served.client(key) as client:
                first = await client.post("/v1/chat/completions", json={**BODY, "model": "agent/dear"})
                assert first.status_code == 200, first.text
                view = await served.view()
                assert view["spent_micro_usd"] > 0
                statuses = [
                    (await client.post("/v1/chat/completions", json={**BODY, "model": "agent/dear"})).status_code
                    for _ in range(30)
                ]
            assert 402 in statuses
            view = await served.view()
            assert view["spent_micro_usd"] <= 200_000
            assert view["reserved_micro_usd"] == 0

    in_loop(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_an_agent_whose_money_is_held_is_asked_again_later(path: str, stream: bool) -> None:
    """While a call in flight holds the key's money, an agent answers 429 and says when to ask again; once the money is
    spent, 402; an agent whose own budget is too small is 402 at any time."""

    async def main() -> None:
        gate = asyncio.Event()
        agents = (
            Agent("clerk", model="openai/gpt-4o-mini", max_tokens=400),
            Agent("poor", model="openai/gpt-4o-mini", max_tokens=400, budget="$0.000001"),
        )
        reply = Reply((b" ", b"{}"), gate=gate)
        async with serving_gateway(reply, programs=agents) as served, asyncio.TaskGroup() as group:
            key = await served.key(budget="$0.00984")
            async with served.client(key) as client:
                asked = {**BODY, "model": "openai/gpt-4o-mini", "max_tokens": 16_300}
                first = group.create_task(client.post("/v1/chat/completions", json=asked))
                while not served.provider.received:
                    await asyncio.sleep(0)
                clerk = {**BODY, "model": "agent/clerk", "stream": stream}
                held = await client.post(path, json=clerk)
                assert (held.status_code, held.headers.get("retry-after")) == (429, "5"), held.text
                assert "hold" in held.text
                poor = await client.post(path, json={**clerk, "model": "agent/poor"})
                assert (poor.status_code, poor.headers.get("retry-after")) == (402, None), poor.text
                gate.set()
                await first  # without usage, and so charged all of it
                spent = await client.post(path, json=clerk)
                assert (spent.status_code, spent.headers.get("retry-after")) == (402, None), spent.text

    in_loop(main())

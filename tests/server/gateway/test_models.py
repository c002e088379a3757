"""Lists of models, and counts of tokens: what clients ask besides answers."""

from __future__ import annotations

from typing import Any

from tests.server.gateway.support import Reply, serving_gateway
from tests.server.http.support import echo, in_loop


async def ids(client: Any, **headers: str) -> list[str]:
    answer = await client.get("/v1/models", headers=headers)
    assert answer.status_code == 200, answer.text
    return [model["id"] for model in answer.json()["data"]]


def test_a_key_lists_what_it_may_call() -> None:
    """Models of the server's providers and agents, as far as the key's patterns reach; in the vendor's form."""

    async def main() -> None:
        async with serving_gateway(programs=(echo(),)) as served:
            everything, some = await served.key("all"), await served.key("some", models=["openai/gpt-4o*", "other/own"])
            async with served.client(everything) as client:
                listed = await ids(client)
                assert {"agent/echo", "openai/gpt-4o-mini", "anthropic/claude-sonnet-5"} <= set(listed)
                assert not any(name.startswith("deepseek/") for name in listed)
                assert set(await ids(client, **{"anthropic-version": "2023-06-01"})) == set(listed)
            async with served.client(some) as client:
                listed = await ids(client)
                assert "other/own" in listed
                assert all(name.startswith(("openai/gpt-4o", "other/")) for name in listed)
                assert (await client.get("/v1/models/openai%2Fgpt-4o-mini")).json()["owned_by"] == "openai"
                assert (await client.get("/v1/models/agent%2Fecho")).status_code == 403
                assert (await client.get("/v1/models/nowhere%2Fx")).status_code == 404
            assert "agent/echo" in await ids(served.operator)

    in_loop(main())


def test_tokens_are_counted_for_nothing() -> None:
    """Anthropic's own count passes through; for another provider's model it is an estimate. Neither is charged."""

    async def main() -> None:
        async with serving_gateway(Reply((b'{"input_tokens": 17}',))) as served:
            key = await served.key(budget="$1")
            body = {"messages": [{"role": "user", "content": "Say something nice."}]}
            path = "/v1/messages/count_tokens"
            async with served.client(key) as client:
                counted = await client.post(path, json={"model": "anthropic/claude-sonnet-5", **body})
                estimated = await client.post(path, json={"model": "openai/gpt-4o-mini", **body})
            assert counted.content == b'{"input_tokens": 17}'
            assert 5 <= estimated.json()["input_tokens"] < 100
            assert [received.path for received in served.provider.received] == [path]
            view = await served.view()
            assert (view["calls"], view["spent_micro_usd"]) == (0, 0)

    in_loop(main())

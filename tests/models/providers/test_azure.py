"""Azure OpenAI: the same formats, at the addresses and with the headers of its own library."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.core.message import Message
from lyra.models.provider import Request
from tests.models.server import Reply, Server, run
from tests.models.wires import KEY, WIRES

REQUEST = Request("my deployment", (Message("user", "hello"),), max_tokens=7)


def test_the_address_and_the_headers_of_the_vendors_library() -> None:
    from openai import AsyncAzureOpenAI

    async def main() -> None:
        wire = WIRES["azure-chat"]
        async with Server(Reply(wire.text)) as server:
            provider = wire.provider_at(server.url)
            answer = await provider.complete(REQUEST)
            await provider.close()
            client = AsyncAzureOpenAI(api_key=KEY, azure_endpoint=server.url, api_version="2024-10-21", max_retries=0)
            messages: Any = [{"role": "user", "content": "hello"}]
            async with client:
                async for _ in await client.chat.completions.create(
                    model="my deployment", messages=messages, stream=True
                ):
                    pass
        ours, theirs = server.requests
        assert answer.text == "Hällo wörld"
        assert ours.path == theirs.path
        assert ours.headers["api-key"] == theirs.headers["api-key"] == KEY
        assert "authorization" not in ours.headers
        assert ours.data["max_completion_tokens"] == 7

    run(main())


@pytest.mark.parametrize(
    ("settings", "behind", "path"),
    [
        ({}, "", "/openai/v1/chat/completions"),
        ({}, "/openai", "/openai/v1/chat/completions"),
        ({}, "/openai/v1/", "/openai/v1/chat/completions"),
        ({"api": "responses"}, "", "/openai/v1/responses"),
        (
            {"api_version": "2024-10-21"},
            "/",
            "/openai/deployments/my%20deployment/chat/completions?api-version=2024-10-21",
        ),
        ({"api_version": "2025-04-01", "api": "responses"}, "", "/openai/responses?api-version=2025-04-01"),
    ],
)
def test_addresses(settings: dict[str, str], behind: str, path: str) -> None:
    """With a version the older address that names the deployment, without one the newer."""
    wire = WIRES["azure-v1"]
    provider: Any = wire.provider_at("https://me.openai.azure.com" + behind, **settings)
    assert provider.url(REQUEST) == "https://me.openai.azure.com" + path

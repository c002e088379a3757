"""A server whose store another one has taken over: it makes no call any more, and says so."""

from __future__ import annotations

import asyncio
from typing import Any

from lyra.errors import Conflict
from tests.server.gateway.support import SSE, Reply, chat_stream, serving_gateway
from tests.server.http.support import in_loop

PATH = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "model": "openai/gpt-4o-mini",
    "messages": [{"role": "user", "content": "hello"}],
    "max_completion_tokens": 50,
}


def test_a_server_that_has_lost_its_store_refuses_at_once() -> None:
    """Calls in flight are cut off with an error and new ones get 503, in the vendor's shape: no row of theirs could be
    written, so none may reach the provider."""
    gate = asyncio.Event()

    async def main() -> None:
        async with serving_gateway(Reply(chat_stream("one "), headers=SSE, gate=gate)) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                async with client.stream("POST", PATH, json={**BODY, "stream": True}) as answer:
                    pieces = answer.aiter_bytes()
                    await anext(pieces)
                    served.kernel.core.abort(Conflict("another kernel owns the store"))
                    rest = b"".join([piece async for piece in pieces])
                assert b"has lost its store" in rest
                assert b"[DONE]" not in rest
                for path, body in ((PATH, BODY), ("/v1/messages", {**BODY, "max_tokens": 5})):
                    refused = await client.post(path, json=body)
                    assert (refused.status_code, "has lost its store" in refused.text) == (503, True)
                    assert "retry-after" in refused.headers
            assert len(served.provider.received) == 1
            gate.set()

    in_loop(main())

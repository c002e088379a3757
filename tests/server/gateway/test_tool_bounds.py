"""What a key with a budget may ask for: all that costs its bytes, and nothing whose cost is known afterwards alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.gateway.support import Received, Reply, chat_answer, serving_gateway
from tests.server.http.support import in_loop

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
SEARCH = {"type": "web_search", "external_web_access": False}
GROUP = {"type": "namespace", "name": "agents", "tools": [FUNCTION]}
HOSTED_GROUP = {**GROUP, "tools": [FUNCTION, SEARCH]}
RESPONSES = {"model": "openai/gpt-5", "input": "hello", "max_output_tokens": 50}
MESSAGES = {"model": "anthropic/claude-sonnet-4-5", "messages": [{"role": "user", "content": "x"}], "max_tokens": 50}


def clearing(*kinds: str) -> dict[str, Any]:
    return {"context_management": {"edits": [{"type": kind, "keep": "all"} for kind in kinds]}}


def cached(ttl: str) -> dict[str, Any]:
    return {"type": "text", "text": "ttl", "cache_control": {"type": "ephemeral", "ttl": ttl}}


def answered(_: Received) -> Reply:
    return Reply((chat_answer(),))


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/responses", {**RESPONSES, "tools": [FUNCTION, GROUP]}, 200),
        ("/v1/responses", {**RESPONSES, "tools": [FUNCTION, HOSTED_GROUP]}, 400),
        ("/v1/responses", {**RESPONSES, "tools": [FUNCTION, {"type": "code_interpreter"}]}, 400),
        ("/v1/responses", {**RESPONSES, "tools": [SEARCH]}, 400),
        ("/v1/responses", {**RESPONSES, "tools": [FUNCTION, SEARCH], "tool_choice": "required"}, 400),
        ("/v1/responses", {**RESPONSES, "tools": [FUNCTION, SEARCH], "tool_choice": {"type": "web_search"}}, 400),
        ("/v1/responses", {**RESPONSES, "context_management": [{"type": "compaction"}]}, 400),
        ("/v1/messages", {**MESSAGES, **clearing("clear_thinking_20251015", "clear_tool_uses_20250919")}, 200),
        ("/v1/messages", {**MESSAGES, **clearing("clear_thinking_20251015", "compact_20260112")}, 400),
        ("/v1/messages", {**MESSAGES, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 400),
        ("/v1/messages", {**MESSAGES, "context_management": "all"}, 400),
        ("/v1/messages", {**MESSAGES, "system": [cached("5m")]}, 200),
        ("/v1/messages", {**MESSAGES, "system": [cached("1h")]}, 400),  # dearer than the price of the model says
    ],
)
def test_only_what_has_a_bound_is_sent(path: str, body: dict[str, Any], status: int) -> None:
    """Tools of the client and edits that shorten a conversation pass; what the provider runs or makes is refused."""

    async def main() -> None:
        async with serving_gateway(answered) as served:
            key = await served.key(budget="$5")
            async with served.client(key) as client:
                answer = await client.post(path, json=body)
            assert answer.status_code == status, answer.text
            assert len(served.provider.received) == (status == 200)
            if status == 200:
                assert served.provider.received[0].data.get("tools") == body.get("tools")
                assert "x-lyra-left-out" not in answer.headers

    in_loop(main())


def test_a_web_search_beside_other_tools_is_left_out_and_named() -> None:
    """An agent's request is answered without the search; the other tools go on as they came. Without a budget it is
    sent."""

    async def main() -> None:
        async with serving_gateway(answered) as served:
            limited, free = await served.key(budget="$5"), await served.key("free")
            body = {**RESPONSES, "tools": [FUNCTION, SEARCH, GROUP], "tool_choice": "auto"}
            async with served.client(limited) as client:
                answer = await client.post("/v1/responses", json=body)
                assert (answer.status_code, answer.headers["x-lyra-left-out"]) == (200, "web_search")
            async with served.client(free) as client:
                answer = await client.post("/v1/responses", json=body)
                assert "x-lyra-left-out" not in answer.headers
            sent = [received.data["tools"] for received in served.provider.received]
            assert sent == [[FUNCTION, GROUP], [FUNCTION, SEARCH, GROUP]]

    in_loop(main())

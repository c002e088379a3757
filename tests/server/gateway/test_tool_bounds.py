"""What a key with a budget may ask for: all that costs its bytes, and nothing whose cost is known afterwards alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.cases import each
from tests.server.gateway.support import Received, Reply, chat_answer, serving_gateway
from tests.server.http.support import in_loop

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
SEARCH = {"type": "web_search", "external_web_access": False}
SHELL = {"type": "bash_20250124", "name": "bash"}
COMPUTER = {"type": "computer_20250124", "name": "computer", "display_width_px": 1024, "display_height_px": 768}
GROUP = {"type": "namespace", "name": "agents", "tools": [FUNCTION]}
HOSTED_GROUP = {**GROUP, "tools": [FUNCTION, SEARCH]}
RESPONSES = {"model": "openai/gpt-5", "input": "hello", "max_output_tokens": 50}
MESSAGES = {"model": "anthropic/claude-sonnet-4-5", "messages": [{"role": "user", "content": "x"}], "max_tokens": 50}
CHAT = {"model": "openai/gpt-5", "messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 50}
SEALED = {"type": "encrypted_content", "encrypted_content": "abc"}
SCREENSHOT = {"type": "computer_screenshot", "file_id": "f"}


def asked(part: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [part]}]}


def clearing(*kinds: str) -> dict[str, Any]:
    return {"context_management": {"edits": [{"type": kind, "keep": "all"} for kind in kinds]}}


def cached(ttl: str) -> dict[str, Any]:
    return {"type": "text", "text": "ttl", "cache_control": {"type": "ephemeral", "ttl": ttl}}


def answered(_: Received) -> Reply:
    return Reply((chat_answer(),))


@each(
    [
        ("/v1/responses", {**RESPONSES, "tools": [FUNCTION, GROUP]}, 200),
        ("/v1/responses", {**RESPONSES, "tools": [FUNCTION, HOSTED_GROUP]}, 400),
        ("/v1/responses", {**RESPONSES, "tools": [FUNCTION, {"type": "code_interpreter"}]}, 400),
        ("/v1/responses", {**RESPONSES, "tools": [SEARCH]}, 400),
        ("/v1/responses", {**RESPONSES, "tools": [FUNCTION, SEARCH], "tool_choice": "required"}, 400),
        ("/v1/responses", {**RESPONSES, "tools": [FUNCTION, SEARCH], "tool_choice": {"type": "web_search"}}, 400),
        ("/v1/responses", {**RESPONSES, "tools": [FUNCTION, {"type": "namespace", "name": "empty"}]}, 400),
        (
            "/v1/chat/completions",
            {**CHAT, "tools": [FUNCTION, SEARCH]},
            400,
        ),  # codex, and no one else, offers it unasked
        ("/v1/responses", {**RESPONSES, "context_management": [{"type": "compaction"}]}, 400),
        ("/v1/messages", {**MESSAGES, **clearing("clear_thinking_20251015", "clear_tool_uses_20250919")}, 200),
        ("/v1/messages", {**MESSAGES, **clearing("clear_thinking_20251015", "compact_20260112")}, 400),
        ("/v1/messages", {**MESSAGES, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 400),
        ("/v1/messages", {**MESSAGES, "tools": [SHELL, {"type": "memory_20250818", "name": "memory"}]}, 200),
        ("/v1/messages", {**MESSAGES, "tools": [{"type": "text_editor_20250728", "name": "e"}, COMPUTER]}, 200),
        ("/v1/messages", {**MESSAGES, "tools": [SHELL, {"type": "code_execution_20250825", "name": "c"}]}, 400),
        ("/v1/messages", {**MESSAGES, "tools": [{"type": "bash_code_execution", "name": "bash"}]}, 400),
        ("/v1/messages", {**MESSAGES, "tools": [{"type": "computer_20250124_hosted", "name": "computer"}]}, 400),
        ("/v1/chat/completions", {**CHAT, "tools": [SHELL]}, 400),
        ("/v1/responses", {**RESPONSES, "tools": [{"type": "computer_use_preview"}]}, 400),
        ("/v1/messages", {**MESSAGES, "context_management": "all"}, 400),
        ("/v1/messages", {**MESSAGES, "context_management": {"compact": {}}}, 400),
        ("/v1/messages", {**MESSAGES, "context_management": {**clearing()["context_management"], "more": 1}}, 400),
        ("/v1/messages", {**MESSAGES, "system": [cached("5m")]}, 200),
        ("/v1/messages", {**MESSAGES, "system": [cached("1h")]}, 400),  # dearer than the price of the model says
        ("/v1/messages", {**MESSAGES, "service_tier": "standard_only"}, 200),
        ("/v1/messages", {**MESSAGES, "fallbacks": [{"model": "claude-opus-4-1"}]}, 400),
        ("/v1/messages", {**MESSAGES, **asked({"type": "document", "source": {"type": "file", "file_id": "f"}})}, 400),
        ("/v1/messages", {**MESSAGES, **asked({"type": "tool_result", "tool_use_id": "t", "content": "x"})}, 200),
        ("/v1/messages", {**MESSAGES, **asked({"type": "tool_result", "content": [{"type": "document"}]})}, 400),
        ("/v1/messages", {**MESSAGES, **asked({"type": "web_fetch_tool_result", "content": {}})}, 400),
        ("/v1/responses", {**RESPONSES, "input": [{"type": "item_reference", "id": "i"}]}, 400),
        ("/v1/responses", {**RESPONSES, "input": [{"type": "image_generation_call", "id": "i"}]}, 400),
        ("/v1/responses", {**RESPONSES, "input": [{"type": "function_call_output", "output": SCREENSHOT}]}, 400),
        ("/v1/responses", {**RESPONSES, "input": [{"role": "user", "content": "x"}, {"type": "reasoning"}]}, 200),
        ("/v1/responses", {**RESPONSES, "input": [{"type": "agent_message", "content": [SEALED]}]}, 200),
        ("/v1/chat/completions", {**CHAT, "service_tier": "fast"}, 400),
        ("/v1/chat/completions", {**CHAT, "models": ["o1-pro"]}, 400),
        ("/v1/chat/completions", {**CHAT, "plugins": [{"id": "web"}]}, 400),
        ("/v1/chat/completions", {**CHAT, "n": 2}, 200),
        ("/v1/chat/completions", {**CHAT, "n": "50"}, 400),  # 50 to some providers
        ("/v1/chat/completions", {**CHAT, "n": 50.0}, 400),
        ("/v1/chat/completions", {**CHAT, **asked({"type": "video_url", "video_url": {"url": "x"}})}, 400),
        ("/v1/chat/completions", {**CHAT, **asked({"image_url": {"url": "https://example.org/x.png"}})}, 400),
        ("/v1/chat/completions", {**CHAT, "messages": [{"role": "assistant", "audio": {"id": "a"}}]}, 400),
        ("/v1/embeddings", {"model": "openai/text-embedding-3-small", "input": ["x"]}, 200),
        ("/v1/embeddings", {"model": "openai/text-embedding-3-small", "input": [{"image": "x"}]}, 400),
    ]
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


def test_what_the_provider_adds_to_tools_of_the_client_is_reserved() -> None:
    """The provider counts its own description of such a tool as input: a call that costs all of that is within what was
    reserved, and each tool counts."""
    gate = asyncio.Event()

    async def reserved(body: dict[str, Any]) -> int:
        gate.clear()
        held = Reply((b"{", b"}"), gate=gate)
        async with serving_gateway(held) as served, asyncio.TaskGroup() as group:
            key = await served.key(budget="$5")
            async with served.client(key) as client:
                call = group.create_task(client.post("/v1/messages", json=body))
                while not (amount := int((await served.view())["reserved_micro_usd"])):
                    await asyncio.sleep(0)
                gate.set()
                await call
        return amount

    async def main() -> None:
        plain = await reserved({**MESSAGES, "tools": [{**SHELL, "type": "custom"}]})
        shell = await reserved({**MESSAGES, "tools": [SHELL]})
        both = await reserved({**MESSAGES, "tools": [SHELL, COMPUTER]})
        assert shell - plain >= 3 * 245 * 3  # at $3 a million tokens, three times the published number
        assert both - shell >= 3 * (735 + 500) * 3

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


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {**MESSAGES, "fallbacks": [{"model": "claude-opus-4-1"}]}),
        ("/v1/chat/completions", {**CHAT, "models": ["gpt-5", "o1-pro"]}),
        ("/v1/chat/completions", {**CHAT, "fallbacks": "default"}),
        ("/v1/responses", {**RESPONSES, "tools": [{"type": "image_generation", "model": "gpt-image-1"}]}),
    ],
)
def test_a_request_reaches_no_other_model_than_the_key_may_call(path: str, body: dict[str, Any]) -> None:
    """Also without a budget: a model that the provider may ask in place of the first, or by a tool, is one that the
    key's patterns allow, or the request is refused."""

    async def main() -> None:
        async with serving_gateway(answered) as served:
            narrow = await served.key(models=["anthropic/claude-sonnet-*", "openai/gpt-5"])
            wide = await served.key("wide", models=["anthropic/*", "openai/*"])
            async with served.client(narrow) as client:
                refused = await client.post(path, json=body)
                assert (refused.status_code, "may not call" in refused.text) == (403, True)
            async with served.client(wide) as client:
                assert (await client.post(path, json=body)).status_code == 200
            assert len(served.provider.received) == 1

    in_loop(main())


@pytest.mark.parametrize(("model", "bound"), [("gpt-4o-mini", 16_384), ("gpt-4-turbo", 4_096), ("gpt-4.1", 32_768)])
def test_the_bound_that_is_added_is_one_that_the_model_takes(model: str, bound: int) -> None:
    """A provider refuses a bound above what its model can write, so a request without one gets at most that."""

    async def main() -> None:
        async with serving_gateway(answered) as served:
            key = await served.key(budget="$50")
            body = {"model": f"openai/{model}", "messages": CHAT["messages"]}
            async with served.client(key) as client:
                answer = await client.post("/v1/chat/completions", json=body)
            assert (answer.status_code, answer.headers["x-lyra-max-tokens"]) == (200, str(bound))
            assert served.provider.received[0].data["max_completion_tokens"] == bound

    in_loop(main())

"""Cards and requests: what a stranger reads, who may ask, and how mistakes are told."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb

from lyra import Agent, tool
from lyra.a2a import sdk
from lyra.errors import ConfigError
from tests.server.protocols.a2a.support import ADA, in_loop, message, serving, task_of

SECRET = "never tell this instruction"


@tool
def ledger() -> str:
    """Reads the ledger."""
    return ""


def agents() -> tuple[Agent[Any], ...]:
    writer = Agent("writer", model="sim/echo", system=SECRET, tools=[ledger], description="Writes.")
    return Agent("editor", model="sim/echo", description="Edits."), writer


def test_the_cards_are_open_and_tell_nothing_of_the_inside() -> None:
    """The card at the root is the first agent's; no card has instructions, models or tools."""

    async def main() -> None:
        async with serving(*agents()) as served, served.http("") as stranger:
            root = await stranger.get("/.well-known/agent-card.json")
            card = await stranger.get("/a2a/writer/.well-known/agent-card.json")
            assert (root.json()["name"], card.json()["name"]) == ("editor", "writer")
            assert card.json()["supportedInterfaces"][0]["url"] == f"{served.url}/a2a/writer"
            for word in (SECRET, "ledger", "sim/echo"):
                assert word not in card.text
            assert (await stranger.get("/a2a/nobody/.well-known/agent-card.json")).status_code == 404
            behind = await stranger.get("/.well-known/agent-card.json", headers={"x-forwarded-proto": "https"})
            assert behind.json()["url"].startswith("https://")

    in_loop(main())


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_the_extended_card_names_the_tools_for_callers_with_a_token(version: str) -> None:
    """The skills of the extended card are the agent's tools, and nothing else of its inside."""

    async def main() -> None:
        async with serving(*agents()) as served, served.client("writer", version=version) as client:
            card = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
            assert [skill.name for skill in card.skills] == ["writer", "ledger"]
            assert SECRET not in str(card)

    in_loop(main())


def test_a_request_without_a_token_is_refused_in_the_shape_of_json_rpc() -> None:
    """A stranger gets 401, another origin 403, an unknown agent 404, each with an error of JSON-RPC."""

    async def main() -> None:
        async with serving() as served, served.http("") as stranger, served.http() as ada:
            refused = await stranger.post("/a2a/echo", json={})
            assert (refused.status_code, refused.json()["jsonrpc"]) == (401, "2.0")
            assert refused.json()["error"]["code"] == -32000
            foreign = await ada.post("/a2a/echo", json={}, headers={"origin": "https://evil.example"})
            assert foreign.status_code == 403
            unknown = await ada.post("/a2a/ecko", json={})
            assert (unknown.status_code, "echo" in unknown.json()["error"]["message"]) == (404, True)

    in_loop(main())


MISTAKES: list[tuple[Any, int]] = [
    (b"{", -32700),
    (b"[" * 100_000, -32700),
    ([], -32600),
    ({"jsonrpc": "1.0", "id": 1, "method": "GetTask"}, -32600),
    ({"jsonrpc": "2.0", "id": True, "method": "GetTask"}, -32600),
    ({"jsonrpc": "2.0", "id": {}, "method": "GetTask"}, -32600),
    ({"jsonrpc": "2.0", "id": 1}, -32600),
    ({"jsonrpc": "2.0", "id": 1, "method": "NoSuch"}, -32601),
    ({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": []}, -32602),
    ({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": 7}}, -32602),
    ({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}, -32001),
    ({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}, -32602),
    ({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {"parts": [{"text": "a"}]}}}, -32602),
    (
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": {"message": {"messageId": "m\n", "parts": [{"text": "a"}]}},
        },
        -32602,
    ),
    (
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": {"message": {"messageId": "m", "parts": [{"text": " "}]}},
        },
        -32602,
    ),
    ({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": {}}}, -32602),
]


def test_every_mistake_has_its_code() -> None:
    """A body that is wrong is answered with the code of JSON-RPC or of A2A, never with a failure of the server."""

    async def main() -> None:
        async with serving() as served, served.http() as ada:
            for body, code in MISTAKES:
                sent = {"content": body} if isinstance(body, bytes) else {"json": body}
                answer = await ada.post("/a2a/echo", **sent)
                assert (answer.status_code, answer.json()["error"]["code"]) == (200, code), (body, answer.text)
                assert isinstance(answer.json()["error"]["message"], str)
            version = {"jsonrpc": "2.0", "id": 5, "method": "GetTask", "params": {"id": "x"}}
            answer = await ada.post("/a2a/echo", json=version, headers={"A2A-Version": "2.0"})
            assert (answer.json()["id"], answer.json()["error"]["code"]) == (5, -32009)

    in_loop(main())


def test_a_client_that_names_another_user_is_refused() -> None:
    """A bound token acts for its own user alone."""

    async def main() -> None:
        async with serving() as served, served.http() as ada:
            body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}
            assert (await ada.post("/a2a/echo", json=body, headers={"x-user-id": "bob"})).status_code == 403

    in_loop(main())


def test_limits_of_the_kernel_hold_for_messages_and_not_for_looking() -> None:
    """A user's limit counts messages; looking a task up is not work."""

    async def main() -> None:
        async with serving() as served, served.client() as client:
            served.kernel.rate_limiter.set_user_limits("ada", {"requests_per_minute": 1, "burst_size": 1})
            task = await task_of(client, message("one"))
            for _ in range(3):
                await client.get_task(pb.GetTaskRequest(id=task.id))
            with pytest.raises(Exception, match="too many requests"):
                await task_of(client, message("two"))

    in_loop(main())


def test_without_the_sdk_the_answer_is_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without the extra works, and says what A2A needs."""
    sdk._module.cache_clear()
    monkeypatch.setitem(sys.modules, "a2a.types.a2a_pb2", None)
    with pytest.raises(ConfigError, match="A2A needs its SDK") as caught:
        sdk.messages()
    assert caught.value.hint == "pip install 'lyra-agents[a2a]'"
    assert ADA
    sdk._module.cache_clear()


def test_the_audit_log_has_what_a_client_changed_and_not_what_it_looked_at() -> None:
    """A message is an act of its user; a look at a task is none, and leaves no row."""

    async def main() -> None:
        async with serving() as served, served.client() as client:
            acts: list[Any] = []
            served.kernel.on_event(lambda event: acts.append(event.data), kinds=("person.acted",))
            task = await task_of(client, message("hi"))
            await client.get_task(pb.GetTaskRequest(id=task.id))
            await client.list_tasks(pb.ListTasksRequest())
            told = [(row["person"], row["act"], row["target"]) for row in acts]
            assert told == [("ada", "a2a.SendMessage", f"echo {task.id}")]

    in_loop(main())

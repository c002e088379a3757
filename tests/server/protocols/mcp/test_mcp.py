"""The agents of a server as tools of MCP, with the official SDK's client over streamable HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from lyra import tool
from lyra.core.tool import report
from tests.server.http.support import ADA, BOB, OPERATOR, Served, echo, in_loop, scripted, serving


@asynccontextmanager
async def asking(served: Served, token: str, **headers: str) -> AsyncIterator[Client]:
    """The SDK's client of one caller."""
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}", **headers}, timeout=60) as http,
        Client(streamable_http_client(f"{served.url}/mcp", http_client=http)) as client,
    ):
        yield client


def test_an_agent_is_a_tool_and_its_conversation_goes_on() -> None:
    """The tools are the agents; a session of the answer goes on, and is the one that /api/sessions shows."""

    async def main() -> None:
        agents = echo(description="Says it again."), scripted("helper", "x")
        async with serving(*agents) as served, asking(served, ADA) as client:
            tools = (await client.list_tools()).tools
            assert [(row.name, row.description) for row in tools] == [
                ("echo", "Says it again."),
                ("helper", "Ask the agent helper."),
            ]
            first = await client.call_tool("echo", {"message": "good morning"})
            assert not first.is_error
            assert first.content[0].text == "good morning"
            session_id = first.structured_content["session_id"]
            second = await client.call_tool("echo", {"message": "again", "session_id": session_id})
            assert second.structured_content == {"text": "again", "session_id": session_id}
            session = (await served.ada.get(f"/api/sessions/{session_id}")).json()
            assert [row["text"] for row in session["messages"] if row["role"] == "user"] == ["good morning", "again"]

    in_loop(main())


def test_a_session_belongs_to_its_user() -> None:
    """Another user cannot go on with it; an operator acts for the user that a header names."""

    async def main() -> None:
        async with serving() as served:
            async with asking(served, ADA) as client:
                answer = await client.call_tool("echo", {"message": "secret"})
                again = {"message": "x", "session_id": answer.structured_content["session_id"]}
            async with asking(served, BOB) as client:
                refused = await client.call_tool("echo", again)
                assert refused.is_error
                assert "cannot be chosen" in refused.content[0].text
            async with asking(served, OPERATOR, **{"x-user-id": "ada"}) as client:
                assert not (await client.call_tool("echo", again)).is_error

    in_loop(main())


def test_what_the_agent_does_is_told_as_progress() -> None:
    """Each message of progress is told, and its number is larger than the one before, as the protocol wants it; it is
    below the total until the answer."""

    @tool
    async def paint() -> str:
        """Paint."""
        report("half of it", 0.5)
        report("all of it", 1.0)
        return "ok"

    calls = {"user": "x", "tool_calls": [{"name": "paint"}, {"name": "paint"}]}
    agent = scripted("painter", calls, {"text": "done"}, tools=[paint], max_parallel_tools=1)

    async def main() -> None:
        told: list[Any] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            told.append((progress, message))

        async with serving(agent) as served, asking(served, ADA) as client:
            answer = await client.call_tool("painter", {"message": "x"}, progress_callback=on_progress)
            assert answer.content[0].text == "done"
            assert [message for _, message in told] == ["paint", "half of it", "all of it"] * 2
            numbers = [progress for progress, _ in told]
            assert numbers == sorted(set(numbers))
            assert numbers[1] == 0.5
            assert numbers[-1] < 1.0

    in_loop(main())


def test_a_mistake_is_an_error_of_the_call() -> None:
    async def main() -> None:
        agent = scripted("helper", {"error": {"kind": "bad_request"}})
        async with serving(agent) as served, asking(served, ADA) as client:
            failed = await client.call_tool("helper", {"message": "x"})
            assert failed.is_error
            unknown = await client.call_tool("nobody", {"message": "x"})
            assert unknown.is_error
            wrong = await client.call_tool("helper", {"message": "x", "session_id": "no such/one"})
            assert wrong.is_error

    in_loop(main())


def test_the_guard_of_the_server_holds() -> None:
    """Without a token 401, of a foreign origin 403, for another host 421; bad bodies are 4xx; GET is not taken."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream"}

    async def main() -> None:
        async with serving() as served:
            assert (await served.stranger.post("/mcp", json=hello, headers=accept)).status_code == 401
            foreign = {**accept, "origin": "https://evil.example"}
            assert (await served.ada.post("/mcp", json=hello, headers=foreign)).status_code == 403
            assert (await served.ada.post("/mcp", json=hello, headers={**accept, "host": "evil"})).status_code == 421
            assert (await served.ada.get("/mcp")).status_code == 405
            assert (await served.ada.post("/mcp", json=hello, headers=accept)).status_code == 200
            for body in (b"", b"{", b"[]", b"null", b'{"jsonrpc":"1.0"}', b"[" * 9000, b"\xff"):
                answer = await served.ada.post(
                    "/mcp", content=body, headers={**accept, "content-type": "application/json"}
                )
                assert 400 <= answer.status_code < 500, (body[:20], answer.status_code)
            assert (await served.ada.post("/mcp", json=hello, headers={"accept": "text/plain"})).status_code == 406

    in_loop(main())


def test_a_client_that_leaves_gives_the_answer_up() -> None:
    slow = scripted("slow", {"text": "word " * 400, "chunk_s": 0.05})
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "slow", "arguments": {"message": "x"}},
    }

    async def main() -> None:
        async with serving(slow) as served:
            headers = {"accept": "application/json, text/event-stream"}
            asked = asyncio.ensure_future(served.ada.post("/mcp", json=call, headers=headers))
            while not (chats := [pid for pid in served.kernel.processes if pid.startswith("chat-")]):
                await asyncio.sleep(0.01)
            process = served.kernel.agent(chats[0])
            while process.current is None:
                await asyncio.sleep(0.01)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            while process.current is not None:
                await asyncio.sleep(0.01)
            assert process.messages == ()

    in_loop(main(), 60)

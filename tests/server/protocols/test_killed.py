"""A real `lyra serve` that is killed in the middle of conversations over AG-UI and MCP: they go on afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.server.http.support import in_loop
from tests.server.protocols.agui.support import last_messages, run, run_input, text_of
from verify.served import USER_TOKEN, ServedProcess

pytestmark = pytest.mark.slow

AGENTS = """
import asyncio
from pathlib import Path
from lyra import Agent, tool
from lyra.models.sim import SimProvider

@tool
async def pay(amount: int) -> str:
    "Pays."
    with open("paid", "a") as log:
        log.write(f"{amount}\\n")
    return f"paid {amount}"

@tool(idempotent=True)
async def work() -> str:
    "Waits until it may go on."
    with open("begun", "a") as log:
        log.write("x")
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "worked"

def setup(kernel):
    replies = [
        {"user": "pay", "tool_calls": [{"id": "c1", "name": "pay", "arguments": {"amount": 5}}]},
        {"user": "work", "tool_calls": [{"id": "c2", "name": "work"}]},
        {"tool": "pay", "text": "It is {result}."},
        {"tool": "work", "text": "It is {result}."},
        {"text": "turn {turn}"},
    ]
    rules = {"ask": ["pay"], "allow": ["work"]}
    model = SimProvider(script={"replies": replies})
    kernel.register(Agent("clerk", model=model, tools=[pay, work], permissions=rules))
"""
HEADERS = {"authorization": f"Bearer {USER_TOKEN}"}


async def _front_end(served: ServedProcess, given: dict[str, Any]) -> list[Any]:
    async with httpx.AsyncClient(base_url=f"http://{served.http}", headers=HEADERS, timeout=60) as client:
        return await run(client, given, "clerk")


async def _ask(served: ServedProcess, message: str, session_id: str = "") -> Any:
    async with (
        httpx2.AsyncClient(headers=HEADERS, timeout=60) as http,
        Client(streamable_http_client(f"http://{served.http}/mcp", http_client=http)) as client,
    ):
        return await client.call_tool(
            "clerk", {"message": message, **({"session_id": session_id} if session_id else {})}
        )


def test_conversations_survive_kill_9_of_the_server(tmp_path: Path) -> None:
    """AG-UI: a question is answered after the kill, its tool runs once, and a run that was under way is read to its
    end. MCP: the session of an answer goes on, with the conversation that it had."""
    (tmp_path / "agents.py").write_text(AGENTS)
    served = ServedProcess(tmp_path, str(tmp_path / "store.db"), load=tmp_path / "agents.py")

    async def main() -> None:
        try:
            await served.start()
            asked = await _front_end(served, run_input("t", "r1", "pay"))
            interrupt = asked[-1].outcome.interrupts[0]
            first = await _ask(served, "hello")
            session_id = first.structured_content["session_id"]
            at_work = asyncio.ensure_future(_front_end(served, run_input("u", "r1", "work")))
            while not (tmp_path / "begun").exists():
                await asyncio.sleep(0.02)
            served.kill()
            await asyncio.wait([at_work])
            assert at_work.exception() is not None
            await served.start()
            resume = [{"interruptId": interrupt.id, "status": "resolved", "payload": True}]
            answered = await _front_end(served, run_input("t", "r2", *last_messages(asked), resume=resume))
            assert text_of(answered) == "It is paid 5."
            assert (tmp_path / "paid").read_text() == "5\n"
            second = await _ask(served, "and now", session_id)
            assert (first.content[0].text, second.content[0].text) == ("turn 1", "turn 2")
            reading = asyncio.ensure_future(_front_end(served, run_input("u", "r2")))
            (tmp_path / "go").touch()
            taken_up = await reading
            assert last_messages(taken_up)[-1]["content"] == "It is worked."
            assert [row["role"] for row in last_messages(taken_up)].count("user") == 1
        finally:
            served.close()

    in_loop(main())

"""A real `lyra serve` that is killed in the middle of A2A tasks: they are there afterwards, and go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb

from tests.server.protocols.a2a.support import in_loop, message, task_of
from verify.served import USER_TOKEN, ServedProcess

pytestmark = pytest.mark.slow

AGENTS = """
import asyncio
from pathlib import Path
from lyra import Agent, tool
from lyra.models.sim import SimProvider

@tool(idempotent=True)
async def work(name: str) -> str:
    "Waits until it may go on."
    with open("begun", "a") as log:
        log.write(name + "\\n")
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return f"{name} is done"

@tool
async def ask(ctx) -> str:
    "Asks a person."
    return (await ctx.ask("Which day?")).text

def setup(kernel):
    replies = [
        {"user": "work", "tool_calls": [{"name": "work", "arguments": {"name": "it"}}]},
        {"user": "ask", "tool_calls": [{"name": "ask"}]},
        {"tool": "work", "text": "{result}"},
        {"tool": "ask", "text": "on {result}"},
    ]
    kernel.register(Agent("clerk", model=SimProvider(script={"replies": replies}), tools=[work, ask]))
"""


async def _with_client(served: ServedProcess, use: Any) -> Any:
    headers = {"authorization": f"Bearer {USER_TOKEN}"}
    async with httpx.AsyncClient(headers=headers, timeout=30) as http:
        card = await A2ACardResolver(http, f"http://{served.http}/a2a/clerk").get_agent_card()
        return await use(ClientFactory(ClientConfig(httpx_client=http, streaming=False, polling=True)).create(card))


def test_tasks_survive_kill_9_of_the_server(tmp_path: Path) -> None:
    """A task at work goes on and ends, a question is still open and is answered, and an ended task is still there."""
    (tmp_path / "agents.py").write_text(AGENTS)
    served = ServedProcess(tmp_path, str(tmp_path / "store.db"), load=tmp_path / "agents.py")

    async def before(client: Any) -> tuple[str, str]:
        working = await task_of(client, message("work"))
        asking = await task_of(client, message("ask"))
        while not (tmp_path / "begun").exists() or asking.status.state != pb.TASK_STATE_INPUT_REQUIRED:
            asking = await client.get_task(pb.GetTaskRequest(id=asking.id))
            await asyncio.sleep(0.02)
        return working.id, asking.id

    async def after(client: Any, working_id: str, asking_id: str) -> None:
        working = await client.get_task(pb.GetTaskRequest(id=working_id))
        assert working.status.state == pb.TASK_STATE_WORKING
        asking = await client.get_task(pb.GetTaskRequest(id=asking_id))
        assert asking.status.state == pb.TASK_STATE_INPUT_REQUIRED
        (tmp_path / "go").touch()
        await task_of(client, message("Friday", task_id=asking_id))
        assert await _ended(client, asking_id) == "on Friday"
        assert await _ended(client, working_id) == "it is done"

    async def main() -> None:
        try:
            await served.start()
            ids = await _with_client(served, before)
            served.kill()
            await served.start()
            await _with_client(served, lambda client: after(client, *ids))
            served.kill()
            await served.start()
            assert await _with_client(served, lambda client: _ended(client, ids[0])) == "it is done"
        finally:
            served.close()

    in_loop(main())


async def _ended(client: Any, task_id: str) -> str:
    while True:
        task = await client.get_task(pb.GetTaskRequest(id=task_id))
        if task.status.state == pb.TASK_STATE_COMPLETED:
            return str(task.artifacts[0].parts[0].text)
        assert task.status.state != pb.TASK_STATE_FAILED, task
        await asyncio.sleep(0.02)

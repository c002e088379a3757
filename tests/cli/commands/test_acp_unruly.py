"""`lyra acp` with an editor that does not answer, and killed in the middle of a turn."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any, cast

import acp
import pytest

from tests import warm
from tests.cli.commands.test_acp import Editor, call, editing, text, tiny_server, written_setup

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

WAITING_MODEL = """
import asyncio, os
from lyra import Agent
from lyra.models.sim import SimProvider

class WaitingProvider(SimProvider):
    "Says in a file that it was asked, and answers once there is a file `go`."
    async def stream(self, request, *rest, **more):
        open("asked", "w").close()
        while not os.path.exists("go"):
            await asyncio.sleep(0.05)
        async for piece in super().stream(request, *rest, **more):
            yield piece

ADD = {"name": "mcp__tiny__add", "arguments": {"a": 20, "b": 22}}
REPLIES = [{"user": "add", "tool_calls": [ADD]}, {"tool": "mcp__tiny__add", "text": "It is {result}."}]

def setup(kernel):
    kernel.register(Agent("adder", model=WaitingProvider({"replies": REPLIES})))
"""


async def test_a_cancelled_prompt_ends_though_the_editor_leaves_its_question_open(tmp_path: Path) -> None:
    """The prompt's answer is `cancelled` at once, and the next prompt is answered."""
    written_setup(tmp_path, call("paint", colour="red"), "Hello.")
    async with editing(tmp_path, "--agent", "painter", "--db", "memory") as (editor, agent, _begun):
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        editor.hold = asyncio.Event()  # never set
        prompt = asyncio.ensure_future(agent.prompt(session_id=session, prompt=text("paint it")))
        await editor.was_asked.wait()
        await agent.cancel(session_id=session)
        async with asyncio.timeout(60):
            assert (await prompt).stop_reason == "cancelled"
            assert (await agent.prompt(session_id=session, prompt=text("hello"))).stop_reason == "end_turn"
        assert editor.text() == "Hello."
        assert not (tmp_path / "wall.txt").exists()
        editor.hold.set()


async def test_a_turn_that_was_killed_has_the_servers_of_the_editor_once_its_session_is_loaded(tmp_path: Path) -> None:
    """After a kill -9 in a call of the model the turn goes on with the program; the tools of a session that was
    loaded meanwhile are there for the call that the model then makes, and that call is asked about."""
    (tmp_path / "agents.py").write_text(WAITING_MODEL)
    server = tiny_server(tmp_path)
    words = ("--agent", "adder", "--db", str(tmp_path / "store.db"))
    program, *start = warm.command("lyra.cli.main:main")
    command = [*start, "acp", "--load", "agents.py", *words]
    env = {"HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    first = acp.spawn_agent_process(cast("Any", Editor()), program, *command, env=env, cwd=tmp_path)
    async with first as (agent, killed):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[server])).session_id
        prompt = asyncio.ensure_future(agent.prompt(session_id=session, prompt=text("add")))
        async with asyncio.timeout(60):
            while not (tmp_path / "asked").exists():
                await asyncio.sleep(0.02)
        killed.send_signal(signal.SIGKILL)
        with pytest.raises(ConnectionError):
            await prompt
    (tmp_path / "asked").unlink()
    async with editing(tmp_path, *words) as (editor, agent, _begun):
        async with asyncio.timeout(60):
            while not (tmp_path / "asked").exists():  # the turn is back in its call of the model
                await asyncio.sleep(0.02)
        await agent.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[server])
        (tmp_path / "go").touch()
        await editor.until("It is 42.")
        assert len(editor.asked) == 1

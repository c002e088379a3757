"""An agent of another program, reached by A2A: a tool of an agent here, and a process that a supervisor starts again.

    python examples/remote_agent.py

Needs the extras `server` and `a2a`. Both programs run in this one, with a socket between them; models are simulated.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

import lyra.server
from lyra import Agent, Event, Kernel, a2a
from lyra.errors import AgentFailed, LyraError
from lyra.kernel import Child
from lyra.models.sim import SimProvider

TOKEN = "a-token-of-the-lead-0000"  # noqa: S105 - of a server that lives for a moment
WRITER = Agent("writer", model=SimProvider({"replies": ["Rain taps on the roof."]}), description="Writes short lines.")


@asynccontextmanager
async def serving(agent: Agent, port: int = 0) -> AsyncIterator[int]:
    """The other program: an agent behind HTTP. Gives the port."""
    async with Kernel(programs=[agent]) as kernel, asyncio.TaskGroup() as group:
        app = lyra.server.app(kernel, tokens={TOKEN: "lead"})
        server = uvicorn.Server(uvicorn.Config(app, port=port, lifespan="off", log_level="error"))
        group.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for that
            await asyncio.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
        server.should_exit = True


async def as_a_tool(writer: a2a.RemoteAgent) -> None:
    calls = {"user": "line", "tool_calls": [{"name": "a2a__writer", "arguments": {"message": "one line about rain"}}]}
    model = SimProvider({"replies": [calls, {"tool": "a2a__writer", "text": "The writer says: {result}"}]})
    lead = Agent("lead", model=model, tools=[writer], permissions={"allow": ["a2a__writer"]})
    async with Kernel() as kernel:
        print(await (await kernel.spawn(lead)).send("A line, please"))


def show(event: Event) -> None:
    print(f"  {event.kind}: {event.data.get('reason', '')}")


async def ask(kernel: Kernel, text: str) -> str:
    """Ask the process of the writer, also while its supervisor starts it again."""
    while True:
        try:
            return str(await kernel.agent("writer").send(text))
        except (AgentFailed, lyra.errors.NoSuchProcess):
            await asyncio.sleep(0.05)


async def main() -> None:
    async with serving(WRITER) as port:
        inside = [f"127.0.0.1:{port}"]  # an address of this network has to be named
        url = f"http://{inside[0]}/a2a/writer"
        writer = await a2a.connect(url, token=TOKEN, inside=inside, check_every_s=0.1)
        await as_a_tool(writer)
    # Now the other program is gone, and comes back later.
    async with Kernel() as kernel:
        kernel.on_event(show, kinds=("child.restarting",))
        backoff = {"kind": "constant", "initial_s": 0.3}
        kernel.supervise([Child("writer", writer, name="writer")], max_restarts=100, backoff=backoff)
        await asyncio.sleep(2)
        async with serving(WRITER, port):
            print(f"back again: {await ask(kernel, 'one more')}")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except LyraError as error:
        sys.exit(error.render())

"""An agent that crashes is started again; handles of it stay valid.

    python examples/supervised_agent.py --sim
    python examples/supervised_agent.py   # with ANTHROPIC_API_KEY

A failed answer is an error for the one who asked, and no crash. What crashes here is a bug in a prompt function.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from lyra import Agent, Event, Kernel
from lyra.errors import AgentFailed, LyraError
from lyra.models.sim import SimProvider

MODEL = SimProvider({"replies": ["All is well."]}) if "--sim" in sys.argv else "anthropic/claude-sonnet-4-5"
SETTINGS: dict[str, str] = {}


def system(_session: Any) -> str:
    return f"Answer in {SETTINGS['language']}."  # KeyError until the main program sets it


def show(event: Event) -> None:
    if event.kind == "child.restarting":
        print(f"  restarting after: {event.data['reason']}")


async def main() -> None:
    agent = Agent("clerk", model=MODEL, system=system)
    async with Kernel() as kernel:
        kernel.on_event(show)
        clerk = await kernel.spawn(agent, name="clerk", supervision={"strategy": "restart", "max_restarts": 3})
        try:
            await clerk.send("How is it going?")
        except AgentFailed as error:
            print(f"the first try failed: {error.message}")
        SETTINGS["language"] = "English"
        print(await clerk.send("How is it going?"))
        print(f"{clerk.name} is alive: {clerk.alive}")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except LyraError as error:
        sys.exit(error.render())

"""A team: an agent with helpers, and agents in a row, side by side and by choice.

    python examples/team.py --sim
    python examples/team.py               # with ANTHROPIC_API_KEY

A helper is a child process: it has its own window and spends the lead's money. The tree at the end shows who called
whom.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import lyra
from lyra import Agent, Kernel
from lyra.errors import LyraError
from lyra.models.sim import SimProvider
from lyra.observe import Spans


def model(*replies: Any) -> Any:
    return SimProvider({"replies": list(replies)}) if "--sim" in sys.argv else "anthropic/claude-sonnet-4-5"


ASK = [
    {"name": "historian", "arguments": {"task": "When was the bridge built?"}},
    {"name": "engineer", "arguments": {"task": "What is the bridge made of?"}},
]
historian = Agent("historian", model=model("In 1889."), description="Knows when things happened.")
engineer = Agent("engineer", model=model("Of iron."), description="Knows how things are made.")
lead = Agent(
    "lead",
    model=model({"user": "bridge", "tool_calls": ASK}, {"text": "They say:\n{result}"}),
    tools=lyra.team(historian, engineer),
    budget="$0.50",
)
critic = Agent("critic", model=model("Too short."), system="Say what is wrong with the text, in three words.")


async def main() -> None:
    spans = Spans()
    async with Kernel() as kernel:
        kernel.on_event(spans)
        process = await kernel.spawn(lead)
        print(await process.send("Tell me about the bridge."))
        print(await lyra.pipeline(historian, critic, on=kernel)("When was the tower built?"))
        print(await lyra.fan_out("The tower?", [historian, engineer], on=kernel))
        print(await lyra.router("Which metal?", {"who": historian, "how": engineer}, by=lambda _: "how", on=kernel))
        print(spans.tree()[0])


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except LyraError as error:
        sys.exit(error.render())

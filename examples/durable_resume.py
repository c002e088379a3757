"""An agent that survives `kill -9`: what was finished is not done again.

    python examples/durable_resume.py run.db --sim     # stop it with Ctrl-C or kill -9, and start it again
    python examples/durable_resume.py run.db           # with ANTHROPIC_API_KEY

The conversation, the model's answers and the results of tools are in the store. Started again on the same store, the
agent goes on after the last of them; what it is sent now comes after that.
"""

from __future__ import annotations

import asyncio
import sys

from lyra import Agent, Kernel, tool
from lyra.errors import LyraError
from lyra.models.sim import SimProvider

STEPS = 6
SCRIPT = [
    *({"tool_calls": [{"name": "dig", "arguments": {"metre": metre}}]} for metre in range(1, STEPS + 1)),
    {"text": "The well is dug."},
    {"text": "It is: six metres, and there is water."},
]


def scripted(request: object) -> object:
    """Answers by what was said so far, so that it is the same in every life of the program."""
    answers = sum(message.role == "assistant" for message in request.messages)  # type: ignore[attr-defined]
    return SCRIPT[min(answers, len(SCRIPT) - 1)]


MODEL = SimProvider(scripted) if "--sim" in sys.argv else "anthropic/claude-sonnet-4-5"


@tool(idempotent=True)
async def dig(metre: int) -> str:
    """Dig one metre; it takes a while."""
    await asyncio.sleep(0.2)
    print(f"dug metre {metre}", flush=True)
    return f"metre {metre} is done"


digger = Agent("digger", model=MODEL, tools=[dig], system=f"Dig metre by metre, down to {STEPS} metres.")


async def main(store: str) -> None:
    async with Kernel(store, programs=[digger]) as kernel:
        resumed = "digger" in kernel.processes
        process = await kernel.spawn(digger, pid="digger")
        if resumed:
            print("going on", flush=True)
        print(await process.send("Is the well done?" if resumed else "Please dig a well."))


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    try:
        asyncio.run(main(arguments[0] if arguments else "run.db"))
    except LyraError as error:
        sys.exit(error.render())

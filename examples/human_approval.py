"""A tool that asks a human first.

    python examples/human_approval.py --sim          # approved
    python examples/human_approval.py --sim --no     # refused
    python examples/human_approval.py                # with ANTHROPIC_API_KEY; asks you

A tool that takes `ctx` is a part of the agent's program: its question waits until a user answers, with a store also
across restarts.
"""

from __future__ import annotations

import asyncio
import sys

from lyra import Agent, Context, Kernel, tool
from lyra.errors import LyraError
from lyra.models.sim import SimProvider

SIM = "--sim" in sys.argv
SCRIPT = [
    {"tool_calls": [{"name": "send_mail", "arguments": {"to": "ann@example.com", "text": "See you at nine."}}]},
    {"text": "I tried: {result}"},
]
MODEL = SimProvider(SCRIPT) if SIM else "anthropic/claude-sonnet-4-5"


async def deliver(to: str, text: str) -> str:
    return f"sent {text!r} to {to}"


@tool
async def send_mail(ctx: Context, to: str, text: str) -> str:
    """Send a mail.

    Args:
        to: the address
        text: what it says
    """
    answer = await ctx.ask(f"Send {text!r} to {to}?", kind="confirmation")
    if not answer.approved:
        return "the user refused"
    return str(await ctx.do(deliver, to, text))


def approved(question: str) -> bool:
    print(question)
    return "--no" not in sys.argv if SIM else input("y/n ").strip().lower() == "y"


async def main() -> None:
    async with Kernel() as kernel:
        process = await kernel.spawn(Agent("secretary", model=MODEL, tools=[send_mail]))
        async for event in process.stream("Tell Ann that we meet at nine.", events=True):
            if event.type == "interrupt":
                answer = {"approved": approved(event.question), "text": "answered at the terminal"}
                await kernel.resolve_interrupt(event.id, answer)
            elif event.type == "text_delta":
                print(event.delta, end="")
        print()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except LyraError as error:
        sys.exit(error.render())

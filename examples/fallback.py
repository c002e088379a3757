"""A model that is down: tried again, then the next one answers; a circuit breaker spares it for a while.

python examples/fallback.py --sim
python examples/fallback.py           # with ANTHROPIC_API_KEY and OPENAI_API_KEY
"""

from __future__ import annotations

import asyncio
import sys

from lyra import Agent, Event, Kernel
from lyra.models.provider import LLMProvider
from lyra.models.sim import SimProvider

SIM = "--sim" in sys.argv
DOWN = {"replies": [{"error": {"kind": "overloaded", "message": "too busy"}}]}
MODEL: str | LLMProvider = SimProvider(DOWN) if SIM else "anthropic/claude-sonnet-4-5"
SPARE: str | LLMProvider = SimProvider(["I am the spare one."] * 3) if SIM else "openai/gpt-4o-mini"


def show(event: Event) -> None:
    if event.kind == "effect.retried":
        print(f"  try {event.data['attempt']} failed: {event.data['error']}")
    elif event.kind == "model.called":
        print(f"  {event.data['model']}: {event.data['status']} after {event.data['retries']} retries")


async def main() -> None:
    agent = Agent(
        "steady",
        model=MODEL,
        fallback=[SPARE],
        retry={"max_attempts": 2, "backoff": {"initial_s": 0.05}},
        circuit_breaker={"threshold": 3, "reset_after": 60},
    )
    async with Kernel() as kernel:
        kernel.on_event(show)
        process = await kernel.spawn(agent)
        for question in ("Are you there?", "Still there?", "And now?"):
            print(question)
            print(await process.send(question))


if __name__ == "__main__":
    asyncio.run(main())

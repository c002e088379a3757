"""A model that is down: tried again, then the next one answers; a circuit breaker spares it for a while.

python examples/fallback.py --sim
python examples/fallback.py           # with ANTHROPIC_API_KEY and OPENAI_API_KEY
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from lyra import Agent, Event, Kernel
from lyra.errors import LyraError
from lyra.models.provider import LLMProvider
from lyra.models.sim import SimProvider

DOWN = {"replies": [{"error": {"kind": "overloaded", "message": "too busy"}}]}


def model(name: str, script: Any) -> str | LLMProvider:
    if "--sim" not in sys.argv:
        return name
    provider = SimProvider(script)
    provider.name = name  # in records, and for its own circuit breaker
    return provider


MODEL = model("anthropic/claude-sonnet-4-5", DOWN)
SPARE = model("openai/gpt-4o-mini", {"replies": ["I am the spare one."]})


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
    try:
        asyncio.run(main())
    except LyraError as error:
        sys.exit(error.render())

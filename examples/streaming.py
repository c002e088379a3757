"""An answer piece by piece, and everything that happens on the way.

python examples/streaming.py --sim
python examples/streaming.py          # with ANTHROPIC_API_KEY
"""

from __future__ import annotations

import asyncio
import sys

from lyra import Agent, Kernel, tool
from lyra.errors import LyraError
from lyra.models.sim import SimProvider

SCRIPT = {
    "chunk_s": 0.02,
    "replies": [
        {"user": "haiku", "text": "An old silent pond\nA frog jumps into the pond\nSplash! Silence again."},
        {"user": "count", "tool_calls": [{"name": "count_words", "arguments": {"text": "one two three"}}]},
        {"tool": "count_words", "thinking": "That was easy.", "text": "There are {result} words."},
    ],
}
MODEL = SimProvider(SCRIPT) if "--sim" in sys.argv else "anthropic/claude-sonnet-4-5"


@tool
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


async def main() -> None:
    async with Kernel() as kernel:
        poet = await kernel.spawn(Agent("poet", model=MODEL, tools=[count_words]))
        async for piece in poet.stream("Write a haiku about a pond."):
            print(piece, end="", flush=True)
        print()
        async for event in poet.stream("Now count the words of: one two three", events=True):
            print(event.type, event.to_data())


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except LyraError as error:
        sys.exit(error.render())

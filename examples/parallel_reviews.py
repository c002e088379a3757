"""Three reviews that are written one after another and made side by side: `@lyra.parallel`.

    python examples/parallel_reviews.py --sim
    python examples/parallel_reviews.py               # with ANTHROPIC_API_KEY

`vega plan examples/parallel_reviews.py` shows what overlaps.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import lyra
from lyra import Agent, Kernel
from lyra.errors import LyraError
from lyra.models.sim import SimProvider


def model(reply: str) -> Any:
    slow = {"replies": [{"text": reply, "first_s": 0.5}]}
    return SimProvider(slow) if "--sim" in sys.argv else "anthropic/claude-sonnet-4-5"


security = Agent("security", model=model("No input reaches the outside."), system="Review for security, in a line.")
style = Agent("style", model=model("A docstring is missing."), system="Review for style, in a line.")
speed = Agent("speed", model=model("Linear, as it should be."), system="Review for speed, in a line.")
editor = Agent("editor", model=model("Add a docstring, then merge."), system="Sum up the reviews, in a line.")

CODE = "def mean(xs): return sum(xs) / len(xs)"


@lyra.parallel
async def review(code: str, on_security: Any, on_style: Any, on_speed: Any, editor: Any) -> str:
    first = await on_security.send(code)
    second = await on_style.send(code)
    third = await on_speed.send(code)
    return str(await editor.send(f"{first}\n{second}\n{third}"))


async def main() -> None:
    async with Kernel() as kernel:
        team = [await kernel.spawn(agent) for agent in (security, style, speed, editor)]
        clock = asyncio.get_running_loop().time
        began = clock()
        print(await review(CODE, *team))
        print(f"four calls in {clock() - began:.1f} s")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except LyraError as error:
        sys.exit(error.render())

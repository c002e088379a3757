"""Money: a limit that holds, for one agent and for everything inside a block.

    python examples/budget.py --sim
    python examples/budget.py             # with ANTHROPIC_API_KEY

What a call may cost at most is set aside before it is made, so the limit is never passed.
"""

from __future__ import annotations

import asyncio
import sys

import lyra
from lyra import Agent, Kernel
from lyra.errors import BudgetExceeded, LyraError
from lyra.models.sim import SimProvider

SCRIPT = {
    "price": {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15},
    "replies": [{"text": "Bees fly from flower to flower and carry pollen. " * 10}],
}
MODEL = SimProvider(SCRIPT) if "--sim" in sys.argv else "anthropic/claude-sonnet-4-5"


async def main() -> None:
    writer = Agent("writer", model=MODEL, max_tokens=200)
    async with Kernel() as kernel:
        process = await kernel.spawn(writer, budget="$0.01")
        with lyra.budget("$0.005") as spent:
            try:
                for number in range(1, 10):
                    answer = await process.send("Write about bees.")
                    print(f"{number}: {len(answer)} characters for ${answer.cost_usd:.6f}, {spent.remaining} left")
            except BudgetExceeded as error:
                print(f"stopped: {error.message}")
        print(f"spent {spent.used} of {spent.limit} here, {process.budget.remaining('usd')} left for the process")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except LyraError as error:
        sys.exit(error.render())

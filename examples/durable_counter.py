"""A counter that survives kill -9.

    python examples/durable_counter.py counter.db
    ^C, or kill -9 from another terminal
    python examples/durable_counter.py counter.db      # goes on where it was

Each step is an effect that writes one file. A finished step is never performed again; the one in flight at a crash
is, because it is declared idempotent: writing the same number twice leaves the same file.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from lyra import Context, Kernel, effect


@effect(idempotent=True)
async def write_number(path: str, number: int) -> int:
    await asyncio.to_thread(Path(path).write_text, f"{number}\n")
    return number


async def count(ctx: Context, path: str, upto: int, pause_s: float) -> int:
    total = 0
    for number in range(1, upto + 1):
        total += await ctx.do(write_number, path, number)
        if not ctx.replaying:
            print(f"counted {number}", flush=True)
        await ctx.sleep(pause_s)
    return total


async def main(store: str, upto: int = 20, pause_s: float = 0.2) -> int:
    async with Kernel(store, programs=[count]) as kernel:
        handle = kernel.spawn(count, f"{store}.txt", upto, pause_s, pid="counter")
        ended = await handle.wait()
        print(f"{ended.reason}: {ended.result}")
        return int(ended.result)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        sys.exit("usage: python examples/durable_counter.py [STORE]")
    asyncio.run(main(arguments[0] if arguments else "counter.db"))

"""What the hosts of `test_ray_hosts` run."""

from __future__ import annotations

import asyncio
import os
from typing import Any

EFFECT_S = 0.1


async def act(file: str, line: str) -> int:
    """Last a while, then write that it was performed, and by which process."""
    await asyncio.sleep(EFFECT_S)
    _note(file, f"{line}:{os.getpid()}\n")
    return 1


def _note(file: str, line: str) -> None:
    with open(file, "a", encoding="utf-8") as lines:
        lines.write(line)


async def work(ctx: Any, file: str, name: str, count: int) -> int:
    return sum([await ctx.do(act, file, f"{name}:{step}", idempotent=True) for step in range(count)])


async def where(ctx: Any) -> list[Any]:
    """Return the process that a program runs in, and the graphics cards that it is shown."""
    return [os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES")]


async def relay(ctx: Any, shard: str) -> list[Any]:
    """Spawn a program on another shard and return what came of it."""
    child = await ctx.spawn(where, shard=shard)
    return (await child.wait()).result  # type: ignore[no-any-return]


def setup(kernel: Any) -> None:
    for program in (work, where, relay):
        kernel.register(program)

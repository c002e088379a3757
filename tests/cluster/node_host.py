"""A host whose shards execute Vesper nodes, as a program of its own: `python -m tests.cluster.node_host URL NAME`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from lyra import vesper
from lyra.kernel import Kernel
from lyra.kernel.programs.context import Context
from lyra.vesper.runtime.paths import DirectPath
from tests.cluster import shared_host

NODE = """\
node_id: NAME
type: function
intent: double a number
inputs:
  number: {type: integer}
outputs:
  success:
    doubled: integer
flow:
  - step: double
    operation: arithmetic
    expression: "number * 2"
    output: doubled
"""
WRONG_ABOVE = 1_000_000


class Mistaken:
    """A direct path that is wrong for large numbers."""

    def __init__(self) -> None:
        self._path = DirectPath()
        self.start = self._path.start

    def run(self, program: Any, inputs: Any, execution: Any) -> Any:
        outcome = self._path.run(program, inputs, execution)
        if inputs["number"] > WRONG_ABOVE:
            return msgspec.structs.replace(outcome, outputs={"doubled": 0})
        return outcome


class ShardNodes:
    """The runtimes of the shards that are open in this process."""

    def __init__(self, node_id: str = "double_v1") -> None:
        self.node = vesper.load(NODE.replace("NAME", node_id))
        self.runtimes: dict[str, vesper.Runtime] = {}

    def setup(self, kernel: Kernel) -> None:
        runtime = vesper.Runtime(cluster=kernel, direct=Mistaken(), min_successes=1)
        self.runtimes[kernel.core.remote.shard] = runtime

    async def execute(self, shard: str, numbers: Iterable[int], mode: str | None = None) -> None:
        def run() -> None:
            for number in numbers:
                self.runtimes[shard].execute(self.node, {"number": number}, mode)
            self.runtimes[shard].evidence(self.node)  # the home has all of it then

        await asyncio.to_thread(run)

    async def evidence(self, shard: str) -> Any:
        return await asyncio.to_thread(self.runtimes[shard].evidence, self.node)

    def mode(self, shard: str) -> str:
        return str(self.runtimes[shard].mode(self.node))


NODES = ShardNodes()


async def executes(ctx: Context, first: int, last: int, mode: str | None) -> None:
    """Execute the node with some numbers on this shard."""
    shard = ctx.own_process.core.remote.shard
    await ctx.do(NODES.execute, shard, list(range(first, last)), mode, idempotent=True)


async def moves(ctx: Context, mode: str) -> str:
    """Set the mode of the node here, or promote it; gives the mode or the refusal."""
    runtime = NODES.runtimes[ctx.own_process.core.remote.shard]

    async def act() -> str:
        if mode == "up":
            return str(await asyncio.to_thread(runtime.promote, NODES.node))
        await asyncio.to_thread(runtime.set_mode, NODES.node, mode, force=True)
        return str(runtime.mode(NODES.node))

    return str(await ctx.do(act, idempotent=True))


async def looks(ctx: Context) -> list[Any]:
    """Return the mode of the node here, and what is known about it."""
    shard = ctx.own_process.core.remote.shard

    async def look() -> list[Any]:
        known = await NODES.evidence(shard)
        return [NODES.mode(shard), known.compared, known.distinct, known.divergences, known.blocked]

    return list(await ctx.do(look, idempotent=True))


if __name__ == "__main__":
    asyncio.run(shared_host.main(sys.argv[1], sys.argv[2], (executes, moves, looks), NODES.setup))

"""A host as a program of its own, for tests that kill it: `python -m tests.cluster.shared_host URL NAME`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.host import Host
from lyra.cluster.peers import GrpcCarrier, GrpcListener
from lyra.kernel import Kernel
from lyra.kernel.programs.context import Context


async def works(ctx: Context, word: str = "") -> str:
    return f"{word}{ctx.pid}"


async def asks(ctx: Context) -> bool | None:
    approved: bool | None = (await ctx.ask("May I?", kind="confirmation")).approved
    return approved


async def writes(ctx: Context, group: str, key: str, count: int) -> int:
    """Join a group, write numbers on its board one after the other, and stay until told to end."""
    groups = ctx.groups

    async def join() -> None:
        groups.create(group, exist_ok=True)
        groups.join(group, ctx.pid)

    async def write(number: int) -> None:
        groups.bb_set(group, key, number)

    await ctx.do(join, idempotent=True)
    for number in range(count):
        await ctx.do(write, number, idempotent=True)
        await ctx.sleep(0.02)
    await ctx.receive()
    return count


async def reads(ctx: Context, group: str) -> dict[str, Any]:
    """Return the board, the members and the version of a group, as its home has them now."""
    groups = ctx.groups

    async def read() -> dict[str, Any]:
        seen = await groups.refresh(group)
        return {"board": groups.bb_snapshot(group), "members": sorted(seen.members)}

    result: dict[str, Any] = await ctx.do(read, idempotent=True)
    return result


async def calls(ctx: Context, number: int) -> dict[str, Any]:
    kernel = ctx.own_process.core.face

    async def act() -> dict[str, Any]:
        return dict((await kernel.dispatch("square", {"metadata": {"n": number}}, max_retries=5)).metadata)

    result: dict[str, Any] = await ctx.do(act, idempotent=True)
    return result


def setup(kernel: Kernel) -> None:
    """Offer a service on two of the four shards."""
    shard = kernel.core.remote.shard
    if shard in ("s1", "s2"):
        kernel.register_service({"name": "square"})
        kernel.register_handler("square", lambda request: {"n": request.metadata["n"] ** 2, "shard": shard})


PROGRAMS = (works, asks, writes, reads, calls)


async def main(url: str, name: str, programs: Any = PROGRAMS, setup: Any = setup) -> None:
    directory = PostgresDirectory(url, make=False)
    listener = GrpcListener("127.0.0.1:0")
    hosts: list[Host] = []

    async def answer(method: str, data: Any) -> Any:
        return await hosts[0].answer(method, data)

    await listener.start(answer, directory.secret)
    carrier = GrpcCarrier(directory.secret)
    hosts.append(Host(directory, carrier, name=name, address=listener.address, programs=programs, setup=setup))
    await hosts[0].start()
    print("ready", flush=True)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

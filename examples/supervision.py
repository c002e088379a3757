"""A supervision tree: what crashes is started again, with what depends on it, and stays reachable by its name.

    python examples/supervision.py shop.db
    python examples/supervision.py shop.db      # the same tree goes on, and the restarts of the last run still count

    shop            one_for_one
    ├ kitchen       rest_for_one, three restarts a minute
    │ ├ stove       permanent: crashes when it is sent something it cannot cook
    │ └ waiter      permanent: orders taken by a waiter of the old stove are void, so it is restarted with it
    └ opening       temporary: done once

Each run crashes the stove once. The fourth within a minute is too many for the kitchen: it gives up, and the shop
starts the whole kitchen again.
"""

from __future__ import annotations

import asyncio
import sys

from lyra import Context, Kernel
from lyra.core.event import Event
from lyra.kernel import Child


async def stove(ctx: Context) -> None:
    while True:
        order = await ctx.receive()
        if order["dish"] == "stones":
            raise ValueError("stones cannot be cooked")
        await ctx.send(order["to"], f"hot {order['dish']}")


async def waiter(ctx: Context) -> None:
    while True:
        order = await ctx.receive()
        await ctx.send("stove", {"dish": order["dish"], "to": order["to"]})


async def opening(ctx: Context) -> str:
    return "open"


async def guest(ctx: Context, dish: str) -> str:
    """Orders by name: the process that is registered as the waiter now gets the order."""
    await ctx.send("waiter", {"dish": dish, "to": ctx.pid})
    return str(await ctx.receive(timeout=5.0))


TREE = [
    Child.supervisor(
        "kitchen",
        [Child("stove", stove, name="stove"), Child("waiter", waiter, name="waiter")],
        strategy="rest_for_one",
        max_restarts=3,
        window_s=60.0,
        name="kitchen",
    ),
    Child("opening", opening, restart="temporary"),
]


def is_waiter(event: Event) -> bool:
    return event.kind == "process.created" and event.data.get("name") == "waiter"


async def main(store: str = "memory") -> dict[str, int]:
    async with Kernel(store, programs=[stove, waiter, opening, guest]) as kernel:
        await kernel.supervise(TREE, pid="shop")  # an existing one, if the store has it
        print(await kernel.run(guest, "soup"))
        back = asyncio.Event()
        kernel.on_event(lambda event: back.set() if is_waiter(event) else None)
        await kernel.send("stove", {"dish": "stones", "to": ""})
        await back.wait()
        print(await kernel.run(guest, "tea"))
        starts = {child.id: child.starts for child in kernel.supervisor("kitchen").which_children()}
        print("starts:", ", ".join(f"{name} {count}" for name, count in starts.items()))
        return starts


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))

"""The runs of these tests: an agent with a tool, a durable program, and a team with a child that crashes.

Every real act leaves a line in a file (`ACTS`), so that a test can count how often it was performed. The file is also a
program of its own (`python programs.py STORE RUN`), for tests that kill it, and what `lyra replay --load` is given.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lyra import Agent, Kernel
from lyra.kernel import Child
from lyra.models.sim import SimProvider

ACTS = "LYRA_TEST_ACTS"  # the variable that names the file
PAUSE = "LYRA_TEST_PAUSE"
PAUSED = "paused"
PRICE = {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15}
REPLIES = [
    {"tool": "weather", "text": "It is {result}."},
    {"user": "weather in (\\w+)", "tool_calls": [{"name": "weather", "arguments": {"city": "{1}"}}]},
    {"text": "You said: {user}"},
]


def note(act: str) -> None:
    """A real act: a line in the file."""
    with open(os.environ[ACTS], "a", encoding="utf-8") as file:
        file.write(f"{act}\n")


def acts() -> list[str]:
    path = os.environ[ACTS]
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return file.read().split()


def weather(city: str) -> str:
    """The weather of a city."""
    note(f"weather-{city}")
    return f"sunny in {city}"


guide = Agent(
    "guide",
    model=SimProvider(script={"price": PRICE, "replies": REPLIES}),
    tools=[weather],
    system="Be kind.",
    budget="$0.50",
)


async def reserve(room: str) -> dict[str, str]:
    note(f"reserve-{room}")
    return {"room": room}


async def pay(amount: int) -> int:
    note(f"pay-{amount}")
    return amount


async def mail(text: str) -> str:
    note(f"mail-{text}")
    return text


async def pause() -> None:
    """Hold the program up while the variable is set: for tests that kill it here, when all before is durable."""
    if os.environ.get(PAUSE):
        note(PAUSED)
    while os.environ.get(PAUSE):
        await asyncio.sleep(0.01)


async def clerk(ctx: Any, room: str) -> str:
    """A child: it writes one mail."""
    text = str(await ctx.do(mail, room))
    await ctx.do(pause, idempotent=True)
    return text


async def publisher(ctx: Any) -> str:
    """A person is asked before the act, and the act needs the answer."""
    answer = await ctx.ask("Publish?", kind="confirmation")
    return str(await ctx.do(mail, "published")) if answer.approved else "no"


async def booking(ctx: Any, room: str) -> dict[str, Any]:
    """A durable program: two acts, a child, a message, a last act."""
    reserved = await ctx.do(reserve, room)
    began_at = ctx.now()
    ended = await ctx.spawn(clerk, reserved["room"]).wait()
    order = await ctx.receive()
    paid = await ctx.do(pay, order["amount"])
    return {"room": reserved["room"], "mailed": ended.result, "paid": paid, "timed": began_at > 0}


async def shaky(ctx: Any) -> None:
    """A child that crashes the first time it runs, and works from then on."""
    if await ctx.do(tries) < 2:
        raise RuntimeError("overloaded")
    await ctx.receive()


async def tries() -> int:
    note("try")
    return acts().count("try")


PROGRAMS = (guide, booking, clerk, shaky, publisher)


@asynccontextmanager
async def opened(store: Any, **options: Any) -> AsyncIterator[Kernel]:
    async with Kernel(store, programs=PROGRAMS, **options) as kernel:
        yield kernel


async def talk(store: Any, pid: str = "talk") -> None:
    """A conversation of two turns; the first uses a tool."""
    async with opened(store) as kernel:
        agent = await kernel.spawn(guide, pid=pid)
        await agent.send("weather in Oslo?")
        await agent.send("thanks")


async def book(store: Any, pid: str = "trip") -> Any:
    async with opened(store) as kernel:
        process = kernel.spawn(booking, "sea", pid=pid)
        await kernel.send(pid, {"amount": 120})
        return await process.wait()


async def team(store: Any) -> None:
    """A supervisor whose child crashes once and is started again."""
    async with opened(store) as kernel:
        await kernel.supervise([Child("shaky", shaky)], pid="team")
        while acts().count("try") < 2:
            await asyncio.sleep(0.01)
        await kernel.durable()


async def hang(store: str) -> None:
    """Work until the message that `booking` waits for, tell so, and wait to be killed."""
    async with opened(store) as kernel:
        kernel.spawn(booking, "sea", pid="trip")
        agent = await kernel.spawn(guide, pid="talk")
        await agent.send("weather in Oslo?")
        while len([act for act in acts() if act.startswith(("mail", "weather"))]) < 2:
            await asyncio.sleep(0.01)
        await kernel.durable()
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(hang(sys.argv[1]))

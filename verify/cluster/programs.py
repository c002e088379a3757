"""Programs and effects that the hosts of a test cluster run, and how they report to the test.

A report is one line on the host's standard output: the kind, CLOCK_MONOTONIC (the same for every process of the
machine) and words. A line that was written before a SIGKILL is read after it.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Final

from lyra import Agent, Effect, tool
from lyra.kernel.programs.context import Context
from lyra.models.provider import Request
from lyra.models.script import Reply, ScriptedCall
from lyra.models.sim import SimProvider

__all__ = ["PROGRAMS", "report"]

_output = 1  # the file that reports go to; `host_process` puts the pipe of the test here


def report_to(file: int) -> None:
    global _output
    _output = file


def report(kind: str, *words: object) -> None:
    os.write(_output, " ".join([kind, f"{time.monotonic():.6f}", *map(str, words)]).encode() + b"\n")


async def _act(number: int, seconds: float, idempotency_key: str) -> int:
    """Take so long, and report both ends."""
    report("begin", idempotency_key, number)
    await asyncio.sleep(seconds)
    report("end", idempotency_key, number)
    return number * 7 + 1


async def _count(number: int) -> int:
    return number


ACT: Final = Effect(_act, name="act", idempotent=True)
PAY: Final = Effect(_act, name="pay", idempotent=False)
COUNT: Final = Effect(_count, name="count", idempotent=True)


async def act(ctx: Context, effects: int, seconds: float) -> int:
    """Make so many idempotent effects of so many seconds, one after the other."""
    return sum([await ctx.do(ACT, number, seconds) for number in range(effects)])


async def pay(ctx: Context, effects: int, seconds: float) -> int:
    """Make so many effects that are not idempotent."""
    return sum([await ctx.do(PAY, number, seconds) for number in range(effects)])


async def pace(ctx: Context, effects: int, seconds: float) -> int:
    """Wait beside the kernel before each effect: one that is frozen comes to the door as soon as it wakes."""
    for number in range(effects):
        await asyncio.sleep(seconds)
        await ctx.do(ACT, number, 0.0)
    return effects


async def count(ctx: Context, effects: int) -> float:
    """Make so many effects that take no time; gives when the last was durable."""
    for number in range(effects):
        await ctx.do(COUNT, number)
    return time.monotonic()


async def crowd(ctx: Context, processes: int, effects: int) -> list[float]:
    """Start so many programs that make so many effects each, and wait for all; gives when they began and ended."""
    began_s = time.monotonic()
    children = [ctx.spawn(count, effects) for _ in range(processes)]
    ended = [await child.wait() for child in children]
    return [began_s, max(end.result for end in ended)]


def _answer(request: Request) -> Reply:
    """Answer as a model that calls its tool so many times, by what was said so far."""
    calls = sum(message.role == "assistant" for message in request.messages)
    if calls == TOOL_CALLS:
        return Reply(text="It is dug.", first_s=MODEL_S)
    return Reply(tool_calls=(ScriptedCall("dig", {"metre": calls + 1}),), first_s=MODEL_S)


@tool(idempotent=True)
async def dig(metre: int) -> str:
    """Dig one metre."""
    return f"metre {metre} is done"


TOOL_CALLS: Final = 3
MODEL_S: Final = 2.0
digger: Final = Agent("digger", model=SimProvider(_answer), tools=[dig], system="Dig metre by metre.")


async def dig_team(ctx: Context, agents: int) -> list[float]:
    """Start so many agents at a time and wait for all their answers; gives when they began and ended."""
    began_s = time.monotonic()
    children = [ctx.spawn(digger, "Please dig.") for _ in range(agents)]
    for child in children:
        assert (await child.wait()).result == "It is dug."
    return [began_s, time.monotonic()]


async def echo(ctx: Context) -> None:
    """Send each message back to the address in it."""
    while True:
        back, value = await ctx.receive()
        ctx.send(back, value)


async def ping(ctx: Context, own: str, to: str, rounds: int) -> list[float]:
    """Send so many messages there and back; gives the seconds of each."""
    taken = []
    for number in range(rounds):
        began_s = time.monotonic()
        ctx.send(to, [own, number])
        assert await ctx.receive() == number
        taken.append(time.monotonic() - began_s)
    return taken


async def tell(ctx: Context, to: str, messages: int, pause_s: float = 0.0) -> int:
    """Send so many numbered messages."""
    for number in range(messages):
        ctx.send(to, number)
        if pause_s:
            await ctx.sleep(pause_s)
    return messages


async def tell_and_spawn(ctx: Context, to: str, messages: int, shard: str) -> str:
    """Send so many numbered messages, then start a program on their shard; gives its address."""
    await tell(ctx, to, messages)
    return str(ctx.spawn(act, 0, 0.0, shard=shard).pid)


async def collect(ctx: Context, messages: int) -> list[int]:
    """Return so many messages in the order in which they came."""
    return [await ctx.receive() for _ in range(messages)]


async def idle(ctx: Context) -> Any:
    """Return the first message."""
    return await ctx.receive()


async def hold_up(ctx: Context, seconds: float) -> str:
    """Hold up the loop of the whole host, as a program does that computes without waiting."""
    report("held", seconds)
    time.sleep(seconds)
    report("released")
    return "done"


PROGRAMS: Final = (
    act,
    pace,
    pay,
    count,
    crowd,
    digger,
    dig_team,
    echo,
    ping,
    tell,
    tell_and_spawn,
    collect,
    idle,
    hold_up,
)

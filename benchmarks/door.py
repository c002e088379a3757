"""An effect through the door with every check on, against the cheapest thing asyncio has to isolate a call: a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.measure import Row, Size, Stopwatch, Timing, interleave, ratio_at_most
from lyra.core.effect import effect
from lyra.kernel import Kernel


async def act() -> int:
    return 1


guarded = effect(
    act,
    name="bench:guarded",
    needs="net.http:api.example.com",
    cost="$0.000001",
    rate_limit={"requests_per_minute": 10**11},
    circuit_breaker={"threshold": 5},
    retry=3,
)


async def program(ctx: Any, effect: Any, count: int) -> Any:
    with Stopwatch(count) as watch:
        for _ in range(count):
            await ctx.do(effect)
    return tuple(watch.timing)


async def inside(ctx: Any, effect: Any, count: int) -> Any:
    """One process below another, each with a Budget of its own: three scopes to reserve in."""
    child = ctx.spawn(program, effect, count, budget="$1000")
    ended = await child.wait()
    if ended.error is not None:
        raise ended.error
    return ended.result


async def through_door(effect: Any, count: int, *, listen: bool) -> Timing:
    events = 0

    def listener(_event: object) -> None:
        nonlocal events
        events += 1

    async with Kernel("memory", budget="$1000000", grant=["net.http:*.example.com", "process.spawn"]) as kernel:
        if listen:
            kernel.on_event(listener)
        timing = Timing(*await kernel.run(inside, effect, count, budget="$10000"))
    assert not listen or events >= 2 * count
    return timing


async def as_tasks(count: int) -> Timing:
    with Stopwatch(count) as watch:
        for _ in range(count):
            await asyncio.create_task(act())
    return watch.timing


async def directly(count: int) -> Timing:
    with Stopwatch(count) as watch:
        for _ in range(count):
            await act()
    return watch.timing


def run(size: Size) -> list[Row]:
    count = size.of(20_000, 200)

    def contender(work: Callable[..., Awaitable[Timing]], *args: Any, **options: Any) -> Callable[[], Timing]:
        async def measured() -> Timing:
            return await work(*args, **options)

        return lambda: asyncio.run(measured())

    best = interleave(
        {
            "task": contender(as_tasks, count),
            "all": contender(through_door, guarded, count, listen=False),
            "all, listened to": contender(through_door, guarded, count, listen=True),
            "plain": contender(through_door, act, count, listen=False),
            "direct": contender(directly, count),
        },
        size.repeats,
    )
    task = "await asyncio.create_task(f())"
    return [
        Row("effect, all checks on", best["all"], task, best["task"], (ratio_at_most(1.5),)),
        Row("effect, all checks on, an event listener", best["all, listened to"], task, best["task"]),
        Row("effect, nothing declared", best["plain"], task, best["task"]),
        Row("effect, nothing declared", best["plain"], "await f()", best["direct"]),
    ]

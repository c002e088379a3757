"""Rate limits and circuit breakers outlive their kernel: the next one goes on with them, by the clock on the wall."""

from __future__ import annotations

import asyncio

from lyra.errors import CircuitOpen, ModelError, RateLimited
from lyra.kernel import Kernel
from tests.kernel.conftest import Crash, run, settle

LIMIT = {"requests_per_minute": 6, "burst": 2, "strategy": "reject"}
BREAKER = {"threshold": 2, "reset_after": 60}


async def act(value):
    return value


async def broken():
    raise ModelError("no answer", kind="overloaded")


async def ask(ctx, *values):
    """What each call came to."""
    found = []
    for value in values:
        try:
            found.append(await ctx.do(act, value, rate_limit=LIMIT))
        except RateLimited:
            found.append("rejected")
    return found


async def fail(ctx, times):
    found = []
    for _ in range(times):
        try:
            await ctx.do(broken, circuit_breaker=BREAKER)
        except CircuitOpen:
            found.append("open")
        except ModelError:
            found.append("failed")
    return found


async def said(kernel, program, *args):
    child = kernel.spawn(program, *args)
    await settle(kernel)
    return (await child.wait()).result


def kernel(path, clock):
    return Kernel(path, programs=[ask, fail, hold], clock=clock)


def test_a_rate_limit_goes_on_where_it_was(path, clock):
    """What was let through counts, and what the bucket regains while nobody runs counts too."""

    async def main():
        async with Crash(kernel(path, clock)) as one:
            assert await said(one, ask, 1, 2, 3) == [1, 2, "rejected"]
        async with Crash(kernel(path, clock)) as two:
            assert await said(two, ask, 4) == ["rejected"]
        clock.advance(10.0)
        async with Crash(kernel(path, clock)) as three:
            assert await said(three, ask, 5, 6) == [5, "rejected"]

    run(main())


def test_an_open_breaker_stays_open_until_its_time(path, clock):
    """Failures in a row go on being counted; a probe decides once the time is over."""

    async def main():
        async with Crash(kernel(path, clock)) as one:
            assert await said(one, fail, 1) == ["failed"]
        async with Crash(kernel(path, clock)) as two:
            assert await said(two, fail, 2) == ["failed", "open"]
        clock.advance(59.0)
        async with Crash(kernel(path, clock)) as three:
            assert await said(three, fail, 1) == ["open"]
        clock.advance(2.0)
        async with Crash(kernel(path, clock)) as four:
            assert await said(four, fail, 2) == ["failed", "open"]

    run(main())


def test_a_snapshot_keeps_them(path, clock):
    async def main():
        async with kernel(path, clock) as one:
            assert await said(one, ask, 1, 2) == [1, 2]
            assert await said(one, fail, 2) == ["failed", "failed"]
            await one._recovery.snapshot()
        async with kernel(path, clock) as two:
            assert await said(two, ask, 3) == ["rejected"]
            assert await said(two, fail, 1) == ["open"]

    run(main())


STARTED: list[object] = []


async def never(value):
    STARTED.append(value)
    await asyncio.Future()


async def hold(ctx, value):
    return await ctx.do(never, value, idempotent=True, rate_limit={**LIMIT, "burst": 1})


def test_a_call_that_was_under_way_is_let_through_once(path, clock):
    """It goes on in the next life although the bucket is empty, and takes nothing from it."""

    async def main():
        STARTED.clear()
        async with Crash(kernel(path, clock)) as one:
            one.spawn(hold, "a")
            await settle(one)
        assert STARTED == ["a"]
        async with Crash(kernel(path, clock)) as two:
            await settle(two)
            assert STARTED == ["a", "a"]
            late = two.spawn(hold, "b")
            await settle(two)
            assert isinstance((await late.wait()).error, RateLimited)

    run(main())

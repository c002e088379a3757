"""Rate limits and circuit breakers outlive their kernel: the next one goes on with them, by the clock on the wall."""

from __future__ import annotations

import asyncio

from lyra import Effect
from lyra.errors import CircuitOpen, ModelError, RateLimited, StoreFull
from lyra.kernel import Kernel
from lyra.store.memory import MemoryStore
from tests.kernel.conftest import Crash, pass_time, run, settle

LIMIT = {"requests_per_minute": 6, "burst": 2, "strategy": "reject"}
BREAKER = {"threshold": 2, "reset_after": 60}


async def act(value):
    return value


async def broken():
    raise ModelError("no answer", kind="overloaded")


async def ask(ctx, *values):
    """What each call came to."""
    outcomes = []
    for value in values:
        try:
            outcomes.append(await ctx.do(act, value, rate_limit=LIMIT))
        except RateLimited:
            outcomes.append("rejected")
    return outcomes


async def fail(ctx, times):
    outcomes = []
    for _ in range(times):
        try:
            await ctx.do(broken, circuit_breaker=BREAKER)
        except CircuitOpen:
            outcomes.append("open")
        except ModelError:
            outcomes.append("failed")
    return outcomes


async def result_of(kernel, program, *args):
    child = kernel.spawn(program, *args)
    await settle(kernel)
    return (await child.wait()).result


def kernel(path, clock):
    return Kernel(path, programs=[ask, fail, hold], clock=clock)


def test_a_rate_limit_goes_on_where_it_was(path, clock):
    """What was let through counts, and what the bucket regains while no kernel runs counts too."""

    async def main():
        async with Crash(kernel(path, clock)) as first:
            assert await result_of(first, ask, 1, 2, 3) == [1, 2, "rejected"]
        async with Crash(kernel(path, clock)) as second:
            assert await result_of(second, ask, 4) == ["rejected"]
        clock.advance(10.0)
        async with Crash(kernel(path, clock)) as third:
            assert await result_of(third, ask, 5, 6) == [5, "rejected"]

    run(main())


def test_an_open_breaker_stays_open_until_its_time(path, clock):
    """Failures in a row go on being counted; a probe decides once the time is over."""

    async def main():
        async with Crash(kernel(path, clock)) as first:
            assert await result_of(first, fail, 1) == ["failed"]
        async with Crash(kernel(path, clock)) as second:
            assert await result_of(second, fail, 2) == ["failed", "open"]
        clock.advance(59.0)
        async with Crash(kernel(path, clock)) as third:
            assert await result_of(third, fail, 1) == ["open"]
        clock.advance(2.0)
        async with Crash(kernel(path, clock)) as fourth:
            assert await result_of(fourth, fail, 2) == ["failed", "open"]

    run(main())


def test_a_snapshot_keeps_them(path, clock):
    async def main():
        async with kernel(path, clock) as first:
            assert await result_of(first, ask, 1, 2) == [1, 2]
            assert await result_of(first, fail, 2) == ["failed", "failed"]
            await first._snapshots.write()
        async with kernel(path, clock) as second:
            assert await result_of(second, ask, 3) == ["rejected"]
            assert await result_of(second, fail, 1) == ["open"]

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
        async with Crash(kernel(path, clock)) as first:
            first.spawn(hold, "a")
            await settle(first)
        assert STARTED == ["a"]
        async with Crash(kernel(path, clock)) as second:
            await settle(second)
            assert STARTED == ["a", "a"]
            late = second.spawn(hold, "b")
            await settle(second)
            assert isinstance((await late.wait()).error, RateLimited)

    run(main())


class Full(MemoryStore):
    """A store that has no room while `is_full`."""

    is_full = False

    def append(self, records, epoch):
        if self.is_full:
            raise StoreFull("no room")
        super().append(records, epoch)


def test_a_call_that_is_cut_before_it_runs_frees_its_place(clock):
    """The breaker lets one probe pass; killed while it waits for its `started` row, the probe leaves its place to the
    next call."""
    store = Full()
    healthy = {"is": False}

    async def service():
        if not healthy["is"]:
            raise ConnectionError("down")
        return "up"

    call = Effect(service, name="service", circuit_breaker={"threshold": 1, "reset_after": 10, "half_open_max": 1})

    async def calls(ctx):
        return await ctx.do(call)

    async def calls_when_told(ctx):
        await ctx.receive()
        return await ctx.do(call)

    async def main():
        async with Kernel(store, clock) as kernel:
            assert isinstance((await kernel.spawn(calls).wait()).error, ConnectionError)
            clock.advance(11)
            healthy["is"] = True
            probe = await kernel.spawn(calls_when_told)
            store.is_full = True
            kernel.send(probe, "go")
            await settle(kernel)
            assert kernel.journal.stuck is not None
            kernel.kill(probe)
            store.is_full = False
            await pass_time(kernel, clock, 2)
            assert (await probe.wait()).reason == "killed"
            assert (await kernel.spawn(calls).wait()).result == "up"

    run(main())

"""Virtual time: the clock that tests move, and the loop that moves it by itself."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from lyra.kernel import Kernel
from lyra.store.memory import MemoryStore
from lyra.testing import SimClock, run_in_virtual_time
from lyra.testing.loop import Deadlock, LoopClock, SimLoop


def test_wall_clock_starts_where_it_is_told_and_monotonic_at_zero():
    clock = SimClock(100.0)
    assert (clock.now(), clock.monotonic()) == (100.0, 0.0)
    clock.advance(5)
    assert (clock.now(), clock.monotonic()) == (105.0, 5.0)


def test_timers_fire_in_order_each_at_its_own_time():
    clock = SimClock()
    fired: list[tuple[float, float]] = []
    for when in (3.0, 1.0, 2.0):
        clock.call_at(when, partial(lambda due: fired.append((due, clock.monotonic())), when))
    clock.advance(2.5)
    assert fired == [(1.0, 1.0), (2.0, 2.0)]
    clock.advance(1.0)
    assert fired[-1] == (3.0, 3.0)


def test_timers_set_by_timers_fire_inside_the_same_interval():
    clock = SimClock()
    fired: list[float] = []

    def again() -> None:
        clock.call_at(2.0, lambda: fired.append(clock.monotonic()))

    clock.call_at(1.0, again)
    clock.advance(10)
    assert fired == [2.0]


def test_a_cancelled_timer_does_not_fire_and_cancelling_twice_is_harmless():
    clock, fired = SimClock(), []
    timer = clock.call_at(1.0, lambda: fired.append(1))
    timer.cancel()
    timer.cancel()
    clock.advance(2)
    assert fired == []


def test_a_jump_moves_the_wall_clock_only_and_fires_nothing():
    clock, fired = SimClock(), []
    clock.call_at(1.0, lambda: fired.append(1))
    clock.jump(-3600)
    assert (clock.now(), clock.monotonic(), fired) == (-3600.0, 0.0, [])


def test_time_does_not_go_back():
    with pytest.raises(ValueError, match="never goes back"):
        SimClock().advance(-1)


def test_a_kernel_on_an_ordinary_loop_sleeps_by_the_simulated_clock():
    async def program(ctx):
        await ctx.sleep(3600)
        return ctx.now()

    async def main():
        clock = SimClock(start=1000.0)
        async with Kernel("memory", clock=clock) as kernel:
            handle = kernel.spawn(program)
            await asyncio.sleep(0.01)
            assert handle.alive
            clock.advance(3600)
            return (await handle.wait()).result

    assert asyncio.run(main()) == 4600.0


def test_a_day_of_sleep_takes_no_time():
    async def main():
        loop = asyncio.get_running_loop()
        await asyncio.sleep(24 * 3600)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await loop.create_future()
        return loop.time()

    assert run_in_virtual_time(main()) == 24 * 3600 + 60


def test_a_kernel_runs_in_virtual_time():
    async def program(ctx):
        await ctx.sleep(1e6)
        return ctx.now()

    async def main():
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        async with Kernel(MemoryStore(), clock=LoopClock(loop.clock, loop), lease_s=1e5) as kernel:
            return await kernel.run(program)

    assert run_in_virtual_time(main(), clock=SimClock(5.0)) == 1e6 + 5.0


def test_nothing_to_do_and_no_timer_is_a_deadlock_not_a_hang():
    async def main():
        await asyncio.get_running_loop().create_future()

    loop = SimLoop(SimClock())
    task = loop.create_task(main())
    with pytest.raises(Deadlock):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_there_are_no_threads_in_virtual_time():
    async def main():
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="no threads"):
        run_in_virtual_time(main())

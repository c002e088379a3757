"""The time of a quota: told when it passes, once, also across a restart; inference for the entry ends there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.errors import DeadlineExceeded, LimitExceeded
from lyra.kernel import Kernel
from lyra.testing.clock import SimClock
from tests.kernel.conftest import Crash, run, settle

QUOTA = {"timeout_seconds": 10, "soft_timeout_seconds": 8}


def time_events(kernel: Kernel) -> list[tuple[str, float]]:
    """What is said about time, and when."""
    heard: list[tuple[str, float]] = []

    def hear(event: Any) -> None:
        if event.kind.startswith("resource.") and event.data["resource"] == "elapsed_seconds":
            heard.append((event.kind, round(event.time - 1_000.0, 2)))

    kernel.on_event(hear)
    return heard


def running(kernel: Kernel, pid: str = "p", **options: Any) -> None:
    kernel.submit(pid, **{"quota": QUOTA, **options})
    kernel.schedule(pid)
    process = kernel.get_next_runnable()
    assert process is not None
    assert process.pid == pid


def test_time_is_told_when_it_passes(target, clock):
    """No call asks and none reports: the warning comes at the soft time-out, the end of the time at the hard one."""

    async def main():
        async with Kernel(target, clock) as kernel:
            heard = time_events(kernel)
            running(kernel)
            for _ in range(30):
                clock.advance(1)
                await settle(kernel)
            assert heard == [("resource.warning", 8.0), ("resource.exceeded", 10.0)]
            assert kernel.check_quota("p").exceeded_reason == "timeout_exceeded"
            assert len(heard) == 2

    run(main())


def test_time_begins_with_the_first_turn(clock):
    """In line, an entry has all the time in the world; its second turn does not begin its time anew."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            heard = time_events(kernel)
            kernel.submit("p", quota=QUOTA)
            kernel.schedule("p")
            clock.advance(100)
            assert heard == []
            kernel.get_next_runnable()
            clock.advance(5)
            kernel.transition_state("p", "ready")
            kernel.get_next_runnable()
            clock.advance(6)
            assert heard == [("resource.warning", 108.0), ("resource.exceeded", 110.0)]

    run(main())


def test_a_hard_limit_below_the_soft_one_is_told_alone(clock):
    async def main():
        async with Kernel("memory", clock) as kernel:
            heard = time_events(kernel)
            running(kernel, quota={"timeout_seconds": 5, "soft_timeout_seconds": 8})
            clock.advance(100)
            assert heard == [("resource.exceeded", 5.0)]

    run(main())


def test_an_ended_entry_is_told_nothing(clock):
    async def main():
        async with Kernel("memory", clock) as kernel:
            heard = time_events(kernel)
            running(kernel)
            kernel.terminate("p", force=True)
            clock.advance(100)
            assert heard == []

    run(main())


def test_a_new_quota_is_a_new_time(clock):
    """More time moves the end; less time that is over already is told at once."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            heard = time_events(kernel)
            running(kernel)
            clock.advance(9)
            kernel.adjust_quota("p", {"timeout_seconds": 20, "soft_timeout_seconds": 15})
            clock.advance(5)
            assert heard == [("resource.warning", 8.0)]
            clock.advance(2)
            assert heard[1:] == [("resource.warning", 15.0)]
            kernel.adjust_quota("p", {"timeout_seconds": 12})
            assert heard[2:] == [("resource.exceeded", 16.0)]

    run(main())


@pytest.mark.parametrize("jump_s", [-100.0, 1e9])
def test_a_wall_clock_that_jumps_changes_no_time_limit(clock, jump_s):
    """Set back or far ahead while the kernel lives, the clock neither suspends a time-out nor brings it about."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            heard = time_events(kernel)
            running(kernel, quota={"timeout_seconds": 10, "soft_timeout_seconds": 10})
            clock.jump(jump_s)
            clock.advance(9)
            assert heard == []
            clock.advance(2)
            assert heard == [("resource.exceeded", 10.0)]

    run(main())


def test_a_start_in_the_future_suspends_no_time_limit(path, clock):
    """The clock was years ahead when the entry began, and is right again at the next opening: its time begins anew."""

    async def main():
        async with Crash(Kernel(path, SimClock(clock.now() + 1e9))) as kernel:
            running(kernel, quota={"timeout_seconds": 10, "soft_timeout_seconds": 10})
            await settle(kernel)
        async with Kernel(path, clock) as kernel:
            heard = time_events(kernel)
            clock.advance(9)
            assert heard == []
            clock.advance(2)
            await settle(kernel)
            assert heard == [("resource.exceeded", 10.0)]

    run(main())


@pytest.mark.parametrize("snapshot", [False, True])
def test_time_runs_on_while_the_kernel_is_away(path, clock, snapshot):
    """After a kill the timers are back: what passed meanwhile is told at once, what was told is not told again."""

    async def main():
        async with Crash(Kernel(path, clock)) as kernel:
            heard = time_events(kernel)
            running(kernel, "early")
            clock.advance(9)
            running(kernel, "late")
            await kernel.durable()
            assert heard == [("resource.warning", 8.0)]
            if snapshot:
                await kernel._snapshots.write()
        clock.advance(3)
        async with Kernel(path, clock) as kernel:
            heard = time_events(kernel)
            clock.advance(0.1)
            await settle(kernel)
            assert heard == [("resource.exceeded", 12.0)]
            clock.advance(20)
            await settle(kernel)
            assert heard[1:] == [("resource.warning", 17.0), ("resource.exceeded", 19.0)]

    run(main())


def with_model(kernel: Kernel, gate: asyncio.Event) -> None:
    async def slow(_request: Any) -> None:
        await gate.wait()

    kernel.register_service({"name": "m", "service_type": "inference"})
    kernel.register_handler("m", slow)


def test_inference_ends_with_the_time_of_its_process(clock):
    """A request in flight is cut off when its process's time is over, and counted; the next is refused."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            gate = asyncio.Event()
            with_model(kernel, gate)
            running(kernel)
            request = asyncio.ensure_future(kernel.dispatch_inference("m", "hello", pid="p", timeout_s=60))
            await settle(kernel)
            clock.advance(9.9)
            await settle(kernel)
            assert not request.done()
            clock.advance(0.2)
            with pytest.raises(DeadlineExceeded, match="timeout_exceeded"):
                await request
            assert kernel.get_process("p").usage.inference_requests == 1
            assert kernel.services.get_service("m").current_load == 0
            with pytest.raises(DeadlineExceeded, match="timeout_exceeded"):
                await kernel.dispatch_inference("m", "hello", pid="p")
            kernel.adjust_quota("p", {"timeout_seconds": 100})
            gate.set()
            assert (await kernel.dispatch_inference("m", "hello", pid="p")).success

    run(main())


def test_a_shorter_time_out_of_the_request_is_its_own(clock):
    """The request's own time-out, and other quotas, are told as before."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            with_model(kernel, asyncio.Event())
            running(kernel)
            request = asyncio.ensure_future(kernel.dispatch_inference("m", "hello", pid="p", timeout_s=1))
            await settle(kernel)
            clock.advance(1)
            with pytest.raises(DeadlineExceeded, match="dispatch timeout"):
                await request
            kernel.record_usage("p", llm_calls=1000)
            with pytest.raises(LimitExceeded, match="max_llm_calls_exceeded"):
                await kernel.dispatch_inference("m", "hello", pid="p")

    run(main())


def test_timers_go_with_their_entries():
    """Entries that came and went leave no timer behind."""

    async def main():
        clock = SimClock()
        async with Kernel("memory", clock) as kernel:
            for number in range(100):
                running(kernel, f"p{number}")
            assert len(kernel.time_limits._timers) == 100
            for number in range(100):
                kernel.terminate(f"p{number}", force=True)
            assert kernel.time_limits._timers == {}

    run(main())

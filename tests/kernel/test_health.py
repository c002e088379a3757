"""Health monitoring: an alert for each kind of trouble, once until it changed, and none for a process at rest."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lyra.core.budgets.budget import Usage
from lyra.errors import ConfigError, InvalidTransition, ProcessError
from lyra.kernel import HealthThresholds, Kernel
from lyra.kernel.health import ALERTS
from lyra.testing.clock import SimClock
from tests.cases import cases
from tests.kernel.conftest import Crash, pass_time, run, settle


def alerts_of(kernel: Kernel) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []
    kernel.on_event(lambda event: heard.append(dict(event.data)) if event.kind == "health.alert" else None)
    return heard


async def listens(ctx):
    while True:
        await ctx.receive()


async def works(ctx):
    """Performs what it is told: an async function a message."""
    while True:
        message = await ctx.receive()
        if message == "end":
            return
        with suppress(RuntimeError):
            await ctx.do(TASKS[message])


async def hang():
    await GATE.wait()


async def fine():
    return 1


async def fail():
    raise RuntimeError("broken")


GATE: Any = None
TASKS = {"hang": hang, "fine": fine, "fail": fail}


def test_stale_progress_is_said_once_a_stall(target, clock):
    """An effect that hangs is an alert after `stale_s`, once; after it moved on, the next stall is another."""

    async def main():
        global GATE
        async with Kernel(target, clock) as kernel:
            alerts = alerts_of(kernel)
            kernel.health.start(interval_s=10, thresholds={"stale_s": 60})
            handle = kernel.spawn(works)
            for _ in range(2):
                GATE = asyncio.Event()
                await kernel.send(handle, "hang")
                await pass_time(kernel, clock, 50, step_s=5)
                before = len(alerts)
                await pass_time(kernel, clock, 200, step_s=5)
                assert len(alerts) == before + 1
                GATE.set()
                await settle(kernel)
            assert [(alert["alert"], alert["pid"], alert["effect"]) for alert in alerts] == [
                ("stale_progress", handle.pid, "tests.kernel.test_health:hang")
            ] * 2
            assert all(60 <= alert["seconds"] <= 75 for alert in alerts)

    run(main())


def test_a_process_at_rest_is_not_stale(target, clock):
    """Who waits for a message, a human, a child or a timer makes no progress and is well."""

    async def sleeps(ctx):
        await ctx.sleep(10_000)

    async def asks(ctx):
        await ctx.ask("may I?", kind="checkpoint")

    async def waits(ctx):
        child = ctx.spawn(listens)
        await child.wait()

    async def many(ctx):
        await asyncio.gather(ctx.sleep(10_000), ctx.receive())

    async def main():
        async with Kernel(target, clock) as kernel:
            alerts = alerts_of(kernel)
            kernel.health.start(interval_s=10, thresholds={"stale_s": 30})
            for program in (listens, sleeps, asks, waits, many):
                kernel.spawn(program)
            await pass_time(kernel, clock, 300, step_s=10)
            assert alerts == []

    run(main())


def test_a_program_that_awaits_something_else_is_stale(target, clock):
    """A future that is never set is no wait of the kernel's, and it hangs as well as an effect does."""

    async def lost(ctx):
        await asyncio.get_running_loop().create_future()

    async def main():
        async with Kernel(target, clock) as kernel:
            kernel.spawn(lost, pid="lost")
            await settle(kernel)
            alerts = alerts_of(kernel)
            kernel.health.start(interval_s=10, thresholds={"stale_s": 30})
            await pass_time(kernel, clock, 100, step_s=10)
            assert [alert["pid"] for alert in alerts] == ["lost"]

    run(main())


def test_an_error_loop_is_said_when_it_happens(target, clock):
    """So many failures within the window are an alert; again only after they had become fewer."""

    async def main():
        async with Kernel(target, clock) as kernel:
            alerts = alerts_of(kernel)
            kernel.health.start(thresholds={"errors": 3, "error_window_s": 10})
            handle = kernel.spawn(works)

            async def tell(word, count, pause_s=1.0):
                for _ in range(count):
                    await kernel.send(handle, word)
                    await settle(kernel)
                    clock.advance(pause_s)

            await tell("fail", 2)
            await tell("fine", 5)
            assert alerts == []
            await tell("fail", 4)
            assert [(a["alert"], a["errors"], a["last_error"]) for a in alerts] == [("error_loop", 3, "broken")]
            await tell("fail", 3, pause_s=9.0)  # fewer
            assert len(alerts) == 1
            await tell("fail", 3)
            assert len(alerts) == 2

    run(main())


def test_high_cost_is_said_again_when_it_grew(target, clock):
    """At `cost_percent` of the money, and after that only when more was spent; once for those who share a budget."""

    async def main():
        async with Kernel(target, clock) as kernel:
            alerts = alerts_of(kernel)
            kernel.health.start(interval_s=10, thresholds={"cost_percent": 50})
            handle = kernel.spawn(family, budget="$1.00")
            free = kernel.spawn(listens)
            await settle(kernel)
            assert kernel.health.check() == 0
            handle.budget.charge(Usage(usd="$0.49"))
            assert kernel.health.check() == 0
            handle.budget.charge(Usage(usd="$0.01"))
            assert kernel.health.check() == 1
            await pass_time(kernel, clock, 50, step_s=10)
            assert len(alerts) == 1
            handle.budget.charge(Usage(usd="$0.20"))
            await pass_time(kernel, clock, 50, step_s=10)
            free.budget.charge(Usage(usd="$9.00"))
            assert kernel.health.check() == 0
            assert [(a["alert"], a["pid"], a["spent_micro_usd"], a["limit_micro_usd"]) for a in alerts] == [
                ("high_cost", handle.pid, 500_000, 1_000_000),
                ("high_cost", handle.pid, 700_000, 1_000_000),
            ]

    async def family(ctx):
        for _ in range(3):
            ctx.spawn(listens)
        await ctx.receive()

    run(main())


def test_time_that_runs_out_is_a_warning(target, clock):
    """At `timeout_percent` of its seconds, once; also for a process that was there before the monitor."""

    async def main():
        async with Kernel(target, clock) as kernel:
            handle = kernel.spawn(listens, budget={"seconds": 100})
            kernel.spawn(listens)
            clock.advance(50)
            alerts = alerts_of(kernel)
            kernel.health.start(interval_s=10)
            await pass_time(kernel, clock, 25, step_s=5)
            assert alerts == []
            await pass_time(kernel, clock, 20, step_s=5)
            assert [(a["alert"], a["pid"], a["limit_s"]) for a in alerts] == [("timeout_warning", handle.pid, 100.0)]
            assert 80 <= alerts[0]["seconds"] <= 90
            await pass_time(kernel, clock, 20, step_s=5)
            assert not handle.alive
            assert len(alerts) == 1

    run(main())


def test_time_goes_on_across_a_crash(path, clock):
    """After a restart the seconds count from when the process began."""

    async def before():
        async with Crash(Kernel(path, clock, programs=[listens])) as kernel:
            await kernel.spawn(listens, pid="one", budget={"seconds": 100})
            clock.advance(70)

    async def after():
        async with Kernel(path, clock, programs=[listens]) as kernel:
            alerts = alerts_of(kernel)
            kernel.health.start(interval_s=5)
            await pass_time(kernel, clock, 5, step_s=5)
            assert alerts == []
            await pass_time(kernel, clock, 10, step_s=5)
            assert [(a["alert"], a["pid"]) for a in alerts] == [("timeout_warning", "one")]

    run(before())
    run(after())


def test_many_iterations_are_said_once(target, clock):
    """Most of the iterations of a budget, or very many effects."""

    async def main():
        async with Kernel(target, clock) as kernel:
            alerts = alerts_of(kernel)
            kernel.health.start(interval_s=10, thresholds={"effects": 5})
            limited = kernel.spawn(listens, budget={"iterations": 10})
            busy = kernel.spawn(works)
            limited.budget.charge(Usage(iterations=7))
            for _ in range(4):
                await kernel.send(busy, "fine")
            await settle(kernel)
            assert kernel.health.check() == 0
            limited.budget.charge(Usage(iterations=1))
            assert kernel.health.check() == 1
            await kernel.send(busy, "fine")
            await settle(kernel)
            assert kernel.health.check() == 1
            limited.budget.charge(Usage(iterations=1))
            assert kernel.health.check() == 0
            assert alerts == [
                {"alert": "high_iterations", "pid": limited.pid, "iterations": 8, "limit": 10},
                {"alert": "high_iterations", "pid": busy.pid, "effects": 5},
            ]

    run(main())


def test_each_alert_can_be_turned_off(target, clock):
    """A threshold of None is no alert."""

    async def main():
        global GATE
        GATE = asyncio.Event()
        async with Kernel(target, clock) as kernel:
            alerts = alerts_of(kernel)
            off = dict.fromkeys(
                ("stale_s", "errors", "cost_percent", "timeout_percent", "iterations_percent", "effects")
            )
            kernel.health.start(interval_s=10, thresholds=off)
            handle = kernel.spawn(works, budget={"usd": "$1", "seconds": 1_000, "iterations": 1})
            handle.budget.charge(Usage(usd="$1", iterations=1))
            for _ in range(20):
                await kernel.send(handle, "fail")
            await kernel.send(handle, "hang")
            await pass_time(kernel, clock, 950, step_s=50)
            assert alerts == []
            GATE.set()

    run(main())


def test_it_starts_and_stops(target, clock):
    """It watches between start and stop, is started once, forgets the dead, and costs nothing when it is off."""

    async def main():
        kernel = Kernel(target, clock)
        with pytest.raises(ProcessError):
            kernel.health.start()
        async with kernel:
            assert not kernel.health.running
            kernel.health.start(interval_s=10)
            with pytest.raises(InvalidTransition):
                kernel.health.start()
            handle = kernel.spawn(works)
            await kernel.send(handle, "fine")
            await settle(kernel)
            assert set(kernel.health._watched) == {handle.pid}
            await kernel.send(handle, "end")
            await handle.wait()
            assert kernel.health._watched == {}
            kernel.health.stop()
            kernel.health.stop()
            assert not kernel.listening
            for wrong in ({"interval_s": 0}, {"thresholds": {"stale": 1}}, {"thresholds": {"errors": 0}}):
                with pytest.raises(ConfigError):
                    kernel.health.start(**wrong)
            assert not kernel.health.running
            kernel.health.start(thresholds=HealthThresholds(stale_s=1.0))
        assert not kernel.health.running

    run(main())


def test_a_round_of_many_processes_lets_others_run(clock):
    """Thousands of processes are looked at in slices."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            alerts = alerts_of(kernel)
            handles = [kernel.spawn(listens, budget={"iterations": 1}) for _ in range(1_200)]
            await settle(kernel)
            for handle in handles:
                handle.budget.charge(Usage(iterations=1))
            kernel.health.start(interval_s=10)
            clock.advance(10)
            await asyncio.sleep(0)
            assert 0 < len(alerts) < 1_200
            await settle(kernel)
            assert len(alerts) == 1_200

    run(main())


# ---------------------------------------------------------------------- as a state machine


class Monitor(RuleBasedStateMachine):
    """One process, its Events in any order: an alert of a kind comes only when its condition became true."""

    @initialize()
    def begin(self):
        self.loop = asyncio.new_event_loop()
        self.clock = SimClock()
        self.kernel = Kernel("memory", self.clock, seed=1)
        self.loop.run_until_complete(self.kernel.start())
        self.alerts = alerts_of(self.kernel)
        self.handle = self.kernel.spawn(listens, budget={"usd": 100})
        self.loop.run_until_complete(asyncio.sleep(0.001))
        self.kernel.health.start(thresholds={"stale_s": 30, "errors": 2, "error_window_s": 5, "cost_percent": 50})
        self.flying: set[int] = set()
        self.moved_at = 0.0
        self.stalls = 0
        self.said_stale = False
        self.errors: list[float] = []
        self.looping = False
        self.loops = 0
        self.cost_said = 0
        self.costs = 0

    def tell(self, kind, **data):
        self.kernel.publish(self.handle.pid, kind, data)
        self.moved_at = self.clock.monotonic()
        self.said_stale = False

    @rule(key=st.integers(0, 2))
    def starts(self, key):
        self.tell("effect.started", key=key, name="work")
        self.flying.add(key)

    @rule(key=st.integers(0, 2), failed=st.booleans())
    def ends(self, key, failed):
        self.tell("effect.finished", key=key, error={"code": "x", "message": "m"} if failed else None)
        self.flying.discard(key)
        if failed:
            now = self.clock.monotonic()
            self.errors.append(now)
            looping = len(self.errors) >= 2 and now - self.errors[-2] <= 5
            self.loops += looping and not self.looping
            self.looping = looping

    @rule(seconds=st.sampled_from([1, 4, 10, 31]))
    def passes(self, seconds):
        self.clock.stall(seconds)

    @rule(amount=st.integers(0, 30))
    def spends(self, amount):
        self.handle.budget.charge(Usage(usd=amount))

    @rule()
    def looks(self):
        stale = bool(self.flying) and self.clock.monotonic() - self.moved_at >= 30
        if stale and not self.said_stale:
            self.stalls += 1
            self.said_stale = True
        spent = int(self.handle.budget.used("usd"))
        if spent >= 50 and spent > self.cost_said:
            self.cost_said = spent
            self.costs += 1
        self.kernel.health.check()

    @invariant()
    def agrees(self):
        if not hasattr(self, "costs"):
            return
        counts = {alert: sum(alert_data["alert"] == alert for alert_data in self.alerts) for alert in ALERTS}
        assert counts == {
            "stale_progress": self.stalls,
            "error_loop": self.loops,
            "high_cost": self.costs,
            "timeout_warning": 0,
            "high_iterations": 0,
        }

    def teardown(self):
        if hasattr(self, "kernel"):
            self.loop.run_until_complete(self.kernel.close())
            self.loop.close()


TestMonitor = Monitor.TestCase
TestMonitor.settings = settings(max_examples=cases(30), stateful_step_count=25, deadline=None)


async def busy(ctx):
    """Awaits things that are not the kernel's, and has nothing else to show."""
    while True:
        await asyncio.sleep(0)


async def awaits(ctx):
    await asyncio.Event().wait()


def test_a_step_is_a_sign_of_life(target, clock):
    """One that is stepped again and again is not stale, though no Event says so; one that only waits is."""

    async def main():
        async with Kernel(target, clock) as kernel:
            alerts = []
            kernel.health.start(interval_s=10, thresholds={"stale_s": 60})
            # A listener would bring the Events of the steps back.
            kernel.watch({**kernel.listeners.watchers, "health.alert": lambda pid, _data: alerts.append(pid)})
            killed, waiting = kernel.spawn(busy), kernel.spawn(awaits)
            await pass_time(kernel, clock, 200, step_s=5)
            assert alerts == [waiting.pid]
            kernel.kill(killed)
            await settle(kernel)

    run(main())


def test_the_monitor_asks_for_no_steps():
    """While it runs, steps are not made into Events; a listener gets them all the same."""

    async def main():
        async with Kernel() as kernel:
            kernel.health.start()
            assert (kernel.listening, kernel.listeners_want_states) == (True, False)
            assert await kernel.run(fine_program) == 1
            stop = kernel.on_event(lambda _: None)
            assert (kernel.listening, kernel.listeners_want_states) == (True, True)
            stop()
            kernel.health.stop()
            assert (kernel.listening, kernel.scheduler.stepped) == (False, None)

    run(main())


async def fine_program(ctx):
    return await ctx.do(fine)


def test_nothing_of_the_dead_is_kept(target):
    """What the monitor noted of a process goes with it."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.health.start(interval_s=1000)
            for _ in range(50):
                await kernel.run(fine_program)
            await kernel.durable()
            assert kernel.scheduler.stepped == {}
            assert kernel.health._watched == {}

    run(main())


def test_an_entry_in_a_workers_hands_may_be_stale_too(target, clock):
    """Taken and never heard of again: an alert, once a stall. A report, a question and the end are not silence."""

    async def main():
        async with Kernel(target, clock) as kernel:
            heard = alerts_of(kernel)
            kernel.health.start(interval_s=10, thresholds={"stale_s": 60})
            for pid in ("silent", "reports", "asks", "waits", "ends"):
                kernel.submit(pid, request_id="r", user_id="u", session_id="s")
            for pid in ("silent", "reports", "asks", "ends"):
                kernel.schedule(pid)
            while (taken := kernel.get_next_runnable()) is not None:
                assert taken.state == "running"
            kernel.create_interrupt("asks", "clarification", "?")
            for _ in range(9):
                kernel.record_usage("reports", llm_calls=1)
                await pass_time(kernel, clock, 50, step_s=10)
            kernel.terminate("ends", force=True)
            silent = [alert for alert in heard if alert["pid"] == "silent"]
            assert [alert["alert"] for alert in silent] == ["stale_progress"]
            assert 60 <= silent[0]["seconds"] <= 70
            assert sorted(alert["pid"] for alert in heard) == ["ends", "silent"]
            kernel.record_usage("silent", llm_calls=1)
            await settle(kernel)
            clock.advance(61)
            assert kernel.health.check() + len(heard) >= 3
            await settle(kernel)
            assert len([alert for alert in heard if alert["pid"] == "silent"]) == 2
            await kernel.durable()
            assert "ends" not in kernel.health._watched

    run(main())

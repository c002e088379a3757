"""What is forgotten after a while, and how a kernel goes down."""

from __future__ import annotations

import asyncio
import gc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lyra.errors import ConfigError, NoSuchProcess, ProcessError, StoreError
from lyra.kernel import Kernel
from lyra.testing.clock import SimClock
from tests.cases import cases
from tests.kernel.conftest import run, settle
from tests.kernel.workers.test_lifecycle import Rows

DAY_S = 24 * 3600.0


def test_ended_entries_go_after_a_day(clock):
    """Terminated ones and zombies are forgotten 24 h after their end; the living never."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            for pid in ("ended", "zombie", "alive"):
                kernel.submit(pid)
            kernel.terminate("ended")
            kernel.terminate("zombie")
            kernel.transition_state("zombie", "zombie")
            clock.advance(DAY_S - 1)
            assert kernel.cleanup()["processes"] == 0
            clock.advance(1)
            assert kernel.cleanup()["processes"] == 2
            assert [process.pid for process in kernel.list_processes()] == ["alive"]
            assert not kernel.resources.is_tracked("ended")
            with pytest.raises(NoSuchProcess):
                kernel.get_process("ended")
            assert set(kernel.cleanup().values()) == {0}

    run(main())


def test_questions_and_rates(clock):
    """Overdue questions expire, ended ones go after an hour, rate windows when they are empty."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            kernel.submit("p")
            kernel.create_interrupt("p", "checkpoint", "stays")
            late = kernel.create_interrupt("p", "timeout", "?")
            kernel.check_rate_limit("ada")
            clock.stall(300)  # no timer rings
            counts = kernel.cleanup()
            assert (counts["interrupts_expired"], counts["interrupts"], counts["rate_windows"]) == (1, 0, 0)
            assert kernel.interrupts.get_status(late.id) == "expired"
            clock.advance(3600)
            assert kernel.cleanup()["interrupts"] == 1
            assert [interrupt.kind for interrupt in kernel.interrupts.list_interrupts()] == ["checkpoint"]
            clock.advance(DAY_S)
            assert kernel.cleanup()["rate_windows"] == 1

    run(main())


def test_stale_pipelines(clock):
    """Pipelines without a step for an hour are forgotten."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            config = {"name": "line", "agents": [{"name": "plan", "stage_order": 1}]}
            kernel.initialize_orchestration("old", config)
            clock.advance(1800)
            kernel.initialize_orchestration("new", config)
            clock.advance(1801)
            assert kernel.cleanup()["sessions"] == 1
            assert list(kernel.orchestrator.sessions()) == ["new"]

    run(main())


def test_a_silent_entry_that_is_out_of_time_is_told(clock):
    """Also where no call records or checks anything, a round says that the time of an entry is up."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            seen: list[str] = []
            kernel.on_event(lambda event: seen.append(event.kind) if event.kind.startswith("resource.") else None)
            kernel.cleanup_every(60)
            kernel.submit("p")
            kernel.schedule("p")
            kernel.get_next_runnable()
            clock.advance(239)
            assert seen == []
            clock.advance(1)
            assert seen == ["resource.warning"]
            clock.advance(120)
            assert seen == ["resource.warning", "resource.exceeded"]

    run(main())


def test_usage_of_strangers(clock):
    """The books of a pid that was never submitted go a day after its last use; those of the living stay."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            kernel.submit("alive")
            kernel.record_tool_call("stranger")
            clock.advance(DAY_S - 1)
            assert kernel.cleanup()["accounts"] == 0
            kernel.record_tool_call("stranger")
            clock.advance(DAY_S)
            assert kernel.cleanup()["accounts"] == 1
            assert list(kernel.resources.state.accounts) == ["alive"]
            assert kernel.resources.get_system_usage().tool_calls == 2

    run(main())


def test_cleaning_by_the_clock(clock):
    """`cleanup_every` cleans again and again, until the kernel closes."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            kernel.cleanup_every(300)
            kernel.submit("p")
            kernel.terminate("p")
            clock.advance(DAY_S - 1)
            assert kernel.lifecycle.total == 1
            clock.advance(301)
            assert kernel.lifecycle.total == 0
            with pytest.raises(ConfigError):
                kernel.cleanup_every(0)
        assert clock.next_due() is None

    run(main())


def test_a_round_that_fails_is_told_and_tried_again(clock, monkeypatch):
    """An error in one round is an Event; the next round comes."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            seen: list[str] = []
            kernel.on_event(lambda event: seen.append(event.kind))

            def fails() -> int:
                raise ProcessError("not now")

            monkeypatch.setattr("lyra.kernel.workers.rate_limits.RateLimiter.cleanup_expired", lambda _: fails())
            kernel.cleanup_every(10)
            clock.advance(20)
            assert seen == ["cleanup.failed"] * 2

    run(main())


def test_cleaning_survives_a_restart(path, clock):
    """What was forgotten stays forgotten."""

    async def main():
        async with Kernel(path, clock) as kernel:
            kernel.submit("p", user_id="ada")
            kernel.record_tool_call("p")
            kernel.create_interrupt("p", "timeout", "?")
            kernel.terminate("p")
            clock.stall(DAY_S)
            assert kernel.cleanup()["processes"] == 1
        async with Kernel(path, clock) as kernel:
            assert kernel.list_processes() == []
            assert kernel.interrupts.list_interrupts() == []
            assert kernel.resources.get_user_usage("ada").tool_calls == 1

    run(main())


def test_shutdown_without_a_store_ends_every_entry(clock):
    """They could not be found again: entries end in the order of their coming, also one that runs, and their questions
    are cancelled."""

    async def main():
        ended: list[str] = []
        kernel = Kernel(clock=clock)
        await kernel.start()
        kernel.on_event(lambda event: ended.append(event.pid) if event.kind == "process.terminated" else None)
        for pid in "abc":
            kernel.submit(pid)
            kernel.schedule(pid)
        kernel.get_next_runnable()
        asked = kernel.create_interrupt("a", "clarification", "?")
        kernel.terminate("b")
        assert kernel.get_next_runnable().pid == "c"
        await kernel.shutdown("going home")
        assert ended == ["b", "a", "c"]
        with pytest.raises(ProcessError):
            kernel.submit("d")
        await kernel.shutdown()
        reasons = {process.pid: (process.state, process.termination_reason) for process in kernel.list_processes()}
        assert reasons["a"] == reasons["c"] == ("terminated", "going home")
        assert kernel.interrupts.get_status(asked.id) == "cancelled"

    run(main())


def test_shutdown_with_a_store_keeps_every_entry(path, clock):
    """What runs is in line again at the next start, what waits keeps its question, and the reason is written down."""

    async def main():
        events = []
        kernel = Kernel(path, clock)
        await kernel.start()
        kernel.on_event(events.append)
        for pid in "abc":
            kernel.submit(pid)
            kernel.schedule(pid)
        kernel.get_next_runnable()
        asked = kernel.create_interrupt("a", "clarification", "?")
        kernel.get_next_runnable()
        await kernel.shutdown("going home")
        assert [event.data["reason"] for event in events if event.kind == "kernel.stopping"] == ["going home"]
        moved = [
            event for event in events if event.kind == "process.state_changed" and event.data["reason"] == "going home"
        ]
        assert [(event.pid, event.data["new_state"]) for event in moved] == [("b", "ready")]
        with pytest.raises(ProcessError):
            kernel.submit("d")
        await kernel.shutdown()
        async with Kernel(path, clock) as kernel:
            assert {process.pid: process.state for process in kernel.list_processes()} == {
                "a": "waiting",
                "b": "ready",
                "c": "ready",
            }
            assert await kernel.resolve_interrupt(asked.id, {"text": "yes"}) is None
            assert kernel.get_process("a").state == "ready"
            assert kernel.submit("d").state == "new"

    run(main())


def test_shutdown_drains_and_keeps_programs(path):
    """An effect in flight finishes first; a program of a durable kernel goes on at the next start."""

    async def main():
        release = asyncio.Event()

        async def act():
            await release.wait()
            return "done"

        async def program(ctx):
            first = await ctx.do(act)
            await ctx.receive()
            return first

        kernel = Kernel(path)
        await kernel.start()
        kernel.spawn(program, pid="p")
        kernel.submit("entry")
        await settle(kernel)
        going = asyncio.ensure_future(kernel.shutdown())
        await asyncio.sleep(0)
        with pytest.raises(ProcessError, match="takes no process"):
            kernel.submit("late")
        release.set()
        await going
        assert kernel.stopping
        async with Kernel(path, programs=[program]) as kernel:
            assert kernel.process("p").alive
            kernel.send("p", "on")
            assert (await kernel.process("p").wait()).result == "done"

    run(main())


def test_shutdown_collects_errors(monkeypatch):
    """What goes wrong with one entry does not stop the rest; it is raised at the end, once all is closed."""

    async def main():
        kernel = Kernel()
        await kernel.start()
        for pid in "abc":
            kernel.submit(pid)
        cancel_all = kernel.interrupts.cancel_all

        def stubborn(_service: object, pid: str, reason: str) -> None:
            if pid == "b":
                raise ProcessError("will not go")
            cancel_all(pid, reason)

        monkeypatch.setattr("lyra.kernel.interrupts.service.InterruptService.cancel_all", stubborn)
        with pytest.raises(ProcessError, match="1 errors; the first: will not go") as caught:
            await kernel.shutdown()
        assert [error["message"] for error in caught.value.errors] == ["will not go"]
        assert kernel.stopping
        assert kernel.get_process_counts()["terminated"] == 3

    run(main())


def test_a_close_that_fails_is_told(monkeypatch):
    """An error of closing is among those that are raised."""

    async def main():
        kernel = Kernel()
        await kernel.start()

        async def fails(_: Kernel, **__: object) -> None:
            raise StoreError("the disk is gone")

        monkeypatch.setattr(Kernel, "close", fails)
        with pytest.raises(ProcessError, match="the disk is gone"):
            await kernel.shutdown()
        monkeypatch.undo()
        await kernel.close()

    run(main())


def test_shutdown_before_start():
    """A kernel that never opened goes down without a word."""
    run(Kernel().shutdown())


# ---------------------------------------------------------------- all of it at once
class Tidying(RuleBasedStateMachine):
    """Random ends and rounds: exactly what ended a day ago is gone."""

    @initialize()
    def begin(self) -> None:
        self.clock = SimClock(1_000.0)
        self.world = Rows(self.clock)
        self.kernel = self.world.kernel
        self.ended: dict[str, float | None] = {}

    @rule(pid=st.sampled_from("abcdef"))
    def submit(self, pid: str) -> None:
        self.kernel.submit(pid, user_id=pid)
        self.kernel.check_rate_limit(pid)
        self.ended.setdefault(pid, None)

    @rule(pid=st.sampled_from("abcdef"))
    def end(self, pid: str) -> None:
        if pid in self.ended and self.ended[pid] is None:
            self.kernel.create_interrupt(pid, "timeout", "?")
            self.kernel.terminate(pid)
            self.ended[pid] = self.clock.now()

    @rule(hours=st.sampled_from([0.5, 1, 8, 23, 24]))
    def wait(self, hours: float) -> None:
        self.clock.advance(hours * 3600)

    @rule()
    def clean(self) -> None:
        counts = self.kernel.cleanup()
        now = self.clock.now()
        gone = [pid for pid, ended_at in self.ended.items() if ended_at is not None and now - ended_at >= DAY_S]
        assert counts["processes"] == len(gone)
        for pid in gone:
            del self.ended[pid]
        recent = [ended_at for ended_at in self.ended.values() if ended_at is not None and now - ended_at < 3600]
        assert len(self.kernel.interrupts.list_interrupts()) == len(recent)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "kernel"):
            assert {process.pid for process in self.kernel.list_processes()} == set(self.ended)
            assert set(self.kernel.resources.state.accounts) == set(self.ended)

    def teardown(self) -> None:
        self.world.close()


Tidying.TestCase.settings = settings(max_examples=cases(30), stateful_step_count=30, deadline=None)
test_random_tidying = Tidying.TestCase


def test_an_age_may_be_given(clock):
    """older_than_s holds for ended processes, idle pipelines, ended questions and envelopes; what lives stays."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            for pid in ("ended", "alive"):
                kernel.submit(pid)
            kernel.initialize_orchestration("idle", {"name": "p", "agents": [{"name": "a"}]})
            asked = kernel.create_interrupt("alive", "clarification", "?")
            kernel.resolve_interrupt(asked.id, {"text": "yes"})
            kernel.terminate("ended")
            kernel.create_envelope({})
            clock.advance(60)
            assert set(kernel.cleanup().values()) == {0}
            counts = kernel.cleanup(older_than_s=60)
            assert (counts["processes"], counts["interrupts"], counts["envelopes"]) == (1, 1, 1)
            assert kernel.cleanup(older_than_s=59)["sessions"] == 1
            assert "alive" in [process.pid for process in kernel.list_processes()]
            with pytest.raises(ConfigError):
                kernel.cleanup(older_than_s=-1)

    run(main())


def test_a_kernel_that_closes_unwinds_the_generators_that_a_program_awaits():
    """An answer that streams is an async generator whose clean-up awaits: the loop has none left to fail on, and the
    clean-up takes the process for its task, not the one that closes the kernel."""
    failures, tasks = [], []

    async def pieces():
        try:
            while True:
                await asyncio.sleep(60)
                yield 1
        finally:
            try:
                await asyncio.sleep(1)
            finally:
                tasks.append(asyncio.current_task())

    async def reads(ctx):
        async def read():
            async for _ in pieces():
                pass

        await ctx.do(read)

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        async with Kernel() as kernel:
            await kernel.spawn(reads)
            await asyncio.sleep(0.01)
            await kernel.close(drain_s=0.0)
        gc.collect()
        await asyncio.sleep(0.01)
        gc.collect()
        assert len(tasks) == 1
        assert tasks[0] is not asyncio.current_task()

    run(main())
    assert failures == []

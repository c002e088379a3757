"""What the simulation has found once, as small as it gets: one test for each, so that it stays found."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from lyra.core.budgets.money import Money
from lyra.core.effect import Effect
from lyra.errors import EffectFailed, LyraError, NameTaken, NoSuchProcess, StoreFull
from lyra.kernel import Kernel
from lyra.store.memory import MemoryStore
from lyra.testing.clock import SimClock
from lyra.testing.loop import LoopClock, SimLoop


class Lives:
    """Several kernels, one after the other, on one store; each ends without closing, as a crash does."""

    def __init__(self) -> None:
        self.clock = SimClock(1000.0)
        self.store: Any = MemoryStore()
        self.acts: list[Any] = []
        self._kept: list[Any] = []

    def crash_after(self, seconds: float, main: Any = None, *, programs: Any = (), **options: Any) -> Kernel:
        """Open a kernel, let it run for so long, and drop it."""
        loop = SimLoop(self.clock)
        kernel = Kernel(
            self.store, clock=LoopClock(self.clock, loop), programs=programs, lease_s=30.0, seed=1, **options
        )

        async def life() -> None:
            await kernel.start()
            if main is not None:
                await main(kernel)
            await asyncio.sleep(seconds)

        loop.run_until_complete(life())
        self._kept.append((loop, kernel, asyncio.all_tasks(loop)))
        self.clock.stall(31.0)  # its lease runs out
        return kernel

    def effect(self, name: str = "act", *, takes_s: float = 0.0, **options: Any) -> Effect:
        async def act(*args: Any) -> Any:
            self.acts.append((name, *args))
            await asyncio.sleep(takes_s)
            return len(self.acts)

        return Effect(act, name=name, **options)

    def bury(self) -> None:
        for loop, kernel, tasks in self._kept:
            kernel.core.stopping = True
            for process in kernel.processes.values():
                if process.coroutine is not None:
                    process.coroutine.close()
            for task in tasks:
                task._log_destroy_pending = False
                task.get_coro().close()
            loop.close()


@pytest.fixture
def lives():
    lives = Lives()
    yield lives
    lives.bury()


def test_a_call_cancelled_by_a_timeout_is_cancelled_again_on_replay(lives):
    """A sleep that a time-out cut short does not count as slept when the store is opened later."""
    pay = lives.effect("pay", idempotent=True)

    async def program(ctx):
        try:
            async with asyncio.timeout(1):
                await ctx.sleep(10)
                await ctx.do(pay)
        except TimeoutError:
            pass
        await ctx.sleep(5)
        return "late"

    async def start(kernel):
        kernel.spawn(program, pid="p")

    lives.crash_after(3, start)
    ended = lives.crash_after(20, programs=[program]).processes["p"].exit
    assert (ended.reason, ended.result, lives.acts) == ("normal", "late", [])


def test_a_cancel_that_comes_while_the_answer_is_being_stored_is_one_outcome_with_one_charge(lives):
    """The program saw a cancellation; the journal says so, and the money is counted once."""
    pay = lives.effect("pay", cost=Money(100))

    async def program(ctx):
        try:
            async with asyncio.timeout(0):
                await ctx.do(pay)
        except TimeoutError:
            return "late"
        return "done"

    async def start(kernel):
        kernel.spawn(program, pid="p", budget={"usd": 1000})

    process = lives.crash_after(5, start).processes["p"]
    assert process.exit.result in ("late", "done")
    assert int(process.budget.used()) <= 100
    assert int(process.budget.reserved()) == 0


def test_branches_after_a_checkpoint_keep_their_numbers_over_a_restart(lives):
    """A finished effect in a parallel branch after a checkpoint is not performed again."""
    act = lives.effect(idempotent=True)

    async def program(ctx):
        if ctx.restored is None:
            await asyncio.gather(ctx.do(act, 1), ctx.do(act, 2))
            await ctx.checkpoint("half")
        await asyncio.gather(ctx.do(act, 3), ctx.do(act, 4))
        await ctx.receive()

    async def start(kernel):
        kernel.spawn(program, pid="p")

    lives.crash_after(1, start)
    lives.crash_after(1, programs=[program])
    assert sorted(lives.acts) == [("act", 1), ("act", 2), ("act", 3), ("act", 4)]


def test_chance_after_a_checkpoint_is_the_same_after_a_restart(lives):
    act = lives.effect(idempotent=True)

    async def program(ctx):
        if ctx.restored is None:
            ctx.random()
            await ctx.checkpoint("half")
        await ctx.do(act, ctx.random.randrange(1000))
        await ctx.receive()

    async def start(kernel):
        kernel.spawn(program, pid="p")

    lives.crash_after(1, start)
    assert lives.crash_after(1, programs=[program]).processes["p"].exit is None
    assert len(lives.acts) == 1


def test_each_crash_in_flight_is_asked_about_again(lives):
    """`retry` answers one doubt; when the retried act is cut off too, that doubt is not answered."""
    act = lives.effect(takes_s=100.0)

    async def program(ctx):
        await ctx.do(act)

    async def start(kernel):
        kernel.spawn(program, pid="p")

    async def retry(kernel):
        await asyncio.sleep(0.1)
        (question,) = kernel.interrupts.pending("p")
        await kernel.resolve_interrupt(question.id, {"decision": "retry"})

    lives.crash_after(1, start)
    lives.crash_after(1, retry, programs=[program])
    third = lives.crash_after(1, programs=[program])
    assert len(lives.acts) == 2
    assert [question.kind for question in third.interrupts.pending("p")] == ["in_doubt"]


def test_an_acknowledged_kill_outlives_a_crash(lives):
    """A process that was told to end and is tidying up does not come back."""

    async def stubborn(ctx):
        try:
            await ctx.receive()
        except asyncio.CancelledError:
            await ctx.sleep(3)
            raise

    async def start(kernel):
        kernel.spawn(stubborn, pid="p")
        await asyncio.sleep(0.1)
        await kernel.kill("p", "enough")

    lives.crash_after(0.5, start)
    ended = lives.crash_after(1, programs=[stubborn]).processes["p"].exit
    assert ended is not None
    assert ended.reason == "enough"


def test_time_that_is_up_stays_up_after_a_restart(lives):
    async def program(ctx):
        try:
            await ctx.receive()
        except TimeoutError:
            await ctx.sleep(4)
        return "went on"

    async def start(kernel):
        kernel.spawn(program, pid="p", budget={"seconds": 2})

    lives.crash_after(3, start)
    ended = lives.crash_after(1, programs=[program]).processes["p"].exit
    assert (ended.reason, ended.error.code) == ("error", "deadline_exceeded")


def test_a_message_to_an_unknown_pid_is_refused_again_on_replay(lives):
    """By then the receiver exists; the program still goes the way it went."""
    act = lives.effect(idempotent=True)

    async def sender(ctx):
        try:
            await ctx.send("late", 1)
        except NoSuchProcess:
            await ctx.do(act, "refused")
        await ctx.receive()

    async def late(ctx):
        await ctx.receive()

    async def start(kernel):
        kernel.spawn(sender, pid="p")
        await asyncio.sleep(1)
        kernel.spawn(late, pid="late")

    lives.crash_after(1, start)
    again = lives.crash_after(1, programs=[sender, late])
    assert again.processes["p"].exit is None
    assert again.processes["late"].inbox in (None, [])
    assert lives.acts == [("act", "refused")]


def test_a_spawn_that_was_refused_is_refused_again_on_replay(lives):
    async def child(ctx):
        await ctx.receive()

    async def parent(ctx):
        try:
            ctx.spawn(child, name="taken")
        except NameTaken:
            await ctx.sleep(1)
        await ctx.receive()

    async def start(kernel):
        kernel.spawn(child, pid="first", name="taken")
        kernel.spawn(parent, pid="p")
        await asyncio.sleep(5)
        await kernel.kill("first")

    lives.crash_after(1, start)
    again = lives.crash_after(1, programs=[child, parent])
    assert again.processes["p"].exit is None
    assert "taken" not in again.names


def test_a_message_to_a_name_that_is_gone_does_not_diverge(lives):
    async def named(ctx):
        await ctx.receive()

    async def sender(ctx):
        await ctx.send("name", 1)
        await ctx.sleep(1)
        await ctx.receive()

    async def start(kernel):
        kernel.spawn(named, pid="n", name="name")
        kernel.spawn(sender, pid="p")

    lives.crash_after(2, start)
    assert lives.crash_after(1, programs=[named, sender]).processes["p"].exit is None


def test_a_divergence_that_the_program_catches_is_one_all_the_same(lives):
    act, other = lives.effect("act", idempotent=True), lives.effect("other", idempotent=True)

    async def program(ctx):
        await ctx.do(act)
        await ctx.receive()

    async def careless(ctx):
        with suppress(Exception):
            await ctx.do(other)
        return "fine"

    async def start(kernel):
        kernel.spawn(program, pid="p")

    lives.crash_after(1, start)
    careless.__module__, careless.__qualname__ = program.__module__, program.__qualname__
    assert lives.crash_after(1, programs=[careless]).processes["p"].exit.reason == "divergence"


def test_branches_end_with_their_process(lives):
    """A process that failed leaves no task behind that goes on acting for it."""
    act = lives.effect(idempotent=True)

    async def program(ctx):
        async def later():
            await ctx.sleep(1)
            await ctx.do(act)

        async def fails():
            await ctx.sleep(0.5)
            raise ValueError

        await asyncio.gather(later(), fails())

    async def start(kernel):
        kernel.spawn(program, pid="p")

    kernel = lives.crash_after(5, start)
    assert kernel.processes["p"].exit.reason == "error"
    assert lives.acts == []


def test_what_a_tool_raises_is_the_same_error_live_and_on_replay(lives):
    """Something that is no Exception is an EffectFailed from the start, and what was set aside for it is free again."""

    class Hard(BaseException):
        pass

    async def hard():
        raise Hard("b")

    async def program(ctx):
        try:
            await ctx.do(hard, idempotent=True, cost=Money(5))
        except EffectFailed as error:
            await ctx.receive()
            return str(error)

    async def start(kernel):
        kernel.spawn(program, pid="p", budget={"usd": 100})

    async def wake(kernel):
        await kernel.send("p", "go on")

    process = lives.crash_after(1, start).processes["p"]
    assert process.exit is None
    assert int(process.budget.reserved()) == 0
    assert "raised Hard: b" in lives.crash_after(1, wake, programs=[program]).processes["p"].exit.result


def test_a_full_disk_does_not_end_the_lease(lives):
    """A renewal that finds no room is tried again; the kernel goes on owning its store."""
    failed: list[float] = []

    class Full(MemoryStore):
        __slots__ = ()

        def renew(self, lease, *, now, ttl_s):
            if len(failed) < 1:
                failed.append(now)
                raise StoreFull("no room")
            return super().renew(lease, now=now, ttl_s=ttl_s)

    lives.store = Full()
    kernel = lives.crash_after(25)
    assert failed
    assert kernel.failure is None
    assert lives.store.holder().expires_at > 1000.0 + 30.0


def test_a_closed_kernel_acknowledges_nothing(lives):
    async def program(ctx):
        await ctx.receive()

    async def start(kernel):
        handle = kernel.spawn(program, pid="p")
        await handle
        await kernel.close()
        await kernel.close()
        for act in (lambda: kernel.send("p", 1), lambda: kernel.kill("p"), lambda: kernel.spawn(program)):
            with pytest.raises(LyraError):
                await act()

    lives.crash_after(0, start)
    assert [row.kind for row in lives.store.read()] == ["process.created"]


def test_an_orphan_keeps_the_limits_of_a_parent_that_is_long_forgotten(lives):
    """Retention forgets ended processes, but not those whose budget and rights a live child still lies in."""
    act = lives.effect(idempotent=True, needs="net.http:a.sim", cost=Money(10))

    async def child(ctx):
        await ctx.receive()
        await ctx.do(act)

    async def parent(ctx):
        ctx.spawn(child, pid="child")
        await ctx.sleep(1)

    async def start(kernel):
        kernel.spawn(parent, pid="parent", budget={"usd": 5}, grant=["fs.read:/nothing", "process.spawn"])
        await asyncio.sleep(100)
        await kernel._snapshots.write()

    lives.crash_after(1, start, retention_s=10.0)
    kernel = lives.crash_after(1, programs=[parent, child], retention_s=10.0)
    orphan = kernel.processes["child"]
    assert int(orphan.budget.limit("usd")) == 5
    assert orphan.grant.to_data() == kernel.processes["parent"].grant.to_data()

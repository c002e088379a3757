"""What is forgotten after the retention, and what is not."""

from __future__ import annotations

from lyra.kernel import Kernel
from lyra.testing.clock import SimClock
from tests.kernel.conftest import Crash, run, settle


async def act():
    return 1


async def pays(ctx):
    await ctx.do(act, cost="$0.25")


def test_spending_outlives_the_process(path):
    """A process that ended long ago is forgotten; what it spent still counts in the kernel's own budget."""

    async def main():
        clock = SimClock(1000.0)
        async with Kernel(path, clock, budget="$1", retention_s=10) as kernel:
            for _ in range(3):
                await kernel.run(pays)
            clock.advance(60)
            await settle(kernel)
            await kernel._snapshots.write()
            assert kernel.journal.store.load_snapshots().states.keys() == {"~root"}
        async with Kernel(path, SimClock(2000.0), budget="$1") as kernel:
            assert kernel.processes == {}
            assert str(kernel.budget.used()) == "$0.75"
            assert str(kernel.budget.remaining()) == "$0.25"

    run(main())


async def quick(ctx):
    return 1


async def keeper(ctx):
    """Spawns for ever, and keeps only a count."""
    state = ctx.restored or {"n": 0}
    while True:
        await ctx.receive()
        await ctx.spawn(quick).wait()
        state["n"] += 1
        await ctx.checkpoint(state)


def test_a_long_lived_parent_does_not_keep_its_dead(path):
    """Children of a live parent are forgotten once a checkpoint has made their spawns history."""

    async def main():
        clock = SimClock(1000.0)
        async with Kernel(path, clock, programs=[keeper, quick], retention_s=10) as kernel:
            kernel.spawn(keeper, pid="keeper")
            for _ in range(5):
                kernel.send("keeper", "go")
                await settle(kernel)
            clock.advance(60)
            await settle(kernel)
            await kernel._snapshots.write()
            kept = {pid for pid in kernel.journal.store.load_snapshots().states if not pid.startswith("~")}
            assert kept == {"keeper"}
        async with Kernel(path, SimClock(2000.0), programs=[keeper, quick]) as kernel:
            kernel.send("keeper", "go")
            await settle(kernel)
            assert kernel.processes["keeper"].restored == {"n": 6}

    run(main())


async def asks_late(ctx):
    child = ctx.spawn(quick)
    await ctx.receive()
    return (await child.wait()).result


def test_a_child_that_its_parent_may_still_ask_for_is_kept(path):
    """It ended long before the retention; the parent lives and has not asked yet, in this life or in the next."""

    async def main():
        clock = SimClock(1000.0)
        async with Crash(Kernel(path, clock, programs=[asks_late, quick], retention_s=10)) as kernel:
            await kernel.spawn(asks_late, pid="parent")
            await settle(kernel)
            (child,) = [pid for pid in kernel.processes if pid != "parent"]
            assert kernel.processes[child].exit is not None
            clock.advance(3600)
            await settle(kernel)
            await kernel._snapshots.write()
            assert child in kernel.journal.store.load_snapshots().states
        async with Kernel(path, clock, programs=[asks_late, quick], retention_s=10) as kernel:
            await kernel.send("parent", "now")
            assert (await kernel.process("parent").wait()).result == 1
            clock.advance(3600)
            await settle(kernel)
            await kernel._snapshots.write()
            assert child not in kernel.journal.store.load_snapshots().states

    run(main())

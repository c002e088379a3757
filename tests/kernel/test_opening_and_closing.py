"""A kernel opens and closes: who is told, what is waited for, what is kept for the next opening."""

from __future__ import annotations

import asyncio

import pytest

from lyra import effect
from lyra.errors import StoreError
from lyra.kernel import Kernel
from lyra.store import open_store
from tests.kernel.conftest import run, settle


async def forever(ctx):
    await ctx.receive()


def test_open_is_from_the_start_to_the_close(target):
    """Then it drains: what is under way is waited for, and nothing new begins."""
    seen = []

    async def slow():
        await asyncio.sleep(0.05)
        seen.append((kernel.open, kernel.draining))

    async def program(ctx):
        await ctx.do(slow)

    async def main():
        assert (kernel.open, kernel.draining) == (False, False)
        await kernel.start()
        assert (kernel.open, kernel.draining) == (True, False)
        kernel.spawn(program)
        await settle(kernel)
        await kernel.close()

    kernel = Kernel(target)
    run(main())
    assert seen == [(False, True)]


@pytest.mark.parametrize(("drain_s", "finished"), [(20.0, True), (0.0, False)])
def test_closing_waits_so_long_for_effects_in_flight(target, drain_s, finished):
    done = []

    async def slow():
        await asyncio.sleep(0.1)
        done.append("done")

    async def program(ctx):
        await ctx.do(slow)

    async def main():
        kernel = Kernel(target)
        await kernel.start()
        kernel.spawn(program)
        await settle(kernel)
        await kernel.close(drain_s=drain_s)

    run(main())
    assert bool(done) is finished


@pytest.mark.parametrize(
    ("idempotent", "has_store", "repeatable_drain_s", "finished"),
    [
        (True, True, 0.0, False),
        (True, True, None, True),
        (True, True, 60.0, True),
        (False, True, 0.0, True),
        (True, False, 0.0, True),
    ],
)
def test_effects_that_are_made_again_can_be_waited_for_less_long(
    path, idempotent, has_store, repeatable_drain_s, finished
):
    """`repeatable_drain_s` is about idempotent effects of a kernel with a store alone, and unsaid it changes nothing.
    One that was cut off is made again at the next opening."""
    done = []

    @effect(idempotent=idempotent)
    async def slow():
        await asyncio.sleep(0.2)
        done.append("done")

    async def program(ctx):
        await ctx.do(slow)

    async def main():
        kernel = Kernel(path if has_store else "memory", programs=[program])
        await kernel.start()
        kernel.spawn(program, pid="main")
        await settle(kernel)
        await kernel.close(drain_s=20.0, repeatable_drain_s=repeatable_drain_s)
        assert bool(done) is finished
        if not finished:
            async with Kernel(path, programs=[program]) as kernel:
                await until_done()

    async def until_done():
        async with asyncio.timeout(20):
            while not done:
                await asyncio.sleep(0.01)

    run(main())
    assert done == ["done"]


def test_a_kernel_that_leaves_repeatable_effects_waits_for_the_others(path):
    """It closes when the last effect that cannot be repeated has ended, and not before."""
    done = []

    @effect(idempotent=True)
    async def asks():
        await asyncio.sleep(30)

    async def writes():
        await asyncio.sleep(0.2)
        done.append("written")

    async def asking(ctx):
        await ctx.do(asks)

    async def writing(ctx):
        await ctx.do(writes)

    async def main():
        kernel = Kernel(path, programs=[asking, writing])
        await kernel.start()
        kernel.spawn(asking)
        kernel.spawn(writing)
        await settle(kernel)
        async with asyncio.timeout(15):
            await kernel.close(drain_s=20.0, repeatable_drain_s=0.0)
        assert done == ["written"]

    run(main())


@pytest.mark.parametrize("snapshot", [True, False])
def test_closing_folds_a_long_journal_unless_told_otherwise(path, snapshot, monkeypatch):
    """Either way the processes are there the next time."""
    monkeypatch.setattr("lyra.kernel.journal.snapshots._WORTH_A_SNAPSHOT", 1)

    async def main():
        kernel = Kernel(path, programs=[forever])
        await kernel.start()
        kernel.spawn(forever, pid="main")
        await settle(kernel)
        await kernel.close(snapshot=snapshot)
        store = open_store(path)
        folded = store.load_snapshots()
        store.close()
        assert (folded.seq > 0) is snapshot
        async with Kernel(path, programs=[forever]) as kernel:
            assert kernel.process("main").alive

    run(main())


def test_what_is_called_once_the_store_is_owned(path):
    """Where it raises, nothing is opened and the store is free for the next kernel."""

    def not_mine():
        raise StoreError("it is not mine")

    async def main():
        told = []
        kernel = Kernel(path)
        with pytest.raises(StoreError, match="not mine"):
            await kernel.start(owned=not_mine)
        assert not kernel.open
        kernel = Kernel(path, lease_wait_s=0.1)
        await kernel.start(owned=lambda: told.append(kernel.journal))
        await kernel.close()
        assert told == [None]  # nothing has been read by then

    run(main())


def test_a_journal_is_there_where_a_store_is(path):
    async def main():
        async with Kernel() as kernel:
            assert kernel.journal is None
        async with Kernel(path) as kernel:
            before = kernel.journal.seq
            await kernel.spawn(forever)
            assert kernel.journal.seq > before

    run(main())


def test_the_same_seed_draws_the_same(target):
    """Pids and random numbers: the same with the same seed, others with another."""

    async def program(ctx):
        return ctx.random()

    async def drawn(seed, store):
        async with Kernel(store, seed=seed) as kernel:
            handle = kernel.spawn(program)
            return handle.pid, (await handle.wait()).result

    def of(seed, number):
        return run(drawn(seed, target if target == "memory" else f"{target}{number}"))

    assert of(7, 1) == of(7, 2)
    assert of(7, 3)[1] != of(8, 4)[1]


@pytest.mark.parametrize("call", ["kill", "end"])
def test_a_reason_to_end_is_the_reason_of_the_end(target, call):
    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(forever)
            await getattr(kernel, call)(handle, "out of patience")
            assert (await handle.wait()).reason == "out of patience"

    run(main())

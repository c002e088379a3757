"""Which process runs: priorities first, none starved, and the order can be drawn from a seed."""

from __future__ import annotations

import asyncio

import pytest

from lyra.errors import ConfigError
from lyra.kernel import Kernel
from lyra.kernel.process.process import PRIORITIES
from lyra.kernel.process.scheduler import SHARES
from tests.kernel.conftest import run


def test_higher_priorities_go_first():
    """Processes that are ready together run in the order of their priority, and first come first within one."""
    ran = []

    async def program(ctx, label):
        ran.append(label)

    async def main():
        async with Kernel() as kernel:
            for number in range(2):
                for priority in reversed(PRIORITIES):
                    kernel.spawn(program, f"{priority}{number}", priority=priority)
            while kernel.live:
                await asyncio.sleep(0)
        assert ran == [f"{priority}{number}" for priority in PRIORITIES for number in range(2)]

    run(main())


def test_no_level_starves():
    """Endless realtime work leaves idle work its share."""
    counts = dict.fromkeys(PRIORITIES, 0)

    async def busy(ctx, priority):
        while True:
            counts[priority] += 1
            await asyncio.sleep(0)

    async def main():
        async with Kernel() as kernel:
            for priority, share in zip(PRIORITIES, SHARES, strict=True):
                for _ in range(share + 10):
                    kernel.spawn(busy, priority, priority=priority)
            while counts["idle"] < 100:
                await asyncio.sleep(0)
        for priority, share in zip(PRIORITIES, SHARES, strict=True):
            assert counts[priority] / counts["idle"] == pytest.approx(share / SHARES[-1], rel=0.3)

    run(main())


def test_children_inherit_the_priority():
    """A child runs at its parent's level unless told otherwise."""

    async def kid(ctx):
        await ctx.receive()

    async def parent(ctx):
        ctx.spawn(kid, pid="same")
        ctx.spawn(kid, pid="other", priority="idle")
        await ctx.receive()

    async def main():
        async with Kernel() as kernel:
            kernel.spawn(parent, priority="high")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert PRIORITIES[kernel.processes["same"].priority] == "high"
            assert PRIORITIES[kernel.processes["other"].priority] == "idle"
            with pytest.raises(ConfigError, match="urgent"):
                kernel.spawn(kid, priority="urgent")

    run(main())


def test_the_loop_gets_its_turn():
    """A process that never waits for anything outside does not stop other tasks of the loop."""

    async def act():
        return 1

    async def greedy(ctx):
        while True:
            await ctx.do(act)
            await asyncio.sleep(0)

    async def main():
        turns = 0
        async with Kernel() as kernel:
            kernel.spawn(greedy)
            for _ in range(10):
                await asyncio.sleep(0)
                turns += 1
        assert turns == 10

    run(main())


def test_one_commit_a_round(tmp_path):
    """Rows of all processes that ran in a round reach the store in one commit."""

    async def act():
        return 1

    async def program(ctx):
        for _ in range(10):
            await ctx.do(act)

    async def main():
        async with Kernel(str(tmp_path / "run.db")) as kernel:
            handles = [kernel.spawn(program) for _ in range(100)]
            for handle in handles:
                await handle.wait()
            assert kernel.journal.seq == 100 * 22
            assert kernel.journal.commits <= 30

    run(main())

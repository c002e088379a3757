"""Passing effects: performed for a client outside, never replayed; one that a crash cut off is charged once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from lyra.core.effect import Charged, Effect
from lyra.kernel import Kernel
from lyra.kernel.journal.rows import PASSING
from tests.kernel.conftest import Crash


async def hold(ctx: Any) -> None:
    while True:
        await ctx.receive()


async def act(gate: str) -> Charged[None]:
    if gate == "open":
        return Charged(None, {"usd": 1_000})
    await asyncio.Event().wait()
    raise AssertionError


EFFECT: Effect[Any, None] = Effect(act, name="act", cost="$0.25")


def used(kernel: Kernel) -> tuple[int, int]:
    """Micro-dollars: spent, and set aside."""
    budget = kernel.processes["holder"].budget
    return int(budget.used("usd")), int(budget.reserved("usd"))


async def begin(kernel: Kernel) -> None:
    """One effect that finishes, and one that is in flight and durable."""
    await kernel.spawn(hold, pid="holder", budget="$1")
    process = kernel.processes["holder"]
    await kernel.door.perform(process, f"{PASSING}1", EFFECT, ("open",), {})
    flying: Any = kernel.door.perform(process, f"{PASSING}2", EFFECT, ("shut",), {})
    kernel.tasks.start(flying, name="flying")
    while used(kernel) != (1_000, 250_000):
        await asyncio.sleep(0)
    journal = kernel.journal
    assert journal is not None
    await journal.wait_until_durable(journal.seq)


async def snapshot(kernel: Kernel) -> None:
    await kernel._snapshots.write()


def test_a_passing_effect_is_charged_once_after_a_crash(tmp_path: Path) -> None:
    """What finished costs what it said; what was in flight costs what was set aside, in this and each later opening,
    and neither is performed again."""
    store = str(tmp_path / "passing.db")

    async def main() -> None:
        async with Crash(Kernel(store, programs=[hold])) as kernel:
            await begin(kernel)
        for _ in range(2):
            async with Kernel(store, programs=[hold]) as kernel:
                assert used(kernel) == (251_000, 0)
                assert kernel.processes["holder"].replay is None
                await snapshot(kernel)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_snapshot_keeps_what_is_in_flight(tmp_path: Path) -> None:
    """The start of the effect may be older than the snapshot that the next kernel begins with."""
    store = str(tmp_path / "passing.db")

    async def main() -> None:
        async with Crash(Kernel(store, programs=[hold])) as kernel:
            await begin(kernel)
            await snapshot(kernel)
        async with Kernel(store, programs=[hold]) as kernel:
            assert used(kernel) == (251_000, 0)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_passing_effect_leaves_nothing_behind(tmp_path: Path) -> None:
    """A process that performs any number of them has as much to remember as one that performed none."""
    store = str(tmp_path / "passing.db")

    async def main() -> None:
        async with Crash(Kernel(store, programs=[hold])) as kernel:
            await kernel.spawn(hold, pid="holder", budget="$1")
            process = kernel.processes["holder"]
            for number in range(50):
                await kernel.door.perform(process, f"{PASSING}{number}", EFFECT, ("open",), {})
        async with Kernel(store, programs=[hold]) as kernel:
            assert kernel.processes["holder"].replay is None
            assert used(kernel) == (50_000, 0)

    asyncio.run(asyncio.wait_for(main(), 60))

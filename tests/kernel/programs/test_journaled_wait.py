"""A wait whose outcome is journaled: the same in every replay, waited for again where it had not come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import Context, Kernel
from lyra.errors import ConfigError
from lyra.kernel.programs.journaled_call import journal_wait
from tests.kernel.conftest import Crash, run, settle


def program(waits: list[Any], seen: list[Any]) -> Any:
    """A program that waits for two values, each given by the next of `waits`; an exception is raised."""

    async def wait() -> Any:
        value = waits.pop(0)
        if isinstance(value, Exception):
            raise value
        return value if value != "hang" else await asyncio.sleep(600)

    async def waiting(ctx: Context) -> None:
        for name in ("first", "second"):
            try:
                seen.append(await journal_wait(ctx.own_process, name, wait))
            except ConfigError as error:
                seen.append(error.message)
        await ctx.receive()

    waiting.__module__, waiting.__qualname__ = "waits", "waiting"
    return waiting


@pytest.mark.parametrize("big", [1, 200_000])
def test_a_replay_gets_the_same_value(path: str, big: int) -> None:
    """Also a large one, which is kept beside the journal; what had not come is waited for again."""
    seen: list[Any] = []

    async def life(waits: list[Any]) -> list[Any]:
        waiting = program(waits, seen)
        async with Crash(Kernel(path, programs=[waiting])) as kernel:
            kernel.spawn(waiting, pid="p")
            await kernel.durable()
            await settle(kernel)
        return waits

    assert run(life([{"x": "a" * big}, "hang"])) == []
    assert run(life(["other"])) == []
    assert seen == [{"x": "a" * big}, {"x": "a" * big}, "other"]
    assert run(life([])) == []
    assert seen[3:] == [{"x": "a" * big}, "other"]


def test_an_error_is_replayed(path: str) -> None:
    seen: list[Any] = []

    async def life(waits: list[Any]) -> None:
        waiting = program(waits, seen)
        async with Kernel(path, programs=[waiting]) as kernel:
            kernel.spawn(waiting, pid="p")
            await kernel.durable()
            await settle(kernel)

    run(life([ConfigError("no"), 1]))
    run(life([]))
    assert seen == ["no", 1, "no", 1]


def test_a_kernel_that_closes_does_not_wait_for_it(path: str) -> None:
    """Unlike for an effect."""

    async def main() -> float:
        waiting = program(["hang"], [])
        kernel = Kernel(path, programs=[waiting])
        await kernel.start()
        kernel.spawn(waiting, pid="p")
        await settle(kernel)
        began = asyncio.get_running_loop().time()
        await kernel.close()
        return asyncio.get_running_loop().time() - began

    assert run(main()) < 2.0


def test_without_a_journal_it_is_a_plain_wait() -> None:
    seen: list[Any] = []

    async def main() -> None:
        waiting = program([1, 2], seen)
        async with Kernel() as kernel:
            kernel.spawn(waiting)
            await settle(kernel)

    run(main())
    assert seen == [1, 2]

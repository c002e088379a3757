"""Concurrency of tools: exclusive runs alone, sequential never overlaps, a number is at most that many."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import tool
from lyra.core.tool import Tool
from lyra.testing.loop import run as virtual
from lyra.tools.registry import ToolRegistry, Turns


class Watch:
    """Tools that sleep, and what ran beside what."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.began: list[str] = []
        self.most: dict[str, int] = {}
        self.beside: dict[str, int] = {}

    def tool(self, name: str, concurrency: str | int = "parallel") -> Tool:
        async def act(seconds: float = 1.0) -> str:
            self.running.append(name)
            self.began.append(name)
            self.most[name] = max(self.most.get(name, 0), self.running.count(name))
            for running in self.running:
                self.beside[running] = max(self.beside.get(running, 0), len(self.running))
            await asyncio.sleep(seconds)
            self.running.remove(name)
            return name

        return tool(act, name=name, concurrency=concurrency)

    def run(self, turns: Turns, *calls: tuple[Tool, float]) -> float:
        async def act(tool_: Tool, seconds: float) -> None:
            async with turns.take_turn(tool_):
                await tool_(seconds=seconds)

        async def main() -> float:
            await asyncio.gather(*(act(*call) for call in calls))
            return asyncio.get_running_loop().time()

        took: float = virtual(main())
        return took


def test_parallel_calls_run_together():
    watch = Watch()
    act = watch.tool("act")
    assert watch.run(Turns(), *[(act, 1.0)] * 5) == 1.0
    assert watch.most == {"act": 5}


def test_sequential_calls_never_overlap_and_others_go_on():
    watch = Watch()
    act, other = watch.tool("act", "sequential"), watch.tool("other")
    assert watch.run(Turns(), (act, 1.0), (act, 1.0), (other, 0.5), (act, 1.0)) == 3.0
    assert watch.most == {"act": 1, "other": 1}
    assert watch.began == ["act", "other", "act", "act"]


def test_a_number_is_at_most_that_many():
    watch = Watch()
    act = watch.tool("act", 2)
    assert watch.run(Turns(), *[(act, 1.0)] * 5) == 3.0
    assert watch.most == {"act": 2}


def test_an_exclusive_call_runs_alone_and_is_not_overtaken():
    watch = Watch()
    alone, other = watch.tool("alone", "exclusive"), watch.tool("other")
    assert watch.run(Turns(), (other, 2.0), (other, 1.0), (alone, 1.0), (other, 1.0), (alone, 1.0), (other, 1.0)) == 6.0
    assert watch.beside == {"alone": 1, "other": 2}
    assert watch.began == ["other", "other", "alone", "other", "alone", "other"]


def test_no_more_than_the_limit_in_all():
    watch = Watch()
    acts = [watch.tool(f"act{number}") for number in range(6)]
    assert watch.run(Turns(2), *[(act, 1.0) for act in acts]) == 3.0
    assert max(watch.beside.values()) == 2


@pytest.mark.parametrize("concurrency", ["exclusive", "sequential", 1])
def test_who_is_cancelled_while_waiting_holds_nothing(concurrency):
    watch = Watch()
    act, other = watch.tool("act", concurrency), watch.tool("other")

    async def main() -> None:
        turns = Turns()

        async def hold_turn(tool_: Tool) -> None:
            async with turns.take_turn(tool_):
                await tool_(seconds=1.0)

        first, second, third = (asyncio.ensure_future(hold_turn(act)) for _ in range(3))
        fourth = asyncio.ensure_future(hold_turn(other))
        await asyncio.sleep(0.5)
        second.cancel()
        await asyncio.sleep(0.4999)
        await asyncio.gather(first, third, fourth)
        assert second.cancelled()
        assert watch.began.count("act") == 2
        async with asyncio.timeout(5), turns.take_turn(act):
            pass  # nothing was left held

    virtual(main())


def test_one_let_in_and_cancelled_in_the_same_moment_holds_nothing():
    async def main() -> None:
        turns = Turns()
        act = Watch().tool("act", "exclusive")
        entered = asyncio.Event()

        async def hold() -> None:
            async with turns.take_turn(act):
                entered.set()
                await asyncio.sleep(1)

        first = asyncio.ensure_future(hold())
        await entered.wait()
        second = asyncio.ensure_future(hold())
        await asyncio.sleep(0.5)
        asyncio.get_running_loop().call_later(0.5, second.cancel)
        await asyncio.gather(first, second, return_exceptions=True)
        async with asyncio.timeout(5), turns.take_turn(act):
            pass

    virtual(main())


def test_a_registry_keeps_them_and_a_tool_may_call_another():
    """Also an exclusive one that calls through the same registry: a nested call waits for no turn."""
    watch = Watch()
    registry = ToolRegistry([watch.tool("one", "sequential")])

    @registry.register(concurrency="exclusive")
    async def outer() -> Any:
        return (await registry.call("one")).output

    async def main() -> Any:
        results = await asyncio.gather(registry.call("one"), registry.call("outer"), registry.call("one"))
        return [result.output for result in results], asyncio.get_running_loop().time()

    assert virtual(main()) == (["one", "one", "one"], 3.0)
    assert watch.most == {"one": 1}

"""Tools that take `ctx`: their output is on record, for readers of a turn that was cut off."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from lyra import Agent, Kernel, tool
from lyra.agents.turn.unfinished import IN_DOUBT, find_unfinished_turn
from lyra.errors import ToolError
from tests.agents.support import run, says
from tests.kernel.conftest import Crash


async def fine(ctx: Any) -> str:
    """Is fine."""
    return f"fine at {ctx.pid}"


async def fails(ctx: Any) -> str:
    """Fails."""
    raise ToolError("it failed")


async def hangs(ctx: Any) -> str:
    """Hangs."""
    await asyncio.sleep(600)
    return ""


def test_a_turn_that_was_cut_off_has_the_outputs(tmp_path: Path) -> None:
    """Of those that had ended, well or not; the one that had not is in doubt. A replay goes on with the same."""
    store = str(tmp_path / "run.db")
    names = ("fine", "fails", "hangs")
    model = says({"tool_calls": [{"name": name, "arguments": {}} for name in names]}, "ok")
    agent = Agent("a", model=model, tools=[tool(fine), tool(fails), tool(hangs)])

    async def first() -> None:
        async with Crash(Kernel(store, programs=[agent])) as kernel:
            process = await kernel.spawn(agent, pid="a")
            process.send_async("go")
            while not model.requests:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            await kernel.durable()

    async def cut_off() -> Any:
        async with Kernel(store) as kernel:
            return find_unfinished_turn(kernel, "a")

    async def second() -> list[Any]:
        hangs_no_more = Agent("a", model=model, tools=[tool(fine), tool(fails), tool(_ends, name="hangs")])
        async with Kernel(store, programs=[hangs_no_more]) as kernel:
            process = await kernel.spawn(hangs_no_more, pid="a")
            while len(process.messages) < 4:
                await asyncio.sleep(0.001)
            return [entry.output for entry in process.messages[2].tool_results]

    run(first())
    turn = run(cut_off())
    results = turn.messages[-1].tool_results
    assert [entry.output for entry in results] == ["fine at a", "it failed", IN_DOUBT]
    assert [call.name for call in turn.doubts] == ["hangs"]
    assert run(second()) == ["fine at a", "it failed", "ended"]


async def _ends(ctx: Any) -> str:
    """Ends."""
    return "ended"


def test_an_output_that_is_no_plain_data_is_kept_as_text(tmp_path: Path) -> None:
    """A tool may give anything; the model reads its text."""

    class Odd:
        def __str__(self) -> str:
            return "odd"

    async def odd(ctx: Any) -> Any:
        """Odd."""
        return [Odd(), 1]

    model = says({"tool_calls": [{"name": "odd", "arguments": {}}]}, "{result}")

    async def main() -> str:
        async with Kernel(str(tmp_path / "run.db")) as kernel:
            process = await kernel.spawn(Agent("a", model=model, tools=[tool(odd)]), pid="a")
            return str(await process.send("go"))

    assert run(main()) == '["odd",1]'

"""A tool that takes `ctx` is given another result in a fork: it is not run, and none of its acts is performed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.agents.forks.change import StepChange
from lyra.agents.forks.fork import fork_run, wait_for_fork
from lyra.errors import ConfigError
from lyra.models.script import Reply, ScriptedCall
from lyra.models.sim import SimProvider
from lyra.observe.timeline.state import StoredRows
from lyra.observe.timeline.timeline import RunTimeline
from lyra.observe.timeline.travel import compare_runs
from lyra.store.space import open_to_read
from tests.agents.forks.programs import acts, mail


@tool
async def refund(ctx: Any, order: str) -> str:
    """Pay an order back."""
    return f"paid {await ctx.do(mail, order)}"


def answer(request: Any) -> Any:
    results = [result.output for message in request.messages for result in message.tool_results]
    if results:
        return " and ".join(map(str, results))
    orders = str(request.messages[-1].content).split()
    return Reply(tool_calls=tuple(ScriptedCall(name="refund", arguments={"order": order}) for order in orders))


desk = Agent("desk", model=SimProvider(script=answer), tools=[refund])


@pytest.mark.parametrize("orders", [("A-1",), ("A-1", "A-2")], ids=["alone", "beside another"])
def test_a_tool_that_takes_ctx_is_given_another_result(store: str, orders: tuple[str, ...]) -> None:
    """The model is told it, and the tool's act is not made again. A restart gives the same."""

    async def main() -> None:
        async with Kernel(store, programs=[desk]) as kernel:
            process = await kernel.spawn(desk, pid="desk")
            assert await process.send(" ".join(orders)) == " and ".join(f"paid {order}" for order in orders)
            rows = open_to_read(store)
            run = RunTimeline(StoredRows(rows), "desk")
            step = next(step for step in run.steps if step.kind == "tool")
            assert step.is_inside
            with pytest.raises(ConfigError, match="null"):
                await fork_run(kernel, rows, "desk", step.number, StepChange(result=None))
            fork = await fork_run(kernel, rows, "desk", step.number, StepChange(result="nothing"))
            await wait_for_fork(kernel, fork)
            texts = [message.text for message in kernel.agent(fork).messages]
            assert texts[-1] == " and ".join(["nothing", *(f"paid {order}" for order in orders[1:])])
            forked = RunTimeline(StoredRows(rows), fork)
            assert compare_runs(run, forked).first == step.number
            assert forked.step(step.number).result == "nothing"
            rows.close()
        async with Kernel(store, programs=[desk]) as kernel:
            assert await kernel.agent(fork).send("and now?") == texts[-1]

    asyncio.run(asyncio.wait_for(main(), 60))
    assert acts().count("mail-A-1") == 1

"""AgentExecution and AgentState: the record of a run, and where it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import Agent, AgentExecution, AgentState, Kernel, tool
from lyra.agents.session.model_call import MOVES
from lyra.errors import AgentFailed, InvalidTransition, ModelError
from tests.agents.support import calls, clock_here, run, says, virtual


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def test_the_record_of_a_run():
    """Steps with their tools, the outcome, and what it took; only of that run."""

    async def main():
        async with Kernel() as kernel:
            model = says("hello", calls("add", a=1, b=2), "It is {result}.")
            process = await kernel.spawn(Agent("sums", model=model, tools=[add]))
            assert process.execution is None
            await process.send("hi")
            before = process.metrics.output_tokens
            await process.send("1 + 2?")
            return process.execution, process.metrics.output_tokens - before

    execution, tokens = run(main())
    assert isinstance(execution, AgentExecution)
    assert execution.is_success
    assert execution.status == "success"
    assert execution.answer == "It is 3."
    assert [step.number for step in execution.steps] == [1, 2]
    assert execution.steps[0].tool_calls[0].name == "add"
    assert execution.steps[0].tool_results[0].output == "3"
    assert not execution.steps[0].failed
    assert execution.usage["calls"] == 2
    assert execution.usage["tool_calls"] == 1
    assert execution.usage["output_tokens"] == tokens
    assert execution.cost_usd == 0.0
    assert execution.to_data()["steps"][1]["text"] == "It is 3."


def test_a_failed_run_is_recorded():
    """The conversation forgets it, the record does not; its status is what went wrong."""

    async def main(model: Any, error: type[Exception]):
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=model, tools=[add]))
            with pytest.raises(error):
                await process.send("go")
            assert process.messages == ()
            return process.execution

    looping = run(main(says(calls("add", a=1, b=1)), AgentFailed))
    assert (looping.state, looping.status) == (AgentState.ERROR, "repetition")
    assert len(looping.steps) == 6
    refused = run(main(says({"error": {"kind": "auth"}}), ModelError))
    assert refused.status == "auth"
    assert refused.steps == ()


def test_the_states_of_a_run():
    """initializing, ready, thinking, executing_tools, waiting_permission, and what comes after."""
    seen: list[str] = []

    async def main():
        async with Kernel(clock=clock_here()) as kernel:

            @tool
            async def look(ctx: Any) -> str:
                seen.append(process.agent_state)
                answer = await ctx.ask("May I?", kind="confirmation")
                seen.append(process.agent_state)
                return str(answer.text)

            model = says({**calls("look"), "first_s": 1}, "done")
            process = kernel.spawn(Agent("a", model=model, tools=[look]))
            seen.append(process.agent_state)
            await asyncio.sleep(0.1)
            seen.append(process.agent_state)
            pending = process.send_async("go")
            await asyncio.sleep(0.5)
            seen.append(process.agent_state)
            await asyncio.sleep(1)
            seen.append(process.agent_state)
            question = kernel.get_pending_interrupt(process.pid)
            kernel.resolve_interrupt(question.id, {"text": "yes", "approved": True})
            assert await pending == "done"
            seen.append(process.agent_state)
            seen.append(process.execution.state)
            await process.stop()
            seen.append(process.agent_state)

    virtual(main())
    assert seen == [
        *("initializing", "ready", "thinking", "executing_tools", "waiting_permission", "executing_tools"),
        *("ready", "completed", "cancelled"),
    ]


def test_a_cancelled_run_is_cancelled():
    """Giving up is its own end."""

    async def main():
        async with Kernel(clock=clock_here()) as kernel:
            process = await kernel.spawn(Agent("a", model=says({"text": "x", "first_s": 9})))
            pending = process.send_async("go")
            await asyncio.sleep(1)
            assert process.execution.status == "running"
            pending.cancel()
            await asyncio.sleep(0.1)
            return process.execution

    execution = virtual(main())
    assert (execution.state, execution.status, execution.ended_at - execution.started_at) == ("cancelled",) * 2 + (1.0,)


def test_the_table_is_closed():
    """Every state has its row; an end has no way out, and a move that is not in the table is refused."""
    assert set(MOVES) == set(AgentState)
    assert all(target in MOVES for targets in MOVES.values() for target in targets)
    assert [state for state, targets in MOVES.items() if not targets] == ["completed", "cancelled", "error"]

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model="sim/echo"))
            await process.send("hi")
            return process.execution

    with pytest.raises(InvalidTransition, match="from completed to thinking"):
        run(main()).move(AgentState.THINKING)


def test_a_run_names_its_agent():
    """Of two agents of one kernel, each record says whose run it is, also as data."""

    async def main():
        async with Kernel() as kernel:
            executions = []
            for name in ("sums", "texts"):
                process = await kernel.spawn(Agent(name, model=says("hello")))
                await process.send("hi")
                executions.append(process.execution)
            return executions

    executions = run(main())
    assert [execution.agent for execution in executions] == ["sums", "texts"]
    assert [execution.to_data()["agent"] for execution in executions] == ["sums", "texts"]


def test_an_answer_that_was_given_up_is_cancelled():
    """An answer that came, and one still on its way, are not."""

    async def main():
        async with Kernel(clock=clock_here()) as kernel:
            process = await kernel.spawn(Agent("a", model=says({"text": "x", "first_s": 9})))
            answered = process.send_async("go")
            await answered
            pending = process.send_async("again")
            before = pending.cancelled()
            pending.cancel()
            return answered.cancelled(), before, pending.cancelled()

    assert virtual(main()) == (False, False, True)

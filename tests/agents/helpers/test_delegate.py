"""Delegation: an agent as another one's tool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel, ToolRegistry
from lyra.errors import BudgetExceeded
from tests.agents.support import calls, run, says
from tests.kernel.conftest import Crash

PRICE = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1000}


def test_an_agent_is_a_tool():
    """Its task and context are the model's to write; it is told who asks and what for; its answer is the result."""
    helper = says("42")
    researcher = Agent("researcher", model=helper, description="Finds things out.")
    asks = calls("researcher", task="Find the number.", context="It is large.")
    lead = Agent("lead", model=says(asks, "It is {result}."), tools=[researcher])
    assert lead.tools["researcher"].description == "Finds things out."
    assert set(lead.tools["researcher"].schema["properties"]) == {"task", "context"}
    assert lyra.run(lead, "What is the number?") == "It is 42."
    asked = helper.requests[0].messages
    assert len(asked) == 1
    assert asked[0].text == (
        "Find the number.\n\nContext:\nIt is large.\n\n(Asked by lead, who is working on: What is the number?)"
    )


def test_a_team_is_tools():
    """`team` and `delegate` name them as tools may be named."""
    tools = lyra.team(Agent("a b", model="sim/echo"), Agent("2nd", model="sim/echo"))
    assert isinstance(tools, ToolRegistry)
    assert tools.names == ("a_b", "agent_2nd")
    renamed = lyra.delegate(Agent("x", model="sim/echo"), name="ask_x", description="Ask x.")
    assert (renamed.name, renamed.description) == ("ask_x", "Ask x.")


def test_helpers_of_one_turn_work_together():
    """Two of them in one turn run at the same time, as children of the caller."""
    seen: list[int] = []

    async def main():
        async with Kernel() as kernel:

            def answer(_request: Any) -> Any:
                seen.append(len(kernel.processes[lead.pid].children or ()))
                return {"text": "done", "first_s": 0.05}

            from lyra.models.sim import SimProvider

            helpers = [Agent(name, model=SimProvider(answer)) for name in ("one", "two")]
            both = {"tool_calls": [{"name": name, "arguments": {"task": "go"}} for name in ("one", "two")]}
            lead = await kernel.spawn(Agent("lead", model=says(both, "{result}"), tools=lyra.team(*helpers)))
            answer_text = await lead.send("go")
            return answer_text, lead.children

    answer_text, left = run(main())
    assert answer_text == "done\ndone"
    assert max(seen) == 2
    assert left == []


def test_a_helper_spends_the_callers_money():
    """Its budget lies inside the caller's: both know what it cost, and it cannot have more than is left."""
    helper = Agent("helper", model=says("word " * 10, price=PRICE), min_tokens=20)
    asks = calls("helper", task="go")
    lead = Agent("lead", model=says(asks, "{result}", asks, "{result}"), tools=[helper], budget="$0.10")

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(lead)
            await process.send("go")
            with lyra.budget("$1") as outer:
                await process.send("go")
            return process.budget.used("usd"), outer.used

    used, scoped = run(main())
    assert used > 0
    assert 0 < scoped < used


def test_a_helper_that_runs_out_is_told_to_the_caller():
    """Its own budget ends it, not the caller: the model reads why."""
    helper = Agent("helper", model=says("x", price=PRICE), budget="$0.000001")
    lead = Agent("lead", model=says(calls("helper", task="go"), "{result}"), tools=[helper])
    assert "helper stopped" in lyra.run(lead, "go")


def test_a_caller_without_money_has_no_helpers():
    """What the caller has left is the most a helper can spend; the caller then stops itself."""
    helper = Agent("helper", model=says("x", price=PRICE), retry=None)
    lead = Agent("lead", model=says(calls("helper", task="go"), price=PRICE), tools=[helper])

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(lead, budget="$0.0001")
            with pytest.raises(BudgetExceeded):
                await process.send("go " * 200)
            return process.budget.used("usd")

    assert run(main()) <= 100


def test_a_failing_helper_is_a_sentence():
    """What went wrong with it is the tool's error; the caller's model goes on."""
    lead = Agent("lead", model=says(calls("helper", task="go"), "{result}"), tools=[Agent("helper", model=says(""))])
    assert "helper gave no answer" in lyra.run(lead, "go")


def test_cancelling_the_caller_stops_the_helper():
    """Giving up on the lead gives up on the team."""
    slow = says({"text": "x", "first_s": 60})

    async def main():
        async with Kernel() as kernel:
            lead = Agent("lead", model=says(calls("helper", task="go"), "next"), tools=[Agent("helper", model=slow)])
            process = await kernel.spawn(lead)
            pending = process.send_async("go")
            while not slow.requests:
                await asyncio.sleep(0.001)
            pending.cancel()
            assert await process.send("again") == "next"
            for _ in range(50):
                if not process.children:
                    break
                await asyncio.sleep(0.002)
            return process.children

    assert run(main()) == []


def test_a_helper_that_answered_is_not_asked_again(tmp_path):
    """Killed while the lead thinks about the answer: after the restart the helper's answer is the journal's."""
    helper_model = says("42")
    lead_model = says(calls("helper", task="go"), {"text": "hangs", "first_s": 60}, "{result}!")
    lead = Agent("lead", model=lead_model, tools=[Agent("helper", model=helper_model)])
    store = str(tmp_path / "run.db")

    async def first():
        async with Crash(Kernel(store)) as kernel:
            process = await kernel.spawn(lead, pid="lead")
            process.send_async("go")
            while len(lead_model.requests) < 2:
                await asyncio.sleep(0.001)

    async def second():
        async with Kernel(store, programs=[lead]) as kernel:
            process = await kernel.spawn(lead, pid="lead")
            while len(process.messages) < 4:
                await asyncio.sleep(0.001)
            return process.messages[-1].text

    run(first())
    assert run(second()) == "42!"
    assert len(helper_model.requests) == 1


@pytest.mark.parametrize("helpers", [1, 3])
def test_giving_up_on_helpers_is_replayed(tmp_path, helpers):
    """A turn that was cancelled while helpers worked is met again as that; they stay stopped."""
    slow = says({"text": "x", "first_s": 60})
    names = [f"helper{n}" for n in range(helpers)]
    asks = {"tool_calls": [{"name": name, "arguments": {"task": "go"}} for name in names]}
    tools = [Agent(name, model=slow) for name in names]
    lead = Agent("lead", model=says(asks, "next", asks, "last"), tools=tools)
    store = str(tmp_path / "run.db")

    async def first():
        async with Kernel(store) as kernel:
            process = await kernel.spawn(lead, pid="lead")
            pending = process.send_async("go")
            while len(slow.requests) < helpers:
                await asyncio.sleep(0.001)
            pending.cancel()
            assert await process.send("again") == "next"

    async def second():
        async with Kernel(store, programs=[lead]) as kernel:
            process = await kernel.spawn(lead, pid="lead")
            pending = process.send_async("once more")
            while len(slow.requests) < 2 * helpers:
                await asyncio.sleep(0.001)
            pending.cancel()
            assert await process.send("more") == "last"
            while process.children:
                await asyncio.sleep(0.001)
            return [message.text for message in process.messages], process.children

    run(first())
    assert run(second()) == (["again", "next", "more", "last"], [])


def test_a_helper_cut_off_by_a_crash_goes_on(tmp_path):
    """Killed while the helper thinks: it is a process like any other, and is asked again in the next life."""
    helper_model = says({"text": "hangs", "first_s": 60}, "42")
    lead = Agent(
        "lead", model=says(calls("helper", task="go"), "{result}!"), tools=[Agent("helper", model=helper_model)]
    )
    store = str(tmp_path / "run.db")

    async def first():
        async with Crash(Kernel(store)) as kernel:
            process = await kernel.spawn(lead, pid="lead")
            process.send_async("go")
            while not helper_model.requests:
                await asyncio.sleep(0.001)

    async def second():
        async with Kernel(store, programs=[lead]) as kernel:
            process = await kernel.spawn(lead, pid="lead")
            while len(process.messages) < 4:
                await asyncio.sleep(0.001)
            return process.messages[-1].text

    run(first())
    assert run(second()) == "42!"

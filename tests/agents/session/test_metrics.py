"""What an agent has cost: with its helpers, and over its restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import Agent, Kernel
from lyra.errors import AgentFailed
from tests.agents.support import calls, run, says

PRICE = {"price": {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15}}


def _team(price: dict[str, Any]) -> Agent:
    expert = Agent("expert", model=says("word " * 40, **price), description="knows")
    helper = Agent("helper", model=says(calls("expert", task="u"), "said " * 20, **PRICE), tools=[expert])
    both = {"tool_calls": [{"name": "helper", "arguments": {"task": task}} for task in ("t", "v")]}
    return Agent("lead", model=says(both, "done", "again", **PRICE), tools=[helper])


def test_the_answer_costs_what_its_helpers_cost_too():
    """`reply.cost_usd` and `metrics.cost_usd` are the sum over all calls of the tree; the next answer is its own."""

    async def ask() -> None:
        records: list[Any] = []
        async with Kernel() as kernel:
            kernel.on_event(lambda event: records.append(event.data) if event.kind == "model.called" else None)
            process = await kernel.spawn(_team(PRICE))
            reply = await process.send("q")
            assert len({record["agent"] for record in records}) == 3
            assert reply.cost_usd == pytest.approx(sum(record["cost_usd"] for record in records))
            assert reply.output_tokens == sum(record["output_tokens"] for record in records)
            assert process.metrics.cost_usd == reply.cost_usd
            own = [record for record in records if record["agent"] == "lead"]
            assert process.metrics.output_tokens == sum(record["output_tokens"] for record in own)
            assert process.metrics.calls == 2
            second = await process.send("q")
            assert second.cost_usd == pytest.approx(records[-1]["cost_usd"])

    run(ask())


def test_a_helper_without_a_price_makes_the_cost_unknown():
    """The price of the sum is as unknown as that of one part."""

    class Unpriced(type(says("x"))):  # type: ignore[misc]  # a model like those of the tests, without a price
        def price(self, model: str) -> None:
            return None

    async def ask() -> Any:
        helper = Agent("helper", model=Unpriced({"replies": ["x"]}), description="knows")
        lead = Agent("lead", model=says(calls("helper", task="t"), "done", **PRICE), tools=[helper])
        async with Kernel() as kernel:
            process = await kernel.spawn(lead)
            return (await process.send("q")).cost_usd, process.metrics.cost_usd

    assert run(ask()) == (None, None)


def test_what_helpers_cost_survives_a_restart_of_the_kernel(tmp_path):
    """A turn that is over brings the helpers' part along."""
    path = str(tmp_path / "run.db")
    lead = _team(PRICE)

    async def life(question: str) -> float:
        async with Kernel(path, programs=[lead]) as kernel:
            process = await kernel.spawn(lead, pid="lead")
            before = process.metrics.cost_usd or 0.0
            reply = await process.send(question)
            assert process.metrics.cost_usd is not None
            assert process.metrics.cost_usd > before
            return float(process.metrics.cost_usd - reply.cost_usd)

    assert run(life("a")) == 0.0
    assert run(life("b")) > 0.0


def test_a_supervised_restart_keeps_the_metrics_and_loses_the_conversation():
    """What was said is gone with the crash; what it has cost is not."""

    def system(session: Any) -> str:
        if session.messages[-1].text == "crash":
            raise KeyError("bug")
        return "S"

    async def crash() -> None:
        async with Kernel() as kernel:
            agent = Agent("s", model=says("word " * 20, **PRICE), system=system, supervision="restart")
            process = await kernel.spawn(agent)
            cost = (await process.send("x")).cost_usd
            with pytest.raises(AgentFailed):
                await process.send("crash")
            while process.messages:
                await asyncio.sleep(0.001)
            assert process.metrics.cost_usd == cost
            await process.send("y")
            assert process.metrics.calls == 2
            assert process.messages[0].text == "y"

    run(crash())

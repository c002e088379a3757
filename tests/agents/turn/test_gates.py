"""Rate limits and circuit breakers of an Agent: one for all its processes, in whatever kernel."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel
from lyra.errors import CircuitOpen, ModelError, RateLimited
from lyra.models.sim import SimProvider
from tests.agents.support import clock_here, run, virtual

ONE_A_MINUTE = {"requests_per_minute": 1, "burst": 1, "strategy": "reject"}


def _outcomes(agent: Agent, times: int) -> list[str]:
    outcomes = []
    for _ in range(times):
        try:
            lyra.run(agent, "x")
            outcomes.append("ok")
        except (RateLimited, CircuitOpen, ModelError) as error:
            outcomes.append(error.code)
    return outcomes


class Down(SimProvider):
    def __init__(self) -> None:
        self.asked = 0
        super().__init__(self._answer)

    def _answer(self, _request: Any) -> dict[str, Any]:
        self.asked += 1
        return {"error": {"kind": "overloaded", "message": "too busy"}}


def test_one_rate_limit_for_all_runs():
    """`lyra.run` makes a kernel each time; the limit is the agent's."""
    assert _outcomes(Agent("r", model="sim/echo", rate_limit=ONE_A_MINUTE), 3) == ["ok", "rate_limited", "rate_limited"]


def test_another_agent_has_its_own():
    """The limit belongs to one Agent, not to its name."""
    agents = [Agent("r", model="sim/echo", rate_limit=ONE_A_MINUTE) for _ in range(2)]
    assert [_outcomes(agent, 1) for agent in agents] == [["ok"], ["ok"]]


def test_one_breaker_for_all_runs():
    """Once open, it spares the model in later runs too."""
    model = Down()
    agent = Agent("b", model=model, retry=1, circuit_breaker={"threshold": 2, "reset_after": 60})
    assert _outcomes(agent, 5)[2:] == ["circuit_open"] * 3
    assert model.asked == 2


def test_two_kernels_at_the_same_time_share_it():
    async def both() -> list[str]:
        agent = Agent("r", model="sim/echo", rate_limit=ONE_A_MINUTE)
        outcomes = []
        async with Kernel() as first, Kernel() as second:
            for kernel in (first, second):
                try:
                    await (await kernel.spawn(agent)).send("x")
                    outcomes.append("ok")
                except RateLimited:
                    outcomes.append("limited")
        return outcomes

    assert run(both()) == ["ok", "limited"]


def test_a_limit_in_virtual_time_is_not_that_of_the_machine():
    """Two worlds with clocks of their own: what was asked in one says nothing about the other."""
    agent = Agent("r", model="sim/echo", rate_limit=ONE_A_MINUTE)

    async def once() -> str:
        async with Kernel(clock=clock_here()) as kernel:
            process = await kernel.spawn(agent)
            answer = await process.send("x")
            with pytest.raises(RateLimited):
                await process.send("y")
            await asyncio.sleep(61)
            await process.send("z")
            return str(answer)

    assert virtual(once()) == virtual(once())
    assert _outcomes(agent, 1) == ["ok"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_callback_that_fails_hides_nothing(asynchronous, caplog):
    """`on_open` raises: the caller gets the model's error, the agent lives, and the log has the rest."""

    def plain() -> None:
        raise RuntimeError("callback")

    async def later() -> None:
        raise RuntimeError("callback")

    settings = {"threshold": 1, "reset_after": 60, "on_open": later if asynchronous else plain}

    async def ask() -> bool:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("b", model=Down(), retry=1, circuit_breaker=settings))
            with pytest.raises(ModelError, match="too busy"):
                await process.send("x")
            with pytest.raises(CircuitOpen):
                await process.send("x")
            return process.alive

    assert run(ask())
    assert "callback of the circuit breaker" in caplog.text


def test_an_async_callback_is_awaited():
    """Also where the kernel closes at once, as that of `lyra.run` does."""
    states: list[str] = []

    async def tell() -> None:
        await asyncio.sleep(0.05)
        states.append("open")

    breaker = {"threshold": 1, "reset_after": 60, "on_open": tell}
    assert _outcomes(Agent("b", model=Down(), retry=1, circuit_breaker=breaker), 2)[1] == "circuit_open"
    assert states == ["open"]

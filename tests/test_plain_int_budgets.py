"""A plain int reads as dollars and would be micro-dollars: every call that takes an amount of money refuses it."""

from __future__ import annotations

from typing import Any

import pytest

import lyra
from lyra import Agent, Budget, Effect, Kernel, effect
from lyra.errors import ConfigError
from tests.agents.support import says, virtual


async def program(ctx):
    return 1


async def act():
    return 1


def agent(**settings) -> Agent:
    return Agent("a", model=says("yes"), **settings)


async def whole(stream):
    return [piece async for piece in stream]


ONE: Any = 1  # what no checker lets pass

AT_THE_CALL = {
    "Agent(budget)": lambda: agent(budget=ONE),
    "Kernel(budget)": lambda: Kernel(budget=ONE),
    "Budget.of": lambda: Budget.of(ONE),
    "Budget.child": lambda: Budget().child(ONE),
    "lyra.budget": lambda: lyra.budget(ONE),  # not only where the scope is entered
    "@effect(cost)": lambda: effect(cost=ONE)(act),
    "Effect(cost)": lambda: Effect(act, cost=ONE),
    "Effect.of(cost)": lambda: Effect.of(effect(cost="$0.01")(act), cost=ONE),
}
ON_A_KERNEL = {
    "lyra.run": lambda kernel, process: lyra.run(agent(), "x", budget=ONE),
    "lyra.run(on)": lambda kernel, process: lyra.run(agent(), "x", on=kernel, budget=ONE),
    "lyra.stream": lambda kernel, process: whole(lyra.stream(agent(), "x", budget=ONE)),
    "kernel.spawn": lambda kernel, process: kernel.spawn(program, budget=ONE).wait(),
    "kernel.spawn of an agent": lambda kernel, process: kernel.spawn(agent(), budget=ONE),
    "kernel.run": lambda kernel, process: kernel.run(program, budget=ONE),
    "send": lambda kernel, process: process.send("x", budget=ONE),
    "send_async": lambda kernel, process: process.send_async("x", budget=ONE),
    "stream": lambda kernel, process: whole(process.stream("x", budget=ONE)),
}
IN_A_PROGRAM = {
    "ctx.spawn": lambda ctx: ctx.spawn(program, budget=ONE),
    "ctx.do(cost)": lambda ctx: ctx.do(act, cost=ONE),
    "ctx.do(cost) of a declared effect": lambda ctx: ctx.do(effect(cost="$0.01")(act), cost=ONE),
}


def check(refused: pytest.ExceptionInfo[ConfigError]) -> None:
    assert refused.value.hint == "write '$1.00', or Money(1) for micro-dollars"


@pytest.mark.parametrize("call", AT_THE_CALL)
def test_a_plain_int_is_refused_when_it_is_given(call):
    """The call itself raises, with a hint that says how to write both."""
    with pytest.raises(ConfigError, match="reads as dollars") as refused:
        AT_THE_CALL[call]()
    check(refused)


@pytest.mark.parametrize("call", ON_A_KERNEL)
def test_a_plain_int_is_refused_by_a_running_kernel(call):
    """For processes, agents and messages; nothing is sent, and nothing is left running."""

    async def main():
        async with Kernel("memory") as kernel:
            process = await kernel.spawn(agent())
            with pytest.raises(ConfigError, match="reads as dollars") as refused:
                await ON_A_KERNEL[call](kernel, process)
            check(refused)
            assert [entry.pid for entry in kernel.list_processes() if entry.state != "terminated"] == [process.pid]
            assert not process.messages

    virtual(main())


@pytest.mark.parametrize("call", IN_A_PROGRAM)
def test_a_plain_int_is_refused_inside_a_program(call):
    """By the context of a process; nothing is booked."""

    async def caller(ctx):
        with pytest.raises(ConfigError, match="reads as dollars") as refused:
            await IN_A_PROGRAM[call](ctx)
        check(refused)

    async def main():
        async with Kernel("memory", budget="$1") as kernel:
            await kernel.run(caller)
            assert not kernel.budget.used()

    virtual(main())


def test_money_and_text_are_taken():
    """What the hint says to write."""
    assert effect(cost=lyra.Money(1))(act).cost.usd == lyra.Money(1)
    assert effect(cost="$1.00")(act).cost.usd == lyra.Money(1_000_000)

"""An Agent is data: using it changes nothing on it, and what is computed for it goes with it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.errors import ConfigError
from lyra.kernel.programs.registry import program_of

MODEL = "sim/echo"


def settings(agent: Agent) -> dict[str, Any]:
    slots = [name for kind in type(agent).__mro__ for name in getattr(kind, "__slots__", ()) if name != "__weakref__"]
    return {name: getattr(agent, name) for name in slots}


def test_an_agent_stays_as_declared_when_it_is_used():
    """Every attribute is the same object after two conversations and a task."""
    agent = Agent("a", model=MODEL, system="Be brief.", rate_limit={"requests_per_minute": 600})

    async def main() -> None:
        async with Kernel() as kernel:
            for _ in range(2):
                process = await kernel.spawn(agent)
                assert await process.send("hello") == "hello"

    before = settings(agent)
    asyncio.run(main())
    after = settings(agent)
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)


def test_an_agent_is_freed_after_its_kernel():
    """Also where one of its tools refers to it."""

    def used() -> weakref.ref[Agent]:
        @tool
        def name() -> str:
            """Its agent's name."""
            return agent.name

        agent = Agent("a", model=MODEL, tools=[name])

        async def main() -> None:
            async with Kernel() as kernel:
                process = await kernel.spawn(agent)
                await process.send("hello")

        asyncio.run(main())
        return weakref.ref(agent)

    reference = used()
    gc.collect()
    assert reference() is None


def test_an_agents_program_is_one_function():
    """Kernels know programs by their functions: each look gives the same one, and other agents have others."""
    agent, other = Agent("a", model=MODEL), Agent("a", model=MODEL)
    program = program_of(agent)
    assert program is program_of(agent)
    assert program is not program_of(other)
    assert (program.__module__, program.__qualname__) == ("agent", "a")


@pytest.mark.parametrize("field", ["max_tokens", "min_tokens", "thinking_tokens"])
def test_numbers_of_tokens_have_a_limit(field):
    most: dict[str, Any] = {field: 10**7}
    assert getattr(Agent("a", model=MODEL, **most), field) == 10**7
    more: dict[str, Any] = {field: 10**7 + 1}
    with pytest.raises(ConfigError, match=field):
        Agent("a", model=MODEL, **more)

"""The turn in flight by `kernel.agent(pid).current`: after a restart its answer can be awaited."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from lyra import Agent, AgentProcess, Kernel, tool
from lyra.errors import AgentFailed, ConfigError
from tests.agents.support import calls, says


@dataclass
class City:
    name: str


async def program(ctx: Any) -> None:
    await ctx.receive()


@pytest.mark.parametrize("supervision", [None, "restart"])
def test_the_turn_in_flight_is_awaited_after_a_restart(tmp_path: Any, supervision: str | None) -> None:
    """Its answer has the agent's output type; between two turns there is none."""
    opened = asyncio.Event()

    @tool(idempotent=True)
    async def look() -> str:
        """Look."""
        await opened.wait()
        return "seen"

    def agent() -> Agent[City]:
        model = says(calls("look"), '{"name": "Oslo"}')
        return Agent("atlas", model=model, tools=[look], output=City, supervision=supervision)

    async def first() -> None:
        async with Kernel(tmp_path / "a.db", programs=[agent()]) as kernel:
            process = await kernel.spawn(agent(), pid="atlas")
            assert not process.current
            asked = process.send_async("Where?")
            while process.agent_state != "executing_tools":
                await asyncio.sleep(0.001)
            follower = process.current
            assert follower is not None
            follower.cancel()
            assert not asked.done()
            with pytest.raises(ConfigError, match="no agent"):
                kernel.agent(kernel.spawn(program))
            await kernel.durable()
            await kernel.close(drain_s=0)

    async def second() -> Any:
        async with Kernel(tmp_path / "a.db", programs=[agent(), program]) as kernel:
            process: AgentProcess[City] = kernel.agent("atlas")
            current, again = process.current, process.current
            assert current is not None
            assert again is not None
            opened.set()
            answer = await current
            assert answer == await again
            assert process.current is None
            return answer

    asyncio.run(first())
    opened = asyncio.Event()
    assert asyncio.run(second()) == City("Oslo")


def test_a_followed_turn_fails_with_its_process() -> None:
    """A reader does not wait for ever."""

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("slow", model=says({"text": "x", "first_s": 60})))
            asked = process.send_async("go")
            while process.current is None:
                await asyncio.sleep(0)
            current = kernel.agent(process.pid).current
            await process.stop()
            for pending in (asked, current):
                with pytest.raises(AgentFailed):
                    await pending

    asyncio.run(main())

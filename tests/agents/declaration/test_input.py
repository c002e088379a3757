"""What is wrong in what a caller gives is said at once, as a ConfigError with a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel, Timeouts, tool
from lyra.errors import ConfigError, LyraError
from tests.agents.support import run, says

PART = {"type": "image", "url": "https://example.org/a.png"}


@pytest.mark.parametrize(
    "message",
    ["", "  \n", [], [""], [{"type": "nonsense"}], [{"type": "text"}], [{"type": "image"}], lyra.Message("user", "")],
)
def test_a_message_that_says_nothing_is_refused(message: Any) -> None:
    """Nothing is sent for it."""
    model = says("hello")
    with pytest.raises(ConfigError):
        lyra.run(Agent("a", model=model), message)
    assert model.requests == []


def test_a_message_may_be_parts() -> None:
    """Those of known types, with what belongs to them."""
    model = says("hello")
    assert lyra.run(Agent("a", model=model), ["look", PART]) == "hello"
    assert model.requests[0].messages[0].content == ({"type": "text", "text": "look"}, PART)


async def _later() -> str:
    return "later"


@pytest.mark.parametrize(
    ("system", "sent"),
    [
        (lambda: "bare", "bare"),
        (lambda session: f"for {session.agent.name}", "for a"),
        (lambda session: None, ""),
        (lambda session="none": session.agent.name, "a"),
        (_later, "later"),
    ],
)
def test_a_system_function_takes_the_session_or_nothing(system: Callable[..., Any], sent: str) -> None:
    """None is no system prompt."""
    model = says("hello")
    assert lyra.run(Agent("a", model=model, system=system), "go") == "hello"
    assert model.requests[0].system == sent


def test_a_system_function_of_another_kind_is_refused() -> None:
    """One that takes more when the agent is made, one that gives no text when it is asked."""
    with pytest.raises(ConfigError, match="session"):
        Agent("a", model="sim/echo", system=lambda wanted, other: "x")
    with pytest.raises(ConfigError, match="gave int"):
        lyra.run(Agent("a", model="sim/echo", system=lambda session: 3), "go")


def test_timeouts_are_a_mapping_too() -> None:
    """They are checked when the agent is made."""
    assert Agent("a", model="sim/echo", timeouts={"total_s": 1}).timeouts == Timeouts(total_s=1)
    for wrong in ({"totl_s": 1}, {"total_s": "1"}, {"total_s": 0}, 5):
        with pytest.raises(ConfigError):
            Agent("a", model="sim/echo", timeouts=wrong)  # type: ignore[arg-type]


def test_none_is_no_tools_and_no_fallback() -> None:
    """As it is for the other settings."""
    agent = Agent("a", model="sim/echo", tools=None, fallback=None)
    assert (agent.toolbox, agent.fallback) == ((), ())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Agent("a", model="sim/echo", tools=5),  # type: ignore[call-overload]
        lambda: Agent("a", model="sim/echo", tools=tool(abs_of)),  # type: ignore[call-overload]
        lambda: Agent("a", model="sim/echo", tools=[Agent]),
        lambda: Agent("a", model="sim/echo", fallback=5),  # type: ignore[call-overload]
        lambda: tool(int),
        lambda: tool(max),
        lambda: lyra.run(Agent, "hello"),  # type: ignore[call-overload]
        lambda: lyra.run("sim/echo", "hello"),  # type: ignore[call-overload]
        lambda: lyra.stream(Agent, "hello"),  # type: ignore[call-overload]
        lambda: lyra.run(Agent("a", model="sim/echo"), "hello", timeout="abc"),  # type: ignore[arg-type]
    ],
)
def test_wrong_input_is_a_config_error(make: Callable[[], Any]) -> None:
    """Not whatever the interpreter says of it."""
    with pytest.raises(ConfigError) as refused:
        make()
    assert refused.value.message


def test_running_the_class_says_what_to_give() -> None:
    """And not what is missing in it."""
    with pytest.raises(ConfigError, match="an Agent, not the class itself") as refused:
        lyra.run(Agent, "hello")  # type: ignore[call-overload]
    assert refused.value.hint


def abs_of(number: int) -> int:
    """Its size."""
    return abs(number)


def test_a_handle_belongs_to_its_loop() -> None:
    """Asked from another one it says so, instead of waiting there for ever."""

    async def elsewhere(process: Any) -> None:
        with pytest.raises(ConfigError, match="another event loop"):
            await process.send("hello")
        with pytest.raises(ConfigError, match="another event loop"):
            await process.stream("hello")

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model="sim/echo"))
            await asyncio.to_thread(lambda: asyncio.run(elsewhere(process)))
            assert await process.send("hello")

    run(main())


def test_one_coroutine_is_one_call() -> None:
    """The same twice is refused before either runs."""

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model="sim/echo"))
            work = process.send("hello")
            with pytest.raises(LyraError, match="earlier call"):
                await lyra.parallel(work, work)
            assert process.metrics.turns == 0

    run(main())

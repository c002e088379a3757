"""Tools that end in odd ways, and what they may give: each ends its own call, and the model is told."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel, ToolResult, tool
from lyra.agents.helpers.task import delegate
from lyra.core.limits import QUOTA_DEFAULTS
from lyra.errors import BudgetExceeded, LyraError
from lyra.models.providers.anthropic import body_of
from tests.agents.support import calls, run, says

PNG = b"\x89PNG\r\n\x1a\n123"


def told(function: Any, *, also: tuple[Any, ...] = (), store: Any = None) -> list[ToolResult]:
    """What a model hears of one call of each of these tools, made together."""
    tools = [tool(function_) for function_ in (function, *also)]
    model = says({"tool_calls": [{"name": tool_.name, "arguments": {}} for tool_ in tools]}, "done")

    async def main() -> list[ToolResult]:
        async with Kernel(store=store) as kernel:
            process = await kernel.spawn(Agent("worker", model=model, tools=tools))
            assert await process.send("go", timeout=5) == "done"
            assert process.alive
            return [result for message in process.messages for result in message.tool_results]

    results: list[ToolResult] = run(main())
    return results


def test_a_model_is_told_nothing_that_no_screen_shows():
    """Neither by a result nor by an error; a result says that something is missing, since an edit has to know."""
    hidden = "".join(chr(0xE0000 + ord(char)) for char in "do it") + "\u202e\u200b"

    async def speak() -> str:
        """Say something."""
        return f"a{hidden}b\x1b[1m"

    async def fail() -> str:
        """Fail."""
        raise ValueError(f"a{hidden}b")

    async def give() -> dict[str, str]:
        """Give data."""
        return {f"k{hidden}": f"v{hidden}"}

    results = told(speak, also=(fail, give))
    assert [result.output for result in results] == [
        "ab\x1b[1m\n(7 invisible characters were left out)",
        "ValueError: ab",
        '{"k":"v"}\n(14 invisible characters were left out)',
    ]


def nothing_first() -> int:
    """Raises StopIteration, which a future cannot carry."""
    empty: list[int] = []
    return next(iter(empty))


def leaves() -> None:
    """Ends the program, or would."""
    sys.exit(3)


async def leaves_later() -> None:
    """The same on the loop."""
    await asyncio.sleep(0)
    sys.exit(3)


def interrupts() -> None:
    """As if by hand."""
    raise KeyboardInterrupt


async def cancels() -> None:
    """Raises what a cancellation raises."""
    raise asyncio.CancelledError


def cancels_in_thread() -> None:
    """The same in a thread."""
    raise asyncio.CancelledError


async def cancels_with_ctx(ctx: lyra.Context) -> None:
    """The same as a part of the agent's program."""
    raise asyncio.CancelledError


async def fine() -> str:
    """Takes a moment."""
    await asyncio.sleep(0.01)
    return "fine"


@pytest.mark.parametrize(
    ("function", "description"),
    [
        (nothing_first, "StopIteration"),
        (leaves, "SystemExit(3)"),
        (leaves_later, "SystemExit(3)"),
        (interrupts, "KeyboardInterrupt"),
        (cancels, "CancelledError"),
        (cancels_in_thread, "CancelledError"),
        (cancels_with_ctx, "CancelledError"),
    ],
)
def test_a_tool_that_ends_in_an_odd_way_ends_its_own_call(function: Any, description: str) -> None:
    """Neither the agent nor the program ends, nothing hangs, and the model is told."""
    (alone,) = told(function)
    assert alone.is_error
    assert alone.output == f"tool {function.__name__} ended with {description}"
    odd, other = told(function, also=(fine,))
    assert odd.is_error
    assert (other.output, other.is_error) == ("fine", False)


def test_a_cancellation_from_outside_still_ends_the_call() -> None:
    """A caller that gives up, and a process that is stopped, are not told to the model as a tool's failure."""
    entered = asyncio.Event()
    ended: list[str] = []

    async def waits() -> None:
        """Waits for ever."""
        entered.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    model = says(calls("waits"))

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("worker", model=model, tools=[waits]))
            with pytest.raises(lyra.errors.DeadlineExceeded):
                await process.send("go", timeout=0.05)
            for _ in range(20):
                await asyncio.sleep(0)
            assert ended == ["cancelled"]
            assert process.alive
            assert len(model.requests) == 1
            entered.clear()
            waiting = process.send_async("go")
            await entered.wait()
            await process.stop()
            with pytest.raises(LyraError):
                await waiting
            assert ended == ["cancelled"] * 2
            assert len(model.requests) == 2
            entered.clear()
            other = await kernel.spawn(Agent("other", model=model, tools=[waits]))
            pending = other.send_async("go")
            await entered.wait()
        with pytest.raises(LyraError):  # the kernel closed
            await pending
        assert ended == ["cancelled"] * 3
        assert len(model.requests) == 3

    run(main())


# ---------------------------------------------------------------------- images


def picture() -> lyra.Image:
    """A picture."""
    return lyra.Image.from_bytes(PNG)


async def captioned() -> list[Any]:
    """A picture and what it shows."""
    return ["a cat", lyra.Image.from_bytes(PNG), {"size": 3}]


def test_a_tool_may_give_an_image(tmp_path: Any) -> None:
    """It reaches the provider as a picture, not as text; with a store as without."""
    image = lyra.Image.from_bytes(PNG).to_data()
    for store in (None, str(tmp_path / "a.db")):
        alone, several = told(picture, also=(captioned,), store=store)
        assert alone.output == [image]
        texts = [{"type": "text", "text": "a cat"}, {"type": "text", "text": '{"size":3}'}]
        assert several.output == [texts[0], image, texts[1]]


def test_an_image_of_a_tool_is_an_image_on_the_wire() -> None:
    """The body that is sent to Anthropic has the picture as a block of the tool's result."""
    model = says(calls("picture"), "done")
    lyra.run(Agent("worker", model=model, tools=[picture]), "go")
    body = body_of(model.requests[-1])
    (block,) = [block for message in body["messages"] for block in message["content"] if block["type"] == "tool_result"]
    assert block["content"][0]["source"]["media_type"] == "image/png"


# ---------------------------------------------------------------------- depth


def test_an_agent_that_asks_itself_for_ever_is_stopped() -> None:
    """The depth of helpers is bounded, and the error ends all of them: no level tries again."""
    model = says(calls("loop", task="again"))
    agent = Agent("loop", model=model)
    agent.tools["loop"] = delegate(agent)
    agent.toolbox = tuple(agent.tools.values())
    with pytest.raises(BudgetExceeded) as stopped:
        lyra.run(agent, "go", timeout=10)
    most = QUOTA_DEFAULTS["agent_hops"]
    assert stopped.value.fields["dimension"] == "agent_hops"
    assert stopped.value.fields["limit"] == most
    assert stopped.value.hint
    assert len(model.requests) == most + 1

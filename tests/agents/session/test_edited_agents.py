"""An Agent that is edited between two lives of its store: what it has said stays said."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Context, Kernel, tool
from lyra.errors import Divergence, LyraError
from tests.agents.support import calls, run, says
from tests.kernel.conftest import Crash


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "run.db")


@tool
async def look(n: int) -> str:
    return f"looked {n}"


@tool
async def roll(ctx: Context) -> str:
    """Takes keys, a branch and chance of its program."""
    async with asyncio.TaskGroup() as group:
        both = [group.create_task(ctx.sleep(0)) for _ in range(2)]
    assert len(both) == 2
    return str(ctx.random.random())


def _agent(model: Any, **changed: Any) -> Agent:
    settings: dict[str, Any] = {"system": "v1", "tools": [look, roll], **changed}
    return Agent("helper", model=model, **settings)


async def _talk(path: str, agent: Agent, *questions: str) -> tuple[list[str], list[str]]:
    async with Kernel(path, programs=[agent]) as kernel:
        process = await kernel.spawn(agent, pid="helper")
        answers = [str(await process.send(question, timeout=5)) for question in questions]
        return answers, [message.text for message in process.messages if message.role != "tool"]


@pytest.mark.parametrize(
    "changed",
    [
        {"system": "v2"},
        {"system": lambda _session: "v2"},
        {"tools": []},
        {"max_tokens": 77, "temperature": 0.3},
        {"context": {"tokens": 2_000}},
        {"memory": True},
        {"max_iterations": 1},
        {"fallback": ["sim/echo"]},
    ],
    ids=",".join,
)
def test_an_edited_agent_goes_on(path, changed):
    """System text, tools, limits, context, memory: a stored conversation goes on under the new ones."""
    model = says(calls("look", n=1), calls("roll"), "one", "two", "three")
    answers, _ = run(_talk(path, _agent(model), "a", "b"))
    assert answers == ["one", "two"]
    again, texts = run(_talk(path, _agent(model, **changed), "c"))
    assert again == ["three"]
    assert texts == ["a", "", "", "one", "b", "two", "c", "three"]
    assert len(model.requests) == 5  # nothing was asked twice


def test_another_model_goes_on(path):
    """The model, and the type of the answer, of turns that are over do not matter either."""
    run(_talk(path, _agent(says("one")), "a"))
    answers, texts = run(_talk(path, _agent("sim/echo"), "b"))
    assert texts == ["a", "one", "b", answers[0]]
    answers, texts = run(_talk(path, _agent(says('{"n": 3}'), output=dict[str, int]), "c"))
    assert answers == ["{'n': 3}"]
    assert texts[:2] == ["a", "one"]


def test_turns_that_failed_or_were_given_up_are_passed_over_too(path):
    """What failed then has failed, also where the edited agent would do better."""
    model = says("one", {"error": {"kind": "auth"}}, {"text": "slow", "first_s": 60}, "four")

    async def first() -> None:
        agent = _agent(model)
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            await process.send("a")
            with pytest.raises(LyraError):
                await process.send("b")
            pending = process.send_async("c")
            behind = process.send_async("d")
            behind.cancel()
            while len(model.requests) < 3:
                await asyncio.sleep(0.001)
            pending.cancel()
            await asyncio.sleep(0.01)

    run(first())
    answers, texts = run(_talk(path, _agent(model, system="v2", tools=[]), "e"))
    assert answers == ["four"]
    assert texts == ["a", "one", "e", "four"]


def test_a_passed_turn_brings_its_metrics(path):
    """Calls and tokens of turns that were passed over are counted once."""
    model = says(calls("look", n=1), "one")
    run(_talk(path, _agent(model), "a"))

    async def second() -> tuple[int, int, int]:
        agent = _agent(model, system="v2")
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            await process.send("b")
            return process.metrics.calls, process.metrics.tool_calls, process.metrics.turns

    assert run(second()) == (3, 1, 2)


def test_a_large_answer_is_passed_over(path):
    """A turn too large for a row is kept beside the journal."""
    model = says("one", "two")
    run(_talk(path, _agent(model), "x" * 200_000))
    answers, texts = run(_talk(path, _agent(model, system="v2"), "b"))
    assert answers == ["two"]
    assert len(texts[0]) == 200_000


def test_chance_after_a_passed_turn_is_the_same(path):
    """A turn cut off after one that is over draws the same numbers when it is replayed."""
    hang = {"text": "hangs", "first_s": 60}
    model = says(calls("roll"), "one", calls("roll"), hang, "two")
    results: list[str] = []

    async def first() -> None:
        agent = _agent(model)
        async with Crash(Kernel(path)) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            await process.send("a")
            process.send_async("b")
            while len(model.requests) < 4:
                await asyncio.sleep(0.001)
            results.append(process.messages[-1].tool_results[0].output)

    async def second() -> None:
        agent = _agent(model)
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            while not process.messages or process.messages[-1].text != "two":
                await asyncio.sleep(0.001)
            results.append(process.messages[-2].tool_results[0].output)

    run(first())
    run(second())
    assert results[0] == results[1]


def test_a_turn_that_is_not_over_says_what_to_do(path):
    """Edited in the middle of an answer: a Divergence that names the agent's settings, and the old ones still go on."""
    model = says(calls("look", n=1), {"text": "hangs", "first_s": 60}, "done")

    async def first() -> None:
        agent = _agent(model)
        async with Crash(Kernel(path)) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            process.send_async("a")
            while len(model.requests) < 2:
                await asyncio.sleep(0.001)

    run(first())
    with pytest.raises(Divergence) as caught:
        run(_talk(path, _agent(model, system="v2"), "b"))
    assert "settings" in str(caught.value.hint)
    answers, _ = run(_talk(path, _agent(model), "b"))
    assert answers == ["done"]

"""A conversation is there as soon as its store is open again: messages, figures, memory and the last run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.session import CHECKPOINT_EVERY
from lyra.errors import ModelError
from lyra.models.sim import SimProvider
from tests.agents.support import run
from tests.kernel.conftest import Crash
from tests.real_models import Answer, FakeVendor, Vendor


def _seen(process: AgentProcess[Any]) -> dict[str, Any]:
    """All that a handle tells of its conversation."""
    execution = process.execution
    return {
        "messages": process.messages,
        "metrics": process.metrics.to_data(),
        "memory": [item.text for item in process.memory.items()],
        "execution": None if execution is None else execution.to_data(),
        "answer": None if execution is None else execution.answer,
    }


async def _reopened(path: Path, agent: Agent[Any], pid: str = "a") -> dict[str, Any]:
    """What is told at once after reopening, before the process itself has run; the same a moment later."""
    async with Kernel(path, programs=[agent]) as kernel:
        at_once = _seen(kernel.agent(pid))
        assert kernel.agent(pid).agent_state == "initializing"
        await asyncio.sleep(0.05)
        assert _seen(kernel.agent(pid)) == at_once
    return at_once


@pytest.mark.parametrize("supervision", [None, "restart"])
def test_a_resumed_conversation_is_there_at_once(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path, supervision: str | None
) -> None:
    """After a clean end and after a kill, also of one that is supervised: what was told before is told again."""
    provider.say(Answer("One.", thinking="Hm."), Answer("Two " * 20_000, is_cut=True))
    agent: Agent[Any] = Agent("a", model=vendor.model, memory=True, supervision=supervision)

    async def before() -> dict[str, Any]:
        async with Crash(Kernel(tmp_path / "run.db", programs=[agent])) as kernel:
            process = await kernel.spawn(agent, pid="a")
            await process.send("first")
            await process.send("second")
            process.memory.add("likes tea")
            await kernel.durable()
            return _seen(process)

    told = run(before())
    assert told["metrics"]["cost_usd"] == vendor.cost_usd(*provider.answered)
    assert told["execution"]["status"] == "max_tokens"
    assert run(_reopened(tmp_path / "run.db", agent)) == told
    assert run(_reopened(tmp_path / "run.db", agent)) == told


def _told(path: Path, agent: Agent[Any], *work: Any) -> dict[str, Any]:
    """What is told after some work, by the same life and then by one that reopens the store."""

    async def before() -> dict[str, Any]:
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="a")
            for step in work:
                await step(process)
            await kernel.durable()
            return _seen(process)

    told: dict[str, Any] = run(before())
    assert run(_reopened(path, agent)) == told
    return told


def _echo(**settings: Any) -> Agent[Any]:
    def answer(request: Any) -> Any:
        text = request.messages[-1].text
        return {"error": {"kind": "bad_request", "message": "no"}} if text == "fail" else f"said {text}"

    return Agent("a", model=SimProvider(answer), memory=True, **settings)


def test_the_last_run_of_a_long_conversation(tmp_path: Path) -> None:
    """Also where its turns are in a checkpoint, and where others came after it."""

    async def talk(process: AgentProcess[Any]) -> None:
        for number in range(CHECKPOINT_EVERY // 2):
            await process.send(f"message {number}")

    async def one_more(process: AgentProcess[Any]) -> None:
        await process.send("one more")

    for name, work in (("a.db", [talk]), ("b.db", [talk, one_more])):
        told = _told(tmp_path / name, _echo(), *work)
        assert len(told["execution"]["steps"]) == 1
        assert told["execution"]["usage"]["calls"] == 1
        assert told["answer"] == told["messages"][-1].text


def test_a_run_that_failed_was_the_last(tmp_path: Path) -> None:
    """Its error is told after the restart; it is not in the conversation."""

    async def fail(process: AgentProcess[Any]) -> None:
        await process.send("well")
        with pytest.raises(ModelError):
            await process.send("fail")

    path, agent = tmp_path / "a.db", _echo(retry=1)

    async def before() -> None:
        async with Kernel(path, programs=[agent]) as kernel:
            await fail(await kernel.spawn(agent, pid="a"))

    run(before())
    told = run(_reopened(path, agent))
    assert [message.text for message in told["messages"]] == ["well", "said well"]
    assert (told["execution"]["state"], told["execution"]["status"]) == ("error", "bad_request")


def test_orders_about_the_conversation_hold(tmp_path: Path) -> None:
    """Messages that were taken out are not there, and those that were put in are."""

    async def revise(process: AgentProcess[Any]) -> None:
        await process.send("one")
        await process.revise(1, [lyra.Message("assistant", "something else")])
        await process.send("two")
        await process.compact()

    told = _told(tmp_path / "a.db", _echo(), revise)
    assert [message.text for message in told["messages"]] == ["one", "something else", "two", "said two"]

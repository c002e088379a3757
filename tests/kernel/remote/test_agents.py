"""Stages whose agents other shards have: run there, once, whichever shard is killed at whatever point."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.errors import ConfigError, Denied
from lyra.kernel import Kernel, run_pipeline
from lyra.kernel.pipelines.agents import AgentResult
from lyra.kernel.programs.context import Context
from tests.kernel.remote.wired import Killer, Shards, run_shards

STAGES = [{"name": "first", "default_next": "second"}, {"name": "second", "default_next": "third"}, {"name": "third"}]
LOUD = {"name": "loud", "agents": STAGES}


async def first(envelope: Any) -> Any:
    return AgentResult(output={"text": envelope.raw_input.upper()}, metrics={"llm_calls": 1, "tokens_in": 3})


async def second(envelope: Any) -> Any:
    return AgentResult(output={"text": envelope.outputs["first"]["text"] + "!"}, metrics={"llm_calls": 2})


async def third(envelope: Any) -> dict[str, str]:
    return {"text": envelope.outputs["second"]["text"] * 2}


async def fails(envelope: Any) -> dict[str, str]:
    raise ValueError(f"no {envelope.raw_input}")


async def lead(ctx: Context, config: Any) -> Any:
    ended = await ctx.spawn(run_pipeline, config, "hello").wait()
    if ended.error is not None:
        raise ended.error
    return ended.result["message"]


def setup(kernel: Kernel) -> None:
    if kernel.core.remote.shard == "a":
        kernel.register_agent("first", first, idempotent=True)
        kernel.register_agent("third", third, idempotent=True)
    else:
        kernel.register_agent("second", second, idempotent=True)
        kernel.register_agent("fails", fails)


@pytest.mark.parametrize("victim", ["a", "b"])
def test_a_stage_on_another_shard_is_run_once_whatever_is_killed(victim):
    """The pipeline's shard, or the agent's, is killed at any point between two steps: the pipeline comes to its end
    with one process on the agent's shard, and counts what was used once."""

    async def run(at: int) -> int:
        async with Shards("a", "b", setup=setup) as shards:
            await shards.settle()
            killer = Killer(shards, victim, at)
            handle = await shards["a"].spawn(run_pipeline, LOUD, "hello", pid="p")
            with killer.armed():
                await asyncio.wait([asyncio.ensure_future(handle.wait())], timeout=5)
            await killer.bring_back()
            ended = await shards["a"].process("p").wait()
            envelope = ended.result["envelope"]
            outputs = {"first": {"text": "HELLO"}, "second": {"text": "HELLO!"}, "third": {"text": "HELLO!HELLO!"}}
            assert (ended.result["reason"], envelope["outputs"]) == ("completed", outputs), at
            assert (envelope["llm_call_count"], envelope["tokens_in"], envelope["agent_hop_count"]) == (3, 3, 3), at
            assert len(list(shards.stores["b"].read(kind="pipeline.initialized"))) == 1, at
            assert len(list(shards.stores["a"].read(kind="pipeline.reported"))) == 3, at
            return at - killer.left

    async def main() -> None:
        visited: Any = await run(1_000_000)
        assert visited > 10
        for at in range(1, visited):
            await run(at)

    run_shards(main, limit_s=1_000_000)


def test_an_error_abroad_fails_the_stage():
    """What the agent of another shard raises is the error of the stage, with its words, and its route is taken."""

    async def main() -> None:
        async with Shards("a", "b", programs=[lead], setup=setup) as shards:
            await shards.settle()
            failing = {"name": "p", "agents": [{"name": "fails", "error_next": "first"}, {"name": "first"}]}
            events = [event async for event in shards["a"].execute_pipeline(failing, "hello")]
            assert events[-1].envelope.outputs == {"first": {"text": "HELLO"}}
            assert "no hello" in events[-1].envelope.failed_stages["fails"]
            alone = await shards["b"].execute_agent("first", "alone")
            assert (alone.success, alone.output, alone.llm_calls) == (True, {"text": "ALONE"}, 1)
            with pytest.raises(ConfigError, match="nowhere"):
                [event async for event in shards["a"].execute_pipeline({"name": "p", "agents": [{"name": "nowhere"}]})]

    run_shards(main)


def test_a_pipeline_that_is_spawned_needs_the_right_to_it():
    """A process that may start only other programs starts no pipeline by its declaration."""

    async def main() -> None:
        async with Shards("a", "b", programs=[lead], setup=setup) as shards:
            await shards.settle()
            config = {"name": "loud", "agents": [{"name": "first"}]}
            handle = await shards["a"].spawn(lead, config, grant=["process.spawn:other"])
            error = (await handle.wait()).error
            assert isinstance(error, Denied), error
            handle = await shards["a"].spawn(lead, config, grant=["process.spawn:loud"])
            assert (await handle.wait()).result == "completed"

    run_shards(main)


def test_a_name_that_is_told_late_is_waited_for():
    """A stage whose agent is nowhere waits until some shard registers it, and runs there; one that is dropped by its
    shard is known no more."""

    async def main() -> None:
        async with Shards("a", "b", setup=setup) as shards:
            await shards.settle()
            gate = asyncio.Event()

            async def gated(envelope: Any) -> Any:
                await gate.wait()
                return await first(envelope)

            shards["a"].register_agent("first", gated)
            handle = await shards["a"].spawn(run_pipeline, LOUD, "hello", pid="p")
            dormant = asyncio.Event()
            shards["a"].on_event(lambda _event: dormant.set(), ["process.dormant"])
            shards["b"].orchestrator.agents.unregister("second")
            await shards.settle()
            assert not shards["a"].orchestrator.agents.is_offered("second", "")
            gate.set()
            await dormant.wait()
            shards["b"].register_agent("second", second)
            assert (await handle.wait()).result["reason"] == "completed"

    run_shards(main)


def test_a_run_that_was_begun_here_stays_here():
    """A stage that had begun on its own shard when that was killed waits for its agent there, though another shard has
    one of that name: it is not begun a second time elsewhere."""

    async def main() -> None:
        began, runs = asyncio.Event(), []

        async def stuck(_envelope: Any) -> None:
            began.set()
            await asyncio.get_running_loop().create_future()

        async def elsewhere(_envelope: Any) -> dict[str, str]:
            runs.append("b")
            return {}

        async with Shards("a", "b") as shards:
            shards["a"].register_agent("work", stuck, idempotent=True)
            shards["b"].register_agent("work", elsewhere, idempotent=True)
            await shards.settle()
            await shards["a"].spawn(run_pipeline, {"name": "p", "agents": [{"name": "work"}]}, "x", pid="p")
            await began.wait()
            kernel = await shards.reopen("a")
            await shards.settle()
            await asyncio.sleep(1)
            assert runs == []
            kernel.register_agent("work", first, idempotent=True)
            ended = await kernel.process("p").wait()
            assert ended.result["envelope"]["outputs"] == {"work": {"text": "X"}}
            assert runs == []

    run_shards(main)


@pytest.mark.parametrize("shard", ["a", "b"])
def test_an_agent_asks_a_person_wherever_it_is(shard):
    """An agent that asks leaves that to the pipeline, on the pipeline's shard; the next stage has the answer."""

    async def asks(_envelope: Any) -> Any:
        return AgentResult(output={"so": "far"}, interrupt={"kind": "clarification", "question": "Which?"})

    async def answers(envelope: Any) -> Any:
        return {"text": envelope.interrupt["response"]["text"]}

    async def main() -> None:
        async with Shards("a", "b", setup=setup) as shards:
            shards[shard].register_agent("asks", asks)
            shards[shard].register_agent("answers", answers)
            await shards.settle()
            pipeline = {"name": "p", "agents": [{"name": "asks", "default_next": "answers"}, {"name": "answers"}]}
            handle = await shards["a"].spawn(run_pipeline, pipeline, "hello", pid="p")
            while not (asked := shards["a"].interrupts.list_interrupts(status="pending")):
                await asyncio.sleep(0.01)
            assert (asked[0].pid, asked[0].question) == ("p", "Which?")
            await shards["a"].resolve_interrupt(asked[0].id, {"text": "this"})
            ended = (await handle.wait()).result
            assert ended["envelope"]["outputs"] == {"asks": {"so": "far"}, "answers": {"text": "this"}}
            assert (ended["reason"], ended["interrupt"]) == ("completed", None)

    run_shards(main)

"""Pipelines of a cluster: started with placement from a client and from a process, followed across take-over, with
stages whose agents other shards have."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.errors import ConfigError, NameTaken
from lyra.kernel import Kernel
from lyra.kernel.pipelines.runner import run_pipeline
from lyra.kernel.programs.context import Context
from tests.cluster.hosts_in_memory import MemoryCluster, run_cluster, until

LOUD = {"name": "loud", "agents": [{"name": "first", "default_next": "second"}, {"name": "second"}]}
WORDS = ["stage_started", "stage_completed", "routing_decision", "checkpoint_created"]
STAGES = [*WORDS, *WORDS[:3], "pipeline_completed"]


async def lead(ctx: Context, shard: str) -> Any:
    """Run a pipeline on a shard and return its outputs."""
    child = ctx.spawn(run_pipeline, LOUD, "hello", shard=shard)
    ended = await child.wait()
    return [child.pid, ended.result["reason"], ended.result["envelope"]["outputs"]]


class Agents:
    """Two agents on two of the shards; the second waits for the gate."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def setup(self, kernel: Kernel) -> None:
        shard = kernel.core.remote.shard

        async def first(envelope: Any) -> dict[str, Any]:
            self.calls.append(("first", shard))
            return {"text": envelope.raw_input.upper()}

        async def second(envelope: Any) -> dict[str, Any]:
            self.calls.append(("second", shard))
            await self.gate.wait()
            return {"text": envelope.outputs["first"]["text"] + "!"}

        if shard == "s1":
            kernel.register_agent("first", first)
        if shard == "s2":
            kernel.register_agent("second", second, idempotent=True)


async def until_known(world: MemoryCluster, *agents: str) -> None:
    """Return when each shard knows where these agents are."""
    orchestrators = [world.kernel(shard).orchestrator.agents for shard in world.stores]
    await until(lambda: all(known.is_offered(name, "") for known in orchestrators for name in agents))


def test_a_client_starts_a_pipeline_anywhere_and_follows_it():
    """The pipeline runs on the shard that was named, its stages where their agents are, once each; its events come in
    order, again from the first one for whoever follows it later; another declaration under its pid is refused."""

    async def main() -> None:
        agents = Agents()
        async with MemoryCluster("a", "b", setup=agents.setup) as world:
            await until_known(world, "first", "second")
            cluster = world.client
            events = [event async for event in cluster.execute_pipeline(LOUD, "hello", pid="run-1", shard="s3")]
            assert [event.type for event in events] == STAGES
            assert events[-1].envelope.outputs == {"first": {"text": "HELLO"}, "second": {"text": "HELLO!"}}
            assert agents.calls == [("first", "s1"), ("second", "s2")]
            again = [event.to_data() async for event in cluster.follow_pipeline("s3/run-1")]
            assert again == [event.to_data() for event in events]
            again = [event.to_data() async for event in cluster.execute_pipeline(LOUD, "x", pid="run-1", shard="s3")]
            assert again == [event.to_data() for event in events]
            assert len(agents.calls) == 2
            other = {"name": "other", "agents": [{"name": "first"}]}
            with pytest.raises(NameTaken, match="another pipeline"):
                [event async for event in cluster.execute_pipeline(other, "x", pid="run-1", shard="s3")]
            unknown = {"name": "other", "agents": [{"name": "nowhere"}]}
            with pytest.raises(ConfigError, match="nowhere"):
                [event async for event in cluster.execute_pipeline(unknown, "x", shard="s4")]

    run_cluster(main)


def test_a_process_starts_a_pipeline_on_another_shard():
    """`ctx.spawn(run_pipeline, …, shard=…)` is a process of that shard, and its result has the last envelope."""

    async def main() -> None:
        agents = Agents()
        async with MemoryCluster("a", "b", setup=agents.setup, programs=[lead]) as world:
            await until_known(world, "first", "second")
            handle = await world.client.spawn(lead, "s4", shard="s3")
            address, reason, outputs = (await handle.wait()).result
            assert (address[:3], reason) == ("s4/", "completed")
            assert outputs == {"first": {"text": "HELLO"}, "second": {"text": "HELLO!"}}

    run_cluster(main)


@pytest.mark.parametrize("of", ["s3", "s2"])
def test_a_pipeline_is_followed_across_take_over(of):
    """The host of the pipeline, or of the agent that runs, is killed in the middle of a stage: the follower is told
    each event once and in order, and the stage before is not run again."""

    async def main() -> None:
        agents = Agents()
        async with MemoryCluster("a", "b", setup=agents.setup) as world:
            await until_known(world, "first", "second")
            agents.gate.clear()
            told: list[str] = []

            async def follow() -> Any:
                async for event in world.client.execute_pipeline(LOUD, "hello", pid="run-1", shard="s3"):
                    told.append(event.type)
                return event.envelope.outputs

            following = asyncio.ensure_future(follow())
            await until(lambda: ("second", "s2") in agents.calls)
            await world.kill(world.host_of(of))
            await world.until_open()
            agents.gate.set()
            outputs = await following
            assert outputs == {"first": {"text": "HELLO"}, "second": {"text": "HELLO!"}}
            assert told == STAGES
            assert agents.calls.count(("first", "s1")) == 1

    run_cluster(main)

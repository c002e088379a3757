"""Agents of a cluster as its clients use them, on hosts in memory and on real ones, one of which is killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

import lyra.cluster
from lyra import Agent, Kernel
from lyra.agents.session.replies import MarkedReply, Reply
from lyra.cluster.directory import PostgresDirectory
from lyra.errors import BudgetExceeded, ConfigError, Conflict, DeadlineExceeded, LyraError, NoSuchProcess
from lyra.models.sim import SimProvider
from lyra.testing.mock import MockServer
from tests.cluster.hosts_in_memory import MemoryCluster, run_cluster, until
from tests.cluster.shared_host import helper, streams
from tests.cluster.test_shared_hosts import HostProcess
from verify.servers import PostgresServer, postgres_missing

WORDS = [f"word{number} " for number in range(20)]
asked: Counter[str] = Counter()


@dataclass
class Point:
    x: int
    y: int


def think(request: Any) -> Any:
    text = next(message.text for message in reversed(request.messages) if message.role == "user")
    asked[text] += 1
    if "point" in text:
        return '{"x": 1, "y": 2}'
    if "slow" in text:
        return {"text": "".join(WORDS), "chunks": "word", "chunk_s": 0.05}
    return f"heard {text}"


echo = Agent("echo", model=SimProvider(think))
pointer = Agent("pointer", model=SimProvider(think), output=Point)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    asked.clear()


def test_a_client_talks_with_agents():
    """As with a handle at home: an answer with its figures or of the agent's type, a budget and a limit in time for a
    question, errors of the agent's shard, marks, the conversation; nothing of it is kept there afterwards."""

    async def main() -> None:
        async with MemoryCluster("a", "b", shards=2, programs=[echo, pointer]) as world:
            client = world.client
            agent = client.agent((await client.spawn(echo, shard="s2")).address)
            reply = await agent.send("one")
            assert (reply, type(reply), reply.input_tokens > 0) == ("heard one", Reply, True)
            assert [message.text for message in await agent.history()] == ["one", "heard one"]
            typed = await client.spawn(pointer, shard="s1")
            assert await client.agent(typed.address, pointer).send("a point") == Point(1, 2)
            assert await client.agent(typed.address).send("a point") == '{"x":1,"y":2}'
            with pytest.raises(BudgetExceeded):
                await agent.send("two", budget={"llm_calls": 0})
            with pytest.raises(DeadlineExceeded):
                await agent.send("slow", timeout=0.2)
            with pytest.raises(NoSuchProcess):
                await client.agent("s1/nobody").send("hello")
            with pytest.raises(ConfigError, match="no address"):
                client.agent("nobody")
            await agent.send(MarkedReply("words"))
            assert type(await agent.send("three")) is MarkedReply
            asks = world.kernel("s2").core.remote.asks
            await until(lambda: not asks.open and all(kept[1] is None for kept in asks.kept.values()))
            await agent.stop()
            with pytest.raises(LyraError):
                await agent.send("four")

    run_cluster(main)


def test_a_question_with_a_key_is_put_once():
    """Under one key any client gets the first answer, also after the host was killed; a program of another kernel asks
    with the key of its effect, and a replay does not ask again."""

    async def lead(ctx: Any, address: str) -> str:
        return str(await clients[0].agent(address).ask(ctx, "of a program"))

    clients: list[Any] = []

    async def main() -> None:
        async with MemoryCluster("a", "b", shards=2, programs=[echo]) as world:
            clients.append(world.client)
            agent = world.client.agent((await world.client.spawn(echo, shard="s2")).address)
            first = asyncio.ensure_future(agent.send("slow", key="k"))
            await until(lambda: asked["slow"])
            await world.kill(world.host_of("s2"))
            assert await agent.send("slow", key="k") == await first == "".join(WORDS)
            assert await agent.send("slow", key="k") == "".join(WORDS)
            history = await agent.history()
            assert [message.text for message in history if message.role == "user"] == ["slow"]
            async with Kernel(programs=[lead]) as kernel:
                assert await kernel.run(lead, agent.address) == "heard of a program"
            asks = world.kernel("s2").core.remote.asks
            await asks.let_go("=k")
            with pytest.raises(Conflict, match="was taken"):
                await agent.send("slow", key="k")
            assert asked["of a program"] == 1

    run_cluster(main)


def test_a_client_reads_a_stream():
    """Pieces come as they are made; the host that has the agent is killed in the middle, and the client gets each piece
    once."""

    async def main() -> None:
        async with MemoryCluster("a", "b", shards=2, programs=[echo]) as world:
            agent = world.client.agent((await world.client.spawn(echo, shard="s2")).address)
            stream = agent.stream("slow")
            pieces = []
            async for piece in stream:
                pieces.append(piece)
                if len(pieces) == 5:
                    await world.kill(world.host_of("s2"))
            assert "".join(pieces) == "".join(WORDS) == await stream
            assert len(pieces) > 10
            assert asked["slow"] == 2  # the call that was cut off is made again

    run_cluster(main)


@pytest.mark.skipif(postgres_missing() is not None, reason=str(postgres_missing()))
def test_streams_outlive_a_host(monkeypatch):
    """Real hosts on PostgreSQL, and a model behind a vendor's wire format: a client and a program of another shard
    read streams of two agents, whose host dies by SIGKILL; each reader gets the whole answer, none of it twice."""

    def script(request: Any) -> Any:
        asked[request.messages[0].text] += 1
        return {"text": "".join(WORDS), "chunks": "word", "chunk_s": 0.1}

    async def main() -> None:
        async with MockServer(script) as server:
            for name, value in server.env.items():
                monkeypatch.setenv(name, value)
            hosts = {name: HostProcess(database.url, name) for name in ("a", "b")}
            try:
                for host in hosts.values():
                    await asyncio.to_thread(host.wait_ready)
                async with lyra.cluster.connect(database.url) as cluster:
                    await _live_through(cluster, hosts)
            finally:
                for host in hosts.values():
                    host.kill()

    with PostgresServer() as database:
        PostgresDirectory(database.url, shards=2, lease_s=1.0).close()
        asyncio.run(asyncio.wait_for(main(), 60))
    assert asked == {"of a client": 2, "of a program": 2}


async def _live_through(cluster: Any, hosts: dict[str, HostProcess]) -> None:
    await until(lambda: len({row.host for row in cluster.view.shards.values() if row.host}) == 2 or _look(cluster))
    victim = cluster.view.shards["s2"].host
    agents = [await cluster.spawn(helper, shard="s2") for _ in range(2)]
    reader = await cluster.spawn(streams, agents[0].address, "of a program", shard="s1")
    pieces: list[str] = []
    async for piece in cluster.agent(agents[1].address).stream("of a client"):
        pieces.append(piece)
        if len(pieces) == 4:
            await until(lambda: asked["of a program"])
            await asyncio.sleep(0.3)  # in the middle of its answer, too
            await asyncio.to_thread(hosts[victim].kill)
    assert "".join(pieces) == "".join(WORDS)
    told = (await reader.wait()).result
    assert "".join(told) == "".join(WORDS)
    history = await cluster.agent(agents[1].address).history()
    assert [message.text for message in history] == ["of a client", "".join(WORDS)]


async def _look(cluster: Any) -> bool:
    await cluster.refresh()
    return False

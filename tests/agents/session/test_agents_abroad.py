"""Agents on other shards of a cluster: spawned there, asked from here, answered once whatever is killed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from lyra import Agent
from lyra.agents import teams
from lyra.agents.session.replies import MarkedReply, Reply
from lyra.core.faultpoint import SimulatedCrash, intercept
from lyra.errors import AgentFailed, BudgetExceeded, ConfigError, DeadlineExceeded, NoSuchProcess, Overloaded
from lyra.kernel.journal import rows
from lyra.models.sim import SimProvider
from tests.kernel.remote.world import Shards, run, until

asked: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    asked.clear()


@dataclass
class Point:
    x: int
    y: int


def think(request):
    texts = [message.text for message in request.messages if message.role == "user"]
    text = texts[-1]
    asked.append(text)
    if "point" in text:
        return '{"x": 1, "y": 2}'
    answer = " | ".join(texts) if text == "all" else f"heard {text}"
    return {"text": answer, "first_s": 30.0} if "slow" in text else answer


echo = Agent("echo", model=SimProvider(think))
pointer = Agent("pointer", model=SimProvider(think), output=Point)


async def asks(ctx, address, count):
    """Ask an agent abroad from a program, in turn."""
    agent = ctx.agent(address)
    return [str(await agent.ask(ctx, f"question {number}")) for number in range(count)]


async def spawns(ctx, shard):
    child = ctx.spawn(echo, "a task", shard=shard)
    ended = await child.wait()
    typed = ctx.spawn(pointer, "a point", shard=shard)
    return [str(ended.result), repr((await typed.wait()).result), child.pid]


def shards(**options: Any) -> Shards:
    return Shards("s1", "s2", programs=[echo, pointer, asks, spawns], **options)


def test_an_agent_with_a_task_is_spawned_abroad():
    """Its result comes back as at home, typed where its agent is."""

    async def main():
        async with shards() as world:
            text, point, address = (await world["s1"].spawn(spawns, "s2").wait()).result
            assert text == "heard a task"
            assert point == "Point(x=1, y=2)"
            assert address.startswith("s2/")
            assert asked == ["a task", "a point"]

    run(main())


def test_a_conversation_abroad():
    """One process is one conversation, from wherever it is asked; answers are Replies, or the agent's type."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(echo, pid="echo")
            world["s2"].spawn(pointer, pid="pointer")
            agent = world["s1"].agent("s2/echo")
            reply = await agent.send("one")
            assert (reply, type(reply), reply.status, reply.input_tokens > 0) == ("heard one", Reply, "success", True)
            assert await world["s2"].agent("echo").send("two") == "heard two"
            assert await agent.send("all") == "one | two | all"
            assert await world["s1"].agent("s2/pointer").send("point") == Point(1, 2)
            assert world["s1"].core.remote.asks.dump() == {"asked": {}, "open": {}, "kept": {}}
            assert not world["s2"].core.remote.asks.open

    run(main())


def test_what_cannot_be_asked():
    """No process, no agent, an ended one, a full mailbox: each is its own error for who asks."""

    async def sits(ctx):
        await ctx.sleep(1_000)

    async def main():
        async with shards(mailbox_messages_max=2) as world:
            world["s2"].spawn(sits, pid="sits")
            slow = world["s2"].spawn(echo, pid="slow")
            kernel = world["s1"]
            with pytest.raises(NoSuchProcess):
                await kernel.agent("s2/nobody").send("hello")
            with pytest.raises(ConfigError, match="no agent"):
                await kernel.agent("s2/sits").send("hello")
            asking = [asyncio.ensure_future(kernel.agent("s2/slow").send("slow")) for _ in range(4)]
            await asyncio.sleep(1.0)
            await slow.kill()
            outcomes = await asyncio.gather(*asking, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [AgentFailed, AgentFailed, Overloaded, Overloaded]
            with pytest.raises(DeadlineExceeded):
                world["s2"].spawn(echo, pid="later")
                await kernel.agent("s2/later").send("slow", timeout=2.0)
            await until(lambda: not world["s2"].core.remote.asks.open)
            assert await kernel.agent("s2/later").send("quick") == "heard quick"
            assert await kernel.agent("s2/later").send("all") == "quick | all"

    run(main())


def test_the_budget_of_a_question():
    """A limit on one question holds where the agent is."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(echo, pid="echo")
            with pytest.raises(BudgetExceeded):
                await world["s1"].agent("s2/echo").send("hello", budget={"llm_calls": 0})
            assert await world["s1"].agent("s2/echo").send("hello", budget={"llm_calls": 1}) == "heard hello"

    run(main())


async def asks_within(ctx, address, budget):
    """Ask an agent wherever it is, within a budget; gives its answer and how long its conversation is then."""
    agent = ctx.agent(pid=address)
    try:
        answer = await agent.ask(ctx=ctx, message="hello", budget=budget)
    except BudgetExceeded:
        return "too little"
    return [str(answer), len(await agent.history())]


@pytest.mark.parametrize("address", ["echo", "s2/echo"])
def test_a_program_asks_an_agent_of_its_own_shard_as_one_abroad(address):
    """A program need not know where the agent is."""

    async def main():
        async with Shards("s1", "s2", programs=[echo, asks_within]) as world:
            for shard in ("s1", "s2"):
                await world[shard].spawn(echo, pid="echo")
            asker = world["s1"].spawn(asks_within, address, {"llm_calls": 0})
            assert (await asker.wait()).result == "too little"
            asker = world["s1"].spawn(asks_within, address, {"llm_calls": 1})
            answer, length = (await asker.wait()).result
            assert (answer, length >= 2) == ("heard hello", True)

    run(main())


def test_marks_travel_with_questions_and_answers():
    """A marked asker marks the agent; a marked agent's answer is a MarkedReply and marks the asker."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(echo, pid="echo")
            world["s1"].spawn(asks, "s2/echo", 1, pid="clean")
            await world["s1"].process("clean").wait()
            assert not world["s2"].taint.is_tainted("echo")
            await world["s1"].agent("s2/echo").send(MarkedReply("words"))
            assert world["s2"].taint.is_tainted("echo")
            assert type(await world["s1"].agent("s2/echo").send("more")) is MarkedReply
            assert not world["s1"].taint.is_tainted("clean")
            world["s1"].spawn(asks, "s2/echo", 1, pid="reads")
            await world["s1"].process("reads").wait()
            assert world["s1"].taint.is_tainted("reads")

    run(main())


def test_an_agent_abroad_as_tool_and_in_teams():
    """Another agent uses it as a tool; a team asks it as it asks a process at home."""

    def lead_thinks(request):
        last = request.messages[-1]
        if last.tool_results:
            return f"told: {last.tool_results[0]}"
        arguments = {"task": "sub-task", "context": "the context"}
        return {"tool_calls": [{"name": request.tools[0].name, "arguments": arguments}]}

    async def main():
        async with shards() as world:
            world["s2"].spawn(echo, pid="echo")
            there = world["s1"].agent("s2/echo")
            lead = Agent("lead", model=SimProvider(lead_thinks), tools=[there])
            answer = await world["s1"].run(lead, "go")
            assert "heard sub-task" in str(answer)
            assert "the context" in str(answer)
            assert await teams.batch([(there, "a"), (there, "b")]) == ["heard a", "heard b"]
            assert await teams.fan_in(["x", "y"], there, task="join") == "heard join\n\n1.\nx\n\n2.\ny"
            assert await teams.pipeline(there, there)("p") == "heard heard p"

            async def team(ctx):
                return [str(one) for one in await teams.batch([(there, "c"), (there, "d")], on=ctx)]

            assert (await world["s1"].spawn(team).wait()).result == ["heard c", "heard d"]

    run(main())


def test_a_question_with_a_key_is_asked_once():
    """Asked again under the same key, also after its shard was killed, it gets the first answer."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(echo, pid="echo")
            asking = asyncio.ensure_future(world["s1"].agent("s2/echo").send("slow one", key="k1"))
            await until(lambda: asked)
            await world.restart("s1")
            asking.cancel()
            assert await world["s1"].agent("s2/echo").send("slow one", key="k1") == "heard slow one"
            assert asked == ["slow one"]
            with pytest.raises(ConfigError):
                other = asyncio.ensure_future(world["s1"].agent("s2/echo").send("slow two", key="k2"))
                await asyncio.sleep(1.0)
                try:
                    await world["s1"].agent("s2/other").send("slow two", key="k2")
                finally:
                    await other

    run(main(), expected=("cancelled", "exception was never retrieved"))


def test_a_caller_that_is_gone_withdraws():
    """The question of a caller outside whose kernel was killed is withdrawn when its shard is open again."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(echo, pid="echo")
            asking = asyncio.ensure_future(world["s1"].agent("s2/echo").send("slow"))
            await until(lambda: asked)
            await world.restart("s1")
            await until(lambda: not world["s2"].core.remote.asks.open)
            assert await world["s1"].agent("s2/echo").send("all") == "all"
            asking.cancel()

    run(main(), expected=("exception was never retrieved",))


def test_an_agent_that_ends_before_it_came_back():
    """A question to an agent whose program its shard does not know yet waits, and is answered when the process ends."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(echo, pid="echo")
            await world["s2"].durable()
            world.programs.remove(echo)
            await world.restart("s2")
            asking = asyncio.ensure_future(world["s1"].agent("s2/echo").send("hello"))
            await until(lambda: world["s2"].core.remote.asks.open)
            await asyncio.sleep(5.0)
            assert not asking.done()
            await world["s2"].kill("echo")
            with pytest.raises(AgentFailed, match="ended"):
                await asking
            world.programs.append(echo)

    run(main())


POINTS = [
    "journal.before_commit",
    "journal.after_commit",
    "remote.taken",
    "remote.delivered",
    "fact.written",
    "mailbox.delivered",
    "door.performed",
    "door.finished",
]


async def killed_once(point: str, visit: int, others: tuple[str, ...]) -> bool:
    """Ask three questions with a kill on the way; the agent answers each once."""
    async with shards() as world:
        await world["s2"].spawn(echo, pid="echo")
        await world["s1"].spawn(asks, "s2/echo", 3, pid="asks")
        left, killed = [visit], []

        def reopen(names):
            async def open_all():
                for name in names:
                    await world.open(name)
                    world.reopening.pop(name, None)

            for name in names:
                world.reopening[name] = (
                    asyncio.ensure_future(open_all()) if name == names[0] else world.reopening[names[0]]
                )

        def hook(name):
            here = None if killed or name != point else world.shard_here()
            if here is None:
                return
            left[0] -= 1
            if left[0] == 0:
                names = sorted({here, *others} & world.kernels.keys())
                killed.extend(names)
                for victim in names:
                    world.kill(victim)
                asyncio.get_running_loop().call_later(0.5, lambda: reopen(names))
                raise SimulatedCrash

        with intercept(hook):
            for _ in range(20_000):
                await asyncio.sleep(0.05)
                process = world["s1"].processes.get("asks") if "s1" in world.kernels else None
                if process is not None and process.exit is not None and len(world.kernels) == 2:
                    break
            else:
                raise AssertionError("it did not end")
        assert process.exit.result == [f"heard question {number}" for number in range(3)]
        answers = await world["s2"].agent("echo").send("all")
        assert answers == "question 0 | question 1 | question 2 | all"
        finished = [rows.DECODERS[row.kind].decode(row.data) for row in world.stores["s2"].read(kind="effect.finished")]
        answered = [row for row in finished if row.form == "do" and b"heard question" in bytes(row.value)]
        assert len(answered) == 3
        await until(lambda: not world["s2"].core.remote.asks.open)
        assert not world["s1"].core.remote.asks.asked
        return bool(killed)


@pytest.mark.parametrize("others", [(), ("s1", "s2")])
@pytest.mark.parametrize("point", POINTS)
def test_one_answer_whatever_is_killed(point, others):
    """The shard of the asker, of the agent or both are killed at some steps of a question: each is asked once in the
    conversation, and answered once."""
    hits = 0
    for visit in range(1, 30, 3):
        asked.clear()
        hits += run(killed_once(point, visit, others), expected=("failed while it was closed", "never retrieved"))
    assert hits

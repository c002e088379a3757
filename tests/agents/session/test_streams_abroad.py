"""Streams of agents on other shards: pieces as they come, none twice when the agent's shard is killed on the way."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from lyra import Agent, tool
from lyra.agents.session.events import Restart, Text, Thinking, ToolEnded, ToolStarted, UsageTold
from lyra.agents.session.pieces import Joined
from lyra.agents.session.replies import MarkedReply, Reply
from lyra.errors import AgentFailed, ModelError
from lyra.models.sim import SimProvider
from tests.kernel.remote.world import Shards, run, until

KILLED = ("aclose(): asynchronous generator",)  # the model's stream of a kernel that is buried
WORDS = [f"word{number} " for number in range(12)]
asked: list[str] = []
lives: list[int] = [0]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    asked.clear()
    lives[0] = 0


@tool
async def look(place: str) -> str:
    """Look somewhere."""
    asked.append(f"look {place}")
    return f"seen {place}"


def think(request: Any) -> Any:
    text = next(message.text for message in reversed(request.messages) if message.role == "user")
    if text.startswith("tool") and not request.messages[-1].tool_results:
        return {"text": "Looking. ", "tool_calls": [{"name": "look", "arguments": {"place": "there"}}]}
    asked.append(text)
    if "fails" in text:
        raise ModelError("no such model", kind="bad_request")
    if "changes" in text:
        lives[0] += 1
        words = WORDS if lives[0] == 1 else ["another ", "answer"]
    else:
        words = WORDS
    return {"text": "".join(words), "chunks": "word", "chunk_s": 1.0}


echo = Agent("echo", model=SimProvider(think), tools=[look])


def shards() -> Shards:
    return Shards("s1", "s2", programs=[echo, asks, reads])


async def asks(ctx: Any, address: str) -> str:
    return str(await ctx.agent(address).ask(ctx, "hello"))


async def reads(ctx: Any, address: str) -> list[str]:
    async def read() -> list[str]:
        return [piece async for piece in ctx.agent(address).stream("hello")]

    pieces: list[str] = await ctx.do(read)
    return pieces


async def collect(stream: Any, seen: list[Any]) -> None:
    async for piece in stream:
        seen.append(piece)  # noqa: PERF401 - it is looked at meanwhile


def _has(seen: list[Any], count: int) -> bool:
    return len(seen) == count


def test_pieces_come_as_they_are_made():
    """Each piece is there when the model has written it, and the whole is the answer, a Reply with its figures."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(echo, pid="echo")
            stream = world["s1"].agent("s2/echo").stream("hello")
            seen: list[str] = []
            reading = asyncio.ensure_future(collect(stream, seen))
            await until(lambda: len(seen) == 5)
            assert seen == WORDS[:5]
            assert not reading.done()
            await reading
            assert seen == WORDS
            whole = await stream.pending
            assert (whole, type(whole), whole.input_tokens > 0) == ("".join(WORDS), Reply, True)
            assert asked == ["hello"]
            assert world["s1"].core.remote.asks.asked == {}
            assert await world["s1"].agent("s2/echo").stream("again") == "".join(WORDS)
            with pytest.raises(ModelError, match="no such model"):
                await collect(world["s1"].agent("s2/echo").stream("fails"), seen)

    run(main())


def test_events_and_programs():
    """With `events=True` what happens on the way comes, too; a program reads a stream in an effect, and asks an agent
    of its own shard as one of another."""

    async def main():
        async with shards() as world:
            world["s2"].spawn(echo, pid="echo")
            events = [event async for event in world["s1"].agent("s2/echo").stream("tool", events=True)]
            words = [event.type for event in events]
            assert words[:4] == ["text_delta", "usage", "tool_start", "tool_end"]
            assert words[-2:] == ["usage", "done"]
            assert events[3].output == "seen there"
            assert (await world["s1"].spawn(reads, "s2/echo").wait()).result == WORDS
            assert (await world["s2"].spawn(asks, "s2/echo").wait()).result == "".join(WORDS)
            assert (await world["s2"].spawn(asks, "echo").wait()).result == "".join(WORDS)
            history = await world["s1"].agent("s2/echo").history()
            assert history == await world["s2"].agent("echo").history()
            assert [message.text for message in history if message.role == "user"][-1] == "hello"

    run(main())


@pytest.mark.parametrize("at", [1, 4, 9])
@pytest.mark.parametrize("message", ["hello", "tool"])
def test_a_stream_goes_on_when_its_shard_is_killed(message, at):
    """The turn is taken up from the journal, the model is asked again for what was cut off, and the reader gets each
    piece, each call and each figure once."""

    async def main():
        async with shards() as world:
            await world["s2"].spawn(echo, pid="echo")
            seen: list[Any] = []
            reading = asyncio.ensure_future(collect(world["s1"].agent("s2/echo").stream(message, events=True), seen))
            await until(lambda: sum(type(event) is Text for event in seen) == at + (message == "tool"))
            world.kill("s2")
            await asyncio.sleep(5.0)
            await world.open("s2")
            await reading
            texts = [event.delta for event in seen if type(event) is Text]
            assert "".join(texts) == ("Looking. " if message == "tool" else "") + "".join(WORDS)
            words = [event.type for event in seen if type(event) is not Text]
            calls = ["usage", "tool_start", "tool_end"] if message == "tool" else []
            assert words == [*calls, "usage", "done"]
            assert asked.count(message) == 2
            assert asked.count("look there") == (message == "tool")

    run(main(), expected=KILLED)


def test_another_answer_begins_anew():
    """Where the model says something else after the kill, the reader is told: `restart` among the events, an error for
    a reader of text alone. The answer itself is one."""

    async def main():
        async with shards() as world:
            await world["s2"].spawn(echo, pid="echo")
            for as_events in (True, False):
                lives[0] = 0
                seen: list[Any] = []
                stream = world["s1"].agent("s2/echo").stream("changes", events=as_events)
                reading = asyncio.ensure_future(collect(stream, seen))
                await until(partial(_has, seen, 3))
                await world.restart("s2")
                if as_events:
                    await reading
                    shown = "".join(WORDS[:3])
                    assert [event for event in seen if type(event) is Restart] == [Restart(shown)]
                    after = seen[seen.index(Restart(shown)) + 1 :]
                    assert "".join(event.delta for event in after if type(event) is Text) == "another answer"
                    assert await stream.pending == "another answer"
                else:
                    with pytest.raises(ModelError, match="begins anew"):
                        await reading

    run(main(), expected=KILLED)


def test_an_answer_whose_last_pieces_are_lost():
    """The shard dies when the answer is on its way already: the reader gets the rest from the answer."""

    async def main():
        async with shards() as world:
            await world["s2"].spawn(echo, pid="echo")
            pieces = world["s1"].core.remote.asks.call

            async def deaf(shard: str, method: str, data: Any, *, timeout_s: float) -> Any:
                told = await pieces(shard, method, data, timeout_s=timeout_s)
                if method == "pieces" and told["first"] > 4:
                    raise OSErrorOfCall
                return told

            world["s1"].core.remote.asks.call = deaf
            seen: list[str] = []
            stream = world["s1"].agent("s2/echo").stream("hello")
            await collect(stream, seen)
            assert "".join(seen) == "".join(WORDS)
            assert len(seen) < len(WORDS)

    run(main())


class OSErrorOfCall(AgentFailed):
    """A call that is never answered."""

    def __init__(self) -> None:
        super().__init__("nobody answers")


def test_a_reader_that_leaves_withdraws():
    """Leaving the loop gives the question up; a stopped agent fails its stream."""

    async def main():
        async with shards() as world:
            await world["s2"].spawn(echo, pid="echo")
            stream = world["s1"].agent("s2/echo").stream("hello")
            async for _ in stream:
                break
            await stream.aclose()
            await until(lambda: not world["s2"].core.remote.asks.open, within_s=5.0)  # of twelve for the answer
            assert world["s1"].core.remote.asks.asked == {}
            assert await world["s1"].agent("s2/echo").send("more") == "".join(WORDS)
            reading = asyncio.ensure_future(collect(world["s1"].agent("s2/echo").stream("last"), []))
            await until(lambda: "last" in asked)
            await world["s2"].kill("echo")
            with pytest.raises(AgentFailed, match="ended"):
                await reading

    run(main())


def test_the_mark_of_an_agent_comes_with_its_pieces():
    """A process that reads a piece of a marked agent is marked before the answer is whole."""

    async def main():
        async with shards() as world:
            await world["s2"].spawn(echo, pid="echo")
            await world["s1"].agent("s2/echo").send(MarkedReply("hello"))
            process = await world["s1"].spawn(reads, "s2/echo")
            await until(lambda: world["s1"].taint.is_tainted(process.pid))
            assert process.alive
            assert (await process.wait()).result == WORDS

    run(main())


def joined(*lives: list[Any]) -> list[Any]:
    reader, told = Joined(), []
    for pieces in lives:
        reader.begin()
        for event in pieces:
            told += reader.feed(event)
    return told


ONE = [Thinking("hm"), Text("a"), Text("b"), UsageTold(1, 1), ToolStarted("1", "look"), ToolEnded("1", "look", "x")]


@pytest.mark.parametrize(
    ("lives", "expected"),
    [
        ([ONE, [*ONE, Text("c")]], [*ONE, Text("c")]),
        ([[*ONE, Text("cd")], [*ONE, Text("c"), Text("de")]], [*ONE, Text("cd"), Text("e")]),
        (
            [[*ONE, Text("cd")], [*ONE, Text("x")]],
            [*ONE, Text("cd"), Restart("cd"), Text("x")],
        ),
        ([[Text("ab")], [Text("a"), UsageTold(1, 1)]], [Text("ab"), Restart("ab"), Text("a"), UsageTold(1, 1)]),
        ([[Thinking("hm")], [Thinking("hm"), Thinking("m")]], [Thinking("hm"), Thinking("m")]),
        ([[Thinking("hm")], [Thinking("ah")]], [Thinking("hm"), Restart(""), Thinking("ah")]),
        (
            [[Text("ab"), UsageTold(1, 1), Restart("ab"), Text("c")], [Text("ab"), UsageTold(1, 1)]],
            [
                Text("ab"),
                UsageTold(1, 1),
                Restart("ab"),
                Text("c"),
                Restart("c"),
                Text("ab"),
                UsageTold(1, 1),
            ],
        ),
    ],
)
def test_what_the_next_life_repeats(lives, expected):
    """What is the same is not told again; what is not takes back the call of the model in which it differs."""
    assert joined(*lives) == expected

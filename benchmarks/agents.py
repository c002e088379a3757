"""An agent call and a tool turn with a fake model in the same process, all guards on, beside other frameworks.

"All guards on" is a money budget with a known price, a rate limit of requests and tokens, a circuit breaker, retries,
and a listener that gets the record of each call. A call is a message to a living agent and its answer (the
conversation grows to fifty of them, then another agent goes on); beside it stands a call with a process of its own:
spawn, send, stop. Streams: the fake model suspends once for each chunk. What a stream adds to its first chunk is the
time from the model giving it away (and letting the loop have a turn) to its reader having it; beside it stands the
whole way from asking, which has the call in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from benchmarks import agent_peers
from benchmarks.measure import Figure, Goal, Row, Size, Stopwatch, Timing, at_most, interleave, ratio_at_most
from lyra import Agent, Kernel, tool
from lyra.core.tool import ToolCall
from lyra.models.pricing import Price
from lyra.models.provider import LLMProvider, Request
from lyra.models.stream import Finished, Started, StreamEvent, TextDelta, TokenUsage, ToolEnd, ToolStart, UsageSeen

GUARDS: dict[str, Any] = {
    "budget": "$1000000",
    "rate_limit": {"requests_per_minute": 10**9, "tokens_per_minute": 10**12},
    "circuit_breaker": {"threshold": 5},
}


PRICE = Price.per_mtok("3", "15")


class Fake(LLMProvider):
    """Answers at once; with `tools`, after one tool call."""

    name = "sim"

    def __init__(self, *, tools: bool = False, chunks: int = 1, wait_s: float | None = None) -> None:
        self.tools = tools
        self.chunks = chunks
        self.wait_s = wait_s
        self.gave_at = 0.0

    def price(self, model: str) -> Price:
        return PRICE

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        yield Started("1", "fake")
        if self.wait_s is not None:
            await asyncio.sleep(self.wait_s)
        if self.tools and request.messages[-1].role != "tool":
            yield ToolStart(0, "1", "add")
            yield ToolEnd(0, ToolCall("1", "add", {"a": 1, "b": 2}))
            yield UsageSeen(TokenUsage(10, 5))
            yield Finished("tool_calls")
            return
        self.gave_at = time.perf_counter()
        for _ in range(self.chunks):
            if self.chunks > 1:
                await asyncio.sleep(0)
            yield TextDelta("the answer")
        yield UsageSeen(TokenUsage(10, 5))
        yield Finished("end")


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


TALK = 50  # messages to one agent before the next takes over


def calls(agent: Agent, count: int, *, fresh: bool = False) -> Timing:
    async def main() -> Timing:
        async with Kernel() as kernel:
            records: list[Any] = []
            kernel.on_event(records.append, kinds=("model.called",))

            async def talk(messages: int) -> None:
                process = kernel.spawn(agent)
                for _ in range(messages):
                    assert await process.send("hello") == "the answer"
                kernel.kill(process)

            turns = 1 if fresh else min(TALK, count)
            await talk(turns)
            with Stopwatch(count // turns * turns) as watch:
                for _ in range(count // turns):
                    await talk(turns)
            assert len(records) >= count
            return watch.timing

    return asyncio.run(main())


def at_once(agent: Agent, count: int, total: int) -> Timing:
    """`total` calls, `count` of them in flight at a time, each waiting a moment for its model."""

    async def main() -> Timing:
        async with Kernel() as kernel:

            async def talk_once() -> None:
                process = kernel.spawn(agent)
                assert await process.send("hello") == "the answer"
                kernel.kill(process)

            rounds = max(total // count, 1)
            with Stopwatch(rounds * count) as watch:
                for _ in range(rounds):
                    await asyncio.gather(*[talk_once() for _ in range(count)])
            return watch.timing

    return asyncio.run(main())


def raw(count: int) -> Timing:
    """The model's stream read by hand: what no framework can be quicker than."""
    fake = Fake()

    async def main() -> Timing:
        request = Request(model="fake", messages=())
        with Stopwatch(count) as watch:
            for _ in range(count):
                assert "".join([e.text async for e in fake.stream(request) if type(e) is TextDelta]) == "the answer"
        return watch.timing

    return asyncio.run(main())


def streams(chunks: int) -> Timing:
    agent = Agent("a", model=Fake(chunks=chunks), **GUARDS)

    async def main() -> Timing:
        async with Kernel() as kernel:
            process = kernel.spawn(agent)
            await process.send("warm up")
            seen = 0
            with Stopwatch(chunks) as watch:
                async for _ in process.stream("hello"):
                    seen += 1
            assert seen == chunks
            return watch.timing

    return asyncio.run(main())


def first_chunks(count: int) -> tuple[float, float]:
    """Of many short streams: (µs from the model to the reader of the first chunk, µs from asking to it), medians."""
    fake = Fake(chunks=5)
    agent = Agent("a", model=fake, **GUARDS)

    async def main() -> tuple[float, float]:
        added, whole = [], []
        async with Kernel() as kernel:
            process = kernel.spawn(agent)
            for _ in range(count):
                began = time.perf_counter()
                had_at = 0.0
                async for _ in process.stream("hello"):
                    had_at = had_at or time.perf_counter()
                added.append((had_at - fake.gave_at) * 1e6)
                whole.append((had_at - began) * 1e6)
        return sorted(added)[count // 2], sorted(whole)[count // 2]

    return asyncio.run(main())


def raw_stream(chunks: int) -> Timing:
    fake = Fake(chunks=chunks)

    async def main() -> Timing:
        with Stopwatch(chunks) as watch:
            async for _ in fake.stream(Request(model="fake", messages=())):
                pass
        return watch.timing

    return asyncio.run(main())


def _us(timing: Timing) -> float:
    return timing.cpu_s / timing.operations * 1e6


def run(size: Size) -> list[Row]:
    count = size.of(500, 5)
    caller, worker = Agent("a", model=Fake(), **GUARDS), Agent("b", model=Fake(tools=True), tools=[add], **GUARDS)
    best = interleave(
        {
            "call": lambda: calls(caller, count),
            "fresh": lambda: calls(caller, count, fresh=True),
            "turn": lambda: calls(worker, count),
            "fresh turn": lambda: calls(worker, count, fresh=True),
            "raw": lambda: raw(count),
        },
        size.repeats,
    )
    table = [
        Row("a call, all guards on", best["call"], "the fake model by hand", best["raw"]),
        Row("a call with a process of its own", best["fresh"], "the fake model by hand", best["raw"]),
    ]
    many = size.of(agent_peers.IN_FLIGHT, 2)
    in_flight = _measure_in_flight(size)
    for peer in agent_peers.measured(size):
        is_leanest, has_best_turn = peer.name.startswith("autogen"), peer.name.startswith("agent-framework")
        compared: list[tuple[str, Figure, float | None, tuple[Goal, ...]]] = [
            ("a call, all guards on", best["call"], peer.call_us, (ratio_at_most(0.55),) if is_leanest else ()),
            ("a tool turn", best["turn"], peer.turn_us, ()),
            (
                "a tool turn with a process of its own",
                best["fresh turn"],
                peer.turn_us,
                (ratio_at_most(0.35),) if has_best_turn else (),
            ),
            (
                f"a call with a process of its own, {many} in flight",
                in_flight[str(many)],
                peer.in_flight_us,
                (ratio_at_most(0.65),) if is_leanest else (),
            ),
        ]
        for what, ours, theirs_us, goals in compared:
            theirs = None if theirs_us is None else Figure(theirs_us)
            table.append(Row(what, ours, peer.name, theirs, goals, peer.problem))
    table += [
        Row(f"a call, {count} in flight", in_flight[str(count)], "one in flight", in_flight["1"], (ratio_at_most(1.5),))
        for count in (100, size.of(10_000, 10))
    ]
    table += _streaming(size)
    return table


def _measure_in_flight(size: Size) -> dict[str, Figure]:
    agent = Agent("a", model=Fake(wait_s=agent_peers.WAIT_S), **GUARDS)
    total = size.of(10_000, 10)
    counts = (1, 100, size.of(agent_peers.IN_FLIGHT, 2), total)
    return interleave({str(count): partial(at_once, agent, count, total) for count in counts}, size.of(3, 1))


def _streaming(size: Size) -> list[Row]:
    chunks = size.of(20_000, 20)
    best = interleave({"ours": lambda: streams(chunks), "raw": lambda: raw_stream(chunks)}, size.repeats)
    first, asked = min(first_chunks(size.of(200, 2)) for _ in range(size.repeats))
    return [
        Row("a chunk of a stream", best["ours"], "the fake model by hand", best["raw"], (at_most(20, "µs"),)),
        Row(
            "the first chunk, model to reader",
            Figure(first),
            goals=(at_most(20, "µs"),),
            note="wall clock",
        ),
        Row("the first chunk, from asking", Figure(asked), note="wall clock"),
    ]

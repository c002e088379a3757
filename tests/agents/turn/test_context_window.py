"""Context: what of a conversation is sent. The transcript keeps everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.agents.declaration.hooks import ContextPolicy
from lyra.errors import ConfigError, ModelError
from lyra.models.client import LLMClient
from lyra.models.provider import Request
from lyra.models.stream import StreamEvent
from tests.agents.support import Recorded, calls, run, says
from tests.kernel.conftest import Crash
from tests.limits import within

LONG = "word " * 100  # some 125 tokens as the simulated model counts


class Summariser(Recorded):
    """Echoes, and shortens when it is asked to; remembers both kinds of requests."""

    def __init__(self, answer: Any = None) -> None:
        super().__init__(self._answer)
        self._given = self._answer
        self._own = answer
        self.summaries: list[Request] = []
        self.held: asyncio.Event | None = None  # what summaries wait for

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        async for event in super().stream(request):
            if self.held is not None and request in self.summaries:
                await self.held.wait()
            yield event

    def _answer(self, request: Request) -> Any:
        if request.system.startswith("You shorten"):
            self.summaries.append(request)
            return f"summary {len(self.summaries)}"
        return self._own(request) if self._own is not None else f"answer to {request.messages[-1].text[:10]}"

    @property
    def asked(self) -> list[Request]:
        return [request for request in self.requests if request not in self.summaries]


async def talk(agent: Agent, turns: int, *, message: str = LONG) -> Any:
    async with Kernel() as kernel:
        process = await kernel.spawn(agent)
        for n in range(turns):
            await process.send(f"{n} {message}")
        return process.messages


def paired(request: Request) -> bool:
    """Each result's call is sent, each call's result is sent, and the first message is the user's."""
    called = [call.id for message in request.messages for call in message.tool_calls]
    results = [result.id for message in request.messages for result in message.tool_results]
    return called == results and request.messages[0].role == "user"


@pytest.mark.parametrize("turns", [1, 3])
def test_sliding_sends_the_last_turns(turns):
    """So many turns, the transcript whole, and the system prompt with each."""
    model = says("ok")
    agent = Agent("a", model=model, system="Rules.", context={"kind": "sliding", "turns": turns})
    messages = run(talk(agent, 8))
    assert len(messages) == 16
    last = model.requests[-1]
    assert [message.text[:1] for message in last.messages if message.role == "user"] == [
        str(n) for n in range(8 - turns, 8)
    ]
    assert last.system == "Rules."


def test_a_window_never_sends_more_than_its_tokens():
    """When more would be sent, the oldest turns go; cuts are rare, since half is left."""
    model = Recorded(lambda _request: "ok")
    messages = run(talk(Agent("a", model=model, system="Rules.", context={"kind": "window", "tokens": 1_000}), 40))
    assert len(messages) == 80
    lengths = [len(request.messages) for request in model.requests]
    assert max(lengths) < 20
    cuts = sum(before > after for before, after in pairwise(lengths))
    assert 3 <= cuts <= 13
    assert all(request.messages[0].role == "user" for request in model.requests)
    assert all(request.system == "Rules." for request in model.requests)


def test_compaction_sends_a_summary_and_the_rest():
    """The summary stands in the system prompt after the rules; the next one is made of it and what came since."""
    model = Summariser()
    messages = run(talk(Agent("a", model=model, system="Rules.", context={"kind": "compact", "tokens": 1_000}), 20))
    assert len(messages) == 40
    assert len(model.summaries) >= 2
    last = model.asked[-1]
    assert last.system.startswith("Rules.\n\nSummary of the conversation before")
    assert last.system.endswith(f"summary {len(model.summaries)}")
    assert len(last.messages) < 20
    first, second = model.summaries[:2]
    assert first.messages[0].text.count("[user]") >= 2
    assert "summary 1" in second.messages[0].text
    assert "0 word" not in second.messages[0].text
    assert first.tools == ()


def test_another_model_may_summarise():
    """`model` names a cheaper one."""
    model, cheap = says("ok"), says("short")
    client = LLMClient()
    client.register("cheap", cheap)

    async def main():
        async with Kernel() as kernel:
            kernel.parts["models"] = client
            context = {"kind": "compact", "tokens": 1_000, "model": "cheap/one", "summary_tokens": 99}
            process = await kernel.spawn(Agent("a", model=model, context=context))
            for n in range(10):
                await process.send(f"{n} {LONG}")

    run(main())
    assert cheap.requests
    assert {request.max_tokens for request in cheap.requests} == {99}
    assert model.requests[-1].system.endswith("short")


@tool
def look(n: int) -> str:
    """Look."""
    return f"{n} {LONG}"


@pytest.mark.parametrize("kind", ["window", "compact"])
def test_tool_calls_and_results_stay_together(kind):
    """In a long turn the question stays, and cuts are made between a result and the next call."""

    def answer(request: Request) -> Any:
        done = sum(len(message.tool_results) for message in request.messages)
        n = int(request.messages[-1].tool_results[0].output.split()[0]) + 1 if done else 0
        return "done" if n == 12 else calls("look", n=n)

    model = Summariser(answer)
    agent = Agent("a", model=model, tools=[look], context={"kind": kind, "tokens": 1_000})
    messages = run(talk(agent, 1, message="look twelve times"))
    assert messages[-1].text == "done"
    assert len(messages) == 26
    assert all(paired(request) for request in model.asked)
    assert max(len(request.messages) for request in model.asked) < 20
    assert all(request.messages[0].text == "0 look twelve times" for request in model.asked)


def test_an_agent_without_a_policy_compacts_near_the_models_limit():
    """At four fifths of what the model can read: 200 000 tokens for this one."""
    big = {"text": "ok", "usage": {"input_tokens": 150_000, "output_tokens": 10}}
    full = {"text": "ok", "usage": {"input_tokens": 170_000, "output_tokens": 10}}
    model = says("ok", "ok", big, full, "the summary", "at last")
    client = LLMClient()
    client.register("anthropic", model)

    async def main():
        async with Kernel() as kernel:
            kernel.parts["models"] = client
            process = await kernel.spawn(Agent("a", model="anthropic/claude-sonnet-4-5"))
            for n in range(4):
                await process.send(f"{n} {LONG}")
            assert len(model.requests) == 4
            return await process.send("last")

    assert run(main()) == "at last"
    assert "the summary" in model.requests[-1].system
    assert model.requests[-2].system.startswith("You shorten")


def test_a_model_that_finds_it_too_long_is_asked_with_less():
    """`context_overflow` compacts once and asks again; nothing of it is seen by the caller."""
    tight = {"error": {"kind": "context_overflow"}}
    model = says("one", "two", "three", tight, "the summary", "four")
    messages = run(talk(Agent("a", model=model), 4))
    assert messages[-1].text == "four"
    assert len(messages) == 8
    assert "the summary" in model.requests[-1].system
    assert len(model.requests[-1].messages) < len(model.requests[-3].messages)


def test_too_long_for_any_window_is_an_error():
    """A single message that is too long cannot be cut; a second refusal is not met a second time."""
    with pytest.raises(ModelError) as caught:
        run(talk(Agent("a", model=says({"error": {"kind": "context_overflow"}})), 1))
    assert caught.value.kind == "context_overflow"
    tight = {"error": {"kind": "context_overflow"}}
    model = says("one", "two", "three", tight, "the summary", tight)
    with pytest.raises(ModelError):
        run(talk(Agent("a", model=model), 4))
    assert len(model.requests) == 6


def test_a_summary_that_fails_is_no_failure():
    """The conversation goes on as it is; the next call tries again."""
    broken = {"error": {"kind": "bad_request"}, "system": "You shorten", "times": 2}
    model = Recorded({"replies": [broken, {"text": "short", "system": "You shorten"}, "ok"]})
    run(talk(Agent("a", model=model, context={"kind": "compact", "tokens": 1_000}), 12))
    assert model.requests[-1].system.endswith("short")


def test_a_failed_turn_gives_its_cut_back():
    """A cut inside a turn that did not come to its end is undone with it."""

    def answer(request: Request) -> Any:
        results = sum(len(message.tool_results) for message in request.messages)
        if "loop" in next(m.text for m in reversed(request.messages) if m.role == "user"):
            return calls("look", n=len(request.messages) * 100 + results + len(model.requests))
        return "fine"

    model = Summariser(answer)
    agent = Agent("a", model=model, tools=[look], context={"kind": "window", "tokens": 1_000}, max_iterations=12)

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(agent)
            await process.send("hello")
            with pytest.raises(Exception, match="turns were used up"):
                await process.send("loop")
            assert await process.send("again") == "fine"
            return model.requests[-1].messages

    assert [message.text for message in run(main())] == ["hello", "fine", "again"]


@pytest.mark.parametrize("context", ["window", "sliding", "compact"])
def test_a_restart_sends_what_would_have_been_sent(tmp_path, context):
    """Cuts and summaries are in the journal: after a restart nothing is summarised again, the window is the same."""
    settings = {"kind": context, "turns": 3} if context == "sliding" else {"kind": context, "tokens": 1_000}
    straight, broken = Summariser(), Summariser()

    async def talk_in_lives(model: Summariser, lives: int, store: str):
        agent = Agent("a", model=model, context=settings)
        turns = iter(range(24))
        for _ in range(lives):
            async with Kernel(store, programs=[agent]) as kernel:
                process = await kernel.spawn(agent, pid="a")
                for _, n in zip(range(24 // lives), turns, strict=False):
                    await process.send(f"{n} {LONG}")

    run(talk_in_lives(straight, 1, str(tmp_path / "one.db")))
    run(talk_in_lives(broken, 6, str(tmp_path / "two.db")))
    assert len(broken.requests) == len(straight.requests)
    for expected, sent in zip(straight.requests, broken.requests, strict=True):
        assert expected.messages == sent.messages
        assert expected.system == sent.system


def test_a_window_survives_a_checkpoint(tmp_path):
    """A long conversation, checkpointed: the window comes back with it."""
    model = Summariser()
    agent = Agent("a", model=model, context={"kind": "compact", "tokens": 1_000})

    async def life(turns: int) -> int:
        async with Kernel(str(tmp_path / "run.db"), programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="a")
            for n in range(turns):
                await process.send(f"{n} {LONG}")
            return len(process.messages)

    run(life(70))
    before = len(model.requests)
    assert run(life(1)) == 142
    assert len(model.requests) - before <= 2
    assert "Summary of the conversation" in model.asked[-1].system
    assert len(model.asked[-1].messages) < 20


def test_wrong_settings_are_refused():
    """Unknown kinds and keys, and settings that the kind does not have."""
    with pytest.raises(ConfigError, match="kind"):
        Agent("a", model="sim/echo", context="windw")
    with pytest.raises(ConfigError, match="turns"):
        ContextPolicy("window", turns=3)
    with pytest.raises(ConfigError, match="tokens"):
        ContextPolicy("sliding", tokens=300)
    with pytest.raises(ConfigError, match="toknes"):
        Agent("a", model="sim/echo", context={"kind": "window", "toknes": 300})
    assert ContextPolicy.from_value("sliding").turns == 20


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize("context", [None, {"kind": "window", "tokens": 2_000}, {"kind": "sliding", "turns": 10}])
def test_a_thousand_turns_do_not_get_slower(context):
    """With a window the last hundred turns take no longer than the first hundred; without one, at most three times."""

    async def main():
        agent = Agent("a", model=says("ok"), context=context)
        async with Kernel() as kernel:
            process = await kernel.spawn(agent)
            times = []
            for n in range(1_000):
                began = time.process_time()
                await process.send(f"message {n}")
                times.append(time.process_time() - began)
            return sorted(times[50:150])[50], sorted(times[900:])[50]

    early, late = asyncio.run(main())
    within(late, early * (3.0 if context is None else 2.0), (early, late))


def test_a_cut_is_told():
    """Which agent, in which way, and from which message on."""
    heard: list[Any] = []

    async def main() -> None:
        async with Kernel() as kernel:
            kernel.on_event(heard.append, "context.cut")
            process = await kernel.spawn(Agent("a", model=says("ok"), context={"kind": "window", "tokens": 1_000}))
            for n in range(20):
                await process.send(f"{n} {LONG}")

    run(main())
    assert {(event.data["agent"], event.data["kind"]) for event in heard} == {("a", "window")}
    starts = [event.data["start"] for event in heard]
    assert 0 < starts[0] < starts[-1] < heard[-1].data["messages"]


def test_an_ordered_compaction_that_a_kill_cut_off_is_made_again(tmp_path):
    """The order is durable: the next life asks for the summary once more, and sends it from then on."""
    model, path = Summariser(), str(tmp_path / "run.db")
    agent = Agent("a", model=model)

    async def killed() -> None:
        async with Crash(Kernel(path, programs=[agent])) as kernel:
            process = await kernel.spawn(agent, pid="a")
            for n in range(4):
                await process.send(f"{n} {LONG}")
            model.held = asyncio.Event()
            order = asyncio.ensure_future(process.compact())
            while not model.summaries:
                await asyncio.sleep(0.005)
            await kernel.durable()
        order.cancel()

    async def next_life() -> None:
        model.held = None
        async with Kernel(path, programs=[agent]) as kernel:
            await kernel.agent("a").send("go on")

    run(killed())
    assert len(model.summaries) == 1
    run(next_life())
    assert len(model.summaries) == 2
    assert "summary 2" in model.asked[-1].system

"""Feeds: an agent's events for readers that come and go, and never slow it down."""

from __future__ import annotations

import asyncio
from typing import Any

from lyra import Agent, Kernel
from lyra.agents.session.agent_process import EventFeed
from lyra.agents.session.events import Text, ToolStarted
from lyra.agents.session.replies import FeedSink
from lyra.agents.session.shared import runtime_of
from tests.agents.support import run, says


def test_every_reader_gets_what_comes_while_it_reads() -> None:
    """From the moment it began until it or the feed closes."""

    async def main() -> tuple[list[Any], list[Any]]:
        feed = EventFeed()
        early = feed.read()
        feed.put(Text("a"))
        late = feed.read()
        feed.put(Text("b"))
        early.close()
        feed.put(Text("c"))
        feed.close()
        return [event async for event in early], [event async for event in late]

    assert run(main()) == ([Text("a"), Text("b")], [Text("b"), Text("c")])


def test_a_reader_waits_for_the_next_event() -> None:
    async def main() -> Any:
        feed = EventFeed()
        reader = feed.read()
        asyncio.get_running_loop().call_later(0.01, feed.put, Text("later"))
        return await anext(reader)

    assert run(main()) == Text("later")


def test_a_slow_reader_misses_text_and_no_call() -> None:
    """What it misses of the text is in the answer; a call is told."""

    async def main() -> list[Any]:
        feed = EventFeed()
        reader = feed.read()
        for _ in range(5_000):
            feed.put(Text("x"))
        feed.put(ToolStarted("1", "Read"))
        feed.close()
        return [event async for event in reader]

    events = run(main())
    assert len(events) == 4_097
    assert events[-1] == ToolStarted("1", "Read")


def test_an_answer_is_followed_through_a_sink() -> None:
    """`attend` takes a question that was put into the mailbox by other means; its events go to the sink."""
    events: list[Any] = []

    async def main() -> Any:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=says("one two")), pid="a")
            runtime = runtime_of(kernel)
            pending = runtime.questions.attend("r1", kernel.processes["a"], sink=FeedSink(kernel, events.append))
            kernel.send_to(kernel.processes["a"], {"lyra.ask": "r1", "content": "go"})
            return str(await pending), process.agent_state

    assert run(main())[0] == "one two"
    assert [event.type for event in events] == ["text_delta", "text_delta", "usage", "done"]

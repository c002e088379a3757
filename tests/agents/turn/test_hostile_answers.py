"""A provider may say anything: a store opens again, and an agent lives on, whatever a stream or a message holds."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lyra import Agent, Kernel, LLMProvider
from lyra.errors import ConfigError
from lyra.models.provider import Request
from lyra.models.stream import Finished, Started, StreamEvent, TextDelta, ThinkingDelta, TokenUsage, UsageSeen, count_of
from tests.agents.support import run

USAGES: list[Any] = [-1, 2**70, math.nan, math.inf, "many", None, 1.5]
PIECES: dict[str, list[Any]] = {
    "text None": [TextDelta(None), Finished("end")],  # type: ignore[arg-type]
    "text bytes": [TextDelta(b"x"), Finished("end")],  # type: ignore[arg-type]
    "thought bytes": [ThinkingDelta(b"x"), TextDelta("x"), Finished("end")],  # type: ignore[arg-type]
    "reason 5": [TextDelta("x"), Finished(5)],  # type: ignore[arg-type]
    "model 5": [Started("id", 5), TextDelta("x"), Finished("end")],  # type: ignore[arg-type]
    "no event": [5],
}


class Odd(LLMProvider):
    """Says these events first, and then "ok"."""

    name = "odd"

    def __init__(self, events: list[Any]) -> None:
        self.events = events

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        events, self.events = self.events, [TextDelta("ok"), Finished("end")]
        for event in events:
            yield event


async def asked_twice(path: str, agent: Agent[Any]) -> tuple[str, str]:
    async with Kernel(path, programs=[agent]) as kernel:
        first = str(await (await kernel.spawn(agent, pid="a")).send("one", timeout=5))
    async with Kernel(path, programs=[agent]) as kernel:
        return first, str(await (await kernel.spawn(agent, pid="a")).send("two", timeout=5))


@pytest.mark.parametrize("count", USAGES, ids=str)
def test_tokens_that_cannot_be_are_counted_by_lyra(tmp_path, count):
    """As if the provider had said nothing of them."""
    agent = Agent("a", model=Odd([TextDelta("hi"), UsageSeen(TokenUsage(count, count)), Finished("end")]))
    assert run(asked_twice(str(tmp_path / "run.db"), agent)) == ("hi", "ok")
    checked = TokenUsage(count, 7).checked()
    assert (checked.input_tokens, checked.output_tokens) == (1 if count == 1.5 else 0, 7)
    assert count_of(count) in (0, 1)


@pytest.mark.parametrize("name", PIECES)
def test_a_piece_that_cannot_be_is_a_failed_try(tmp_path, name):
    """The next try is answered; the agent lives on, also in the next kernel."""
    assert run(asked_twice(str(tmp_path / "run.db"), Agent("a", model=Odd(PIECES[name]), retry=2))) == ("ok", "ok")


def test_a_provider_whose_name_is_no_text_is_refused():
    odd = Odd([])
    odd.name = 5  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="the name of a provider is text, not 5"):
        Agent("a", model=odd)


@pytest.mark.parametrize(
    "message", [{None: 1}, {(1, 2): 3}, {"lyra.ask": 5, "content": "x"}, {"lyra.ask": "z"}], ids=str
)
def test_a_message_of_any_shape_leaves_the_agent_alive(message):
    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model="sim/echo"))
            await kernel.send(process.pid, message)
            return await process.send("hi", timeout=5)

    assert run(main()) == "hi"

"""A provider that a user wrote: its ordinary connection errors fall back and are recorded like ModelErrors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

import lyra
from lyra import Agent, Kernel, LLMProvider
from lyra.agents.session.shared import runtime_of
from lyra.errors import AgentFailed, ModelError
from lyra.models.pricing import Price
from lyra.models.record import Recorder
from lyra.models.request import Request
from lyra.models.stream import Finished, StreamEvent, TextDelta
from lyra.testing import record

ERRORS: list[tuple[Exception, str]] = [
    (ConnectionRefusedError(111, "refused"), "connection"),
    (OSError("no route"), "connection"),
    (TimeoutError(), "timeout"),
    (httpx.ConnectError("no"), "connection"),
    (httpx.ReadTimeout("late"), "timeout"),
    (httpx2.ConnectError("no"), "connection"),
    (
        httpx.HTTPStatusError("busy", request=httpx.Request("GET", "http://a"), response=httpx.Response(503)),
        "overloaded",
    ),
]


class Own(LLMProvider):
    def __init__(self, *outcomes: Exception | str) -> None:
        self.outcomes = list(outcomes)

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        yield TextDelta(outcome)
        yield Finished("end_turn")


@pytest.mark.parametrize(("error", "kind"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS])
def test_connection_errors_fall_back(error: Exception, kind: str) -> None:
    """To the next model, as a ModelError of their kind; alone, that is what the caller gets."""
    agent = Agent("a", model=Own(error), fallback=[Own("from the other")], retry=1)
    assert lyra.run(agent, "hi") == "from the other"
    with pytest.raises(ModelError) as failed:
        lyra.run(Agent("b", model=Own(error), retry=1), "hi")
    assert failed.value.kind == kind
    assert type(error).__name__ in failed.value.message


def test_other_errors_of_a_provider_do_not_fall_back() -> None:
    """A mistake in it is not hidden behind another model."""
    with pytest.raises((AgentFailed, ValueError), match="mistake"):
        lyra.run(Agent("a", model=Own(ValueError("a mistake")), fallback=[Own("x")], retry=1), "hi")


def test_a_recording_has_the_connection_error(tmp_path: Path) -> None:
    """And gives it again as the ModelError that it is to an agent."""

    def ask(provider: Any) -> list[str]:
        answers: list[str] = [lyra.run(Agent("a", model=provider, fallback=[Own("other")], retry=1), "hi")]
        answers.append(lyra.run(Agent("a", model=provider, retry=1), "hi again"))
        return answers

    for mode in ("all", "replay"):
        with record(tmp_path / "own.jsonl", Own(ConnectionResetError("gone"), "back"), mode=mode) as provider:
            assert ask(provider) == ["other", "back"]


class Counting(Own):
    """Its answers to the model `counted` depend on the order of the requests."""

    def __init__(self) -> None:
        super().__init__("x")
        self.asked_about: list[str] = []

    def answers_in_order(self, model: str) -> bool:
        self.asked_about.append(model)
        return model == "counted"


def test_a_provider_answers_in_any_order_unless_it_says_otherwise(tmp_path: Path) -> None:
    """A recording of a provider says what the provider says, for the model in question."""
    assert Recorder(Own("x"), tmp_path / "own").answers_in_order("any") is False
    recorder = Recorder(Counting(), tmp_path / "counting")
    assert [recorder.answers_in_order(model) for model in ("counted", "free")] == [True, False]


def test_a_model_that_answers_in_order_is_not_asked_early() -> None:
    """The provider is asked by the model's name; Lyra keeps the order of the questions for that model alone."""
    provider = Counting()

    async def main() -> list[bool]:
        async with Kernel() as kernel:
            runtime = runtime_of(kernel)
            runtime.client.register("own", provider)
            agents = [Agent("a", model=f"own/{model}") for model in ("counted", "free")]
            return [runtime.models.answers_in_order(agent) for agent in agents]

    assert asyncio.run(main()) == [True, False]
    assert provider.asked_about == ["counted", "free"]


class Priced(Own):
    """It says what its models cost, and what it was asked to do."""

    name = "priced"

    def __init__(self) -> None:
        super().__init__("x", "x")
        self.seen: list[str] = []

    def price(self, model: str) -> Price | None:
        self.seen.append(f"price of {model}")
        return Price.from_data(
            {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0, "request_usd": 1 if model == "dear" else 2}
        )

    def load(self) -> None:
        self.seen.append("loaded")

    async def close(self) -> None:
        self.seen.append("closed")


def test_a_provider_sets_its_price_and_gives_back_its_connections() -> None:
    """It is asked about the model that is called, loaded before the first request, and closed with the kernel."""
    provider = Priced()

    async def main() -> list[Any]:
        async with Kernel() as kernel:
            runtime_of(kernel).client.register("priced", provider)
            costs = []
            for model in ("dear", "dearer"):
                agent = await kernel.spawn(Agent("a", model=f"priced/{model}"))
                reply = await agent.send("hi")
                assert isinstance(reply, lyra.Reply)
                costs.append(reply.cost_usd)
            assert "closed" not in provider.seen
            return costs

    assert asyncio.run(main()) == [1.0, 2.0]
    assert {"price of dear", "price of dearer", "loaded", "closed"} <= set(provider.seen)


def test_a_provider_is_loaded_before_the_time_of_a_call_begins() -> None:
    """Its price too, which a scripted provider reads from a file; once for each model."""
    provider = Priced()

    async def main() -> None:
        async with Kernel() as kernel:
            runtime = runtime_of(kernel)
            runtime.client.register("priced", provider)
            for _ in range(2):
                runtime.models.prepare(Agent("a", model="priced/dear"))
                assert sorted(provider.seen) == ["loaded", "price of dear"]

    asyncio.run(main())


def test_an_agent_is_killed_for_a_reason() -> None:
    async def main() -> str:
        async with Kernel() as kernel:
            agent = await kernel.spawn(Agent("a", model=Own("x")))
            await agent.kill("no longer needed")
            return (await agent.wait()).reason

    assert asyncio.run(main()) == "no longer needed"


def test_an_answer_on_its_way_is_done_when_it_is_there() -> None:
    async def main() -> list[bool]:
        async with Kernel() as kernel:
            agent = await kernel.spawn(Agent("a", model=Own("x")))
            pending = agent.send_async("hi")
            before = pending.done()
            await pending
            return [before, pending.done()]

    assert asyncio.run(main()) == [False, True]

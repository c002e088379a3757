"""A provider that a user wrote: its ordinary connection errors fall back and are recorded like ModelErrors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import botocore.exceptions
import httpx
import httpx2
import openai
import pytest
from google.genai import errors as genai

import lyra
from lyra import Agent, Kernel, LLMClient, LLMProvider
from lyra.agents.session.shared import runtime_of
from lyra.errors import ModelError
from lyra.models.pricing import Price
from lyra.models.provider import Request
from lyra.models.record import Recorder
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


class Refused(Exception):
    """An exception of a user's own, with the HTTP status that the server gave."""

    def __init__(self, message: str = "no", **attributes: Any) -> None:
        super().__init__(message)
        for name, value in attributes.items():
            setattr(self, name, value)


class Mute(Exception):
    """An exception whose text and attributes are exceptions themselves."""

    def __str__(self) -> str:
        raise ValueError("no text")

    @property
    def response(self) -> Any:
        raise KeyError("response")

    status = status_code = code = response


def _response(status: int, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, headers=headers, request=httpx2.Request("POST", "http://a"))


# (the exception of a provider, the kind of the ModelError, whether it is tried again and falls back)
PASSING: list[tuple[Exception, str]] = [
    (Refused(status_code=529), "overloaded"),
    (Refused(status=503), "overloaded"),
    (Refused(status_code=429), "rate_limit"),
    (Refused(code=502), "temporary"),
    (Refused(status="503"), "overloaded"),
    (Mute("nothing to say"), "temporary"),
    (RuntimeError("the socket is closed"), "temporary"),
    (RuntimeError("too many requests"), "rate_limit"),
    (EOFError(), "temporary"),
    (TimeoutError(), "timeout"),
    (ExceptionGroup("unhandled errors in a TaskGroup", [Refused(status_code=429)]), "rate_limit"),
    (anthropic.APIStatusError("busy", response=_response(529), body=None), "overloaded"),
    (anthropic.APITimeoutError(httpx2.Request("POST", "http://a")), "timeout"),
    (openai.RateLimitError("slower", response=_response(429), body=None), "rate_limit"),
    (openai.APIConnectionError(request=httpx2.Request("POST", "http://a")), "connection"),
    (genai.ServerError(503, {"error": {"status": "UNAVAILABLE", "message": "busy"}}), "overloaded"),
    (
        botocore.exceptions.ClientError(
            {"Error": {"Code": "ThrottlingException"}, "ResponseMetadata": {"HTTPStatusCode": 429}},
            "Converse",
        ),
        "rate_limit",
    ),
]
LASTING: list[tuple[Exception, str]] = [
    (Refused(status_code=400), "bad_request"),
    (Refused(status=404), "not_found"),
    (Refused(status_code="401"), "auth"),
    (Refused("the prompt is too long", status=400), "context_overflow"),
    (openai.BadRequestError("no", response=_response(400), body={"code": "content_filter"}), "content_filter"),
    (openai.RateLimitError("pay", response=_response(429), body={"code": "insufficient_quota"}), "auth"),
    (genai.ClientError(400, {"error": {"status": "INVALID_ARGUMENT", "message": "no"}}), "bad_request"),
    (PermissionError(13, "no"), "auth"),
    (KeyError("choices"), "bad_response"),
    (ValueError("Expecting value: line 1 column 1"), "bad_response"),
]


def _names(cases: list[tuple[Exception, str]]) -> list[str]:
    return [f"{type(error).__name__}-{kind}" for error, kind in cases]


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


@pytest.mark.parametrize(("error", "kind"), PASSING, ids=_names(PASSING))
def test_what_passes_is_tried_again_and_falls_back(error: Exception, kind: str) -> None:
    """An error is sorted by its status, its type and its words. One that may pass is tried again; then the next model
    answers; where there is none the caller gets a ModelError, and the conversation goes on."""

    async def main() -> None:
        async with Kernel() as kernel:
            again = await kernel.spawn(Agent("a", model=Own(error, "second try"), retry=_at_once(2)))
            assert await again.send("hi") == "second try"
            other = await kernel.spawn(Agent("b", model=Own(error, error), fallback=[Own("other")], retry=_at_once(2)))
            assert await other.send("hi") == "other"
            alone = await kernel.spawn(Agent("c", model=Own(error, error, "well again"), retry=_at_once(2)))
            with pytest.raises(ModelError) as failed:
                await alone.send("hi")
            assert failed.value.kind == kind
            assert failed.value.__cause__ is error
            assert await alone.send("and now?") == "well again"

    asyncio.run(main())


@pytest.mark.parametrize(("error", "kind"), LASTING, ids=_names(LASTING))
def test_what_lasts_is_an_error_to_the_caller(error: Exception, kind: str) -> None:
    """A refused request, or a mistake in the provider, is not tried again and not hidden behind another model. The
    caller gets a ModelError, and the conversation goes on."""

    async def main() -> None:
        async with Kernel() as kernel:
            agent = Agent("a", model=Own(error, "well again"), fallback=[Own("x")], retry=_at_once(3))
            process = await kernel.spawn(agent)
            with pytest.raises(ModelError) as failed:
                await process.send("hi")
            assert failed.value.kind == kind
            assert type(error).__name__ in failed.value.message
            assert await process.send("and now?") == "well again"
            assert process.metrics.retries == 0

    asyncio.run(main())


def _at_once(max_attempts: int) -> lyra.Retry:
    return lyra.Retry(max_attempts=max_attempts, backoff=lyra.Backoff(initial_s=0.0))


def test_a_pause_that_a_server_asked_for_is_kept() -> None:
    """It is in the headers of the response that an exception of a vendor's library carries."""
    error = openai.RateLimitError("slower", response=_response(429, **{"retry-after": "7"}), body=None)
    with pytest.raises(ModelError) as failed:
        lyra.run(Agent("a", model=Own(error), retry=1), "hi")
    assert failed.value.retry_after_s == 7.0


class Dropping(Own):
    """What it waits for is cancelled by somebody else: its own pool of connections, say."""

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        if self.outcomes.pop(0) == "drop":
            connection = asyncio.get_running_loop().create_future()
            connection.cancel()
            await connection
        yield TextDelta("answered")
        yield Finished("end_turn")


def test_a_cancellation_inside_a_provider_is_an_error_of_it() -> None:
    """It is tried again, falls back, or is a ModelError to the caller; the conversation goes on. A caller that cancels
    is not mistaken for it."""

    async def main() -> None:
        async with Kernel() as kernel:
            again = await kernel.spawn(Agent("a", model=Dropping("drop", "go"), retry=_at_once(2)))
            assert await again.send("hi") == "answered"
            other = await kernel.spawn(Agent("b", model=Dropping("drop"), fallback=[Own("other")], retry=1))
            assert await other.send("hi") == "other"
            alone = await kernel.spawn(Agent("c", model=Dropping("drop", "go"), retry=1))
            with pytest.raises(ModelError) as failed:
                await alone.send("hi")
            assert failed.value.kind == "temporary"
            assert await alone.send("and now?") == "answered"

    asyncio.run(main())


class Eager(LLMProvider):
    """Its `stream` is a plain function that fails before there is anything to iterate over."""

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        raise Refused(status_code=503)


def test_a_provider_that_fails_before_its_stream_begins_falls_back() -> None:
    assert lyra.run(Agent("a", model=Eager(), fallback=[Own("other")], retry=1), "hi") == "other"


@pytest.mark.parametrize(("error", "kind"), [*PASSING[:4], *LASTING[:2]], ids=_names([*PASSING[:4], *LASTING[:2]]))
def test_a_client_raises_model_errors(error: Exception, kind: str) -> None:
    """A model that is asked without an agent fails like any other, whole or as a stream."""

    async def main() -> None:
        async with LLMClient() as client:
            client.register("own", Own(error, error))
            request = Request(model="", messages=(lyra.Message("user", "hi"),))
            with pytest.raises(ModelError) as failed:
                await client.complete("own/x", request)
            assert failed.value.kind == kind
            with pytest.raises(ModelError) as failed:
                async for _ in client.stream("own/x", request):
                    pass
            assert failed.value.kind == kind
            assert failed.value.__cause__ is error

    asyncio.run(main())


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

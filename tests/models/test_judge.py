"""An outside judge, PyPI's `llmock`: it injects faults over real connections and grades how the client takes them."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.core.message import Message
from lyra.errors import ModelError
from lyra.models.provider import Request
from lyra.models.stream import Completion
from tests.models.judge import JUDGED, Judged, ask
from tests.models.server import run
from tests.models.wires import WEATHER

pytest.importorskip("llmock")

# The judge's server now and then closes a stream while it is being read; that is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
REQUEST = Request("m", (Message("user", "hello"),), max_tokens=100)
TOOLS = Request("m", (Message("user", "How is the weather in Paris?"),), tools=(WEATHER,), max_tokens=100)


@pytest.fixture(params=JUDGED)
def judged(request: pytest.FixtureRequest) -> Judged:
    return JUDGED[request.param]


def answer(llmock: Any, judged: Judged, request: Request = REQUEST, **settings: Any) -> Completion:
    return run(ask(judged, llmock.base_url(judged.format), request, **settings))


def test_nothing_wrong(llmock: Any, judged: Judged) -> None:
    llmock.reply("It is sunny.")
    reply = answer(llmock, judged)
    assert reply.text == "It is sunny."
    assert reply.stop_reason == "end"
    assert reply.usage.output_tokens > 0
    llmock.assert_resilient(strict=True)


def test_a_tool_is_called(llmock: Any, judged: Judged) -> None:
    llmock.call_tool("get_weather", {"city": "Paris"})
    reply = answer(llmock, judged, TOOLS)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("get_weather", {"city": "Paris"})]
    assert reply.stop_reason == "tool_calls"
    llmock.assert_resilient(strict=True)


def test_too_many_requests_with_a_pause(llmock: Any, judged: Judged) -> None:
    llmock.rate_limit(times=2, retry_after=0.2)
    assert answer(llmock, judged).text
    assert len(llmock.requests) == 3
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("status", [500, 503, 529])
def test_a_provider_that_is_down_for_a_moment(llmock: Any, judged: Judged, status: int) -> None:
    llmock.fail(status, times=2, retry_after=0.2)
    assert answer(llmock, judged).text
    assert len(llmock.requests) == 3
    llmock.assert_resilient(strict=True)


def test_an_outage_is_given_up(llmock: Any, judged: Judged) -> None:
    llmock.fail(503, times=None, retry_after=0.2)
    with pytest.raises(ModelError) as caught:
        answer(llmock, judged)
    assert caught.value.kind == "overloaded"
    assert len(llmock.requests) == 3
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_not_repeated(llmock: Any, judged: Judged, status: int) -> None:
    llmock.fail(status)
    with pytest.raises(ModelError):
        answer(llmock, judged)
    assert len(llmock.requests) == 1
    llmock.assert_resilient(strict=True)


def test_too_long_a_conversation_is_not_repeated(llmock: Any, judged: Judged) -> None:
    llmock.context_overflow()
    with pytest.raises(ModelError) as caught:
        answer(llmock, judged)
    assert caught.value.kind == "context_overflow"
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("after_chunks", [1, 2, 4])
@pytest.mark.parametrize("fault", ["truncate", "disconnect", "corrupt"])
def test_a_stream_that_breaks_is_asked_again(llmock: Any, judged: Judged, fault: str, after_chunks: int) -> None:
    """Ended early without a word, cut off, or with a piece that is no JSON: never an answer, and tried again."""
    llmock.reply("It is sunny and warm, with a light wind from the west.", times=None)
    llmock.pace(30)  # so that the judge sees when the client hangs up
    getattr(llmock, fault)(after_chunks=after_chunks)
    assert answer(llmock, judged).text == "It is sunny and warm, with a light wind from the west."
    assert len(llmock.requests) == 2
    llmock.assert_resilient(strict=True)


def test_a_stream_that_stalls_is_left(llmock: Any, judged: Judged) -> None:
    llmock.stall(after_chunks=1, seconds=5)
    assert answer(llmock, judged, timeouts={"idle_s": 0.2}).text
    assert len(llmock.requests) == 2
    llmock.assert_resilient(strict=True)


def test_a_broken_call_is_asked_again(llmock: Any, judged: Judged) -> None:
    if judged.format == "gemini":
        pytest.skip("Gemini sends arguments as an object, which cannot be broken")
    llmock.call_tool("get_weather", {"city": "Paris"}, times=None)
    llmock.break_tool_call("malformed_arguments")
    reply = answer(llmock, judged, TOOLS)
    assert reply.tool_calls[0].arguments == {"city": "Paris"}
    llmock.assert_resilient(strict=True)

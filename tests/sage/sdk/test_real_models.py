"""SageAgentSDK and `query` on real models: the result, its dollars and tokens, thoughts among the events, and calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra.sage.sdk import SageAgentSDK, query
from tests.real_models import Answer, Call, FakeVendor, Vendor


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("secret word: heron\n")
    return tmp_path


async def test_a_run(vendor: Vendor, provider: FakeVendor, work: Path) -> None:
    """The calls of a run add up to its cost; cached tokens are counted once, in every vendor's way of telling them."""
    call = Call("Read", {"file_path": str(work / "a.txt")})
    written = 100 if vendor.charges_cache_writes else 0
    answers = (Answer(thinking="Look.", calls=(call,)), Answer("A heron.", written_tokens=written))
    provider.say(*answers)
    result = await SageAgentSDK(model=vendor.model).run("Which bird?")
    assert (result.outcome, result.final_result) == ("success", "A heron.")
    assert result.cost_usd == vendor.cost_usd(*answers)
    assert [(used.name, used.arguments) for used in result.tool_calls] == [call]
    usage = result.usage
    assert (usage["input_tokens"], usage["output_tokens"]) == (2_000, 400)
    assert (usage["cache_read_tokens"], usage["cache_write_tokens"]) == (1_200, written)
    thoughts = [event.delta for event in result.events if event.type == "thinking_delta"]
    assert thoughts == (["Look."] if vendor.thinks_aloud else [])
    told = [event for event in result.events if event.type == "usage"]
    assert [event.cost_usd for event in told] == [vendor.cost_usd(answer) for answer in answers]
    assert f"${vendor.cost_usd(*answers):.4f}" in result.summary
    assert "heron" in provider.requests[1].results[0]
    assert provider.requests[1].signatures == ([answers[0].signature] if vendor.thinks_aloud else [])


async def test_a_session_goes_on(vendor: Vendor, provider: FakeVendor, work: Path) -> None:
    """A run in the session of an earlier one costs what it costs alone, and sends the earlier thought's signature."""
    call = Call("Read", {"file_path": str(work / "a.txt")})
    provider.say(Answer(thinking="Look.", calls=(call,)), Answer("A heron."), last := Answer("Yes."))
    sdk = SageAgentSDK(model=vendor.model)
    first = await sdk.run("Which bird?")
    second = await sdk.with_session(first.session_id).run("Sure?")
    assert second.cost_usd == vendor.cost_usd(last)
    assert second.usage["input_tokens"] == last.input_tokens
    assert provider.requests[-1].said == ["A heron."]
    assert provider.requests[-1].signatures == ([provider.answered[0].signature] if vendor.thinks_aloud else [])


async def test_events_of_a_query(vendor: Vendor, provider: FakeVendor, work: Path) -> None:
    provider.say(answer := Answer("Hello.", thinking="A greeting."))
    events = [event async for event in query("Hi", model=vendor.model)]
    assert "".join(event.delta for event in events if event.type == "text_delta") == "Hello."
    assert events[-1].type == "result"
    assert events[-1].cost_usd == vendor.cost_usd(answer)


async def test_a_model_without_a_published_price(vendor: Vendor, provider: FakeVendor, work: Path) -> None:
    """The run succeeds, and says that its cost is not known."""
    provider.say(Answer("Hello."))
    result = await SageAgentSDK(model=f"{vendor.model.partition('/')[0]}/nova-of-tomorrow").run("Hi")
    assert result.is_success
    assert result.cost_usd is None
    assert "tool calls, ?, " in result.summary


async def test_a_cut_answer_is_told(vendor: Vendor, provider: FakeVendor, work: Path) -> None:
    """It goes on; where it is cut again and again the result has what there is, and is no success: its status and its
    error say what cut it."""
    provider.say(Answer("Once upon", is_cut=True))
    result = await SageAgentSDK(model=vendor.model).run("A story")
    assert (result.status, result.final_result, result.is_success) == ("max_tokens", "Once upon" * 9, False)
    assert result.error is not None
    assert "cut off at its longest" in result.error.message
    events = [event async for event in query("A story", model=vendor.model)]
    assert [event.type for event in events[-2:]] == ["error", "result"]
    assert (events[-1].status, events[-1].text) == ("max_tokens", "Once upon" * 9)

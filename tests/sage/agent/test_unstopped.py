"""A turn of Sage goes on by itself where others stop: polling, long answers, bad calls, overloads. On real models."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lyra.agents.session.events import AgentEvent, Retrying
from lyra.agents.session.replies import GO_ON
from lyra.core.providers import answer_tokens_max
from tests.real_models import Answer, Call, FakeVendor, Vendor
from tests.sage.open_session import Project, say

LIMITS = {"anthropic": "max_tokens", "openai": "max_completion_tokens", "openai-responses": "max_output_tokens"}


@pytest.fixture
def place(vendor: Vendor, provider: FakeVendor, project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose home has the settings of the vendor."""
    settings = project.home / ".config" / "lyra" / "lyra.toml"
    settings.parent.mkdir(parents=True)
    project.patience = ()
    settings.write_text(f"{vendor.settings}\n[retry]\ninitial_s = 0.05\nmax_s = 0.1\n")
    return project


def limit_sent(vendor: Vendor, body: dict[str, Any]) -> int | None:
    if vendor.name == "google":
        body = body.get("generationConfig", {})
    limit: int | None = body.get("maxOutputTokens" if vendor.name == "google" else LIMITS[vendor.name])
    return limit


async def ask(place: Project, vendor: Vendor, task: str = "Go", **options: Any) -> tuple[list[Any], dict[str, Any]]:
    settings = {"allow": ("Bash", "Write", "BashOutput"), "mode": "accept-edits", **options}
    async with place.open(model=vendor.model, options=settings) as session:
        lines = await asyncio.wait_for(say(session, task), 30)
    return lines, lines[-1]


# ---------------------------------------------------------------- polling


async def test_polling_a_background_job_does_not_end_the_turn(
    vendor: Vendor, provider: FakeVendor, place: Project
) -> None:
    """`BashOutput` may be called again and again with the same result."""
    poll = Answer("It is still running, I wait.", calls=(Call("BashOutput", {"bash_id": "bash_1"}),))
    started = Answer(calls=(Call("Bash", {"command": "sleep 5", "run_in_background": True}),))
    provider.say(started, *[poll] * 9, Answer("Done."))
    _, result = await ask(place, vendor)
    assert (result["status"], result["text"]) == ("success", "Done.")
    assert not any("Notice by the program" in output for output in provider.requests[-1].results)


async def test_equal_calls_with_equal_results_are_told_first(
    vendor: Vendor, provider: FakeVendor, place: Project
) -> None:
    """The third equal call is run, and its result says that it is; the turn ends where the model goes on after that."""
    read = Answer(calls=(Call("Read", {"file_path": str(place.write("a.txt", "x\n"))}),))
    provider.say(*[read] * 3, Answer("I see."))
    _, result = await ask(place, vendor)
    assert result["status"] == "success"
    assert ["Notice by the program" in output for output in provider.requests[-1].results] == [False, False, True]
    provider.say(read)
    _, result = await ask(place, vendor)
    assert result["status"] == "repetition"


async def test_the_same_command_after_an_edit_is_no_loop(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    path = str(place.write("a.txt", "0\n"))
    read = Answer(calls=(Call("Read", {"file_path": path}),))
    writes = [Answer(calls=(Call("Write", {"file_path": path, "content": f"{number}\n"}),)) for number in range(5)]
    provider.say(*[answer for write in writes for answer in (read, write)], Answer("Done."))
    _, result = await ask(place, vendor)
    assert (result["status"], result["text"]) == ("success", "Done.")


# ---------------------------------------------------------------- long answers


async def test_the_longest_answer_is_the_models_own(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    """Only where the vendor wants a number, it is sent."""
    await ask(place, vendor)
    wanted = answer_tokens_max(vendor.model) if vendor.name == "anthropic" else None
    assert limit_sent(vendor, provider.requests[-1].body) == wanted
    assert wanted in (None, 128_000)
    await ask(place, vendor, max_tokens=700)
    assert limit_sent(vendor, provider.requests[-1].body) == 700
    async with place.open(model=vendor.model, flags=("agent.max_tokens=900",)) as session:
        await say(session, "Go")
    assert limit_sent(vendor, provider.requests[-1].body) == 900


async def test_a_budget_holds_an_answer_without_a_limit(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    """One call reserves a part of it, so that others find room."""
    await ask(place, vendor, budget="$1")
    limit = limit_sent(vendor, provider.requests[-1].body)
    assert limit is not None
    assert 8_192 <= limit <= 1_000_000 / vendor.output_usd / 4 + 8_192


async def test_a_cut_text_goes_on_by_itself(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    """The answer is one text, the trace tells that it went on, and the next turn has all of it."""
    provider.say(Answer("Once upon", is_cut=True), Answer(" a ti", is_cut=True), Answer("me."), Answer("Yes."))
    async with place.open(model=vendor.model) as session:
        told: list[Any] = []
        session.kernel.on_event(told.append, kinds=("answer.continued",))
        lines = await say(session, "A story")
        assert (lines[-1]["status"], lines[-1]["text"]) == ("success", "Once upon a time.")
        assert "".join(line["delta"] for line in lines if line["type"] == "text_delta") == "Once upon a time."
        assert [event.data["times"] for event in told] == [1, 2]
        await say(session, "Really?")
    assert provider.requests[1].texts[-1] == GO_ON
    assert provider.requests[-1].said == ["Once upon", " a ti", "me."]


async def test_a_text_that_is_always_cut_ends_at_a_bound(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    provider.say(Answer("x", is_cut=True))
    _, result = await ask(place, vendor)
    assert (result["status"], result["text"]) == ("max_tokens", "x" * 9)
    assert result["error"]["code"] == "max_tokens"


async def test_a_cut_call_is_told_to_the_model(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    """It is not run, and the model hears why; it writes the file in two calls instead."""
    path = place.folder / "long.txt"
    cut = Answer(calls=(Call("Write", {}),), raw=f'{{"file_path": "{path}", "content": "aaa', is_cut=True)
    whole = Answer(calls=(Call("Write", {"file_path": str(path), "content": "a\n"}),))
    provider.say(cut, whole, Answer("Done."))
    lines, result = await ask(place, vendor)
    assert (result["status"], result["text"]) == ("success", "Done.")
    assert path.read_text() == "a\n"
    second = provider.requests[1]
    told = second.texts[-1] if vendor.name == "google" else second.results[-1]  # which passes on no cut calls
    assert "limit of tokens" in told
    assert len(provider.requests) == 3, "the same request is not sent again"
    errors = [line["error_code"] for line in lines if line["type"] == "tool_end" and line["is_error"]]
    assert errors == ([] if vendor.name == "google" else ["invalid_arguments"])


async def test_broken_json_is_told_to_the_model(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    path = place.write("a.txt", "x\n")
    broken = Answer(calls=(Call("Read", {}),), raw=f'{{"file_path": "{path}",,}}')
    whole = Answer(calls=(Call("Read", {"file_path": str(path)}),))
    provider.say(broken, whole, Answer("An x."))
    _, result = await ask(place, vendor)
    assert (result["status"], result["text"]) == ("success", "An x.")
    second = provider.requests[1]
    told = second.texts[-1] if vendor.name == "google" else second.results[-1]
    assert "valid" in told
    assert len(provider.requests) == 3


async def test_a_thought_goes_back_with_a_call_that_was_cut(
    vendor: Vendor, provider: FakeVendor, place: Project
) -> None:
    """Vendors refuse a conversation whose thoughts lost their signature."""
    if vendor.name not in ("anthropic", "openai-responses"):
        pytest.skip("this vendor has no thoughts beside cut calls")
    cut = Answer(thinking="Hm.", calls=(Call("Write", {}),), raw='{"content": "a', is_cut=True)
    provider.say(cut, Answer("Done."))
    await ask(place, vendor, effort="high")
    assert provider.requests[1].signatures == [cut.signature]


# ---------------------------------------------------------------- patience


async def test_an_overload_is_waited_for_and_told(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    provider.say(*[Answer("no room", status=529)] * 6, Answer("Here I am."))
    lines, result = await ask(place, vendor)
    assert (result["status"], result["text"], result["retries"]) == ("success", "Here I am.", 6)
    retries = [line for line in lines if line["type"] == "retry"]
    assert [(line["attempt"], line["of"], line["reason"]) for line in retries] == [
        (attempt, 10, "overloaded") for attempt in range(2, 8)
    ]
    assert all(line["wait_s"] > 0 for line in retries)


async def test_the_wait_is_the_one_that_the_vendor_asks_for(
    vendor: Vendor, provider: FakeVendor, place: Project
) -> None:
    provider.say(Answer("slow down", status=429, retry_after="0.4"), Answer("Here I am."))
    lines, _ = await ask(place, vendor)
    (retry,) = [line for line in lines if line["type"] == "retry"]
    assert (retry["reason"], retry["wait_s"]) == ("rate limited", 0.4)


async def test_the_last_error_names_provider_status_and_tries(
    vendor: Vendor, provider: FakeVendor, place: Project
) -> None:
    provider.say(Answer("no room", status=529))
    _, result = await ask(place, vendor)
    assert result["status"] == "model_failed" or result["status"]
    error = result["error"]
    assert f"({vendor.model.partition('/')[0]}, status 529, after 10 tries)" in error["message"]
    assert result["retries"] == 9


async def test_an_error_of_the_first_try_names_provider_and_status(
    vendor: Vendor, provider: FakeVendor, place: Project
) -> None:
    provider.say(Answer("invalid x-api-key", status=401))
    _, result = await ask(place, vendor)
    assert f"({vendor.model.partition('/')[0]}, status 401)" in result["error"]["message"]


@pytest.mark.parametrize(("key", "value", "tries"), [("max_attempts", 3, 3), ("max_attempts", 1, 1)])
async def test_settings_say_how_patient_it_is(
    key: str, value: int, tries: int, vendor: Vendor, provider: FakeVendor, place: Project
) -> None:
    provider.say(Answer("no room", status=529))
    async with place.open(model=vendor.model, flags=(f"retry.{key}={value}",)) as session:
        await say(session, "Go")
    assert len(provider.requests) == tries


async def test_waits_grow_up_to_a_longest_one(provider: FakeVendor, vendor: Vendor, place: Project) -> None:
    provider.say(*[Answer("no room", status=529)] * 4, Answer("Here I am."))
    flags = ("retry.initial_s=0.02", "retry.max_s=0.06")
    async with place.open(model=vendor.model, flags=flags) as session:
        waits = [line["wait_s"] for line in await say(session, "Go") if line["type"] == "retry"]
    assert waits[0] == pytest.approx(0.02, rel=0.21)
    assert waits[1] == pytest.approx(0.04, rel=0.21)
    assert max(waits) <= 0.06


async def test_who_orders_a_summary_is_told_of_waits(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    provider.say(Answer("One."), Answer("Two."), Answer("no room", status=529), Answer("They said one."))
    events: list[AgentEvent] = []
    async with place.open(model=vendor.model) as session:
        for text in ("a", "b"):
            await say(session, text)
        await session.process.compact(on_event=events.append)
    waits = [event for event in events if isinstance(event, Retrying)]
    assert [(event.reason, event.attempt) for event in waits] == [("overloaded", 2)]


async def test_an_interrupt_ends_the_wait(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    provider.say(Answer("slow down", status=429, retry_after="60"), Answer("Here I am."))
    async with place.open(model=vendor.model) as session:
        async with asyncio.timeout(10):
            lines: list[Any] = []
            async for line in session.send("Go"):
                lines.append(line)
                if line["type"] == "retry":
                    await session.interrupt()
        assert lines[-1]["status"] == "interrupted"
        provider.say(Answer("Yes."))
        assert (await say(session, "Still there?"))[-1]["text"] == "Yes."


async def test_a_stream_that_breaks_off_is_asked_for_again(
    vendor: Vendor, provider: FakeVendor, place: Project
) -> None:
    """Without a person, and told with its own words."""
    provider.say(Answer("Half an ans", breaks_off=True), Answer("Half an answer, and the rest."))
    lines, result = await ask(place, vendor)
    assert (result["status"], result["text"]) == ("success", "Half an answer, and the rest.")
    assert [(line["reason"], line["of"]) for line in lines if line["type"] == "retry"] == [("the answer broke off", 4)]


# ---------------------------------------------------------------- effort

EFFORTS = {
    "anthropic": ({"effort": "low"}, {"effort": "high"}),
    "openai": ("low", "high"),
    "openai-responses": ({"effort": "low", "summary": "auto"}, {"effort": "high", "summary": "auto"}),
    "google": ({"thinkingBudget": 2_048, "includeThoughts": True}, {"thinkingBudget": 24_576, "includeThoughts": True}),
}


def effort_sent(vendor: Vendor, body: dict[str, Any]) -> Any:
    places = {
        "anthropic": body.get("output_config"),
        "openai": body.get("reasoning_effort"),
        "openai-responses": body.get("reasoning"),
        "google": body.get("generationConfig", {}).get("thinkingConfig"),
    }
    return places[vendor.name]


async def test_effort_is_said_in_the_vendors_own_words(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    low, high = EFFORTS[vendor.name]
    await ask(place, vendor)
    assert effort_sent(vendor, provider.requests[-1].body) is None
    await ask(place, vendor, effort="low")
    assert effort_sent(vendor, provider.requests[-1].body) == low
    async with place.open(model=vendor.model, flags=("sage.effort=high",)) as session:
        await say(session, "Go")
    assert effort_sent(vendor, provider.requests[-1].body) == high


async def test_effort_changes_within_a_session_and_is_kept(
    vendor: Vendor, provider: FakeVendor, place: Project
) -> None:
    low, high = EFFORTS[vendor.name]
    async with place.open(model=vendor.model) as session:
        await say(session, "One")
        session.set_effort("high")
        await say(session, "Two")
        session_id = session.id
    async with place.open(model=vendor.model, resume=session_id) as session:
        await say(session, "Three")
        session.set_effort("low")
        await say(session, "Four")
        session.set_effort("none")
        await say(session, "Five")
    sent = [effort_sent(vendor, request.body) for request in provider.requests]
    assert sent == [None, high, high, low, None]


async def test_a_model_that_cannot_think_is_asked_without_it(
    vendor: Vendor, provider: FakeVendor, place: Project
) -> None:
    early = {"anthropic": "claude-3-5-haiku-20241022", "google": "gemini-2.0-flash"}.get(vendor.name, "gpt-4o")
    async with place.open(model=f"{vendor.model.partition('/')[0]}/{early}", options={"effort": "high"}) as session:
        await say(session, "Go")
        assert "cannot think" in session.effort_note
    assert not provider.requests[-1].asks_to_think
    assert effort_sent(vendor, provider.requests[-1].body) is None


async def test_thinking_is_told_priced_and_sent_back(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    """Its tokens cost what output costs; a call's thought goes back with its signature."""
    if not vendor.thinks_aloud:
        pytest.skip("this format tells no thoughts")
    path = Path(place.write("a.txt", "x\n"))
    answers = (
        Answer(
            thinking="Look.", calls=(Call("Read", {"file_path": str(path)}),), output_tokens=900, thinking_tokens=800
        ),
        Answer("An x."),
    )
    provider.say(*answers)
    lines, result = await ask(place, vendor, effort="medium")
    assert [line["delta"] for line in lines if line["type"] == "thinking_delta"] == ["Look."]
    assert result["cost_usd"] == vendor.cost_usd(*answers)
    assert provider.requests[1].signatures == [answers[0].signature]


async def test_a_wait_of_a_sub_agent_is_told_by_the_turn(vendor: Vendor, provider: FakeVendor, place: Project) -> None:
    """Its caller waits for it without knowing for what."""
    ask_it = Call("Task", {"description": "look", "prompt": "Look.", "subagent_type": "Explore"})
    provider.say(Answer(calls=(ask_it,)), Answer("no room", status=529), Answer("Found."), Answer("Done."))
    lines, result = await ask(place, vendor)
    assert (result["status"], result["text"], result["retries"]) == ("success", "Done.", 1)
    assert [line["reason"] for line in lines if line["type"] == "retry"] == ["overloaded"]

"""A budget never shortens an answer in silence: what it cuts is BudgetExceeded, or says so where that was asked for."""

from __future__ import annotations

import asyncio

import pytest

import lyra
from lyra import Agent, Kernel
from lyra.agents.session.events import AnswerDone
from lyra.errors import BudgetExceeded, ConfigError
from tests.agents.support import Recorded, run, says

STORY = "word " * 2_000  # more than a thousand tokens
PRICED = {"price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 10}}


def model(text: str = STORY) -> Recorded:
    return says({"text": text}, **PRICED)


def writer(**settings) -> Agent:
    """An agent whose answers are longer than its money: 4,096 tokens are wanted, some 700 can be paid."""
    return Agent("writer", **{"model": model(), "budget": "$0.0075", **settings})


def test_an_answer_that_the_budget_cut_is_an_error_with_the_text_and_its_cost():
    with pytest.raises(BudgetExceeded, match="in the middle of an answer") as caught:
        lyra.run(writer(), "Tell a story")
    error = caught.value
    assert STORY.startswith(error.partial)
    assert 100 < len(error.partial) < len(STORY)
    assert 0 < error.cost_usd <= 0.0075
    assert error.output_tokens > 256
    assert "fit_budget" in str(error.hint)


def test_a_budget_of_tokens_cuts_in_the_same_way():
    with pytest.raises(BudgetExceeded, match="in the middle of an answer"):
        lyra.run(writer(budget={"output_tokens": 300}), "Tell a story")


def test_a_scope_around_the_call_cuts_in_the_same_way():
    with pytest.raises(BudgetExceeded, match="in the middle of an answer") as caught, lyra.budget("$0.0075"):
        lyra.run(writer(budget=None), "Tell a story")
    assert caught.value.partial


def test_a_stream_shows_the_text_and_ends_with_the_error():
    async def read():
        async with Kernel() as kernel:
            process = await kernel.spawn(writer())
            pieces = []
            with pytest.raises(BudgetExceeded) as caught:
                async for piece in process.stream("Tell a story"):
                    pieces.append(piece)  # noqa: PERF401 (kept until the error)
            return "".join(pieces), caught.value

    text, error = run(read())
    assert text == error.partial


def test_a_structured_answer_is_not_read_from_a_cut_text():
    """Also where the text happens to fit: the rest of it is missing."""
    for text in ('{"a": "' + STORY + '"}', '{"a": "b"}' + " " * 20_000):
        with pytest.raises(BudgetExceeded) as caught:
            lyra.run(writer(model=model(text), output=dict[str, str]), "x")
        assert caught.value.partial.startswith('{"a"')


def test_fit_budget_takes_the_cut_answer_and_says_so():
    reply = lyra.run(writer(fit_budget=True), "Tell a story")
    assert reply.status == "budget"
    assert STORY.startswith(reply)
    assert len(reply) > 100


def test_fit_budget_says_so_in_the_events():
    async def ask():
        async with Kernel() as kernel:
            cuts = []
            kernel.on_event(lambda event: cuts.append(event.data) if event.kind == "budget.cut" else None)
            process = await kernel.spawn(writer(fit_budget=True))
            events = [event async for event in process.stream("Tell a story", events=True)]
            return events, cuts

    events, cuts = run(ask())
    assert [event.status for event in events if isinstance(event, AnswerDone)] == ["budget"]
    (cut,) = cuts
    assert cut["wanted"] == 4096 > cut["max_tokens"] > 256


def test_fit_budget_does_not_take_what_cannot_be_read():
    with pytest.raises(BudgetExceeded):
        lyra.run(writer(model=model('{"a": "' + STORY + '"}'), output=dict[str, str], fit_budget=True), "x")


def test_an_answer_that_ended_by_itself_is_whole():
    """Its limit was lowered, and it did not come to it."""
    reply = lyra.run(writer(model=model("short")), "x")
    assert (reply, reply.status) == ("short", "success")


@pytest.mark.parametrize(("settings", "room"), [({}, 256), ({"min_tokens": 500}, 500), ({"max_tokens": 50}, 50)])
def test_below_the_floor_the_model_is_not_asked(settings, room):
    """A budget that pays for fewer tokens than `min_tokens` (256) refuses; a shorter longest answer is the floor."""
    for tokens, is_refused in ((room - 1, True), (room, False)):
        asked = model("short")
        agent = Agent("writer", model=asked, budget={"output_tokens": tokens}, **settings)
        if is_refused:
            with pytest.raises(BudgetExceeded):
                lyra.run(agent, "x")
        else:
            assert lyra.run(agent, "x") == "short"
        assert len(asked.requests) == (0 if is_refused else 1)


def test_the_next_model_may_answer_as_long_as_it_can_be_paid_for():
    """A limit that was lowered for the price of one model is not kept for its cheaper fallback."""
    dear = says({"error": {"kind": "overloaded"}}, price={"input_usd_per_mtok": 1, "output_usd_per_mtok": 10})
    cheap = says("fine", price={"input_usd_per_mtok": 0.1, "output_usd_per_mtok": 0.1})
    agent = writer(model=dear, fallback=cheap, retry={"max_attempts": 1})
    assert lyra.run(agent, "x") == "fine"
    lowered = dear.requests[0].max_tokens
    assert lowered is not None
    assert lowered < 4096 == cheap.requests[0].max_tokens


def test_a_cut_answer_is_the_same_error_after_a_restart(tmp_path):
    """The journal keeps why the answer was cut: a replay does not take it for one that came to its own limit."""
    store = str(tmp_path / "store.db")

    async def main(ctx):
        try:
            return await lyra.run(writer(), "Tell a story", on=ctx)
        except BudgetExceeded as error:
            cut = {"partial": error.partial, "cost_usd": error.cost_usd}
            await ctx.receive()
            return cut

    async def live():
        async with Kernel(store, programs=[main]) as kernel:
            process = await kernel.spawn(main, pid="main")
            while kernel.process("main").state != "waiting":
                await asyncio.sleep(0.01)
            return process.pid

    async def again():
        async with Kernel(store, programs=[main]) as kernel:
            await kernel.send("main", "go on")
            return (await kernel.process("main").wait()).result

    run(live())
    cut = run(again())
    assert STORY.startswith(cut["partial"])
    assert cut["cost_usd"] > 0


def test_wrong_settings_are_refused():
    for settings in ({"fit_budget": 1}, {"min_tokens": 0}):
        with pytest.raises(ConfigError):
            writer(**settings)


def test_a_summary_that_the_budget_cut_is_not_taken():
    """Half a summary would lose the rest of the conversation in silence."""
    talker = Recorded({"replies": [{"text": STORY, "system": "You shorten"}, "ok"], **PRICED})
    context = {"kind": "compact", "tokens": 1_000, "summary_tokens": 2_000}
    agent = writer(model=talker, context=context, max_tokens=20, budget={"output_tokens": 700})

    async def talk():
        async with Kernel() as kernel:
            process = await kernel.spawn(agent)
            for _ in range(20):
                await process.send("word " * 100)

    with pytest.raises(BudgetExceeded, match="in the middle of an answer") as caught:
        run(talk())
    assert STORY.startswith(caught.value.partial)


def test_a_budget_that_ends_before_an_answer_has_an_empty_partial():
    """`BudgetExceeded.partial` is always there."""
    with pytest.raises(BudgetExceeded) as caught:
        lyra.run(writer(budget="$0.000001"), "hi")
    assert caught.value.partial == ""

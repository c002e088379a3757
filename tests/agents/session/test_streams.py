"""What a stream shows when an answer is tried again: the reader always knows which text holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from lyra import Agent, Kernel
from lyra.core.tool import ToolCall
from lyra.errors import ModelError
from lyra.models.stream import ThinkingDelta, ToolEnd, ToolStart
from tests.agents.support import run, says
from tests.agents.tries import BROKEN, Tries

QUICK = {"max_attempts": 4, "backoff": {"initial_s": 0.001}}


@dataclass
class Number:
    value: int


def told(agent: Agent) -> list[tuple[str, str]]:
    """(type, text) of what an answer's stream tells of text, thoughts and restarts, and how it is done."""

    async def main() -> Any:
        async with Kernel() as kernel:
            process = await kernel.spawn(agent)
            events = [event.to_data() async for event in process.stream("go", events=True)]
            assert events[-1]["type"] == "done"
            kept = ("text_delta", "thinking_delta", "restart", "done")
            return [(e["type"], e.get("delta", e.get("text"))) for e in events if e["type"] in kept]

    return list(run(main()))


def read(events: list[tuple[str, str]]) -> str:
    """The text that a reader is left with who does what the events say."""
    text = ""
    for kind, piece in events:
        if kind == "text_delta":
            text += piece
        elif kind == "restart":
            assert text.endswith(piece), "a restart takes back what was shown"
            text = text.removesuffix(piece)
    return text


def kinds(events: list[tuple[str, str]]) -> list[str]:
    return [kind for kind, _ in events]


@pytest.mark.parametrize(
    ("tries", "restarts"),
    [
        ([["one ", "two ", BROKEN], ["one ", BROKEN], ["one ", "two ", "three"]], 0),
        ([["one ", "two ", BROKEN], [BROKEN], ["one ", "two ", "three"]], 0),
        ([["one ", "two ", BROKEN], ["one two th", "ree"]], 0),
        ([["one ", "two ", BROKEN], ["one "]], 1),
        ([["one ", "two ", BROKEN], ["one ", "zwei"]], 1),
        ([["one ", "two ", BROKEN], ["eins ", BROKEN], ["one ", "two"]], 2),
    ],
    ids=["third try", "nothing in between", "other pieces", "shorter", "differs", "differs twice"],
)
def test_no_text_is_shown_twice_or_left_standing(tries, restarts):
    """However many tries it takes, what the reader is left with is the answer."""
    events = told(Agent("a", model=Tries(*tries), retry=QUICK))
    assert read(events) == events[-1][1] == "".join(tries[-1])
    assert kinds(events).count("restart") == restarts


def test_an_answer_of_the_next_model_takes_back_what_the_first_showed():
    first, second = Tries(["one ", "two ", BROKEN]), Tries(["alpha ", "beta"])
    events = told(Agent("a", model=first, fallback=[second], retry=None))
    assert ("restart", "one two ") in events
    assert read(events) == "alpha beta"


def test_a_try_that_calls_a_tool_takes_back_the_text_before_it():
    call = ToolCall("1", "look", {})
    model = Tries(["one ", BROKEN], [ToolStart(0, "1", "look"), ToolEnd(0, call)], ["fin"])

    def look() -> str:
        return "seen"

    events = told(Agent("a", model=model, tools=[look], retry=QUICK))
    assert events[:2] == [("text_delta", "one "), ("restart", "one ")]
    assert read(events) == "fin"


def test_thoughts_are_shown_once():
    think = [ThinkingDelta("hm "), ThinkingDelta("hm")]
    events = told(Agent("a", model=Tries([*think, "one ", BROKEN], [*think, "one ", "two"]), retry=QUICK))
    assert [piece for kind, piece in events if kind == "thinking_delta"] == ["hm ", "hm"]
    assert "restart" not in kinds(events)
    assert read(events) == "one two"


def test_other_thoughts_begin_again():
    model = Tries([ThinkingDelta("hm "), "one ", BROKEN], [ThinkingDelta("oh"), "one ", "two"])
    events = told(Agent("a", model=model, retry=QUICK))
    start = events.index(("restart", "one "))
    assert events[start + 1 : start + 4] == [("thinking_delta", "oh"), ("text_delta", "one "), ("text_delta", "two")]


def test_output_that_is_asked_for_again_takes_back_what_did_not_fit():
    events = told(Agent("a", model=says("bad", '{"value": 3}'), output=Number))
    assert ("restart", "bad") in events
    assert read(events) == '{"value": 3}'
    assert events[-1] == ("done", '{"value": 3}')


def test_two_answers_of_one_turn_are_no_tries_of_each_other():
    """Text before a tool call stays, also where the answer after it begins the same way."""
    call = ToolCall("1", "look", {})
    model = Tries(["so ", ToolStart(0, "1", "look"), ToolEnd(0, call)], ["so ", "it is"])

    def look() -> str:
        return "seen"

    events = told(Agent("a", model=model, tools=[look]))
    assert "restart" not in kinds(events)
    assert read(events) == "so so it is"


def text_of(agent: Agent) -> str:
    """What a plain text stream gives; with an error that ended it, ` !` and its kind."""

    async def main() -> str:
        async with Kernel() as kernel:
            process = await kernel.spawn(agent)
            pieces = []
            try:
                async for piece in process.stream("go"):
                    pieces.append(piece)  # noqa: PERF401 (kept until the error)
            except ModelError as error:
                pieces.append(f" !{error.kind}")
            return "".join(pieces)

    return str(run(main()))


def test_a_text_stream_never_joins_two_answers():
    """A try that says the same goes on; one that says something else, or less, ends the stream with an error."""
    cut, ends = ["one ", "two ", BROKEN], "one two  !stream_truncated"
    for again, text in (
        (["one ", "two ", "three"], "one two three"),
        (["one ", "zwei"], ends),
        (["one "], ends),
    ):
        assert text_of(Agent("a", model=Tries(cut, again), retry=QUICK)) == text
    fallen_back = Agent("a", model=Tries(cut), fallback=Tries(["eins"]), retry={"max_attempts": 1})
    assert text_of(fallen_back) == ends
    assert text_of(Agent("a", model=says("bad", '{"value": 3}'), output=Number)) == "bad !stream_truncated"


def test_the_whole_of_a_text_stream_is_one_answer():
    """Awaited, nothing was shown that would have to be taken back."""

    async def main() -> Any:
        async with Kernel() as kernel:
            model = Tries(["one ", "two ", BROKEN], ["one ", "zwei"])
            process = await kernel.spawn(Agent("a", model=model, retry=QUICK))
            return await process.stream("go")

    assert run(main()) == "one zwei"


def test_an_answer_that_begins_anew_before_anything_was_shown_is_read_to_its_end():
    """Thoughts are no text: a text stream has nothing to take back."""
    model = Tries([ThinkingDelta("hm"), BROKEN], [ThinkingDelta("ah"), "fine"])
    assert text_of(Agent("a", model=model, retry=QUICK)) == "fine"


def test_a_stream_may_begin_before_it_is_read():
    """`begin` puts the message to the agent; the pieces wait, and a second call puts nothing."""

    async def main() -> tuple[bool, list[Any], str]:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=Tries(["one ", "two"])))
            stream = process.stream("go")
            pending = await stream.begin()
            is_same = await stream.begin() is pending
            return is_same, [piece async for piece in stream], str(await pending)

    is_same, pieces, whole = run(main())
    assert is_same
    assert "".join(pieces) == whole == "one two"


def test_an_answer_that_was_begun_as_a_stream_has_its_events():
    """Who begins a stream holds the answer, and reads from it what a reader of the stream reads; leaving early gives
    nothing up."""

    async def main() -> Any:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=Tries(["one ", "two"], ["one ", "two"])))
            answer = await process.stream("go", events=True).begin()
            kinds_read = [event.to_data()["type"] async for event in answer.events()]
            left = await process.stream("go", events=True).begin()
            async for event in left.events():
                first = event.to_data()["type"]
                break
            return kinds_read, first, await left

    read_kinds, first, text = run(main())
    assert read_kinds[-1] == "done"
    assert read_kinds.count("text_delta") == 2
    assert first == read_kinds[0]
    assert text == "one two"

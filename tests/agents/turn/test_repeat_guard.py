"""A model that goes round in circles is noticed, told, and stopped where it goes on: by its calls, or by its words."""

from __future__ import annotations

from typing import Any

import pytest

import lyra
from lyra import Agent, tool
from lyra.agents.turn.turn import RepeatGuard
from lyra.core.tool import ToolCall, ToolResult
from lyra.errors import AgentFailed
from tests.agents.support import says

WORDS = "I will now look at the next part of the file."


def checks(texts: list[str], outputs: list[object] | None = None, *, same_calls: bool = False) -> list[str]:
    """What the guard says after each answer: `told`, the status that ends the turn, or nothing."""
    guard, said = RepeatGuard(), []
    for number, text in enumerate(texts):
        call = ToolCall(f"c{number}", "Read", {"n": 0 if same_calls else number})
        result = ToolResult(call.id, "Read", "same" if outputs is None else outputs[number])
        status, notice = guard.check([call], [result], text)
        said.append(status or ("told" if notice else ""))
    return said


def test_equal_calls_with_equal_results_are_told_and_then_end_the_turn() -> None:
    assert checks(list("abcdef"), same_calls=True) == ["", "", "told", "told", "told", "repetition"]


def test_another_result_or_another_call_between_begins_the_count_anew() -> None:
    assert not any(checks(list("abcdef"), ["1", "1", "2", "2", "1", "1"], same_calls=True))
    assert not any(checks(list("abcdef")))


def test_the_same_words_are_told_and_then_end_the_turn() -> None:
    """Words in between begin the count anew, and short words may be said often."""
    assert checks([WORDS] * 12) == [""] * 5 + ["told"] * 6 + ["repeated_text"]
    assert not any(checks([WORDS] * 5 + ["Found it, going on."] + [WORDS] * 5))
    assert not any(checks(["Next."] * 20))


def make_agent(model: Any, *, polling: bool) -> Agent:
    @tool(polling=polling, trusted=True)
    def state() -> str:
        """How the build goes."""
        return "building"

    return Agent("a", model=model, tools=[state])


CALL = {"tool_calls": [{"name": "state", "arguments": {}}], "text": WORDS}


def test_a_polling_tool_may_say_the_same_any_number_of_times() -> None:
    model = says(*[CALL] * 15, {"text": "done"})
    assert lyra.run(make_agent(model, polling=True), "wait") == "done"
    assert not any("Notice" in str(message) for request in model.requests for message in request.messages)


def test_the_model_is_told_in_the_result_before_the_turn_ends() -> None:
    model = says(*[CALL] * 4, {"text": "I see."})
    assert lyra.run(make_agent(model, polling=False), "wait") == "I see."
    outputs = [message.tool_results[0].output for message in model.requests[-1].messages if message.role == "tool"]
    assert [output.startswith("building\n\n(Notice by the program") for output in outputs] == [False, False, True, True]
    with pytest.raises(AgentFailed) as caught:
        lyra.run(make_agent(says(*[CALL] * 8), polling=False), "wait")
    assert caught.value.fields["status"] == "repetition"

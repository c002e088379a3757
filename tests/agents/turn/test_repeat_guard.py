"""A model that goes round in circles is noticed: by its calls, or by its words."""

from __future__ import annotations

from lyra.agents.turn.turn import RepeatGuard
from lyra.core.tool import ToolCall


def statuses(texts: list[str], *, same_calls: bool = False) -> list[str]:
    guard = RepeatGuard()
    calls = [[ToolCall(f"c{number}", "Read", {"n": 0 if same_calls else number})] for number in range(len(texts))]
    return [guard.status_of(answer, text) for answer, text in zip(calls, texts, strict=True)]


def test_the_same_calls_three_times_in_a_row() -> None:
    assert statuses(["a", "b", "c"], same_calls=True) == ["", "", "repetition"]


def test_the_same_words_six_times_in_a_row() -> None:
    """Words in between begin the count anew, and short words may be said often."""
    words = "I will now look at the next part of the file."
    assert statuses([words] * 6)[-2:] == ["", "repeated_text"]
    assert not any(statuses([words] * 5 + ["Found it, going on."] + [words] * 5))
    assert not any(statuses(["Next."] * 20))

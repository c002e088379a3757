"""What a journal may skip reading back: an answer that is sure to be the same."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.core import codec
from lyra.core.message import Message
from lyra.core.tool import ToolCall
from lyra.models.stream import Completion, TokenUsage, is_unchanged


class Text(str):
    __slots__ = ()


TEXT = Completion(Message("assistant", "hé"), TokenUsage(3, 4, 1, 0, 2, True), "max_tokens", "sim/echo", "id")


def test_an_answer_of_text_is_the_same_after_it_was_read_back():
    """What is said to be unchanged is: every value, and every type."""
    again = codec.decoder_for(Completion)(codec.encode(TEXT))
    assert is_unchanged(TEXT)
    assert again == TEXT
    assert repr(again) == repr(TEXT)


@pytest.mark.parametrize(
    "odd",
    [
        Completion(Message("assistant", ({"type": "text", "text": "a"},))),
        Completion(Message("assistant", "a", (ToolCall("1", "t", {}),))),
        Completion(Message("assistant", Text("a"))),
        Completion(Message("assistant", "a"), TokenUsage(1.0)),  # type: ignore[arg-type]
        Completion(Message("assistant", "a"), TokenUsage(True)),
        Completion(Message("assistant", "a"), TokenUsage(cached_apart=1)),  # type: ignore[arg-type]
        Completion(Message("assistant", "a"), TokenUsage(), Text("end")),
        Completion(Message("assistant", "a"), TokenUsage(), "end", None),  # type: ignore[arg-type]
        Completion(Message("assistant", "a"), TokenUsage(), "end", "m", 7),  # type: ignore[arg-type]
    ],
)
def test_any_other_answer_is_read_back(odd: Any):
    """Parts, calls, subclasses and wrong types: the journal decides what they are."""
    assert not is_unchanged(odd)

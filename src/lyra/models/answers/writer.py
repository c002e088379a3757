"""VendorAnswerWriter: writes one answer in a vendor's format, from the events of its stream or from the whole of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import msgspec

from lyra.core.tool import ToolCall
from lyra.models.stream import Completion, StreamEvent

__all__ = ["AnswerHead", "VendorAnswerWriter", "answer_event", "answer_thoughts", "arguments_text"]


class AnswerHead(NamedTuple):
    """What an answer says of itself: its model, the word in its ids, when it was made (seconds), and the tokens that
    went in, as far as they are known when it begins. `thought_signature` stands where a thought has none."""

    model: str
    word: str
    created: int
    input_tokens: int = 0
    thought_signature: str = ""
    more: dict[str, Any] = {}  # noqa: RUF012 (never changed)


class VendorAnswerWriter(ABC):
    """Writes one answer."""

    @abstractmethod
    def event(self, event: StreamEvent) -> bytes:
        """The bytes of one event of a streamed answer; none where the format has no word for it."""

    @abstractmethod
    def whole(self, answer: Completion) -> dict[str, Any]:
        """The whole answer as one document."""


def arguments_text(call: ToolCall) -> str:
    return msgspec.json.encode(call.arguments).decode()


def answer_thoughts(answer: Completion) -> list[dict[str, Any]]:
    """The parts of an answer that are thoughts."""
    content = answer.message.content
    return [] if isinstance(content, str) else [part for part in content if part["type"] == "thinking"]


def answer_event(data: Any, name: str = "") -> bytes:
    """One server-sent event."""
    text = data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + text + b"\n\n"

"""VendorAnswerWriter: writes one answer in a vendor's format, from the events of its stream or from the whole of it.

`event` is the table of what becomes of an event; a format writes a method for each kind, and `whole` for the document.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import msgspec

from lyra.core.tool import ToolCall
from lyra.models.stream import (
    Completion,
    Finished,
    Started,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolDelta,
    ToolEnd,
    ToolStart,
    UsageSeen,
)
from lyra.models.usage import TokenUsage


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
    """Writes one answer. Of an event for which the format has no word, no bytes are written."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._usage = TokenUsage(head.input_tokens)  # as the stream told it last

    def event(self, event: StreamEvent) -> bytes:
        """The bytes of one event of a streamed answer."""
        match event:
            case Started():
                return self._started()
            case TextDelta(text):
                return self._text_piece(text)
            case ThinkingDelta(text, signature):
                return self._thought(text, signature)
            case ToolStart(index, call_id, name):
                return self._tool_started(index, call_id, name)
            case ToolDelta(index, text):
                return self._tool_piece(index, text)
            case ToolEnd():
                return self._tool_ended()
            case UsageSeen(usage):
                self._usage = usage
                return b""
            case Finished(reason):
                return self._finished(reason)

    @abstractmethod
    def whole(self, answer: Completion) -> dict[str, Any]:
        """The whole answer as one document."""

    @abstractmethod
    def _started(self) -> bytes: ...

    @abstractmethod
    def _text_piece(self, text: str) -> bytes: ...

    @abstractmethod
    def _thought(self, text: str, signature: str) -> bytes: ...

    @abstractmethod
    def _tool_started(self, index: int, call_id: str, name: str) -> bytes: ...

    @abstractmethod
    def _tool_piece(self, index: int, text: str) -> bytes: ...

    @abstractmethod
    def _tool_ended(self) -> bytes: ...

    @abstractmethod
    def _finished(self, reason: str) -> bytes: ...


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

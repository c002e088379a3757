"""RepeatGuard: notices a model that makes the same calls, or says the same words beside its calls, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lyra.core.tool import ToolCall

_CALLS_MAX: Final = 3  # the same calls in a row
_TEXTS_MAX: Final = 6  # the same words in a row
_TEXT_CHARS_LEAST: Final = 20  # shorter words, such as "Next.", may be said often


class RepeatGuard:
    """Looks at the answers of one turn in their order."""

    __slots__ = ("_calls", "_same_calls", "_same_texts", "_text")

    def __init__(self) -> None:
        self._calls: Any = None
        self._text = ""
        self._same_calls = 0
        self._same_texts = 0

    def status_of(self, calls: Sequence[ToolCall], text: str) -> str:
        """The status that ends the turn with this answer; empty where the turn goes on."""
        asked = [(call.name, call.arguments) for call in calls]
        words = text.strip()
        self._same_calls = self._same_calls + 1 if asked == self._calls else 1
        self._same_texts = self._same_texts + 1 if words == self._text else 1
        self._calls, self._text = asked, words
        if self._same_calls >= _CALLS_MAX:
            return "repetition"
        return "repeated_text" if self._same_texts >= _TEXTS_MAX and len(words) >= _TEXT_CHARS_LEAST else ""

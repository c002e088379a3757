"""The open questions of a session: one is shown at a time, the others wait behind it.

A key counts only once the person had the chance to see the question: keys that are typed in one go with what was typed
before it came go nowhere. The answer is handed to the session; a question that the session has withdrawn is dropped.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from lyra.core.clock import Clock
from lyra.sage.terminal.questions.question import TerminalQuestion

_PAUSE_S: Final = 0.6  # without a key, before a question that came while the person typed takes keys
_SEEN_S: Final = 0.15  # before a question takes keys that follows one that was answered by a key


class QuestionQueue:
    """The queue of questions, and when the first takes keys."""

    __slots__ = ("_clock", "_last_key_s", "_pause_s", "_shown_s", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[TerminalQuestion] = deque()
        self._last_key_s = float("-inf")
        self._shown_s = 0.0
        self._pause_s = 0.0

    @property
    def current(self) -> TerminalQuestion | None:
        return self._waiting[0] if self._waiting else None

    @property
    def position(self) -> str:
        """How many wait behind the current one, in words."""
        behind = len(self._waiting) - 1
        return f" ({behind} more behind it)" if behind > 0 else ""

    def add(self, question: TerminalQuestion) -> bool:
        """Take a question; True where it is the current one."""
        self._waiting.append(question)
        if len(self._waiting) == 1:
            self._show()
            return True
        return False

    def close(self) -> TerminalQuestion | None:
        """The current one was answered; gives the next, which has to be seen before it takes keys."""
        if self._waiting:
            self._waiting.popleft()
        self._shown_s, self._last_key_s = self._clock.monotonic(), float("-inf")
        self._pause_s = _SEEN_S
        return self.current

    def clear(self) -> None:
        """The turn is over: only tasks in the background still wait for answers."""
        self._waiting = deque(question for question in self._waiting if question.outlives_turn)

    def holds(self, question_id: str) -> bool:
        return any(question.id == question_id for question in self._waiting)

    def _show(self) -> None:
        self._shown_s = self._clock.monotonic()
        self._pause_s = _PAUSE_S if self._shown_s - self._last_key_s < _PAUSE_S else 0.0

    def text_submitted(self) -> None:
        """The person has sent what they typed: a question that comes now is not typed over."""
        self._last_key_s = float("-inf")

    def key_pressed(self) -> bool:
        """A key of any kind; gives whether it is meant for the current question."""
        now_s = self._clock.monotonic()
        meant = now_s - max(self._last_key_s, self._shown_s) >= self._pause_s
        if meant:
            self._pause_s = 0.0
        self._last_key_s = now_s
        return meant

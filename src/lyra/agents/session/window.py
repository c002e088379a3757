"""Which part of a transcript is sent to the model (Window), and how many tokens its messages take (Ledger)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lyra.core.message import Message
from lyra.models.tokens import DENSE, MESSAGE_TOKENS, WORDY, Measure

if TYPE_CHECKING:
    from lyra.models.stream import Completion


class Window(msgspec.Struct, frozen=True):
    """What is sent: the message `head` if there is one, and all from `start` on, after a `summary` of the rest."""

    start: int = 0
    head: int | None = None
    summary: str = ""


class Ledger:
    """The tokens of one session's messages: the provider's count of the last call, and an estimate of later ones."""

    __slots__ = ("_measure", "_sums", "counted", "upto")

    def __init__(self) -> None:
        self.counted = 0  # tokens of the last call, in and out
        self.upto = 0  # how many messages that count covers
        self._measure = Measure()
        self._sums = [0]  # estimated tokens of all messages before the n-th

    def heard(self, completion: Completion, messages: int) -> None:
        """Take over the provider's count of a finished call; the transcript holds `messages`, without the answer."""
        usage = completion.usage
        self.counted = usage.total_input + usage.output_tokens
        self.upto = messages + 1

    def forget(self, messages: int) -> None:
        """Drop the figures of all messages after the first `messages`: the transcript was cut back to those."""
        del self._sums[messages + 1 :]
        if self.upto > messages:
            self.counted, self.upto = 0, 0

    def between(self, messages: list[Message], start: int, end: int) -> int:
        """Estimated tokens of some messages; each is measured once."""
        sums = self._sums
        for message in messages[len(sums) - 1 : end]:
            wordy, dense, images = self._measure.messages((message,))
            sums.append(sums[-1] + int(wordy * WORDY + dense * DENSE) + MESSAGE_TOKENS + images * 1_000)
        return sums[end] - sums[start]

    def sent(self, messages: list[Message], window: Window) -> int:
        """Tokens that the next call will send."""
        if not self.counted:
            return self.between(messages, window.start, len(messages)) + len(window.summary) // 3
        return self.counted + self.between(messages, min(self.upto, len(messages)), len(messages))

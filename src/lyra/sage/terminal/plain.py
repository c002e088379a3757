"""PlainScreen: lines only, for terminals without cursor movement, pipes and screen readers.

Finished lines are printed as they come, without styles; there is no live block. Input is read a line at a time while
turns run, so what is typed meanwhile waits in line. A question is printed with its keys, and answered with a line that
is one of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from lyra.sage.terminal.completion import PromptHistory
from lyra.sage.terminal.conversation import Conversation, Submission
from lyra.sage.terminal.facts import COLUMNS_MAX, TerminalFacts, alert_sequence, size_of
from lyra.sage.terminal.text.styled_lines import Line, for_output, strip_style

_READ_BYTES: Final = 1 << 16
_TWICE_S: Final = 2.0


_WORDS: Final = {"yes": "y", "always": "a", "no": "n"}  # written out, of the keys of a question


class PlainScreen:
    """A paper that is written line by line."""

    def __init__(self, facts: TerminalFacts) -> None:
        self.facts = facts
        self._on_change: Callable[[], None] = lambda: None

    @property
    def width(self) -> int:
        return min(COLUMNS_MAX, size_of(sys.stdout)[0])

    def show(self, lines: Sequence[Line]) -> None:
        for line in lines:
            sys.stdout.write(for_output(strip_style(line), unicode=self.facts.unicode) + "\n")
        sys.stdout.flush()

    def alert(self, text: str) -> None:
        sys.stdout.write(alert_sequence(self.facts.notify, text))
        sys.stdout.flush()

    def mark_changed(self) -> None:
        self._on_change()

    async def run(self, conversation: Conversation, kept: PromptHistory) -> None:
        """Read lines until the conversation ends."""
        reader = _LineReader(self, conversation, kept)
        self._on_change = reader.show_question
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError):  # not in the main thread
            loop.add_signal_handler(signal.SIGINT, reader.ctrl_c)
        try:
            reader.start()
            await conversation.run()
        finally:
            reader.close()
            with suppress(NotImplementedError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)


class _LineReader:
    """Lines of stdin, as answers or as something to do."""

    def __init__(self, screen: PlainScreen, conversation: Conversation, kept: PromptHistory) -> None:
        self._screen = screen
        self._conversation = conversation
        self._kept = kept
        self._rest = b""
        self._lines: list[str] = []  # of a prompt that continues in the next line
        self._asked = ""  # the question that was printed last
        self._last_ctrl_c_s = float("-inf")
        self._descriptor = sys.stdin.fileno()
        self._is_reading = False

    def start(self) -> None:
        self._prompt()
        self._conversation.refresh = self._prompt
        try:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)
            self._is_reading = True
        except PermissionError:  # a file: all of it is there
            while data := os.read(self._descriptor, _READ_BYTES):
                self._take(data)
            self._end_of_input()

    def close(self) -> None:
        if self._is_reading:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._is_reading = False

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self._end_of_input()

    def _end_of_input(self) -> None:
        """No line comes any more: what waits is done, then the conversation ends."""
        self.close()
        if self._rest:
            self._line(self._rest.decode("utf-8", "replace"))
            self._rest = b""
        if self._conversation.working or self._conversation.waiting:
            self._conversation.submit(Submission("/exit"))
        else:
            self._conversation.end()

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line.decode("utf-8", "replace").rstrip("\r"))

    def _line(self, text: str) -> None:
        conversation = self._conversation
        question = conversation.desk.current
        if question is not None and not question.takes_text:
            word = text.strip().lower()
            if not conversation.desk.press(_WORDS.get(word, word) or "\0"):
                self._asked = ""
            self.show_question()
            return
        if text.endswith("\\"):
            self._lines.append(text[:-1])
            return
        whole = "\n".join([*self._lines, text])
        self._lines = []
        if question is None:
            self._kept.add(whole)
        is_shown = sys.stdin.isatty() and not conversation.working and not conversation.waiting
        conversation.submit(Submission(whole, is_shown=is_shown))
        if question is not None:
            self.show_question()
        elif not whole.strip():
            self._prompt()
        elif conversation.working and conversation.waiting:
            conversation.note(f"{len(conversation.waiting)} waiting")

    def show_question(self) -> None:
        """Print the current question with its keys, once for each of its steps."""
        question = self._conversation.desk.current
        state = f"{question.id} {question.step}" if question is not None else ""
        if question is not None and state != self._asked:
            self._screen.show(self._conversation.live_lines(self._screen.width, 50))
        self._asked = state

    def _prompt(self) -> None:
        if not self._conversation.working and not self._conversation.waiting:
            sys.stdout.write(f"{self._screen.facts.marks.prompt} ")
            sys.stdout.flush()

    def ctrl_c(self) -> None:
        now_s = self._conversation.clock.monotonic()
        if self._conversation.interrupt():
            return
        if now_s - self._last_ctrl_c_s < _TWICE_S:
            self._conversation.end()
            return
        self._last_ctrl_c_s = now_s
        sys.stdout.write("\n")
        self._conversation.note("ctrl-c again, or ctrl-d, leaves")
        self._prompt()

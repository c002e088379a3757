"""A tool call that runs: what it is about, how long it has run, and what it has reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.sage.terminal.tool_lines import CallWords

_ROWS_MAX: Final = 3  # of the last report
_FIGURES_CHARS_MAX: Final = 48


class RunningCall:
    """The state of one call between its start and its end."""

    __slots__ = ("_began_s", "_ran_s", "_waits", "arguments", "diff", "figures", "last_rows", "tool", "words")

    def __init__(self, tool: str, arguments: Mapping[str, Any], words: CallWords, began_s: float) -> None:
        self.tool = tool
        self.arguments = arguments
        self.words = words
        self.diff = ""  # what an edit will change, where it is known
        self.figures = ""  # such as 40 %
        self.last_rows: list[str] = []
        self._began_s = began_s
        self._ran_s = 0.0  # before it began to wait
        self._waits = False

    @property
    def waits(self) -> bool:
        """Whether a person is asked about it."""
        return self._waits

    def wait(self, now_s: float, *, waiting: bool) -> None:
        if waiting and not self._waits:
            self._ran_s += now_s - self._began_s
        elif self._waits and not waiting:
            self._began_s = now_s
        self._waits = waiting

    def seconds(self, now_s: float) -> float:
        """How long it has run, without the time that it waited for a person."""
        return self._ran_s + (0.0 if self._waits else now_s - self._began_s)

    def report(self, text: str, fraction: Any) -> None:
        """Take a report of its progress: the last lines, or figures where it is one short line."""
        rows = [line.rstrip() for line in text.split("\n") if line.strip()]
        if isinstance(fraction, (int, float)):
            self.figures = f"{100 * fraction:.0f} %"
        if self.tool == "Task" and len(rows) == 1 and len(rows[0]) <= _FIGURES_CHARS_MAX:
            self.figures = rows[0]
        else:
            self.last_rows = rows[-_ROWS_MAX:]

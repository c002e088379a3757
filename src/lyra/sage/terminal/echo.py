"""Lines of the terminal's own words: the echo of a prompt, notes, errors, and texts that were unfolded."""

from __future__ import annotations

from typing import Final

from lyra.errors import LyraError
from lyra.sage.agent.tasks.record import TaskRecord
from lyra.sage.terminal.facts import TerminalFacts
from lyra.sage.terminal.folds import FoldedText
from lyra.sage.terminal.text.diff_view import diff_lines
from lyra.sage.terminal.text.safe_text import shown, shown_lines
from lyra.sage.terminal.text.styled_lines import MARGIN, Line, indented, wrap_text

_ECHO_ROWS_MAX: Final = 40
_TASK_CHARS_MAX: Final = 200


def prompt_lines(text: str, width: int, facts: TerminalFacts) -> list[Line]:
    """What the person sent, as it stays in the scrollback."""
    rows = [row for part in shown(text).rstrip().split("\n") for row in wrap_text(part, width - MARGIN)]
    if len(rows) > _ECHO_ROWS_MAX:
        left_out = len(rows) - _ECHO_ROWS_MAX
        rows = [*rows[:_ECHO_ROWS_MAX], f"{facts.marks.ellipsis} {left_out} more lines"]
    first, *others = rows
    return [[("user", f"{facts.marks.prompt} {first}")], *([("user", f"  {row}")] for row in others)]


def note_lines(text: str, width: int, style: str = "faint", *, indent: int = MARGIN) -> list[Line]:
    rows = [row for part in shown(text).split("\n") for row in wrap_text(part, max(10, width - indent))]
    return indented([[(style, row)] for row in rows], indent)


def error_lines(error: LyraError, width: int) -> list[Line]:
    lines = note_lines(error.message, width, "failed")
    if error.place:
        lines += note_lines(f"at {error.place}", width)
    return [*lines, *note_lines(f"hint: {error.hint}", width)] if error.hint else lines


def task_words(task: TaskRecord) -> str:
    """A task in the background, in a few words."""
    return shown(f"{task.name} {task.description} ({task.id})")[:_TASK_CHARS_MAX]


def expanded_lines(fold: FoldedText, width: int, facts: TerminalFacts) -> list[Line]:
    """A fold, whole."""
    title: Line = [("strong", f"{' ' * MARGIN}{fold.number}  {shown(fold.title)[: max(10, width - 8)]}")]
    if fold.title == "diff":
        return [title, *diff_lines(fold.text, width, marks=facts.marks)]
    rows = [row for part in shown_lines(fold.text) for row in wrap_text(part, max(10, width - 4))]
    return [title, *indented([[("", row)] for row in rows], 4)]

"""The live lines of a question: why it is asked, and its keys. What it is about is printed above: `about_view`."""

from __future__ import annotations

from typing import Final

from lyra.sage.terminal.questions.question import TerminalQuestion
from lyra.sage.terminal.text.styled_lines import MARGIN, OBJECT_COLUMN, Line, indented, width_of, wrap, wrap_text

_GAP: Final = 4


def key_lines(question: TerminalQuestion, width: int, *, position: str = "") -> list[Line]:
    """The live lines: why it is asked, and the keys; the keys stand below each other where one line is too short."""
    lines: list[Line] = []
    if question.is_permission and question.reason:
        lines += wrap([("faint", f"{' ' * MARGIN}{question.reason}")], width, hanging=MARGIN)[:3]
    title = f"{question.title}{position}"
    if question.takes_text:
        hints = {
            "why not": "no: type why, enter sends it, esc goes back",
            "edit": "edit, enter allows it, esc goes back",
            "answer": "type an answer or a number, enter sends it",
        }
        return [*lines, [("waits", f"{' ' * MARGIN}{hints[question.label]}{position}")]]
    return [*lines, *_flow([("waits", f"{' ' * MARGIN}{title}")], question, width)]


def _flow(first: Line, question: TerminalQuestion, width: int) -> list[Line]:
    """The keys in as few lines as they fit, none of them broken where it can be helped."""
    rows: list[Line] = [first]
    is_full = False  # the last row belongs to a key whose words took several
    for choice in question.choices:
        part: Line = [("key", choice.key), ("", f"  {choice.words}")]
        if not is_full and width_of(rows[-1]) + _GAP + width_of(part) <= width:
            rows[-1] = [*rows[-1], ("", " " * (3 if rows[-1] is first else _GAP)), *part]
        else:
            wrapped = wrap([("", " " * (MARGIN + 2)), *part], width, hanging=MARGIN + 5)
            is_full = len(wrapped) > 1
            rows += wrapped
    return rows


def why_lines(question: TerminalQuestion, width: int) -> list[Line]:
    """The answer to `?`."""
    rows: list[Line] = []
    for text in question.why:
        rows += indented([[("faint", part)] for part in wrap_text(text, width - OBJECT_COLUMN)], OBJECT_COLUMN)
    return rows

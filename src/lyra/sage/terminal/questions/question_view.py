"""How a question looks: the part that is printed once above it, and the live lines with its keys."""

from __future__ import annotations

from typing import Final

from lyra.sage.terminal.folds import Folds
from lyra.sage.terminal.questions.question import TerminalQuestion
from lyra.sage.terminal.text.diff_view import count_changes, diff_lines
from lyra.sage.terminal.text.safe_text import exact_lines
from lyra.sage.terminal.text.styled_lines import MARGIN, OBJECT_COLUMN, Line, indented, row, width_of, wrap, wrap_text
from lyra.sage.terminal.text.theme import Marks
from lyra.sage.terminal.tool_lines import describe

__all__ = ["about_lines", "key_lines", "why_lines"]

_DIFF_ROWS_MAX: Final = 400
_TEXT_ROWS_MAX: Final = 200
_GAP: Final = 4


def about_lines(
    question: TerminalQuestion, width: int, *, marks: Marks, folds: Folds, folder: str = "", sandbox: str = ""
) -> list[Line]:
    """What the question is about, whole: the diff, the command with what holds it, or the words of the agent."""
    if not question.is_permission or not question.tool:
        return _asked_text(question, width)
    words = describe(question.tool, question.arguments, folder)
    figures: Line = []
    body: list[Line] = []
    if question.diff:
        count = count_changes(question.diff)
        figures = [("added", f"+{count.added}")]
        figures += [("removed", f"  {marks.minus}{count.removed}")] if count.removed else []
        body = diff_lines(question.diff, width, marks=marks)
        if len(body) > _DIFF_ROWS_MAX:
            fold = folds.add("diff", question.diff)
            more = f"{marks.ellipsis} {len(body) - _DIFF_ROWS_MAX} more lines {marks.dot} /expand {fold.number}"
            body = [*body[:_DIFF_ROWS_MAX], [("waits", f"{' ' * OBJECT_COLUMN}{more}")]]
    else:
        body = _whole_subject(question, width, sandbox=sandbox)
    return [*row(words.verb, [("", words.about)], figures, width), *body]


def _whole_subject(question: TerminalQuestion, width: int, *, sandbox: str) -> list[Line]:
    """All lines of a subject that has more than fit on one, and where a command runs."""
    command = str(question.arguments.get("command", "")) if question.tool == "Bash" else ""
    lines: list[Line] = []
    subject = command or "\n".join(question.body[1:])
    if "\n" in subject.strip() or len(subject) + OBJECT_COLUMN > width:
        for text in exact_lines(subject)[:_TEXT_ROWS_MAX]:
            lines += wrap([("", f"{' ' * OBJECT_COLUMN}{text}")], width, hanging=OBJECT_COLUMN)
    if command:
        held = f"in the sandbox ({sandbox})" if sandbox and sandbox != "none" else "in the sandbox"
        network = str(question.line.get("network") or "no network but hosts that a rule names")
        lines += wrap([("faint", f"{' ' * OBJECT_COLUMN}{held}, {network}")], width, hanging=OBJECT_COLUMN)
    return lines


def _asked_text(question: TerminalQuestion, width: int) -> list[Line]:
    lines: list[Line] = []
    for text in question.body[:_TEXT_ROWS_MAX]:
        lines += [[("", part)] for part in wrap_text(text, width - MARGIN)]
    if not question.is_permission and not question.is_doubt:
        for option in question.options:
            lines += wrap([("key", "  "), ("", option)], width - MARGIN, hanging=5)
    return indented(lines, MARGIN)


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
    for choice in question.choices:
        part: Line = [("key", choice.key), ("", f"  {choice.words}")]
        if width_of(rows[-1]) + _GAP + width_of(part) <= width:
            rows[-1] = [*rows[-1], ("", " " * (3 if rows[-1] is first else _GAP)), *part]
        else:
            rows += wrap([("", " " * (MARGIN + 2)), *part], width, hanging=MARGIN + 5)
    return rows


def why_lines(question: TerminalQuestion, width: int) -> list[Line]:
    """The answer to `?`."""
    rows: list[Line] = []
    for text in question.why:
        rows += indented([[("faint", part)] for part in wrap_text(text, width - OBJECT_COLUMN)], OBJECT_COLUMN)
    return rows

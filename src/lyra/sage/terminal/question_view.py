"""What a question is about, printed once above its keys: exactly what will happen, nothing of it left out unsaid.

An edit is its diff, a command all of its lines with the sandbox that holds it, any other call all of its arguments, a
question of the agent its words. A part that is too long for a screen is folded and says so. `key_lines` and
`why_lines` are the live lines: its keys, and why it is asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from lyra.sage.terminal.echo import Folds
from lyra.sage.terminal.question import TerminalQuestion
from lyra.sage.terminal.text.diff_view import count_changes, diff_lines, diff_of
from lyra.sage.terminal.text.styled_lines import (
    MARGIN,
    OBJECT_COLUMN,
    Line,
    Marks,
    exact,
    exact_lines,
    indented,
    row,
    width_of,
    wrap,
    wrap_text,
)
from lyra.sage.terminal.tool_lines import describe, main_argument

_ROWS_MAX: Final = 400
_SHORT_CHARS: Final = 60  # arguments that together are shorter stand in the first line, whole
_EDITS: Final = ("Edit", "MultiEdit", "Write")
_IN_DIFF: Final = frozenset({"file_path", "old_string", "new_string", "content", "edits"})


class AboutSetting(NamedTuple):
    """Where a question is shown, and what holds the commands of the session."""

    width: int
    marks: Marks
    folds: Folds
    folder: str = ""
    sandbox: str = ""


def about_lines(question: TerminalQuestion, setting: AboutSetting) -> list[Line]:
    """Return the lines above the keys of a question."""
    if not question.is_permission or not question.tool:
        return _bounded(_asked_text(question, setting.width), "\n".join(question.body), setting)
    words = describe(question.tool, question.arguments, setting.folder)
    diff = _diff(question)
    figures: Line = []
    if diff:
        count = count_changes(diff)
        figures = [("added", f"+{count.added}")]
        figures += [("removed", f"  {setting.marks.minus}{count.removed}")] if count.removed else []
        body = _bounded(diff_lines(diff, setting.width, marks=setting.marks), diff, setting, title="diff")
    else:
        body = _subject(question, words.about, setting)
    rest = _rest(question, shown=_IN_DIFF if diff else frozenset())
    return [
        *row(words.verb, [("", words.about)], figures, setting.width, mark=setting.marks.ellipsis),
        *body,
        *_faint([*rest, *_holding(question, setting)], setting.width),
    ]


def _diff(question: TerminalQuestion) -> str:
    """Return what an edit changes: in the file, or where that cannot be shown, by its arguments alone."""
    if question.diff or question.tool not in _EDITS:
        return question.diff
    arguments = question.arguments
    edits = arguments.get("edits") if question.tool == "MultiEdit" else [arguments]
    pieces = [
        diff_of(str(edit.get("old_string", "")), str(edit.get("new_string", edit.get("content", ""))))
        for edit in (edits if isinstance(edits, list) else [])
        if isinstance(edit, Mapping)
    ]
    return "\n".join(piece for piece in pieces if piece)


def _subject(question: TerminalQuestion, about: str, setting: AboutSetting) -> list[Line]:
    """Return all of what the call is about, where the first line has only a part of it."""
    name = main_argument(question.tool)
    if name:
        text = str(question.arguments.get(name, ""))
        if exact(text) == about and len(about) + OBJECT_COLUMN <= setting.width:
            return []
    else:
        text = json.dumps(question.arguments, ensure_ascii=False)
        if len(text) <= _SHORT_CHARS:
            return []
        text = json.dumps(question.arguments, ensure_ascii=False, indent=2)
    lines: list[Line] = []
    for part in exact_lines(text):
        lines += wrap([("", f"{' ' * OBJECT_COLUMN}{part}")], setting.width, hanging=OBJECT_COLUMN)
    return _bounded(lines, text, setting)


def _rest(question: TerminalQuestion, *, shown: frozenset[str]) -> list[str]:
    """Return the other arguments of a call whose main one is shown."""
    name = main_argument(question.tool)
    if not name:
        return []
    rest = {key: value for key, value in question.arguments.items() if key != name and key not in shown}
    if not rest:
        return []
    return ["with " + ", ".join(f"{exact(key)}={exact(_text(value))}" for key, value in rest.items())]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _holding(question: TerminalQuestion, setting: AboutSetting) -> list[str]:
    """Return what holds a command: the sandbox and its network."""
    if question.tool != "Bash":
        return []
    held = f"in the sandbox ({setting.sandbox})" if setting.sandbox not in ("", "none") else "in the sandbox"
    network = str(question.line.get("network") or "no network but hosts that a rule names")
    return [f"{held}, {exact(network)}"]


def _faint(texts: Sequence[str], width: int) -> list[Line]:
    lines: list[Line] = []
    for text in texts:
        lines += wrap([("faint", f"{' ' * OBJECT_COLUMN}{text}")], width, hanging=OBJECT_COLUMN)
    return lines


def _asked_text(question: TerminalQuestion, width: int) -> list[Line]:
    lines: list[Line] = []
    for text in question.body:
        lines += [[("", part)] for part in wrap_text(text, width - MARGIN)]
    if not question.is_permission and not question.is_doubt:
        for option in question.options:
            lines += wrap([("key", "  "), ("", option)], width - MARGIN, hanging=5)
    return indented(lines, MARGIN)


def _bounded(lines: list[Line], text: str, setting: AboutSetting, *, title: str = "question") -> list[Line]:
    """At most so many lines; the rest is folded, and a line says how to see it."""
    if len(lines) <= _ROWS_MAX:
        return lines
    fold = setting.folds.add(title, text)
    marks = setting.marks
    more = f"{marks.ellipsis} {len(lines) - _ROWS_MAX} more lines {marks.dot} /expand {fold.number} shows all"
    return [*lines[:_ROWS_MAX], [("waits", f"{' ' * OBJECT_COLUMN}{more}")]]


# ---------------------------------------------------------------- question view

_GAP: Final = 4


def key_lines(question: TerminalQuestion, width: int, *, position: str = "") -> list[Line]:
    """Return the live lines: why it is asked, and the keys; the keys stand below each other where one line is too
    short."""
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
    """Return the keys in as few lines as they fit, none of them broken where it can be helped."""
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
    """Return the answer to `?`."""
    rows: list[Line] = []
    for text in question.why:
        rows += indented([[("faint", part)] for part in wrap_text(text, width - OBJECT_COLUMN)], OBJECT_COLUMN)
    return rows

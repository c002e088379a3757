"""Attempts to act on the terminal by text: in all that a model, a tool, a file or a command can say to Sage's screen.

Each hostile text is put into each place that reaches the screen, printed and live. What comes out may hold the screen's
own styles and nothing else: no other escape sequence, no control character, no mark that turns the direction of text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any, Final

from lyra.errors import ToolError
from lyra.sage.agent.tasks.state import TaskRecord
from lyra.sage.terminal.commands_view import block_lines
from lyra.sage.terminal.echo import Folds, Sheet, error_lines, note_lines, prompt_lines, render_fold, task_words
from lyra.sage.terminal.facts import TerminalFacts
from lyra.sage.terminal.loop import Status, status_line
from lyra.sage.terminal.question import TerminalQuestion
from lyra.sage.terminal.question_desk import AboutSetting, about_lines, key_lines, why_lines
from lyra.sage.terminal.text.diff_view import diff_lines
from lyra.sage.terminal.text.styled_lines import MARKS, Line, encode_line
from lyra.sage.terminal.turn_view import TurnView
from lyra.testing import SimClock
from verify.attacks.scripted_agent import Attempts

__all__ = ["PLACES", "TEXTS", "run"]

_OWN_STYLES: Final = re.compile(r"\x1b\[(?:[0-9]+(?:;[0-9]+)*)?m")
_ACTING: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_FACTS: Final = TerminalFacts(plain=False, colour=True, unicode=True, reflows=True)
_WIDTH: Final = 78

TEXTS: Final[dict[str, str]] = {
    "colour": "\x1b[31mred\x1b[0m",
    "clear": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "hyperlink": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "screen": "\x1b[?1049h\x1b[?25l",
    "report": "\x1b[6n\x1b[c\x1b]11;?\x07",
    "device control": "\x1bP+q544e\x1b\\",
    "8-bit sequences": "\x9b2J\x9d0;owned\x9c\x90x\x9c",
    "half a sequence": "\x1b[",
    "hidden": "\x1b[8msudo rm -rf /\x1b[28m",
    "overwritten": "rm -rf /\rls",
    "backspaces": "rm -rf /\x08\x08\x08\x08\x08\x08\x08\x08ls",
    "direction": "\u202egnihton\u202c \u2066x\u2069",
    "by reference": "&#27;[2J &#x202e;x &#155;2J",
    "in code": "```\n\x1b[2J\n```\n`\x1b[31m`",
    "in a link": "[\x1b[2J](http://x\x1b]0;t\x07)",
    "in a table": "| \x1b[2J | b |\n|---|---|\n| \x9b2J | \u202e |",
    "half a character": "\udc80\ud800",
    "line ends": "a\nb\r\nc\x0bd\x0ce\x85f\u2028g",
    "nothing": "\x00\x7f\u00ad\ufeff\u200b",
}


class _Paper:
    """A paper that keeps what would be written."""

    facts = _FACTS
    width = _WIDTH

    def __init__(self) -> None:
        self.written: list[str] = []

    def show(self, lines: Sequence[Line]) -> None:
        self.written += [encode_line(line, colour=True, unicode=True) for line in lines]

    def alert(self, text: str) -> None:
        """Ring nothing."""

    def mark_changed(self) -> None:
        """There is no live block."""


def _turn(*lines: Any) -> list[str]:
    """A turn with these lines: all that it prints, and its live block after each of them."""
    paper, folds = _Paper(), Folds()
    view = TurnView(Sheet(paper), folds, SimClock(), folder="/work", output="verbose")
    for line in lines:
        view.take(line)
        paper.show(view.live_lines(_WIDTH, 30))
    view.finish()
    for fold in folds.recent(50):
        paper.show(render_fold(fold, _WIDTH, _FACTS))
    return paper.written


def _written(*groups: list[Line]) -> list[str]:
    paper = _Paper()
    for lines in groups:
        paper.show(lines)
    return paper.written


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces as a stream brings them."""
    sizes = cycle((1, 2, 1, 3))
    while text:
        size = next(sizes)
        yield text[:size]
        text = text[size:]


def _answer(text: str) -> list[str]:
    return _turn(*({"type": "text_delta", "delta": piece} for piece in _pieces(f"before {text} after\n\n{text}")))


def _thinking(text: str) -> list[str]:
    return _turn({"type": "thinking_delta", "delta": text}, {"type": "text_delta", "delta": "x"})


def _call(text: str) -> list[str]:
    start = {"type": "tool_start", "id": "1", "name": text, "arguments": {text: text, "deep": [text]}}
    return _turn(start, {"type": "tool_end", "id": "1", "name": text, "output": "x", "is_error": False})


def _output(text: str) -> list[str]:
    start = {"type": "tool_start", "id": "1", "name": "Bash", "arguments": {"command": text}}
    return _turn(
        start,
        {"type": "tool_progress", "id": "1", "name": "Bash", "text": text, "fraction": None},
        {"type": "tool_end", "id": "1", "name": "Bash", "output": f"{text}\n{text}", "is_error": False},
    )


def _failure(text: str) -> list[str]:
    start = {"type": "tool_start", "id": "1", "name": "Read", "arguments": {"file_path": text}}
    return _turn(
        start,
        {"type": "tool_end", "id": "1", "name": "Read", "output": text, "is_error": True, "error_code": text},
        {"type": "error", "code": text, "message": text, "hint": text},
        {"type": "result", "status": text},
    )


def _question(text: str) -> list[str]:
    line = {
        "id": "1",
        "kind": "confirmation",
        "question": f"Allow?\n{text}",
        "message": text,
        "reason": text,
        "rule": text,
        "always": f"Bash({text})",
        "network": text,
    }
    groups: list[list[Line]] = []
    for tool, arguments in (
        ("Bash", {"command": text, "timeout": text}),
        ("Edit", {"file_path": text, "old_string": "a", "new_string": text}),
        (f"mcp__{text}__x", {text: {"deep": text * 9}}),
    ):
        asked: Any = {**line, "tool": tool, "arguments": arguments}
        question = TerminalQuestion(asked, "/work")
        groups += [about_lines(question, AboutSetting(_WIDTH, MARKS, Folds(), "/work", text))]
        groups += [key_lines(question, _WIDTH), why_lines(question, _WIDTH)]
    words: Any = {"type": "interrupt", "id": "2", "kind": "clarification", "question": text, "message": f"1. {text}"}
    return _written(*groups, about_lines(TerminalQuestion(words), AboutSetting(_WIDTH, MARKS, Folds())))


def _diff(text: str) -> list[str]:
    return _written(diff_lines(f"@@ -1,2 +1,2 @@\n-a {text}\n+b {text}\n c {text}", _WIDTH, marks=MARKS))


def _status(text: str) -> list[str]:
    status = Status(f"/work/{text}", text, 1, f"a/{text}", text, 1.0, 2.0, 3)
    return _written([status_line(status, 200, marks=MARKS)])


def _blocks(text: str) -> list[str]:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": text},
        {"type": "lines", "lines": [text], "title": text},
        {"type": "table", "columns": [text], "rows": [[text, text]], "title": text},
        {"type": "bars", "rows": [[text, 1.0, text]], "title": text},
        {"type": "diff", "diff": f"@@ -1 +1 @@\n+{text}"},
    ]
    return _written(*(block_lines(block, _WIDTH, _FACTS) for block in blocks))


def _words(text: str) -> list[str]:
    task = TaskRecord(id=text, kind="agent", name=text, description=text, state="done", caller="", began_at=0.0)
    error = ToolError(text, hint=text)
    return _written(
        prompt_lines(f"x {text}", _WIDTH, _FACTS),
        note_lines(f"{task_words(task)} {text}", _WIDTH),
        error_lines(error, _WIDTH),
    )


PLACES: Final[dict[str, Callable[[str], list[str]]]] = {
    "the model's answer": _answer,
    "its thinking": _thinking,
    "the name and arguments of a call": _call,
    "the output of a tool": _output,
    "a failure": _failure,
    "a question": _question,
    "a diff": _diff,
    "the status line": _status,
    "the blocks of a command": _blocks,
    "prompts, notices and errors": _words,
}


def run() -> Attempts:
    """Put every text into every place."""
    effects = []
    for what, text in TEXTS.items():
        for place, show in PLACES.items():
            for line in show(text):
                acting = _ACTING.search(_OWN_STYLES.sub("", line))
                if acting is not None:
                    effects.append(f"{what} in {place}: {line[:200]!r}")
                    break
    return Attempts(len(TEXTS) * len(PLACES), effects)

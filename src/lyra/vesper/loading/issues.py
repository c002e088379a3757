"""Remarks about a file of a node: each with its severity, a code, a sentence and its place.

An `Issue` says what is wrong in one sentence; `path` is the part of the file (`flow[0].guards[1]`), line and column
count from 1. `Issues` collects them, so that a check reports all of them at once. Codes are stable: tools compare
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lyra.core.checking.document import Path
from lyra.errors import CheckError, ParseError, SourceError
from lyra.vesper.values.limits import ISSUES_MAX

ERROR: Final = "error"
WARNING: Final = "warning"
INFO: Final = "info"
_LINE_SHOWN_MAX: Final = 160


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """One remark about a file."""

    severity: str  # error, warning or info
    code: str
    message: str
    path: str = ""
    line: int = 1
    column: int = 1
    hint: str = ""


class Issues:
    """Remarks in the order in which they were noticed; equal ones are kept once."""

    def __init__(self) -> None:
        self.items: list[Issue] = []
        self._known: set[tuple[str, str, int, int]] = set()
        self.left_out = 0

    def add(
        self,
        severity: str,
        code: str,
        message: str,
        *,
        path: Path | str = "",
        place: tuple[int, int] = (1, 1),
        hint: str = "",
    ) -> None:
        key = (code, message, *place)
        if key in self._known:
            return
        if len(self.items) >= ISSUES_MAX:
            self.left_out += 1
            return
        self._known.add(key)
        where = path if isinstance(path, str) else path_text(path)
        self.items.append(
            Issue(severity=severity, code=code, message=message, path=where, line=place[0], column=place[1], hint=hint)
        )


def path_text(path: Path) -> str:
    """`("flow", 0, "guards", 1)` as `flow[0].guards[1]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def sorted_issues(issues: Sequence[Issue]) -> list[Issue]:
    """In order of place; at the same place, errors first."""
    rank = {ERROR: 0, WARNING: 1, INFO: 2}
    return sorted(issues, key=lambda issue: (issue.line, issue.column, rank[issue.severity], issue.code))


def error_of(issues: Sequence[Issue], file: str, *, parsing: bool = False) -> SourceError:
    """The error that stands for all of them; its place is that of the first one of severity error."""
    errors = [issue for issue in issues if issue.severity == ERROR] or list(issues)
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    problems: list[dict[str, Any]] = [msgspec.to_builtins(issue) for issue in issues]
    kind = ParseError if parsing else CheckError
    return kind(
        first.message + more,
        file=file,
        line=first.line,
        column=first.column,
        hint=first.hint or None,
        problems=problems,
    )


def render_issue(issue: Issue, file: str, text: str) -> str:
    """The remark for a person: place, sentence, the line of the file with a caret under the place, hint."""
    lines = [f"{file}:{issue.line}:{issue.column}: {issue.severity}[{issue.code}]: {issue.message}"]
    rows = text.splitlines()
    if 0 < issue.line <= len(rows) and rows[issue.line - 1].strip():
        row, start = rows[issue.line - 1], issue.column - 1
        first = max(0, start - _LINE_SHOWN_MAX // 2) if len(row) > _LINE_SHOWN_MAX else 0
        shown = row[first : first + _LINE_SHOWN_MAX]
        lead = "".join("\t" if char == "\t" else " " for char in shown[: max(0, start - first)])
        lines += [f"    {shown}", f"    {lead}^"]
    if issue.hint:
        lines.append(f"    hint: {issue.hint}")
    return "\n".join(lines)

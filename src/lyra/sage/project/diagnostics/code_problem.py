"""A problem that a program reports for a place in the code; which of them are new; and the lines that show them.

A problem is the same as one before if its program, its file and its words are: lines move with every edit. The text is
made by programs from files of the project, so characters that cannot be seen are shown as their codes, and everything
is bounded.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from lyra.config.asks import on_one_line

PROBLEMS_MAX: Final = 500  # of one program
_NEW_SHOWN: Final = 20
_OLD_SHOWN: Final = 5
_TEXT_CHARS_MAX: Final = 300
_LINE_CHARS_MAX: Final = 2_000
# `FILE:LINE:COLUMN: TEXT`, `FILE:LINE: TEXT` or `FILE(LINE,COLUMN): TEXT`; the name of a file has a dot or a slash.
_PLACE: Final = re.compile(
    r"(?P<file>(?=[^:(\n]*[./])[^:(\s][^:(\n]{0,400})"
    r"(?::(?P<line>\d{1,9})(?::(?P<column>\d{1,9}))?:|\((?P<line2>\d{1,9})(?:,(?P<column2>\d{1,9}))?\):)"
    r"[ \t]*(?P<text>\S.*)"
)


class CodeProblem(NamedTuple):
    """`program` reports it; lines and columns count from 1, and 0 is unknown."""

    program: str
    file: str
    line: int
    column: int
    text: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.program, self.file, self.text

    @property
    def shown(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return f"{place + ': ' if place else ''}{self.text} ({self.program})"


class CheckReport(NamedTuple):
    """What one program says of a file; `failure` is why it says nothing."""

    program: str
    problems: tuple[CodeProblem, ...] = ()
    failure: str = ""


def problem_of(program: str, path: str, line: int, column: int, text: str) -> CodeProblem:
    """A problem whose texts are bounded and fit to be shown."""
    return CodeProblem(program, on_one_line(path)[:_TEXT_CHARS_MAX], line, column, _text(text))


def read_problems(program: str, output: str, *, root: str, failed: bool) -> tuple[CodeProblem, ...]:
    """The problems in a program's output: lines that begin with a place, `FILE:LINE:COLUMN: TEXT`. Without any, and if
    the program failed, every line is one."""
    lines = [line for line in output.split("\n") if line.strip()]
    problems = list(_placed(program, lines, root))
    if not problems and failed:
        problems = [problem_of(program, "", 0, 0, line) for line in lines]
    return tuple(problems[:PROBLEMS_MAX])


def _placed(program: str, lines: Iterable[str], root: str) -> Iterator[CodeProblem]:
    for line in lines:
        match = _PLACE.match(line[:_LINE_CHARS_MAX])
        if match is not None:
            number, column = int(match["line"] or match["line2"]), int(match["column"] or match["column2"] or 0)
            yield problem_of(program, _inside(match["file"], root), number, column, match["text"])


def _inside(path: str, root: str) -> str:
    """A path as it is below the root, where it lies there."""
    whole = os.path.normpath(os.path.join(root, path))
    prefix = f"{root.rstrip('/')}/"
    return whole[len(prefix) :] if whole.startswith(prefix) else path


def _text(text: str) -> str:
    shown = on_one_line(text.strip())
    return shown if len(shown) <= _TEXT_CHARS_MAX else f"{shown[:_TEXT_CHARS_MAX]}…"


# ---------------------------------------------------------------- new ones first
def described(before: Sequence[CheckReport] | None, after: Sequence[CheckReport]) -> str:
    """The problems after an edit: new ones first, then some of those that were there before it. Without `before` it is
    not known which are new."""
    problems = [problem for report in after for problem in report.problems]
    new, old = _divided(before, problems)
    lines = [_heading(before, new, old, after)]
    word = "new: " if before is not None else ""
    lines += [f"{word}{problem.shown}" for problem in new[:_NEW_SHOWN]]
    if len(new) > _NEW_SHOWN:
        lines.append(f"… and {len(new) - _NEW_SHOWN} more")
    lines += [f"before: {problem.shown}" for problem in old[:_OLD_SHOWN]]
    if len(old) > _OLD_SHOWN:
        lines.append(f"… and {len(old) - _OLD_SHOWN} more from before")
    lines += [f"{report.program}: {report.failure}" for report in after if report.failure]
    return "\n".join(lines)


def _divided(
    before: Sequence[CheckReport] | None, problems: Iterable[CodeProblem]
) -> tuple[list[CodeProblem], list[CodeProblem]]:
    if before is None:
        return list(problems), []
    known = Counter(problem.key for report in before for problem in report.problems)
    new, old = [], []
    for problem in problems:
        if known[problem.key] > 0:
            known[problem.key] -= 1
            old.append(problem)
        else:
            new.append(problem)
    return new, old


def _heading(
    before: Sequence[CheckReport] | None,
    new: Sequence[CodeProblem],
    old: Sequence[CodeProblem],
    after: Sequence[CheckReport],
) -> str:
    programs = ", ".join(dict.fromkeys(report.program for report in after if not report.failure))
    if not new and not old:
        return f"Diagnostics: no problems ({programs})" if programs else "Diagnostics: not known"
    if before is None:
        return f"Diagnostics: {len(new)} of {programs}"
    return f"Diagnostics of {programs}: {len(new)} new, {len(old)} as before"

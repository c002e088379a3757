"""A problem that a program reports for a place in the code; which of them are new; and the lines that show them.

A problem is the same as one before if its program, its file and its words are: lines move with every edit. The text is
made by programs from files of the project, so characters that cannot be seen are shown as their codes, and everything
is bounded. Also which programs look at which files (`[diagnostics."PATTERN"]` in the settings), and how one is run to
its end in the sandbox.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.config.asks import on_one_line
from lyra.core.rights.capability import Grant
from lyra.core.tool import rights
from lyra.errors import LyraError
from lyra.tools.builtin.search_worker import glob_regex

if TYPE_CHECKING:
    from lyra.sandbox import Limits, Profile, Sandbox


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
    """Return a problem whose texts are bounded and fit to be shown."""
    return CodeProblem(program, on_one_line(path)[:_TEXT_CHARS_MAX], line, column, _text(text))


def read_problems(program: str, output: str, *, root: str, failed: bool) -> tuple[CodeProblem, ...]:
    """Return the problems in a program's output: lines that begin with a place, `FILE:LINE:COLUMN: TEXT`. Without any,
    and if the program failed, every line is one."""
    lines = [line for line in output.split("\n") if line.strip()]
    problems = list(_parse_places(program, lines, root))
    if not problems and failed:
        problems = [problem_of(program, "", 0, 0, line) for line in lines]
    return tuple(problems[:PROBLEMS_MAX])


def _parse_places(program: str, lines: Iterable[str], root: str) -> Iterator[CodeProblem]:
    for line in lines:
        match = _PLACE.match(line[:_LINE_CHARS_MAX])
        if match is not None:
            number, column = int(match["line"] or match["line2"]), int(match["column"] or match["column2"] or 0)
            yield problem_of(program, _inside(match["file"], root), number, column, match["text"])


def _inside(path: str, root: str) -> str:
    """Return a path as it is below the root, where it lies there."""
    whole = os.path.normpath(os.path.join(root, path))
    prefix = f"{root.rstrip('/')}/"
    return whole[len(prefix) :] if whole.startswith(prefix) else path


def _text(text: str) -> str:
    shown = on_one_line(text.strip())
    return shown if len(shown) <= _TEXT_CHARS_MAX else f"{shown[:_TEXT_CHARS_MAX]}…"


def describe(before: Sequence[CheckReport] | None, after: Sequence[CheckReport]) -> str:
    """Return the problems after an edit: new ones first, then some of those that were there before it. Without `before`
    it is not known which are new."""
    problems = [problem for report in after for problem in report.problems]
    new, old = _divide(before, problems)
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


def _divide(
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


CHECK_S: Final = 5.0
_FILE: Final = "{file}"


class CheckCommand(NamedTuple):
    """One program for one file: its words (of a language server: those that start it), and how long it may take."""

    words: tuple[str, ...]
    timeout_s: float
    readable: tuple[str, ...] = ()
    is_server: bool = False

    @property
    def program(self) -> str:
        """The name that problems are shown with: the program, or the module that an interpreter runs."""
        words = list(self.words)
        module = words[words.index("-m") + 1 :][:1] if "-m" in words[1:-1] else []
        return os.path.basename(module[0] if module else words[0])[:60]

    def argv(self, path: str) -> list[str]:
        """Return the words with the file in them, each one argument whatever the path is."""
        name = f"./{path}" if path.startswith("-") else path
        return [word.replace(_FILE, name) for word in self.words]


class _Check(NamedTuple):
    matches: re.Pattern[str]
    commands: tuple[CheckCommand, ...]


class FileChecks:
    """The settings of all patterns; a file may match several."""

    def __init__(self, settings: Mapping[str, Mapping[str, Any]]) -> None:
        self._checks = [
            _Check(re.compile(glob_regex(pattern), re.DOTALL), _commands(entry)) for pattern, entry in settings.items()
        ]

    def __bool__(self) -> bool:
        return bool(self._checks)

    def for_file(self, path: str) -> list[CheckCommand]:
        """Return the programs for a file by its path below the root of the workspace; each once."""
        matching = [check for check in self._checks if check.matches.fullmatch(path)]
        return list(dict.fromkeys(command for check in matching for command in check.commands))


def _commands(entry: Mapping[str, Any]) -> tuple[CheckCommand, ...]:
    timeout_s, readable = float(entry.get("timeout_s", CHECK_S)), tuple(entry.get("readable", ()))
    lines: Sequence[str] = entry.get("commands", ())
    commands = [CheckCommand(tuple(shlex.split(line)), timeout_s, readable) for line in lines]
    if "language_server" in entry:
        commands.append(CheckCommand(tuple(shlex.split(entry["language_server"])), timeout_s, readable, is_server=True))
    return tuple(commands)


_OUTPUT_BYTES_MAX: Final = 1 << 20
_NOT_FOUND: Final = (126, 127)


def check_profile(root: str, readable: Sequence[str], limits: Limits) -> Profile:
    """Return what a program may touch: as a command of the calling process, without a network."""
    from lyra.sandbox import Profile

    grant = rights.get()
    if grant is None:
        grant = Grant(allow=[f"fs.read:{root}/**", f"fs.write:{root}/**"])
    return replace(Profile.of(grant, root, readable=readable, limits=limits), egress=None)


async def run_check(command: CheckCommand, path: str, *, root: str, sandbox: Sandbox) -> CheckReport:
    """Return what the program says of a file, whose path starts at the root."""
    from lyra.sandbox import Limits

    program = command.program
    limits = Limits(wall_s=command.timeout_s, output_bytes=_OUTPUT_BYTES_MAX, output_kept_bytes=_OUTPUT_BYTES_MAX)
    try:
        result = await sandbox.run(command.argv(path), check_profile(root, command.readable, limits))
    except LyraError as error:
        return CheckReport(program, failure=f"it could not be run: {error.message}")
    text = result.output.text
    if "wall" in result.limits_hit:
        return CheckReport(program, failure=f"it took longer than {command.timeout_s:g} s")
    if result.exit_code in _NOT_FOUND:
        return CheckReport(program, failure="it is not there inside the sandbox; `readable` can name its folder")
    failure = f"it was stopped: {', '.join(result.limits_hit)}" if result.limits_hit else ""
    problems = read_problems(program, text, root=root, failed=not result.ok and not failure)
    return CheckReport(program, problems, failure)

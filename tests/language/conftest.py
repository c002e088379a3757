"""Collects the programs below this folder: each `.vega` file with `// expect` comments is a test.

    // expect: LINE                          a printed line; in order, and all of them
    // expect error[Name] at LINE:COL: text  how it ends; the place and the text (a part of it) may be left out
    // expect exit: N                        the exit code; 1 goes without saying after an error of the program, 2 after
                                             a mistake in its source

They run on the local host: everything in memory, time that jumps. An agent answers `NAME heard MESSAGE`. A file
without such a comment is somebody's import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lyra.errors import SourceError
from lyra.vega import bytecode
from lyra.vega import compile as compile_vega
from lyra.vega.host import LocalHost
from lyra.vega.values import shown

_LINE = re.compile(r"//\s*expect:(?: (.*))?$", re.MULTILINE)
_ERROR = re.compile(r"//\s*expect error(?:\[(\w+)\])?(?: at (\d+):(\d+))?(?:: (.*))?$", re.MULTILINE)
_EXIT = re.compile(r"//\s*expect exit: (\d+)$", re.MULTILINE)


class Expected(NamedTuple):
    lines: list[str]
    error: tuple[str | None, str | None, str | None, str | None] | None
    exit_code: int | None


class Outcome(NamedTuple):
    lines: list[str]
    error: str  # its name, "" without one
    text: str
    line: int
    column: int
    exit_code: int


def expected(text: str) -> Expected | None:
    lines = [found.group(1) or "" for found in _LINE.finditer(text)]
    error = _ERROR.search(text)
    code = _EXIT.search(text)
    if not lines and error is None and code is None:
        return None
    groups = None if error is None else (error.group(1), error.group(2), error.group(3), error.group(4))
    return Expected(lines, groups, int(code.group(1)) if code else None)


def load(target: str, importing: str) -> tuple[str, str] | None:
    path = (Path(importing).parent / target).resolve()
    return (str(path), path.read_text()) if path.is_file() else None


def run_file(path: Path) -> Outcome:
    lines: list[str] = []
    try:
        program = compile_vega(path.read_text(), str(path.resolve()), load=load)
    except SourceError as error:
        return Outcome(lines, error.code, error.message, error.line, error.column, 2)
    program = bytecode.load(bytecode.dump(program))  # what a file holds is what runs
    host = LocalHost(program, lines.append, answer=lambda name, _, message: f"{name} heard {shown(message)}")
    end = host.run()
    if end.error is None:
        return Outcome(lines, "", "", 0, 0, 0)
    return Outcome(lines, end.error.name, end.error.text, end.error.line, end.error.column, end.exit_code)


class VegaFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        if expected(self.path.read_text()) is not None:
            yield VegaItem.from_parent(self, name=self.path.stem)


class VegaItem(pytest.Item):
    def runtest(self) -> None:
        wanted = expected(self.path.read_text())
        assert wanted is not None
        got = run_file(self.path)
        printed = "\n".join(got.lines)
        ending = f"{got.error} at {got.line}:{got.column}: {got.text}"
        assert printed == "\n".join(wanted.lines), f"printed:\n{printed}\nended: {ending}"
        if wanted.error is None:
            assert not got.error, f"ended with {ending}"
        else:
            name, line, column, text = wanted.error
            assert got.error, "ended without an error"
            assert name in (None, got.error), f"ended with {ending}"
            assert line is None or (int(line), int(column or 0)) == (got.line, got.column), f"ended with {ending}"
            assert text is None or text.strip() in got.text, f"ended with {ending}"
        if wanted.exit_code is not None:
            assert got.exit_code == wanted.exit_code

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        if isinstance(excinfo.value, AssertionError):
            return f"{self.path}\n{excinfo.value}"
        return str(super().repr_failure(excinfo, style))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.parent.name}/{self.name}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".vega":
        return VegaFile.from_parent(parent, path=file_path)
    return None

"""Collects the programs below this folder: each `.vega` file with `// expect` comments is a test.

    // expect: LINE                          a printed line; in order, and all of them
    // expect error[Name] at LINE:COL: text  how it ends; the place and the text (a part of it) may be left out
    // expect exit: N                        the exit code; 1 goes without saying after an error of the program, 2 after
                                             a mistake in its source

Each runs twice: `[local]` on the local host (everything in memory, time that jumps, an agent answers what it was told,
as `sim/echo` does) and `[kernel]` as programs that people run do, on Lyra's kernel in virtual time. A file whose agents
have another model than `sim/echo` runs on the kernel only, and so do those of `agents/*/`; `// only: local` and
`// only: kernel` say so for any file. `NAME.yaml` beside `NAME.vega` is the script of `sim/script`. What touches files
runs in an empty folder, in real time. A file without an expectation is an import of another file.
Of the large programs of `limit/`, which run the same compiler and the same machine, `make test` runs the kernel's.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.vega.local_host import LocalHost

from lyra.errors import SourceError
from lyra.kernel.kernel import Kernel
from lyra.models.sim import SCRIPT_VARIABLE
from lyra.testing.clock import SimClock
from lyra.testing.loop import Deadlock
from lyra.testing.loop import run as run_in_virtual_time
from lyra.vega import VegaError
from lyra.vega import compile as compile_vega
from lyra.vega import run as run_vega
from lyra.vega.bytecode import file as bytecode
from lyra.vega.values.values import render

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
    lines = [match.group(1) or "" for match in _LINE.finditer(text)]
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
    host = LocalHost(program, lines.append, answer=lambda _name, _settings, message: render(message))
    end = host.run()
    if end.error is None:
        return Outcome(lines, "", "", 0, 0, 0)
    return Outcome(lines, end.error.name, end.error.text, end.error.line, end.error.column, end.exit_code)


def run_on_kernel(path: Path) -> Outcome:
    lines: list[str] = []
    try:
        program = compile_vega(path.read_text(), str(path.resolve()), load=load)
    except SourceError as error:
        return Outcome(lines, error.code, error.message, error.line, error.column, 2)
    script = path.with_suffix(".yaml")
    if script.exists():
        os.environ[SCRIPT_VARIABLE] = str(script)
    is_real = re.search(r"file::|exec\(|http::", path.read_text()) is not None
    clock = SimClock()

    async def main(folder: str) -> None:
        kernel = Kernel(mailbox_messages_max=1_000_000) if is_real else Kernel(clock=clock)
        async with kernel:
            await run_vega(program, stdout=lines.append, stderr=lambda _: None, kernel=kernel, folder=folder)

    try:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(folder)) if is_real else run_in_virtual_time(main(folder), clock=clock)
    except Deadlock:
        return Outcome(lines, "Deadlock", "", 0, 0, 1)
    except VegaError as error:
        facts = error.fields
        return Outcome(lines, error.shown_code, facts["text"], facts["line"], facts["column"], error.exit_code)
    finally:
        os.environ.pop(SCRIPT_VARIABLE, None)
    return Outcome(lines, "", "", 0, 0, 0)


RUNNERS = {"local": run_file, "kernel": run_on_kernel}


def hosts(path: Path, text: str) -> list[str]:
    if path.parent.parent.name == "agents":
        return ["kernel"]
    only = re.search(r"//\s*only: (\w+)", text)
    if only is not None:
        return [only.group(1)]
    models = set(re.findall(r'^\s*(?:agent .*)?model "(.*?)"', text, re.MULTILINE))
    return list(RUNNERS) if models <= {"sim/echo"} else ["kernel"]


class VegaFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        text = self.path.read_text()
        if expected(text) is not None:
            of_this = hosts(self.path, text)
            for host in of_this:
                item = VegaItem.from_parent(self, name=f"{self.path.stem}[{host}]", host=host)
                if self.path.parent.name == "limit" and host != of_this[-1]:
                    item.add_marker(pytest.mark.long)
                yield item


class VegaItem(pytest.Item):
    def __init__(self, *, host: str, **options: Any) -> None:
        super().__init__(**options)
        self.host = host

    def runtest(self) -> None:
        wanted = expected(self.path.read_text())
        assert wanted is not None
        got = RUNNERS[self.host](self.path)
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

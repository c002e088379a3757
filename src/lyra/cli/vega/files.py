"""What the Vega commands share: reading programs, and showing what is wrong with them.

A mistake in a source is shown as compilers do, `file:line:col: error: text` with the line and a caret; an error that a
program did not catch as `error[code]: text` with its place. All of it goes to stderr.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.render import printable, wants_colour
from lyra.core.imported_node import NODE_FILES
from lyra.errors import BytecodeError, ConfigError, LyraError, SourceError, VegaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lyra.vega.bytecode.program import Program
    from lyra.vega.syntax.source import Diagnostic


_BYTES_MAX: Final = 64 << 20
_CALLERS_MAX: Final = 8  # shown under an uncaught error
_COMPILED: Final = b"VGB\x00"
_ABOUT_MODELS: Final = ("no key for", "no model", "no provider")
STDIN: Final = "-"


class Files:
    """The texts of one program: the file itself (`-` is stdin) and what it imports. A file keeps the name by which it
    was asked for, so that messages say what the user wrote."""

    def __init__(self, name: str) -> None:
        self.name = "<stdin>" if name == STDIN else name
        self._path = name
        self._texts: dict[str, str] = {}

    def text(self) -> str:
        data = _stdin() if self._path == STDIN else read(self._path)
        return self._text(self.name, data)

    def program(self) -> Program:
        """Compiled from the source, or as it is in a .vgb file; SourceError for a wrong one."""
        data = _stdin() if self._path == STDIN else read(self._path)
        if data.startswith(_COMPILED) or self._path.endswith(".vgb"):
            from lyra.vega.bytecode import file as bytecode

            try:
                return bytecode.load(data)
            except BytecodeError as error:
                raise BytecodeError(error.message, hint=error.hint, file=self.name) from None
        from lyra.vega import compile as compile_source

        return compile_source(self._text(self.name, data), self.name, load=self.load)

    def load(self, target: str, importing: str) -> tuple[str, str] | None:
        """Return the name and text of an import, beside the file that imports it."""
        path = os.path.normpath(os.path.join(os.path.dirname(importing), target))
        if not os.path.isfile(path):
            return None
        name = self.name if os.path.realpath(path) == os.path.realpath(self.name) else path
        text = self._text(name, read(path))
        if path.endswith(NODE_FILES):
            from lyra.vesper.runtime.faces import read_file

            return read_file(name, text)
        return name, text

    @property
    def texts(self) -> dict[str, str]:
        """Return what was read so far, by name: the sources of the program."""
        return dict(self._texts)

    def line(self, name: str, number: int) -> str:
        """Return a line of a file that was read, or can be."""
        text = self._texts.get(name)
        if text is None:
            try:
                text = self._text(name, read(name))
            except LyraError:
                return ""
        from lyra.vega.syntax.source import Source

        return Source(name, text).line(number)

    def _text(self, name: str, data: bytes) -> str:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{name} is not a text in UTF-8 (byte {error.start})", key=name) from None
        self._texts[name] = text = text.replace("\r\n", "\n")
        return text


def read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", key=path) from None
    except ValueError:  # a NUL in it
        raise ConfigError(f"{path!r} is not a file name", key="FILE") from None
    if len(data) > _BYTES_MAX:
        raise ConfigError(f"{path} is larger than {_BYTES_MAX >> 20} MiB", key=path)
    return data


def _stdin() -> bytes:
    return sys.stdin.buffer.read(_BYTES_MAX + 1)


def say_problems(error: SourceError) -> None:
    """All that is wrong with a source, with its lines and carets."""
    problems: Iterable[Diagnostic] = error.fields.get("problems") or ()
    if not problems:  # of a .vgb file, or found by the compiler: one sentence
        where = error.place if error.fields.get("line") else error.fields.get("file")
        head = f"error[{error.code}]:"
        lines = [f"{head} {error.message}", *([f"  at {where}"] if where else [])]
        _say("\n".join([*lines, *([f"  hint: {error.hint}"] if error.hint else [])]), head)
    for problem in problems:
        say_problem(problem)


def say_problem(problem: Diagnostic) -> None:
    _say(problem.render(), f"{problem.severity}:")


def say_error(error: VegaError, line_of: Callable[[str, int], str]) -> None:
    """Print an error that a program did not catch, with the source line it happened in and who called whom."""
    facts = error.fields
    head = f"error[{error.shown_code}]:"
    lines = [f"{head} {facts['text']}"]
    if facts["line"]:
        from lyra.vega.syntax.source import Diagnostic

        offset = facts["column"] - 1
        text = line_of(facts["file"], facts["line"])
        place = {
            "file": facts["file"],
            "line": facts["line"],
            "column": facts["column"],
            "at": offset,
            "end": offset + 1,
        }
        shown = Diagnostic(message="", text=text, **place).render().split("\n", 1)
        lines += [f"  at {error.place}", *shown[1:]]
    callers = list(facts.get("trace") or ())[1:]
    lines += [f"  called by {caller}" for caller in callers[:_CALLERS_MAX]]
    if len(callers) > _CALLERS_MAX:
        lines.append(f"  … and {len(callers) - _CALLERS_MAX} more")
    if facts["name"] == "ConfigError" and any(word in facts["text"] for word in _ABOUT_MODELS):
        lines.append("  hint: to try the program without a provider: --model sim/echo")
    _say("\n".join(lines), head)


def _say(text: str, head: str) -> None:
    """To stderr; its head in red where there are colours."""
    text = printable(text)
    if wants_colour(sys.stderr):
        text = text.replace(head, click.style(head, fg="yellow" if head.startswith("warning") else "red", bold=True), 1)
    click.echo(text, err=True)


def problem_data(problem: Diagnostic) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "severity": problem.severity,
        "message": problem.message,
        "hint": problem.hint,
    }


def error_data(error: VegaError) -> dict[str, Any]:
    """Return an uncaught error as one JSON object."""
    facts = error.fields
    return {"code": error.shown_code, **{key: facts[key] for key in ("name", "text", "file", "line", "column")}}

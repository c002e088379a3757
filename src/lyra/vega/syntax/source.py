"""A source text and what is said about places in it.

`Source` turns an offset into a line and a column (characters, both from 1) and gives the line itself. A `Diagnostic` is
one remark: an error or a warning with its place, a sentence and a hint, rendered the way compilers do:

    review.vega:3:9: error: unknown name `codr`
        let x = codr <- "hi";
                ^~~~
        hint: did you mean `coder`?

Nothing here knows the language.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import msgspec

from lyra.errors import CheckError, ParseError, SourceError

_LINE_SHOWN_MAX = 160  # characters of a source line under a message; a longer one is cut around its caret


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """One remark about a source; `at` and `end` are its offsets, `text` the source line it stands in."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""
    severity: str = "error"
    text: str = ""
    at: int = 0
    end: int = 0

    @property
    def is_error(self) -> bool:
        return self.severity == "error"

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def render(self) -> str:
        """Return the message, the line with a caret, and the hint."""
        lines = [f"{self.place}: {self.severity}: {self.message}"]
        if self.text.strip():
            lines += self._caret()
        if self.hint:
            lines.append(f"    hint: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.message}"

    def _caret(self) -> list[str]:
        start, text = self.column - 1, self.text
        width = max(1, min(self.end - self.at, len(text) - start))
        if len(text) > _LINE_SHOWN_MAX:
            first = max(0, min(start - _LINE_SHOWN_MAX // 2, len(text) - _LINE_SHOWN_MAX))
            text = text[first : first + _LINE_SHOWN_MAX]
            start -= first
            width = max(1, min(width, len(text) - start))
        # A tab stays a tab, so that the caret stands under its character whatever a tab is worth.
        lead = "".join("\t" if char == "\t" else " " for char in text[:start])
        return [f"    {text}", f"    {lead}^{'~' * (width - 1)}"]


class Source:
    """A text with a name."""

    __slots__ = ("_starts", "name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._starts: list[int] | None = None

    @property
    def starts(self) -> list[int]:
        """The offset of each line; found at the first question, since most sources have no mistake."""
        if self._starts is None:
            text, offset = self.text, 0
            starts = [1 if text.startswith("\ufeff") else 0]  # a byte order mark is no part of the line
            while (offset := text.find("\n", offset) + 1) > 0:
                starts.append(offset)
            self._starts = starts
        return self._starts

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset; one past the end is the end."""
        offset = max(self.starts[0], min(offset, len(self.text)))
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return a line without its end; "" for one that is not there."""
        if not 1 <= number <= len(self.starts):
            return ""
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : end].rstrip("\r\n")

    def problem(
        self, offset: int, end: int, message: str, *, hint: str | None = None, severity: str = "error"
    ) -> Diagnostic:
        line, column = self.place(offset)
        return Diagnostic(
            file=self.name,
            line=line,
            column=column,
            message=message,
            hint=hint or "",
            severity=severity,
            text=self.line(line),
            at=offset,
            end=max(end, offset + 1),
        )


def source_error(kind: type[ParseError] | type[CheckError], problems: Sequence[Diagnostic]) -> SourceError:
    """Return the error to raise for these remarks: the first error speaks, all of them are in `problems`."""
    first = next((problem for problem in problems if problem.is_error), problems[0])
    fields: dict[str, Any] = {"problems": list(problems)}
    return kind(first.message, file=first.file, line=first.line, column=first.column, hint=first.hint or None, **fields)

"""A text that an editor changes, and the positions an editor speaks of.

Here a place is an offset in characters; an editor says line and column, both from 0, the column counted in units of the
encoding that was agreed on: UTF-16 unless both sides know better. `LineOffsets` translates. Lines end with `\\n`,
`\\r\\n` or `\\r` and nothing else, as the protocol has it: a form feed ends none. Positions outside the text are moved
to its edge.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final, NamedTuple

UTF8: Final = "utf-8"
UTF16: Final = "utf-16"
UTF32: Final = "utf-32"

_LINE_END: Final = re.compile(r"\r\n|\n|\r")


class Position(NamedTuple):
    line: int
    character: int


class TextChange(NamedTuple):
    """New text from `start` up to before `end`; without them it is the whole text."""

    text: str
    start: Position | None = None
    end: Position | None = None


class LineOffsets:
    """Offsets and positions of one text."""

    __slots__ = ("_is_plain", "_starts", "encoding", "text")

    def __init__(self, text: str, encoding: str = UTF16) -> None:
        self.text = text
        self.encoding = encoding
        self._is_plain = encoding == UTF32 or text.isascii()  # a unit is a character
        self._starts = [0, *(line_end.end() for line_end in _LINE_END.finditer(text))]

    def __len__(self) -> int:
        return len(self._starts)

    def start(self, line: int) -> int:
        """The offset where a line begins; behind the last one, the text's end."""
        return self._starts[line] if line < len(self._starts) else len(self.text)

    def line(self, number: int) -> str:
        """A line without its end."""
        return self.text[self.start(number) : self.start(number + 1)].rstrip("\r\n")

    def offset(self, position: Position | tuple[int, int]) -> int:
        line, character = position
        if line < 0:
            return 0
        if line >= len(self._starts):
            return len(self.text)
        text, start = self.line(line), self._starts[line]
        if self._is_plain:
            return start + max(0, min(character, len(text)))
        return start + _characters(text, character, self.encoding)

    def units(self, offset: int, end: int) -> int:
        """How long a piece of one line is."""
        return end - offset if self._is_plain else _units(self.text[offset:end], self.encoding)

    def position(self, offset: int) -> Position:
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._starts, offset) - 1
        return Position(line, self.units(self._starts[line], offset))


def _units(text: str, encoding: str) -> int:
    """How long a text is in units of an encoding."""
    if encoding == UTF32:
        return len(text)
    if encoding == UTF8:
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(char > "\uffff" for char in text)


def _characters(text: str, units: int, encoding: str) -> int:
    """How many characters the first `units` units are; a position inside a character is its beginning."""
    used = 0
    for index, char in enumerate(text):
        used += _units(char, encoding)
        if used > units:
            return index
    return len(text)


class Document:
    """One file as the editor has it."""

    __slots__ = ("_lines", "encoding", "path", "text", "uri", "version")

    def __init__(self, uri: str, path: str, text: str, *, version: int | None = None, encoding: str = UTF16) -> None:
        self.uri = uri
        self.path = path
        self.text = text
        self.version = version
        self.encoding = encoding
        self._lines: LineOffsets | None = None

    @property
    def lines(self) -> LineOffsets:
        if self._lines is None:
            self._lines = LineOffsets(self.text, self.encoding)
        return self._lines

    def apply(self, change: TextChange) -> None:
        if change.start is None or change.end is None:
            self.text = change.text
        else:
            start = self.lines.offset(change.start)
            end = max(start, self.lines.offset(change.end))
            self.text = self.text[:start] + change.text + self.text[end:]
        self._lines = None

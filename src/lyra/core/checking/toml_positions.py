"""The line of each key in a TOML document.

`tomllib` reads TOML without keeping lines, and error messages need them.
`key_lines(text)` gives the line of every table and key, dotted, quoted and inline ones included. It does not
check values or syntax: on text that is not TOML its result means nothing. It is
linear in the text and bounded in depth, and it raises `TooDeep` for text that `tomllib` would read for minutes (a key
of thousands of dotted parts): call it before `tomllib`.
"""

from __future__ import annotations

import re
from typing import Final

DEPTH_MAX: Final = 16  # parts of a dotted key, and brackets inside brackets; settings need far fewer

_BLANK: Final = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_IN_ARRAY: Final = re.compile(r"(?:[^\[\]{}\"'#]++|#[^\n]*+)*+")  # numbers, commas: nothing that can hold a key
_SPACE: Final = re.compile(r"[ \t]*+")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]++")
# The four strings of TOML, longest delimiter first; a multi-line string may end in up to five quotes.
_STRING: Final = re.compile(
    r'"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+"{3,5}'
    r"|'''(?:[^']++|'{1,2}(?!'))*+'{3,5}"
    r'|"(?:[^"\\\n]++|\\.)*+"'
    r"|'[^'\n]*+'",
    re.DOTALL,
)
_SCALAR: Final = re.compile(r"[^,\]}#\n\"']*+")


class TooDeep(Exception):
    """Nested beyond `DEPTH_MAX`, at `line`."""

    def __init__(self, line: int) -> None:
        super().__init__(f"nested more than {DEPTH_MAX} deep at line {line}")
        self.line = line


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line (from 1) on which each table or key is first written, by its path."""
    scan = _Scan(text)
    scan.document()
    return scan.lines


class _Scan:
    """One pass from left to right; `position` only grows, and lines are counted along with it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.counted = 0
        self.line = 1
        self.lines: dict[tuple[str, ...], int] = {}

    def document(self) -> None:
        table: tuple[str, ...] = ()
        while self.more():
            if self.peek() == "[":
                table = self.header()
            else:
                self.pair(table, 0)

    def header(self) -> tuple[str, ...]:
        brackets = 2 if self.text.startswith("[[", self.position) else 1
        self.position += brackets
        path = self.key(())
        self.position += brackets
        return path

    def pair(self, table: tuple[str, ...], depth: int) -> None:
        path = self.key(table)
        self.position += 1  # the equals sign, or on text that is not TOML the character in its place
        self.value(path, depth)

    def value(self, path: tuple[str, ...], depth: int) -> None:
        if depth > DEPTH_MAX:
            raise TooDeep(self.line_here())
        self.skip(_SPACE)
        if self.peek() == "[":
            self.position += 1
            while self.more(_IN_ARRAY, ends="]"):
                self.value(path, depth + 1)
        elif self.peek() == "{":
            self.position += 1
            while self.more(ends="}"):
                self.pair(path, depth + 1)
        elif not self.skip(_STRING) and not self.skip(_SCALAR):
            self.position += 1  # not TOML: skip a character, so that the scan ends

    def more(self, between: re.Pattern[str] = _BLANK, *, ends: str = "") -> bool:
        """Skip the text between two items; False at the closing bracket (skipped too) or the end."""
        self.skip(between)
        while self.peek() == ",":
            self.position += 1
            self.skip(between)
        mark = self.peek()
        if mark and mark == ends:
            self.position += 1
            return False
        return bool(mark)

    def key(self, table: tuple[str, ...]) -> tuple[str, ...]:
        """Read a dotted key; each of its parts gets a line, since `a.b = 1` also makes table `a`."""
        path = table
        self.skip(_SPACE)
        while (part := self.key_part()) is not None:
            path = (*path, part)
            self.lines.setdefault(path, self.line_here())
            if len(path) > DEPTH_MAX:
                raise TooDeep(self.line)
            self.skip(_SPACE)
            if self.peek() != ".":
                break
            self.position += 1
            self.skip(_SPACE)
        return path

    def key_part(self) -> str | None:
        quoted = self.peek() in ('"', "'")
        match = (_STRING if quoted else _BARE_KEY).match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return _unquote(match.group()) if quoted else match.group()

    def line_here(self) -> int:
        self.line += self.text.count("\n", self.counted, self.position)
        self.counted = self.position
        return self.line

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def skip(self, pattern: re.Pattern[str]) -> bool:
        match = pattern.match(self.text, self.position)
        if match is None or match.end() == self.position:
            return False
        self.position = match.end()
        return True


def _unquote(text: str) -> str:
    import tomllib

    try:
        return str(tomllib.loads(f"key = {text}")["key"])
    except tomllib.TOMLDecodeError:  # tomllib reports this mistake itself, with the right place
        return text

"""The texts of an editor: those that are open, as they are on the screen, and those of the disk beside them.

A file is known by its absolute path; a text that was never saved by its URI. What is open wins over what is on the
disk, so that a change in one window is seen in the others before it is saved. `OpenTexts` keeps them, `format_edits`
gives the change to another layout as an editor applies it. Nothing here knows a language or a protocol.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from lyra.errors import SourceError

# ---------------- A text that an editor changes, and the positions an editor speaks of
# A place is an offset in characters; an editor says line and column from 0, in units of the encoding agreed on. Lines
# end with `\n`, `\r\n` or `\r` and nothing else, as the protocol has it. Positions outside the text are moved to its
# edge.

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
        """Return the offset where a line begins; behind the last one, the text's end."""
        return self._starts[line] if line < len(self._starts) else len(self.text)

    def line(self, number: int) -> str:
        """Return a line without its end."""
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
        """Return the length of a piece of one line."""
        return end - offset if self._is_plain else _units(self.text[offset:end], self.encoding)

    def position(self, offset: int) -> Position:
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._starts, offset) - 1
        return Position(line, self.units(self._starts[line], offset))


def _units(text: str, encoding: str) -> int:
    """Return the length of a text in units of an encoding."""
    if encoding == UTF32:
        return len(text)
    if encoding == UTF8:
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(char > "\uffff" for char in text)


def _characters(text: str, units: int, encoding: str) -> int:
    """Count the characters in the first `units` units; a position inside a character is its beginning."""
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


_FILE_BYTES_MAX: Final = 4 << 20  # a larger file is taken on trust
_KEPT_MAX: Final = 2_500  # files from the disk that are remembered


class Place(NamedTuple):
    """A piece of a file."""

    path: str
    at: int
    end: int


class _DiskText(NamedTuple):
    stamp: tuple[int, int]
    text: str


class OpenTexts:
    """The open files of an editor and the folders of its workspace. `forget_derived` is called after every change."""

    def __init__(self, folders: list[str] | None = None, *, encoding: str = UTF16) -> None:
        self.folders = folders or []
        self.encoding = encoding
        self.open: dict[str, Document] = {}
        self._disk: dict[str, _DiskText] = {}

    def put(self, document: Document) -> None:
        self.open[document.path] = document
        self.forget_derived()

    def remove(self, path: str) -> None:
        self.open.pop(path, None)
        self.forget_derived()

    def forget_derived(self) -> None:
        """Forget what was derived from texts that are other ones now."""

    def text(self, path: str) -> str | None:
        document = self.open.get(path)
        return document.text if document is not None else self._read(path)

    def lines(self, path: str) -> LineOffsets:
        document = self.open.get(path)
        return document.lines if document is not None else LineOffsets(self.text(path) or "", self.encoding)

    def uri(self, path: str) -> str:
        """Return the URI of a path; if the file is open, as the editor writes it."""
        document = self.open.get(path)
        return document.uri if document is not None else uri_of(path)

    def _read(self, path: str) -> str | None:
        try:
            if not os.path.isfile(path):
                return None
            facts = os.stat(path)
            stamp = (facts.st_mtime_ns, facts.st_size)
            known = self._disk.get(path)
            if known is not None and known.stamp == stamp:
                return known.text
            if facts.st_size > _FILE_BYTES_MAX:
                return None
            with open(path, encoding="utf-8-sig", newline="") as file:
                text = file.read(_FILE_BYTES_MAX)
        except (OSError, ValueError):  # also a name with a NUL in it, and what is no UTF-8
            return None
        if len(self._disk) >= _KEPT_MAX:
            self.forget_disk()
        self._disk[path] = _DiskText(stamp, text)
        return text

    def forget_disk(self) -> None:
        """Drop the remembered files; called where there are too many."""
        self._disk.clear()


def path_of(uri: str) -> str:
    """Return the path of a file's URI; any other URI is its own name."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    return os.path.normpath(unquote(parts.path)) if parts.scheme == "file" and parts.path else uri


def uri_of(path: str) -> str:
    return f"file://{quote(path)}" if os.path.isabs(path) else path


# ---------------------------------------------------------------- edits


def format_edits(text: str, layout: Callable[[str], str]) -> list[tuple[int, int, str]]:
    """Return the edits (from, to, new text) that give a text its layout: one at most, of the lines that differ, so that
    the cursor stays put. A text that cannot be read is left as it is, and so are its line ends."""
    ends = "\r\n" if "\r\n" in text else "\n"
    try:
        new = layout(text.removeprefix("\ufeff").replace("\r\n", "\n")).replace("\n", ends)
    except SourceError:
        return []
    if text.startswith("\ufeff"):
        new = "\ufeff" + new
    if new == text:
        return []
    old_lines, new_lines = text.splitlines(keepends=True), new.splitlines(keepends=True)
    first = _count_common(old_lines, new_lines)
    last = _count_common(old_lines[first:][::-1], new_lines[first:][::-1])
    offset = sum(map(len, old_lines[:first]))
    end = len(text) - sum(map(len, old_lines[len(old_lines) - last :])) if last else len(text)
    return [(offset, end, "".join(new_lines[first : len(new_lines) - last]))]


def _count_common(old: list[str], other: list[str]) -> int:
    """Count the lines at the beginning that are equal."""
    count = 0
    for left, right in zip(old, other, strict=False):
        if left != right:
            break
        count += 1
    return count

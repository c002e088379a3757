"""The place of a cursor in a text that may not be YAML at this moment: the keys around it, and what is before it.

`cursor_at` reads lines by their indentation, as YAML does, and flow collections (`{type: string}`) by their brackets;
it never fails. It also collects the keys of all mappings and the words beside them, so that completion knows what is
there already and which operation a step has.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lyra.core.checking.document import Path

_KEY: Final = re.compile(
    r"""("[^"\n]*"|'[^'\n]*'|[^\s#:{}\[\],&*!|>'"%@`-][^:#\n]*?|-[^\s:#][^:#\n]*?)[ \t]*:(?=[ \t]|$)"""
)
_BLOCK: Final = re.compile(r"[|>][-+0-9]*[ \t]*(?:#.*)?$")
_LINE: Final = re.compile(r"\r\n|\n|\r")
_CHARS_MAX: Final = 1 << 20  # of a text that is looked at
_DEPTH_MAX: Final = 200


class TextCursor(msgspec.Struct):
    """A place in a text. `path` names the mapping or list around a key, and the value itself elsewhere."""

    path: Path = ()
    is_key: bool = True  # a key may begin here
    is_value: bool = False  # a value, or an item of a list
    before: str = ""  # the value's or key's text before the cursor
    words: dict[Path, str] = {}  # plain values on the line of their key, in the whole text
    keys: dict[Path, list[str]] = {}  # of each mapping


class _Frame(msgspec.Struct):
    indent: int
    part: str | int


class _Scan:
    """Reads a text line by line; `frames` are the keys and items around the present line."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.frames: list[_Frame] = []
        self.block_indent = -1  # of the key whose text is a block
        self.result = TextCursor()
        self.is_found = False

    @property
    def path(self) -> Path:
        return tuple(frame.part for frame in self.frames)

    def line(self, text: str, start: int) -> None:
        has_cursor = start <= self.offset <= start + len(text) and not self.is_found
        content = text.lstrip(" ")
        indent = len(text) - len(content)
        if self.block_indent >= 0:
            if not content or indent > self.block_indent:
                if has_cursor and (content or self.offset - start > self.block_indent):
                    self.settle(self.path, text[indent : self.offset - start], is_value=True)
                return
            self.block_indent = -1
        if has_cursor:
            cut = text[: self.offset - start]
            if not cut.strip(" ") and content:
                indent, content = len(cut), ""  # before what stands on the line: as on an empty line
            if not content:
                indent = len(cut)
        if not content or content.startswith("#"):
            if has_cursor and not content:
                self.pop(indent)
                self.settle(self.path, "", is_key=True, is_value=True)
            return
        self.entries(text, indent, start, has_cursor=has_cursor)

    def pop(self, indent: int) -> None:
        """Leave what is indented as far, or further."""
        while self.frames and self.frames[-1].indent >= indent:
            self.frames.pop()

    def entries(self, text: str, indent: int, start: int, *, has_cursor: bool) -> None:
        """Read the dashes, the key and the value of a line."""
        column = indent
        end = self.offset - start if has_cursor else len(text)
        while text[column : column + 1] == "-" and text[column + 1 : column + 2] in ("", " "):
            self.item(column)
            column += 1
            while text[column : column + 1] == " ":
                column += 1
            if has_cursor and end <= column:
                self.settle(self.path, "", is_key=True, is_value=True)
                return
        match = _KEY.match(text, column)
        if match is None or len(self.frames) > _DEPTH_MAX:
            self.read_plain(text[column:end], column, has_cursor=has_cursor)
            return
        if has_cursor and end <= match.end(1):
            self.pop(column)
            self.settle(self.path, text[column:end], is_key=True)
            self.note(match[1])
            return
        self.pop(column)
        self.note(match[1])
        self.frames.append(_Frame(column, match[1].strip("'\"")))
        value_start = match.end()
        value = text[value_start:].strip()
        if _BLOCK.match(value):
            self.block_indent = indent if indent == column else column
        if value and not has_cursor:
            self.result.words.setdefault(self.path, value.strip("'\""))
        if has_cursor:
            self.value(text[value_start:end].lstrip(" "))
        elif value[:1] in ("{", "["):
            self.flow(value)

    def note(self, key: str) -> None:
        self.result.keys.setdefault(self.path, []).append(key.strip("'\""))

    def item(self, column: int) -> None:
        """Enter the next item of a list, whose dashes may stand below the first letter of its key."""
        self.pop(column + 1)
        last = self.frames[-1] if self.frames else None
        if last is not None and last.indent == column and isinstance(last.part, int):
            last.part += 1
        else:
            self.frames.append(_Frame(column, 0))

    def read_plain(self, text: str, column: int, *, has_cursor: bool) -> None:
        """Read what is no key: an item of a list, the next line of a text, or a key that is being written."""
        if not has_cursor:
            if text[:1] in ("{", "["):
                self.flow(text)
            return
        if text[:1] in ("{", "["):
            self.value(text)
            return
        if not (self.frames and isinstance(self.frames[-1].part, int)):
            self.pop(column)
        self.settle(self.path, text, is_key=True, is_value=bool(self.frames))

    def value(self, text: str) -> None:
        if text[:1] in ("{", "["):
            self.flow(text, has_cursor=True)
        else:
            self.settle(self.path, text, is_value=True)

    def flow(self, text: str, *, has_cursor: bool = False) -> None:
        """Read a flow collection up to the end of a text; with the cursor there, what is open is around it."""
        path: list[str | int] = list(self.path)
        open_marks: list[str] = []
        position = word_start = 0
        while position < len(text):
            char = text[position]
            if char in "'\"":
                position = _quote_end(text, position)
                continue
            if char in "{[" and len(open_marks) < _DEPTH_MAX:
                open_marks.append(char)
                path.append(0 if char == "[" else "")
                word_start = position + 1
            elif char in "}]" and open_marks:
                self._word(path, text[word_start:position])
                open_marks.pop()
                path.pop()
                word_start = position + 1
            elif char == "," and open_marks:
                self._word(path, text[word_start:position])
                part = path[-1]
                path[-1] = part + 1 if isinstance(part, int) else ""
                word_start = position + 1
            elif char == ":" and open_marks and path[-1] == "" and text[position + 1 : position + 2] in ("", " "):
                key = text[word_start:position].strip().strip("'\"")
                self.result.keys.setdefault(tuple(path[:-1]), []).append(key)
                path[-1] = key
                word_start = position + 1
            position += 1
        if has_cursor:
            self._settle_in_flow(path, open_marks, text[word_start:].lstrip(" "))

    def _word(self, path: list[str | int], text: str) -> None:
        if text.strip() and path[-1] != "":
            self.result.words.setdefault(tuple(path), text.strip().strip("'\""))

    def _settle_in_flow(self, path: list[str | int], open_marks: list[str], before: str) -> None:
        if not open_marks:
            self.settle(tuple(path), before, is_value=True)
        elif path[-1] == "":
            self.settle(tuple(path[:-1]), before, is_key=True)
        else:
            self.settle(tuple(path), before, is_value=True)

    def settle(self, path: Path, before: str, *, is_key: bool = False, is_value: bool = False) -> None:
        result = self.result
        result.path, result.before, result.is_key, result.is_value = path, before, is_key, is_value
        self.is_found = True


def _quote_end(text: str, position: int) -> int:
    """Return the offset behind a quoted text; the end of the text where it is open."""
    quote = text[position]
    position += 1
    while position < len(text):
        if text[position] == "\\" and quote == '"':
            position += 1
        elif text[position] == quote:
            return position + 1
        position += 1
    return position


def cursor_at(text: str, offset: int) -> TextCursor:
    """Return the place of an offset in a text."""
    text = text[:_CHARS_MAX]
    scan = _Scan(min(offset, len(text)))
    start = 0
    for match in _LINE.finditer(text):
        scan.line(text[start : match.start()], start)
        start = match.end()
    scan.line(text[start:], start)
    return scan.result

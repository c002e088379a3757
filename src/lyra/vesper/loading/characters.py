"""Where the characters of a YAML scalar stand in its file.

A quoted, folded or block text is not in the file character by character: quotes, escapes, line breaks and
indentation come between. `character_places` walks the file and the text side by side and gives the place of each
character, and of the end. Where the two cannot be matched, the rest has the place of the last match.
"""

from __future__ import annotations

import re
from typing import Final

from lyra.core.checking.document import ScalarText

_BREAK: Final = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_SPACE: Final = " \t\r\n\x85\u2028\u2029"
_HEX_ESCAPES: Final = {"x": 2, "u": 4, "U": 8}


def line_starts(text: str) -> list[int]:
    """The offsets at which lines begin."""
    return [0, *(match.end() for match in _BREAK.finditer(text))]


def character_places(text: str, starts: list[int], scalar: ScalarText) -> list[tuple[int, int]]:
    """A place for each character of the scalar's text and one for its end."""
    begin = starts[min(scalar.line, len(starts)) - 1] + scalar.column - 1
    offsets = (_block if scalar.style in ("|", ">") else _flow)(text, begin, scalar)
    return _places(offsets, starts, min(scalar.line, len(starts)) - 1)


def _places(offsets: list[int], starts: list[int], line: int) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    for offset in offsets:
        while line + 1 < len(starts) and starts[line + 1] <= offset:
            line += 1
        places.append((line + 1, offset - starts[line] + 1))
    return places


def _flow(text: str, begin: int, scalar: ScalarText) -> list[int]:
    """Plain and quoted scalars: a run of blanks with a line break stands for a space or for line breaks."""
    quote = scalar.style
    position = begin + len(quote)
    offsets: list[int] = []
    folded = False  # inside a run that stands for more than one line break
    for char in scalar.text:
        if folded and char == "\n":
            offsets.append(position)
            continue
        folded = False
        position, width = _next(text, position, quote)
        if width == 1 and position < len(text) and text[position] in _SPACE and char in " \n":
            run = _run_end(text, position)
            offsets.append(position)
            if _BREAK.search(text, position, run):
                position, folded = run, True
            else:
                position += 1
            continue
        offsets.append(min(position, len(text)))
        position += width
    return [*offsets, min(position, len(text))]


def _next(text: str, position: int, quote: str) -> tuple[int, int]:
    """Where the next character is written, and how many characters of the file that takes."""
    if quote == "'" and text.startswith("''", position):
        return position, 2
    if quote != '"':
        return position, 1
    while text.startswith("\\", position) and text[position + 1 : position + 2] in ("\n", "\r"):
        position = _run_end(text, position + 1)  # an escaped line break stands for nothing
    if not text.startswith("\\", position):
        return position, 1
    return position, 2 + _HEX_ESCAPES.get(text[position + 1 : position + 2], 0)


def _run_end(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _block(text: str, begin: int, scalar: ScalarText) -> list[int]:
    """Block scalars: lines after the header, without their indentation."""
    header = _BREAK.search(text, begin)
    position = header.end() if header else len(text)
    indent = _indentation(text, position)
    offsets: list[int] = []
    position = _after_indent(text, position, indent)
    for char in scalar.text:
        while char not in " \n\t" and position < len(text) and text[position] in _SPACE:
            position += 1
        offsets.append(min(position, len(text)))
        if char in " \n" and position < len(text) and text[position] in "\r\n":
            match = _BREAK.match(text, position)
            assert match is not None
            position = _after_indent(text, match.end(), indent)
        else:
            position += 1
    return [*offsets, min(position, len(text))]


def _indentation(text: str, position: int) -> int:
    """The blanks before the first line that is not empty."""
    for row in _BREAK.split(text[position : position + 65_536]):
        if row.strip():
            return len(row) - len(row.lstrip(" "))
    return 0


def _after_indent(text: str, position: int, indent: int) -> int:
    end = position + indent
    while position < min(end, len(text)) and text[position] == " ":
        position += 1
    return position

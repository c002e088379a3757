"""Lines of styled text, and how they are laid out: wrapped, cut, and set in columns.

A line is a list of (style, text) pairs without line ends. Tool calls have a column for the verb, one for its object and
figures at the right edge; on a narrow terminal the figures are moved below. Widths are counted in cells of the
terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from prompt_toolkit.utils import get_cwidth

Line: TypeAlias = list[tuple[str, str]]

MARGIN: Final = 2
OBJECT_COLUMN: Final = 10
NARROW_COLUMNS: Final = 60  # below this the figures stand under their line
_GAP: Final = 2


def width_of(line: Line) -> int:
    return sum(get_cwidth(text) for _, text in line)


def plain_text(line: Line) -> str:
    return "".join(text for _, text in line)


def indented(lines: Sequence[Line], columns: int) -> list[Line]:
    return [[("", " " * columns), *line] if line else line for line in lines]


def clip_text(text: str, width: int, mark: str = "…") -> str:
    """The text, cut at its end to fit."""
    if get_cwidth(text) <= width:
        return text
    room = width - get_cwidth(mark)
    return _first_cells(text, room) + mark if room > 0 else _first_cells(text, max(0, width))


def cut_start(text: str, width: int, mark: str = "…") -> str:
    """The text, cut at its start to fit: of a path the file name stays."""
    if get_cwidth(text) <= width:
        return text
    room = width - get_cwidth(mark)
    return mark + _first_cells(text[::-1], room)[::-1] if room > 0 else _first_cells(text, max(0, width))


def _first_cells(text: str, width: int) -> str:
    cells = 0
    for index, char in enumerate(text):
        cells += get_cwidth(char)
        if cells > width:
            return text[:index]
    return text


def clip(line: Line, width: int, mark: str = "…") -> Line:
    """The line, cut at its end to fit."""
    if width_of(line) <= width:
        return line
    kept: Line = []
    left = width
    for style, text in line:
        cells = get_cwidth(text)
        if cells >= left:
            kept.append((style, clip_text(text + " " * (cells == left), left, mark)))
            return kept
        kept.append((style, text))
        left -= cells
    return kept


def wrap_text(text: str, width: int) -> list[str]:
    """One line of text as lines that fit, broken at blanks where there are any."""
    width = max(1, width)
    if get_cwidth(text) <= width:
        return [text]
    lines: list[str] = []
    while get_cwidth(text) > width:
        head = _first_cells(text, width)
        if not head:
            head = text[0]
        cut = head.rfind(" ")
        if len(head) < len(text) and text[len(head)] != " " and cut > 0 and head[:cut].strip():
            head = head[:cut]
        lines.append(head.rstrip())
        text = text[len(head) :].lstrip(" ")
    return [*lines, text] if text else lines


def wrap(line: Line, width: int, *, hanging: int = 0) -> list[Line]:
    """A styled line as lines that fit; those after the first are indented by `hanging`."""
    if width_of(line) <= width:
        return [line]
    rows: list[Line] = [[]]
    left = width
    for style, text in line:
        for word in _words(text):
            cells = get_cwidth(word)
            if cells > left and rows[-1] and width - hanging >= cells:
                rows.append([("", " " * hanging)] if hanging else [])
                left = width - hanging
                word = word.lstrip(" ")  # noqa: PLW2901 - a line does not begin with a blank
                cells = get_cwidth(word)
            while cells > left:
                head = _first_cells(word, left)
                if not head and left >= width - hanging:
                    head = word[0]  # wider than a whole line
                rows[-1] += [(style, head)] if head else []
                rows.append([("", " " * hanging)] if hanging else [])
                left = width - hanging
                word = word[len(head) :]  # noqa: PLW2901 - the rest of a long word
                cells = get_cwidth(word)
            if word:
                rows[-1].append((style, word))
                left -= cells
    return rows


def _words(text: str) -> list[str]:
    """The text in pieces that may be separated: each word with the blanks before it."""
    pieces: list[str] = []
    start = 0
    for index in range(1, len(text)):
        if text[index] == " " and text[index - 1] != " ":
            pieces.append(text[start:index])
            start = index
    return [*pieces, text[start:]] if text else []


def row(verb: str, about: Line, figures: Line, width: int, *, verb_style: str = "verb", mark: str = "…") -> list[Line]:
    """A tool call: verb, object, figures at the right edge; on a narrow terminal the figures stand below."""
    head: Line = [("", " " * MARGIN), (verb_style, verb)]
    head.append(("", " " * max(1, OBJECT_COLUMN - MARGIN - get_cwidth(verb))))
    start, right = width_of(head), width_of(figures)
    if not figures or width < NARROW_COLUMNS:
        lines = [[*head, *clip(about, max(4, width - start), mark)]]
        if figures:
            first = (figures[0][0], figures[0][1].lstrip())  # it was padded for the right edge
            lines.append([("", " " * OBJECT_COLUMN), *clip([first, *figures[1:]], max(4, width - OBJECT_COLUMN), mark)])
        return lines
    middle = clip(about, max(8, width - start - right - _GAP), mark)
    blanks = max(_GAP, width - start - width_of(middle) - right)
    return [[*head, *middle, ("", " " * blanks), *figures]]

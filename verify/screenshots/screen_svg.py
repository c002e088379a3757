"""Draws rows of a terminal's screen as SVG: monospaced text on a dark ground, one `<text>` for each style.

No font is embedded and nothing is loaded: `textLength` holds the columns in whatever font a viewer has. The same rows
give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Final, NamedTuple

__all__ = ["Cell", "Row", "draw_rows"]

_CHARACTER: Final = 8.4  # the width of a column, in pixels
_LINE: Final = 18
_PADDING: Final = 16
_FONTS: Final = "ui-monospace, Menlo, Consolas, monospace"
_GROUND: Final = "#1b1f27"
_COLOURS: Final = {
    "default": "#d7dce4",
    "black": "#1b1f27",
    "red": "#f08a80",
    "green": "#8fce8f",
    "brown": "#e6c46a",  # what pyte calls yellow
    "blue": "#86b1f0",
    "magenta": "#d79be0",
    "cyan": "#7fd0d0",
    "white": "#d7dce4",
    "brightblack": "#858e9c",
}


class Cell(NamedTuple):
    """One character and its look."""

    text: str
    colour: str = "default"
    bold: bool = False
    underscore: bool = False
    italics: bool = False

    @property
    def style(self) -> str:
        """The attributes of a `<text>` with this look; empty for the usual one."""
        known = _COLOURS.get(self.colour, _COLOURS["default"])
        parts = [f'fill="{known}"'] if known != _COLOURS["default"] else []
        parts += ['font-weight="700"'] if self.bold else []
        parts += ['text-decoration="underline"'] if self.underscore else []
        parts += ['font-style="italic"'] if self.italics else []
        return " ".join(parts)


Row = Sequence[Cell]


def draw_rows(title: str, rows: Sequence[Row], columns: int) -> str:
    """The picture of these rows; `title` is read out where the picture cannot be seen."""
    width = round(columns * _CHARACTER + 2 * _PADDING)
    height = len(rows) * _LINE + 2 * _PADDING
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{_GROUND}"/>',
        f'<g font-family="{_FONTS}" font-size="14" fill="{_COLOURS["default"]}">',
    ]
    for number, row in enumerate(rows):
        lines += _drawn(row, _PADDING + (number + 1) * _LINE - 5)
    return "\n".join([*lines, "</g>", "</svg>", ""])


def _drawn(row: Row, y: int) -> list[str]:
    """The texts of a row; stretches of spaces are left out, which keeps the file small and the columns exact."""
    texts: list[str] = []
    column = 0
    for style, cells in groupby(row, key=lambda cell: cell.style):
        text = "".join(cell.text for cell in cells)
        for part, begin in _words(text):
            x = _PADDING + (column + begin) * _CHARACTER
            look = f" {style}" if style else ""
            length = len(part) * _CHARACTER
            texts.append(f'<text x="{x:.1f}" y="{y}" textLength="{length:.1f}"{look}>{escape(part)}</text>')
        column += len(text)
    return texts


def _words(text: str) -> list[tuple[str, int]]:
    """The parts of a text that are more than one space apart, with the column of each."""
    parts: list[tuple[str, int]] = []
    begin = 0
    for piece in text.split("  "):
        word = piece.strip(" ")
        if word:
            parts.append((word, begin + piece.index(word)))
        begin += len(piece) + 2
    return parts

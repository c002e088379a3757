"""A table as styled lines: columns as wide as their cells, wrapped where the terminal is too narrow for them.

Columns of numbers are set to the right. The widest columns are narrowed first, none below `_COLUMN_LEAST`. Where that
is not enough, each row is a paragraph: its first cell, and below it the others, each behind the title of its column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prompt_toolkit.utils import get_cwidth

from lyra.sage.terminal.text.styled_lines import Line, wrap_text

_GAP: Final = 2
_COLUMN_LEAST: Final = 8


def table_lines(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[Line]:
    """The lines of a table; without a heading where no column has a title."""
    columns = max([len(titles), *map(len, rows)], default=0)
    head = [[*titles, *[""] * (columns - len(titles))]] if any(titles) else []
    body = [[*row, *[""] * (columns - len(row))] for row in rows]
    if not head and not body:
        return []
    sizes = _sizes([*head, *body], columns, width)
    if sum(sizes) + _GAP * (columns - 1) > width:
        return [line for row in body for line in _paragraph(head[0] if head else [""] * columns, row, width)]
    numeric = [bool(body) and all(_is_number(row[index]) for row in body) for index in range(columns)]
    lines: list[Line] = []
    for row in head:
        lines += _row(row, sizes, numeric, "strong")
    for row in body:
        lines += _row(row, sizes, numeric, "")
    return lines


def _sizes(rows: Sequence[Sequence[str]], columns: int, width: int) -> list[int]:
    sizes = [max(get_cwidth(row[index]) for row in rows) for index in range(columns)]
    room = width - _GAP * (columns - 1)
    while sum(sizes) > room:
        widest = max(range(columns), key=lambda index: (sizes[index], index))
        if sizes[widest] <= _COLUMN_LEAST:
            break
        sizes[widest] -= 1
    return sizes


def _paragraph(titles: Sequence[str], cells: Sequence[str], width: int) -> list[Line]:
    """A row that is too wide for the terminal; a title and its cell stay together where they fit."""
    name = f"{titles[0]} {cells[0]}".strip() if _is_number(cells[0]) else cells[0]
    others = [f"{title} {cell}".strip() for title, cell in zip(titles[1:], cells[1:], strict=True) if cell]
    lines: list[Line] = [[("strong", text)] for text in wrap_text(name, width)]
    blanks, joined = " " * _GAP, ""
    for text in others:
        longer = f"{joined}{blanks}{text}" if joined else text
        if joined and get_cwidth(longer) > width - _GAP:
            lines += [[("", f"{blanks}{joined}")]]
            longer = text
        *whole, joined = wrap_text(longer, max(1, width - _GAP)) or [""]
        lines += [[("", f"{blanks}{part}")] for part in whole]
    return [*lines, [("", f"{blanks}{joined}")]] if joined else lines


def _row(cells: Sequence[str], sizes: Sequence[int], numeric: Sequence[bool], style: str) -> list[Line]:
    """One row; a cell that does not fit goes on in the lines below."""
    parts = [wrap_text(cell, size) if size else [""] for cell, size in zip(cells, sizes, strict=True)]
    lines: list[Line] = []
    for number in range(max(map(len, parts))):
        texts = []
        for part, size, right in zip(parts, sizes, numeric, strict=True):
            text = part[number] if number < len(part) else ""
            blanks = " " * (size - get_cwidth(text))
            texts.append(f"{blanks}{text}" if right else f"{text}{blanks}")
        lines.append([(style, (" " * _GAP).join(texts).rstrip())])
    return lines


def _is_number(text: str) -> bool:
    digits = text.lstrip("-$+").replace(",", "").replace(".", "").replace(" ", "").rstrip("%")
    return digits.isdecimal()

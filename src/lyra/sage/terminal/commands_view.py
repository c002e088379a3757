"""Slash commands on the screen: runs a command of `lyra.sage.commands` and lays out the blocks of its result.

A block is plain data: `text`, `lines`, `table`, `bars` or `diff`. What a command does is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from prompt_toolkit.utils import get_cwidth

from lyra.sage.terminal.facts import TerminalFacts
from lyra.sage.terminal.text.diff_view import diff_lines
from lyra.sage.terminal.text.markdown_view import markdown_lines
from lyra.sage.terminal.text.styled_lines import (
    MARGIN,
    Line,
    clip_text,
    exact,
    indent_lines,
    scrub,
    scrub_lines,
    wrap,
    wrap_text,
)

if TYPE_CHECKING:
    from lyra.sage.commands.result import Choices, SlashResult


_BAR_COLUMNS: Final = 30


class ShownResult:
    """The result of a command: its blocks, a prompt to send and how, a session to open, whether to leave."""

    __slots__ = ("_result", "blocks")

    def __init__(self, result: SlashResult) -> None:
        self._result = result
        self.blocks = result.blocks

    @property
    def prompt(self) -> str | None:
        return self._result.prompt

    @property
    def send_with(self) -> dict[str, Any]:
        return self._result.send_with

    @property
    def choices(self) -> Choices | None:
        return self._result.choices

    @property
    def draft(self) -> str:
        return self._result.draft

    @property
    def themes(self) -> tuple[str, ...]:
        return self._result.themes

    @property
    def exit(self) -> bool:
        return self._result.exit

    async def open_session(self, session: Any) -> bool:
        """Open the session that the command has asked for, in place of this one; False where it has asked for none."""
        wanted = self._result
        if not wanted.open_session:
            return False
        await session.switch(wanted.open_session, fork=wanted.fork, before_turn=wanted.before_turn)
        return True

    def lines(self, width: int, facts: TerminalFacts) -> list[Line]:
        lines: list[Line] = []
        for block in self.blocks:
            if lines:
                lines.append([])
            lines += block_lines(block, width, facts)
        return lines


def is_command(text: str) -> bool:
    """Return whether a line is a slash command; a path that begins with a slash, such as a dropped picture's, is
    not."""
    return text.startswith("/") and "/" not in text[1:].partition(" ")[0]


def only_reads(text: str) -> bool:
    """Return whether a command is answered while a turn is under way."""
    from lyra.sage.commands.registry import only_reads

    return only_reads(text)


async def run_slash_command(session: Any, text: str) -> ShownResult:
    from lyra.sage.commands.registry import run_command

    return ShownResult(await run_command(session, text))


def block_lines(block: Any, width: int, facts: TerminalFacts) -> list[Line]:
    """Return the lines of one block; a text may represent itself."""
    if isinstance(block, str):
        block = {"type": "text", "text": block}
    lay_out = _BLOCKS.get(str(block.get("type")), _lines)
    words = f"{' ' * MARGIN}{exact(str(block.get('title', '')))}"
    title = wrap([("strong", words)], width, hanging=MARGIN) if block.get("title") else []
    return [*title, *lay_out(block, width, facts)]


def _text(block: Mapping[str, Any], width: int, facts: TerminalFacts) -> list[Line]:
    return indent_lines(markdown_lines(str(block.get("text", "")), width - MARGIN, colour=facts.colour), MARGIN)


def _lines(block: Mapping[str, Any], width: int, _facts: TerminalFacts) -> list[Line]:
    value = block.get("lines", block.get("text", ""))
    texts = value.split("\n") if isinstance(value, str) else [str(text) for text in value]
    rows = [row for text in texts for part in scrub_lines(text) or [""] for row in wrap_text(part, width - MARGIN)]
    return indent_lines([[("", row)] for row in rows], MARGIN)


def _table(block: Mapping[str, Any], width: int, _facts: TerminalFacts) -> list[Line]:
    titles = [scrub(str(title)) for title in block.get("columns", ())]
    rows = [[scrub(str(cell)).replace("\n", " ") for cell in row] for row in block.get("rows", ())]
    return indent_lines(table_lines(titles, rows, width - MARGIN), MARGIN)


def _bars(block: Mapping[str, Any], width: int, facts: TerminalFacts) -> list[Line]:
    """Rows of (name, value, words): a bar as long as the value's share of the largest, or of `of`."""
    rows = [tuple(row) for row in block.get("rows", ())]
    most = float(block.get("of") or max((float(row[1]) for row in rows), default=0.0) or 1.0)
    names = max((get_cwidth(scrub(str(row[0]))) for row in rows), default=0)
    room = max(5, min(_BAR_COLUMNS, width - MARGIN - names - 20))
    lines: list[Line] = []
    for row in rows:
        name, value = scrub(str(row[0])), float(row[1])
        filled = round(room * min(1.0, max(0.0, value / most)))
        bar = facts.marks.bar * filled + " " * (room - filled)
        words = scrub(str(row[2])) if len(row) > 2 else f"{value:g}"
        head = f"{' ' * MARGIN}{name}{' ' * (names - get_cwidth(name))}  "
        lines.append(
            [("", head), ("spinner", bar), ("faint", clip_text(f"  {words}", max(8, width - get_cwidth(head) - room)))]
        )
    return lines


def _diff(block: Mapping[str, Any], width: int, facts: TerminalFacts) -> list[Line]:
    text = str(block.get("diff", block.get("text", "")))
    return diff_lines(text, width, marks=facts.marks, indent=MARGIN, names=True)


_BLOCKS: Final[dict[str, Callable[[Mapping[str, Any], int, TerminalFacts], list[Line]]]] = {
    "text": _text,
    "lines": _lines,
    "table": _table,
    "bars": _bars,
    "diff": _diff,
}


# ---------------------------------------------------------------- table

_GAP: Final = 2
_COLUMN_LEAST: Final = 8


def table_lines(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[Line]:
    """Return the lines of a table; without a heading where no column has a title."""
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
    """Return a row that is too wide for the terminal; a title and its cell stay together where they fit."""
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
    """One row; a cell that does not fit continues in the lines below."""
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

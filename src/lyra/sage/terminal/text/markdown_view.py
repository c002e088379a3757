"""A complete block of Markdown as styled lines, with highlighted code; rich does the layout, imported at first use.

Links show their address as text (the terminal gets no hyperlinks), HTML is shown as it is written, and code uses the
terminal's own colours. Where rich fails on a text, the text is shown as it is. MarkdownStream cuts a streamed text into
blocks: one is given out when the text shows that it is complete.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from lyra.sage.terminal.text.styled_lines import Line, scrub, style_of, wrap_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.style import Style


_PROSE_COLUMNS_MAX: Final = 96
_BARE_FENCE: Final = re.compile(r"^( *)(`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_ATTRIBUTES: Final = ("bold", "dim", "italic", "underline", "reverse", "strike")
_STYLES: Final = {
    "markdown.code": "cyan",
    "markdown.code_block": "none",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold underline",
    "markdown.h3": "bold",
    "markdown.h4": "bold",
    "markdown.h5": "bold",
    "markdown.h6": "bold",
    "markdown.h7": "bold",
    "markdown.link": "underline",
    "markdown.link_url": "dim",
    "markdown.item.bullet": "none",
    "markdown.item.number": "none",
    "markdown.list": "none",
    "markdown.block_quote": "italic",
    "markdown.hr": "dim",
    "markdown.table.header": "bold",
    "markdown.table.border": "dim",
}


def load() -> None:
    """Import what rendering needs; called in a thread while the user types the first prompt."""
    markdown_lines("# a\n\n- b\n\n```python\nc = 1\n```", 40, colour=True)


def markdown_lines(text: str, width: int, *, colour: bool) -> list[Line]:
    """Return the lines of one block."""
    text = scrub(text)
    try:
        return _render(text, width, colour=colour)
    except Exception:  # noqa: BLE001 - a text that the layout cannot take is shown as it is
        return [[("", line)] for part in text.split("\n") for line in wrap_text(part, width)]


def _render(text: str, width: int, *, colour: bool) -> list[Line]:
    is_prose = not _BARE_FENCE.search(text) and "|" not in text
    console = _console(colour)
    options = console.options.update(width=min(width, _PROSE_COLUMNS_MAX) if is_prose else width)
    lines: list[Line] = []
    for segments in console.render_lines(_document(text, colour=colour), options, pad=False):
        line = [(_style_words(style), part) for part, style, control in segments if part and not control]
        lines.append(_without_end_blanks(line))
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        del lines[0]
    return lines


def _without_end_blanks(line: Line) -> Line:
    while line and not line[-1][1].strip():
        line.pop()
    if line:
        line[-1] = (line[-1][0], line[-1][1].rstrip())
    return line


@lru_cache(maxsize=256)
def _style_words(style: Style | None) -> str:
    """Return a style of rich in the words of a theme."""
    if style is None:
        return ""
    words = [name for name in _ATTRIBUTES if getattr(style, name)]
    number = style.color.number if style.color is not None and style.color.number is not None else None
    if number is not None and number < 16:
        words.append(_COLOURS[number])
    return " ".join(words)


_COLOURS: Final = (
    *("ansiblack", "ansired", "ansigreen", "ansiyellow", "ansiblue", "ansimagenta", "ansicyan", "ansigray"),
    *("ansibrightblack", "ansibrightred", "ansibrightgreen", "ansibrightyellow", "ansibrightblue"),
    *("ansibrightmagenta", "ansibrightcyan", "ansiwhite"),
)


@lru_cache(maxsize=2)
def _console(colour: bool) -> Console:
    import io

    from rich.console import Console
    from rich.theme import Theme

    return Console(
        file=io.StringIO(),
        width=80,
        color_system="standard" if colour else None,
        force_terminal=False,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        markup=False,
        theme=Theme(_STYLES),
        _environ={},
    )


@lru_cache(maxsize=1)
def _parser() -> Any:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


def _document(text: str, *, colour: bool) -> Any:
    from lyra.sage.terminal.text.markdown_elements import PlainMarkdown

    document = PlainMarkdown("", code_theme=style_of("highlighter") if colour else "bw", hyperlinks=False)
    document.parsed = _parser().parse(text)
    return document


# ---------------------------------------------------------------- markdown stream

_FENCE: Final = re.compile(r"( *)(`{3,}|~{3,})(.*)")
_ITEM: Final = re.compile(r" *(?:[-*+]|\d{1,9}[.)])(?: |$)")
_HEADING: Final = re.compile(r" {0,3}#{1,6}(?: |$)")
_RULE: Final = re.compile(r" {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$")


class MarkdownStream:
    """The state between two pieces of a text."""

    __slots__ = ("_chars", "_fence", "_in_list", "_lines", "_rest")

    def __init__(self) -> None:
        self._rest = ""  # the last line, without its end
        self._lines: list[str] = []  # of the block that is open
        self._chars = 0  # of these lines
        self._fence = ""  # the mark that ends the code that is open
        self._in_list = False

    @property
    def tail(self) -> str:
        """The text of the block that is not complete."""
        return "\n".join([*self._lines, self._rest]) if self._rest else "\n".join(self._lines)

    @property
    def tail_chars(self) -> int:
        """About how many characters are not complete."""
        return self._chars + len(self._rest)

    @property
    def tail_is_code(self) -> bool:
        return bool(self._fence) and not self._in_list

    def feed(self, piece: str) -> list[str]:
        """Take the next piece; gives the blocks that are complete now."""
        *lines, self._rest = (self._rest + piece).split("\n")
        blocks: list[str] = []
        for line in lines:
            self._chars += len(line)
            self._take(line.rstrip("\r"), blocks)
        return blocks

    def finish(self) -> list[str]:
        """Return the end of the text: what is left is complete."""
        blocks: list[str] = []
        if self._rest:
            self._take(self._rest, blocks)
            self._rest = ""
        self._close(blocks)
        self._fence = ""
        return blocks

    def _take(self, line: str, blocks: list[str]) -> None:
        if self._fence:
            self._take_code(line, blocks)
        elif not line.strip():
            self._take_blank(blocks)
        else:
            self._take_text(line, blocks)

    def _take_code(self, line: str, blocks: list[str]) -> None:
        self._lines.append(line)
        mark = line.strip()
        if mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            self._fence = ""
            if not self._in_list:
                self._close(blocks)

    def _take_blank(self, blocks: list[str]) -> None:
        if self._in_list:
            self._lines.append("")  # the next line shows whether the list continues
        else:
            self._close(blocks)

    def _take_text(self, line: str, blocks: list[str]) -> None:
        is_item = _ITEM.match(line) is not None and _RULE.fullmatch(line) is None
        if self._in_list and not is_item and not line.startswith("  ") and not self._lines[-1]:
            self._close(blocks)
        fence = _FENCE.match(line)
        if fence is not None and not (fence[2][0] == "`" and "`" in fence[3]):
            if not (self._in_list and len(fence[1]) >= 2):
                self._close(blocks)
            self._fence = fence[2]
            self._lines.append(line)
            return
        if _HEADING.match(line):
            self._close(blocks)
            blocks.append(line)
            return
        if is_item and not self._in_list:
            self._close(blocks)
            self._in_list = True
        self._lines.append(line)

    def _close(self, blocks: list[str]) -> None:
        text = "\n".join(self._lines).rstrip()
        if text.strip():
            blocks.append(text)
        self._lines = []
        self._chars = 0
        self._in_list = False

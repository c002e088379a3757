"""A complete block of Markdown as styled lines, with highlighted code; rich does the layout, imported at first use.

Links show their address as text (the terminal gets no hyperlinks), HTML is shown as it is written, and code uses the
terminal's own colours. Where rich fails on a text, the text is shown as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from lyra.sage.terminal.text.safe_text import shown
from lyra.sage.terminal.text.styled_lines import Line, wrap_text

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
    """The lines of one block."""
    text = shown(text)
    try:
        return _rendered(text, width, colour=colour)
    except Exception:  # noqa: BLE001 - a text that the layout cannot take is shown as it is
        return [[("", line)] for part in text.split("\n") for line in wrap_text(part, width)]


def _rendered(text: str, width: int, *, colour: bool) -> list[Line]:
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
    """A style of rich in the words of `theme`."""
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

    document = PlainMarkdown("", code_theme="ansi_dark" if colour else "bw", hyperlinks=False)
    document.parsed = _parser().parse(text)
    return document

"""Styles and marks of the terminal: one table of style names, one of marks for UTF-8 and ASCII.

A style is a name of `STYLES` or an inline style of prompt_toolkit such as `bold ansigreen`; both are understood by the
live block and by printed lines (`sgr`). Colour carries meaning only, and each meaning has a word or a mark as well, so
that a screen without colour says the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

STYLES: Final[dict[str, str]] = {
    "": "",
    "faint": "dim",
    "strong": "bold",
    "verb": "bold",
    "user": "bold",
    "added": "ansigreen",
    "added-word": "ansigreen bold underline",
    "removed": "ansired",
    "removed-word": "ansired bold underline",
    "waits": "ansiyellow",
    "key": "ansiyellow bold",
    "failed": "ansired bold",
    "spinner": "ansicyan",
    "mode": "ansimagenta bold",
    "selected": "reverse",
    "code": "ansicyan",
    "link": "underline",
    "quote": "italic",
    "heading": "bold underline",
}
_ATTRIBUTES: Final = {"bold": "1", "dim": "2", "italic": "3", "underline": "4", "reverse": "7", "strike": "9"}
_COLOURS: Final = {
    "ansiblack": "30",
    "ansired": "31",
    "ansigreen": "32",
    "ansiyellow": "33",
    "ansiblue": "34",
    "ansimagenta": "35",
    "ansicyan": "36",
    "ansigray": "37",
    "ansibrightblack": "90",
    "ansibrightred": "91",
    "ansibrightgreen": "92",
    "ansibrightyellow": "93",
    "ansibrightblue": "94",
    "ansibrightmagenta": "95",
    "ansibrightcyan": "96",
    "ansiwhite": "97",
}


class Marks(NamedTuple):
    """The marks that are not letters or digits."""

    prompt: str
    continued: str
    minus: str
    plus_minus: str
    ellipsis: str
    dot: str
    bar: str
    rule: str
    done: str
    open: str
    current: str
    spinner: tuple[str, ...]


MARKS: Final = Marks("›", "…", "−", "±", "…", "·", "█", "─", "✓", "○", "▸", tuple("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"))
ASCII_MARKS: Final = Marks(">", "~", "-", "+-", "~", "*", "#", "-", "x", "o", ">", ("|", "/", "-", "\\"))


@lru_cache(maxsize=512)
def inline_style(style: str, *, colour: bool) -> str:
    """The style as prompt_toolkit writes it, without colours where there are none."""
    words = [word for part in style.split() for word in STYLES.get(part, part).split()]
    return " ".join(word for word in words if colour or word not in _COLOURS)


@lru_cache(maxsize=512)
def sgr(style: str, *, colour: bool) -> str:
    """The escape sequence that begins a style; empty for none."""
    codes = [_ATTRIBUTES.get(word) or _COLOURS.get(word, "") for word in inline_style(style, colour=colour).split()]
    joined = ";".join(code for code in codes if code)
    return f"\x1b[{joined}m" if joined else ""

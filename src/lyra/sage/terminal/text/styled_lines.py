"""Lines of styled text, and how they are laid out: wrapped, cut, and set in columns.

A line is a list of (style, text) pairs without line ends. Tool calls have a column for the verb, one for its object and
figures at the right edge; on a narrow terminal the figures are moved below. Widths are counted in cells of the
terminal. All text from models, tools and files is made harmless here first (`exact`, `scrub`). Styles and marks
are one table each; only `encode_line` and the screen turn them into escape sequences.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from prompt_toolkit.utils import get_cwidth

from lyra.core.secrets.visible import visible, without_invisible

Line: TypeAlias = list[tuple[str, str]]

MARGIN: Final = 2
OBJECT_COLUMN: Final = 10
NARROW_COLUMNS: Final = 60  # below this the figures stand under their line
_GAP: Final = 2


def width_of(line: Line) -> int:
    return sum(get_cwidth(text) for _, text in line)


def strip_style(line: Line) -> str:
    return "".join(text for _, text in line)


def indent_lines(lines: Sequence[Line], columns: int) -> list[Line]:
    return [[("", " " * columns), *line] if line else line for line in lines]


def clip_text(text: str, width: int, mark: str = "…") -> str:
    """Return the text, cut at its end to fit."""
    if get_cwidth(text) <= width:
        return text
    room = width - get_cwidth(mark)
    return _first_cells(text, room) + mark if room > 0 else _first_cells(text, max(0, width))


def cut_start(text: str, width: int, mark: str = "…") -> str:
    """Return the text, cut at its start to fit: of a path the file name stays."""
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
    """Return the line, cut at its end to fit."""
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
    """Return a styled line as lines that fit; those after the first are indented by `hanging`."""
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
    """Return the text in pieces that may be separated: each word with the blanks before it."""
    pieces: list[str] = []
    start = 0
    for index in range(1, len(text)):
        if text[index] == " " and text[index - 1] != " ":
            pieces.append(text[start:index])
            start = index
    return [*pieces, text[start:]] if text else []


def row(verb: str, about: Line, figures: Line, width: int, *, verb_style: str = "verb", mark: str = "…") -> list[Line]:
    """Return a tool call: verb, object, figures at the right edge; on a narrow terminal the figures stand below."""
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


# ---------------------------------------------------------------- encoding


def encode_line(line: Line, *, colour: bool, unicode: bool) -> str:
    """Return a line with its styles. Every finished line of the live screen passes here."""
    parts: list[str] = []
    for style, text in line:
        start = sgr(style, colour=colour)
        safe = for_output(text, unicode=unicode)
        parts.append(f"{start}{safe}\x1b[0m" if start else safe)
    return "".join(parts)


# ---------------------------------------------------------------- theme

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
    "highlighter": "ansi_dark",  # the name of the colours of code
}
# What a theme has otherwise than STYLES.
THEMES: Final[dict[str, dict[str, str]]] = {
    "dark": {},
    "light": {
        "highlighter": "ansi_light",
        "faint": "ansibrightblack",
        "waits": "ansiblue",
        "key": "ansiblue bold",
        "spinner": "ansiblue",
        "code": "ansiblue",
    },
    "contrast": {
        "faint": "",
        "added": "ansibrightgreen bold",
        "removed": "ansibrightred bold",
        "waits": "ansibrightyellow bold",
        "spinner": "ansibrightcyan bold",
        "code": "ansibrightcyan",
    },
    "colour-blind": {
        "added": "ansibrightblue",
        "added-word": "ansibrightblue bold underline",
        "removed": "ansiyellow",
        "removed-word": "ansiyellow bold underline",
        "waits": "ansimagenta",
        "key": "ansimagenta bold",
        "failed": "ansiyellow bold reverse",
    },
}
_styles: dict[str, str] = dict(STYLES)  # those of the theme in use
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


def use_theme(name: str) -> None:
    """Take the colours of a theme from now on."""
    _styles.update({**STYLES, **THEMES[name]})
    inline_style.cache_clear()
    sgr.cache_clear()


def theme_samples(names: Sequence[str]) -> list[Line]:
    """Return a line for each theme in its own colours."""
    words = {"added": "+ added", "removed": "- removed", "waits": "waits", "failed": "failed", "code": "code"}
    styles = {name: {**STYLES, **THEMES[name]} for name in names}
    samples = {name: [(style[key], f"{word}  ") for key, word in words.items()] for name, style in styles.items()}
    return [[("", f"{' ' * MARGIN}{name:<14}"), *samples[name], (styles[name]["faint"], "faint")] for name in names]


def style_of(name: str) -> str:
    """Return a style of the theme in use, in the words of prompt_toolkit."""
    return _styles.get(name, name)


@lru_cache(maxsize=512)
def inline_style(style: str, *, colour: bool) -> str:
    """Return the style as prompt_toolkit writes it, without colours where there are none."""
    words = [word for part in style.split() for word in style_of(part).split()]
    return " ".join(word for word in words if colour or word not in _COLOURS)


@lru_cache(maxsize=512)
def sgr(style: str, *, colour: bool) -> str:
    """Return the escape sequence that begins a style; empty for none."""
    codes = [_ATTRIBUTES.get(word) or _COLOURS.get(word, "") for word in inline_style(style, colour=colour).split()]
    joined = ";".join(code for code in codes if code)
    return f"\x1b[{joined}m" if joined else ""


# ---------------------------------------------------------------- safe text

_TAB_COLUMNS: Final = 4
# CSI, OSC and other string sequences, and two-character escapes; also their 8-bit forms.
_SEQUENCES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
)
_OVERWRITTEN: Final = re.compile(r"[^\n]*\r(?=[^\n])")
_NOT_PRINTED: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_ASCII: Final = {
    **dict.fromkeys(map(ord, "‘’‚′"), "'"),
    **dict.fromkeys(map(ord, "“”„″"), '"'),
    **dict.fromkeys(map(ord, "–—−‐‑"), "-"),
    **dict.fromkeys(map(ord, "•·●"), "*"),
    **dict.fromkeys(map(ord, "│┃▌"), "|"),
    **dict.fromkeys(map(ord, "─━"), "-"),
    ord("…"): "...",
    ord("→"): "->",
    ord("←"): "<-",
    ord("×"): "x",
    ord("›"): ">",
    ord("‹"): "<",
    ord("⟨"): "<",
    ord("⟩"): ">",
    ord("✓"): "v",
    ord("✗"): "x",
    ord("⏎"): "\\",
    ord("⇥"): ">",
    ord("±"): "+-",
}


def scrub(text: str) -> str:
    """Prose or output without sequences, control characters and invisible characters; line ends stay, tabs become
    blanks, and of a line that was overwritten in place only the last state is left."""
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCES.sub("", text) if any(char in text for char in "\x1b\x9b\x9d\x90\x98\x9e\x9f") else text
    text = text.replace("\r\n", "\n")
    text = _OVERWRITTEN.sub("", text).replace("\r", "") if "\r" in text else text
    return without_invisible(text).expandtabs(_TAB_COLUMNS)


def scrub_lines(text: str) -> list[str]:
    """Return the lines of `scrub`; blank lines at the end are left out."""
    return scrub(text).rstrip().split("\n") if text.strip() else []


def exact(text: str) -> str:
    """One line in which every character can be seen: line ends, control and invisible characters by their codes."""
    if text.isascii() and text.isprintable():
        return text
    return visible(text).replace("\n", " ").replace("\t", " ")


def exact_lines(text: str) -> list[str]:
    """Lines in which every character can be seen; the ends of lines and tabs need no mark."""
    lines = text.split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return [exact(line.expandtabs(_TAB_COLUMNS)) for line in lines]


def for_output(text: str, *, unicode: bool) -> str:
    """Text as it may be written to the terminal."""
    if text.isascii() and text.isprintable():
        return text
    text = _NOT_PRINTED.sub("?", text)
    return text if unicode else to_ascii(text)


def to_ascii(text: str) -> str:
    """Return the text in ASCII: common signs by their likeness, letters without their accents, others as a question
    mark."""
    text = text.translate(_ASCII)
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(char for char in plain if not unicodedata.combining(char))
    return plain.encode("ascii", "replace").decode("ascii")

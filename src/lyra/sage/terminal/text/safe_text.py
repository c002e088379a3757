"""Text from models, tools and files, made harmless for a terminal.

`shown` is for prose and output: escape sequences, control characters and invisible characters are left out. `exact` is
for what a person decides on (commands, paths, diffs): the same characters are shown as their codes. `for_output` is the
last check, of every piece of text that is written: no control character passes, and on a terminal without UTF-8 no
character outside ASCII. No other module of the terminal writes text that has not passed here.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from lyra.core.secrets.visible import visible, without_invisible

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


def shown(text: str) -> str:
    """Prose or output without sequences, control characters and invisible characters; line ends stay, tabs become
    blanks, and of a line that was overwritten in place only the last state is left."""
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCES.sub("", text) if any(char in text for char in "\x1b\x9b\x9d\x90\x98\x9e\x9f") else text
    text = text.replace("\r\n", "\n")
    text = _OVERWRITTEN.sub("", text).replace("\r", "") if "\r" in text else text
    return without_invisible(text).expandtabs(_TAB_COLUMNS)


def shown_lines(text: str) -> list[str]:
    """The lines of `shown`; blank lines at the end are left out."""
    return shown(text).rstrip().split("\n") if text.strip() else []


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
    """The text in ASCII: common signs by their likeness, letters without their accents, others as a question mark."""
    text = text.translate(_ASCII)
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(char for char in plain if not unicodedata.combining(char))
    return plain.encode("ascii", "replace").decode("ascii")

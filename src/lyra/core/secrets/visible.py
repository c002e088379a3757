"""Characters that a person cannot see: shown as their codes to a person who answers, left out of what a model reads.

`visible` is for questions: invisible characters and those that change the direction of text (control characters,
direction marks, unusual blanks) are replaced by their code. Line ends and tabs are marked and kept, so that a script
can still be read as lines. `without_invisible` is for text from outside: a model reads characters that no screen
shows, so they could tell it something behind a person's back.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

_UNSEEN: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # classified as letters, and invisible
_BLANKS: Final = {"\n": "⏎\n", "\t": "⇥\t"}  # a visible mark before the character itself

# Format characters, fillers, direction marks, variation selectors and tags; without those of `_SPELLING`.
_INVISIBLE: Final = (
    r"\xad\u034f\u061c\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\u2800\ufdd0-\ufdef\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U00016fe4\U0001d159\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff" + "".join(rf"\U{plane:04x}fffe\U{plane:04x}ffff" for plane in range(1, 17))
)
# Blanks of other widths, by which data could be written: each becomes an ordinary blank. U+3000 is one in Japanese.
_ODD_BLANKS: Final = r"[\xa0\u1680\u2000-\u200a\u202f\u205f]"
_CONTROLS: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
# Persian, Hindi and emoji are spelled with joiners and selectors. A single one between two other characters that are
# not ASCII (a selector: behind one) is kept; a row of them, in which data could be hidden, is not.
_SPELLED: Final = "\u200c\u200d\ufe0e\ufe0f"
_JOINERS: Final = r"\u200c\u200d"
_SPELLING: Final = rf"{_JOINERS}\ufe0e\ufe0f"
_MISPLACED: Final = (
    rf"[{_SPELLING}](?=[{_SPELLING}])|(?<![^\x00-\x7f{_SPELLING}])[{_SPELLING}]|[{_JOINERS}](?![^\x00-\x7f{_SPELLING}])"
)


def visible(text: str) -> str:
    """Return the text with invisible characters and direction marks replaced by their code."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() and char not in _UNSEEN else _render_sign(char) for char in text)


def _render_sign(char: str) -> str:
    return _BLANKS.get(char) or f"⟨U+{ord(char):04X}⟩"


def without_invisible(text: str, *, keep_controls: bool = False) -> str:
    """Return the text without invisible characters; line ends and tabs stay, and so do other controls if they
    should."""
    if text.isascii() and (keep_controls or text.isprintable()):
        return text
    text = text.replace("\u2028", "\n").replace("\u2029", "\n")
    text = _compile(f"[{_INVISIBLE}{'' if keep_controls else _CONTROLS}]+").sub("", text)
    text = _compile(_ODD_BLANKS).sub(" ", text)
    return _compile(_MISPLACED).sub("", text) if any(char in text for char in _SPELLED) else text


def without_invisible_data(value: Any) -> Any:
    """Plain data with `without_invisible` for every text in it, names too."""
    if isinstance(value, str):
        return without_invisible(value)
    if isinstance(value, dict):
        return {without_invisible_data(key): without_invisible_data(item) for key, item in value.items()}
    return [without_invisible_data(item) for item in value] if isinstance(value, list) else value


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern at its first use: most texts are ASCII."""
    return re.compile(pattern)

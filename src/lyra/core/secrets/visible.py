"""Text with invisible characters made visible, for questions that a person answers.

Invisible characters and those that change the direction of text (control characters, direction marks, unusual blanks)
are replaced by their code. Line ends and tabs are marked and kept, so that a script can still be read as lines.
"""

from __future__ import annotations

from typing import Final

__all__ = ["visible"]

_UNSEEN: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # classified as letters, and invisible
_BLANKS: Final = {"\n": "⏎\n", "\t": "⇥\t"}  # a visible mark before the character itself


def visible(text: str) -> str:
    """The text with invisible characters and direction marks replaced by their code."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() and char not in _UNSEEN else _seen(char) for char in text)


def _seen(char: str) -> str:
    return _BLANKS.get(char) or f"⟨U+{ord(char):04X}⟩"

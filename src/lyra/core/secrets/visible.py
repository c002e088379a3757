"""Text that shows itself: for questions to a person, who must see what they answer for.

What would be unseen, or would turn what follows around (control signs, marks of direction, odd blanks), stands as its
code. Line ends and tabs are shown and kept, so that a script can still be read as lines.
"""

from __future__ import annotations

from typing import Final

__all__ = ["visible"]

_UNSEEN: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters by name that nobody can see
_BLANKS: Final = {"\n": "⏎\n", "\t": "⇥\t"}  # to be seen, and still to be read as lines


def visible(text: str) -> str:
    """Text that shows itself: what would be unseen, or turn what follows around, stands as its code."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() and char not in _UNSEEN else _seen(char) for char in text)


def _seen(char: str) -> str:
    return _BLANKS.get(char) or f"⟨U+{ord(char):04X}⟩"

"""Styled lines as the bytes of a terminal: styles become escape sequences, and the text itself can hold none."""

from __future__ import annotations

from lyra.sage.terminal.text.safe_text import for_output
from lyra.sage.terminal.text.styled_lines import Line
from lyra.sage.terminal.text.theme import sgr


def encoded(line: Line, *, colour: bool, unicode: bool) -> str:
    """A line with its styles. Every finished line of the live screen passes here."""
    parts: list[str] = []
    for style, text in line:
        start = sgr(style, colour=colour)
        safe = for_output(text, unicode=unicode)
        parts.append(f"{start}{safe}\x1b[0m" if start else safe)
    return "".join(parts)

"""The words and signs of Vega, and what a lexer hands to a parser.

A token is one index into four lists that run side by side: its kind, its value, where it starts and where it ends. The
kind of a keyword or a sign is its own text (`"let"`, `"<-"`); the rest are in `KINDS`. Only words that start a
construct, or go on with one, are keywords; `model`, `window`, `timeout`, `in` and the like are names that a construct
asks for at their place.
"""

from __future__ import annotations

from typing import Any, Final

# What stands in a message for a kind that is not its own text.
KINDS: Final[dict[str, str]] = {
    "name": "a name",
    "int": "a number",
    "float": "a number",
    "money": "an amount of money",
    "duration": "a duration",
    "string": "a string",
    "template": "a string",
    "end": "the end of the file",
}

KEYWORDS: Final = (
    "agent",
    "await",
    "break",
    "catch",
    "const",
    "continue",
    "defer",
    "else",
    "false",
    "finally",
    "fn",
    "for",
    "if",
    "import",
    "let",
    "match",
    "null",
    "parallel",
    "receive",
    "return",
    "session",
    "spawn",
    "supervisor",
    "throw",
    "tool",
    "true",
    "try",
    "while",
)

SIGNS: Final = (
    *("<-", "<~", "->", "=>", "::", "==", "!=", "<=", ">=", "&&", "||"),
    *("+", "-", "*", "/", "%", "<", ">", "=", "!", ".", ",", ";", ":", "(", ")", "[", "]", "{", "}", "|"),
)

# Text → kind for every keyword and sign: one object for each, so that comparing two kinds compares two addresses.
FIXED: Final[dict[str, str]] = {text: text for text in (*KEYWORDS, *SIGNS)}


class Tokens:
    """Four lists of one length; the last token has the kind "end"."""

    __slots__ = ("ends", "kinds", "starts", "values")

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.values: list[Any] = []  # the text of a name, a literal's value, a template's parts, else None
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, kind: str, value: Any, start: int, end: int) -> None:
        self.kinds.append(kind)
        self.values.append(value)
        self.starts.append(start)
        self.ends.append(end)

    def __len__(self) -> int:
        return len(self.kinds)


def described(kind: str, value: Any) -> str:
    """A token as a message names it: `;`, the keyword `let`, the name `x`, a string."""
    if kind == "name" or (kind == "end" and value):
        return f"`{value}`"  # the end of a `${…}` is its brace
    if kind in KINDS:
        return KINDS[kind]
    return f"`{kind}`"

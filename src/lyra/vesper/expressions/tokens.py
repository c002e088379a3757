"""The tokens of an expression, each with its offsets.

Keywords are upper case, except true, false and null. A text stands in single or double quotes; a backslash before a
quote, a backslash, n or t stands for that character, any other backslash for itself, so that patterns need no
doubling.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final, NamedTuple

from lyra.errors import ParseError
from lyra.vesper.values.limits import NUMBER_DIGITS_MAX

KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "IN", "CONTAINS", "IS", "NULL", "FORALL", "EXISTS"})
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\r\n]++)
      | (?P<number>[0-9]++(?:\.[0-9]++)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*+)
      | (?P<text>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")
      | (?P<symbol>=>|==|!=|<=|>=|[-+*/%<>()\[\].,:{}=])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_OTHER_SPELLINGS: Final = {"&": "AND", "|": "OR", "!": "NOT", "≤": "<=", "≥": ">=", "≠": "!=", "∧": "AND", "∨": "OR"}


class ExpressionToken(NamedTuple):
    """`kind` is number, text, word (true, false, null), name, keyword, symbol or end."""

    kind: str
    value: Any
    start: int
    end: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else f"`{self.value}`" if self.kind != "text" else "a text"


def syntax_error(message: str, start: int, end: int, *, hint: str = "") -> ParseError:
    """An error at an offset of an expression; the caller knows where the expression stands."""
    return ParseError(message, line=1, column=start + 1, hint=hint or None, offset=start, end=end)


def tokens_of(text: str, start: int = 0, *, until_brace: bool = False) -> list[ExpressionToken]:
    """The tokens from an offset to the end, or to the brace that closes a placeholder; the last one has kind `end`."""
    tokens: list[ExpressionToken] = []
    position, depth = start, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        position = match.end()
        kind = str(match.lastgroup)
        if kind == "blank":
            continue
        token = _token(kind, match.group(), match.start(), match.end())
        if kind == "symbol" and token.value in "{}":
            depth += 1 if token.value == "{" else -1
            if depth < 0 and until_brace:
                return [*tokens, ExpressionToken("end", "", token.start, token.end)]
        tokens.append(token)
    if until_brace:
        raise syntax_error(
            "the placeholder has no closing brace", start - 1, start, hint="a brace itself is written {{"
        )
    return [*tokens, ExpressionToken("end", "", len(text), len(text))]


def _token(kind: str, text: str, start: int, end: int) -> ExpressionToken:
    if kind == "number":
        if len(text) > NUMBER_DIGITS_MAX:
            raise syntax_error("the number is too long", start, end)
        return ExpressionToken("number", Decimal(text) if "." in text else int(Decimal(text)), start, end)
    if kind == "text":
        return ExpressionToken("text", _ESCAPE.sub(_escaped, text[1:-1]), start, end)
    if kind == "name" and text in _WORDS:
        return ExpressionToken("word", _WORDS[text], start, end)
    if kind == "name" and text in KEYWORDS:
        return ExpressionToken("keyword", text, start, end)
    return ExpressionToken(kind, text, start, end)


def _escaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[0])


def _unreadable(text: str, position: int) -> ParseError:
    char = text[position]
    if char in "'\"":
        return syntax_error("the text has no closing quote", position, len(text))
    spelling = _OTHER_SPELLINGS.get(char)
    hint = f"write {spelling}" if spelling else ""
    return syntax_error(f"unexpected character {char!r}", position, position + 1, hint=hint)

"""Words of SQL: a text is cut into names, quoted texts, numbers, placeholders and operators.

SQLite and PostgreSQL must see the same tokens, because the rights of a step are read from them. A text that the two
databases would cut differently is refused (`SqlRefused`): comments inside comments, `E'\\''`, `$tag$` texts, names in
brackets or backticks with more than plain letters in them, letters beyond ASCII outside quotes, control characters.
Comments and white space give no tokens. `tables` reads the tables of a statement from these tokens.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# The checker marks a placeholder of the node's file with NUL characters until it is a `:p0`.
PLACEHOLDER_MARK: Final = re.compile(r"\x00(p\d+)\x00")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_ ]*")
_BRACKETS: Final = re.compile(r"\[[A-Za-z0-9_ ,.:]*\]")
_CONTROL: Final = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_DOLLAR_TEXT: Final = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*)?\$")
_PATTERNS: Final = (
    ("placeholder", re.compile(r":[A-Za-z_][A-Za-z0-9_]*")),
    ("word", re.compile(r"[A-Za-z_][A-Za-z0-9_]*")),
    ("number", re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![A-Za-z_$])")),
    ("operator", re.compile(r"::|[(),.;\[\]]|[-+*/<>=~!@#%^&|?]")),
)


class SqlRefused(ValueError):
    """A statement that cannot be read for certain. `start` is the place in the text."""

    def __init__(self, message: str, start: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.hint = hint


class SqlToken(NamedTuple):
    """One token. Kinds: word, name (quoted), text, number, placeholder, mark, operator. `value` has no quotes."""

    kind: str
    value: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.value.upper() in words

    def is_operator(self, *operators: str) -> bool:
        return self.kind == "operator" and self.value in operators


def sql_tokens(text: str) -> list[SqlToken]:
    """The tokens of a text; SqlRefused where databases could read it in different ways."""
    control = _CONTROL.search(text)
    if control is not None:
        raise SqlRefused("the query has a control character in it", control.start())
    tokens: list[SqlToken] = []
    position = 0
    while position < len(text):
        if text[position] in " \t\r\n":
            position += 1
        elif text.startswith(("--", "/*"), position):
            position = _comment_end(text, position)
        else:
            token = _token(text, position)
            tokens.append(token)
            position = token.end
    return tokens


def _token(text: str, start: int) -> SqlToken:
    if text[start] == "'":
        return _quoted(text, start, "text")
    if text[start] == '"':
        return _quoted(text, start, "name")
    if text[start] == "`":
        return _plain_name(text, _quoted(text, start, "name"))
    if text[start] == "[":
        return _bracketed(text, start)
    mark = PLACEHOLDER_MARK.match(text, start)
    if mark is not None:
        return SqlToken("mark", mark[1], start, mark.end())
    if text[start : start + 2] in ("E'", "e'"):
        return _escaped_text(text, start)
    if text[start : start + 3].upper() in ("U&'", 'U&"'):
        raise SqlRefused("texts and names with U& are not read", start, "write the characters themselves")
    for kind, pattern in _PATTERNS:
        match = pattern.match(text, start)
        if match is not None:
            return SqlToken(kind, match[0], start, match.end())
    if _DOLLAR_TEXT.match(text, start):
        raise SqlRefused("a text between $ signs is not read", start, "write it in single quotes")
    hint = "write names with other letters in double quotes" if ord(text[start]) > 127 else ""
    raise SqlRefused(f"{text[start]!r} has no meaning here", start, hint)


def _quoted(text: str, start: int, kind: str) -> SqlToken:
    """A quoted text or name; the quote itself is doubled in it."""
    quote, position = text[start], start + 1
    while (end := text.find(quote, position)) >= 0:
        if not text.startswith(quote, end + 1):
            return SqlToken(kind, text[start + 1 : end].replace(quote * 2, quote), start, end + 1)
        position = end + 2
    raise SqlRefused(f"the quote {quote} is not closed", start)


def _escaped_text(text: str, start: int) -> SqlToken:
    """`E'…'` of PostgreSQL: SQLite knows no backslash, so an escaped quote would end the text there."""
    end = _quoted(text, start + 1, "text").end
    position = start + 2
    while position < end:
        if text[position] == "\\":
            if text.startswith("'", position + 1):
                raise SqlRefused("a quote after a backslash is not read", position, "write two quotes: ''")
            position += 1
        position += 1
    return SqlToken("text", text[start + 2 : end - 1], start, end)


def _plain_name(text: str, token: SqlToken) -> SqlToken:
    if not _PLAIN_NAME.fullmatch(token.value):
        raise SqlRefused(f"{text[token.start : token.end][:80]} is no plain name", token.start, "use double quotes")
    return token


def _bracketed(text: str, start: int) -> SqlToken:
    """`[name]` of SQLite, or an index or a list of plain values of PostgreSQL: both read nothing of their own."""
    match = _BRACKETS.match(text, start)
    if match is None:
        raise SqlRefused("brackets take a name or plain values", start, "write names in double quotes")
    return SqlToken("name", match[0][1:-1], start, match.end())


def _comment_end(text: str, start: int) -> int:
    if text.startswith("--", start):
        end = text.find("\n", start)
        return len(text) if end < 0 else end
    end = text.find("*/", start + 2)
    if end < 0:
        raise SqlRefused("the comment is not closed", start)
    inner = text.find("/*", start + 2)
    if 0 <= inner < end + 1:
        raise SqlRefused("a comment inside a comment is not read", inner, "take the inner comment out")
    return end + 2

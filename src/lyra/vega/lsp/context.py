"""The place in a program where text is typed: what stands before the cursor, and what is open around it.

Only the tokens before the cursor count, so it works in a text that is broken right there. Inside a string nothing is
offered, but in a `${…}` of it everything is; inside the string of an import, files are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lyra.vega.checker.settings import BLOCKS
from lyra.vega.syntax.lexer import KEYWORDS, Lexed, lex
from lyra.vega.syntax.source import Source

_OPENING: Final = {"(": ")", "[": "]", "{": "}"}
_NEVER_CLOSED: Final = "this `${` is never closed"


class CursorToken(NamedTuple):
    kind: str
    value: str
    at: int
    end: int

    @property
    def is_word(self) -> bool:
        return self.kind == "name" or self.kind in KEYWORDS


class OpenBracket(NamedTuple):
    """An open bracket: its sign, what it belongs to (`agent`, `supervisor`, `retry`, `fn`, `call`, …), where it
    stands among the tokens, and how many commas came after it."""

    sign: str
    what: str
    place: int
    commas: int = 0


class CursorContext(NamedTuple):
    tokens: list[CursorToken]  # before the word at the cursor
    word: str  # as far as it is written
    opened: list[OpenBracket]  # the innermost last
    string: str | None = None  # inside a string: what it holds so far
    is_comment: bool = False
    new_line: bool = False  # whether the word is the first of its line

    def before(self, back: int = 1) -> CursorToken:
        """Return the token that many steps before the word."""
        return self.tokens[-back] if back <= len(self.tokens) else CursorToken("", "", 0, 0)

    @property
    def inside(self) -> str:
        """Return what the innermost bracket belongs to."""
        return self.opened[-1].what if self.opened else ""

    @property
    def block(self) -> str:
        """Return what the innermost brace belongs to."""
        return next((bracket.what for bracket in reversed(self.opened) if bracket.sign == "{"), "")


def context_at(text: str, offset: int) -> CursorContext:
    text = text[:offset]
    start = 0
    lexed = lex(Source("", text))
    while (inner := _open_expression(lexed)) is not None:  # a string inside `${…}` inside a string …
        start += inner
        lexed = lex(Source("", text[start:]))
    tokens = [
        CursorToken(kind, value if isinstance(value, str) else "", begin + start, end + start)
        for kind, value, begin, end in zip(
            lexed.tokens.kinds, lexed.tokens.values, lexed.tokens.starts, lexed.tokens.ends, strict=True
        )
        if kind != "end"
    ]
    broken = [problem for problem in lexed.problems if "never closed" in problem.message]
    if broken:
        begin = broken[-1].at + start
        is_string = text[begin] == '"'
        tokens = [token for token in tokens if token.at < begin]
        return CursorContext(
            tokens, "", _brackets(tokens), text[begin:].lstrip('"') if is_string else None, not is_string
        )
    comment_at, comment = lexed.comments[-1] if lexed.comments else (0, "")
    if comment.startswith("//") and start + comment_at + len(comment) == len(text):
        return CursorContext(tokens, "", [], None, is_comment=True)
    word = ""
    if tokens and tokens[-1].end == offset and tokens[-1].is_word:
        word = tokens.pop().value
    here = offset - len(word)
    new_line = "\n" in text[tokens[-1].end if tokens else 0 : here] or not tokens
    return CursorContext(tokens, word, _brackets(tokens), new_line=new_line)


def _open_expression(lexed: Lexed) -> int | None:
    """Return the start of the expression of a `${` that is never closed."""
    starts = [problem.at + 2 for problem in lexed.problems if problem.message == _NEVER_CLOSED]
    return starts[-1] if starts else None


def _brackets(tokens: list[CursorToken]) -> list[OpenBracket]:
    opened: list[OpenBracket] = []
    for index, token in enumerate(tokens):
        if token.kind in _OPENING:
            opened.append(OpenBracket(token.kind, _owner(tokens, index, opened), index))
        elif token.kind in _OPENING.values():
            while opened and _OPENING[opened[-1].sign] != token.kind:
                opened.pop()  # one that was never closed
            if opened:
                opened.pop()
        elif token.kind == "," and opened:
            opened[-1] = opened[-1]._replace(commas=opened[-1].commas + 1)
    return opened


def _owner(tokens: list[CursorToken], index: int, opened: list[OpenBracket]) -> str:
    """Return what a bracket belongs to, by the words before it."""
    before = tokens[index - 1] if index else CursorToken("", "", 0, 0)
    two = tokens[index - 2] if index > 1 else CursorToken("", "", 0, 0)
    inside = opened[-1].what if opened else ""
    if tokens[index].kind == "{":
        if two.kind in ("agent", "supervisor"):
            return two.kind
        if inside == "agent" and before.value in BLOCKS:
            return before.value
        if (two.value, before.value) == ("supervised", "by"):
            return "supervision"
        return "mock" if two.value == "mock" else "receive" if before.kind == "receive" else "block"
    if tokens[index].kind == "(":
        if two.kind in ("fn", "tool"):
            three = tokens[index - 3] if index > 2 else CursorToken("", "", 0, 0)
            spawned = three.kind in ("spawn", "=") or three.value == "async"
            return "call" if two.kind == "fn" and spawned else "parameters"
        return "call" if before.is_word and before.kind not in KEYWORDS else "("
    return before.value if before.is_word and inside in ("agent", "block", "") else "["

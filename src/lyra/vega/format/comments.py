"""The comments of a source, handed out in order while it is written anew.

The function that writes a statement, a field or an item takes the comments before it, then those behind it on its line.
A comment in the middle of an expression has no line of its own to go to: it is put before the statement it stands in.
So every comment is taken exactly once, and where it then stands it stays.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Final, NamedTuple

from lyra.vega.syntax.lexer import Lexed
from lyra.vega.syntax.source import Source

_BETWEEN: Final = re.compile(r"[ \t,;]*\Z")
_LINE_END: Final = re.compile(r"[ \t\r]*(?:\n|\Z)")


class Comment(NamedTuple):
    at: int
    end: int
    text: str


class Comments:
    """The comments not yet taken, and the brackets of the source."""

    def __init__(self, source: Source, lexed: Lexed) -> None:
        self.text = source.text
        self.all = [Comment(offset, offset + len(text), text.rstrip()) for offset, text in lexed.comments]
        self.next = 0
        self.starts = lexed.tokens.starts
        self.tokens = lexed.tokens
        self.closing = _pairs(lexed)

    def before(self, offset: int) -> list[Comment]:
        """Take those that begin before this place."""
        first = self.next
        while self.next < len(self.all) and self.all[self.next].at < offset:
            self.next += 1
        return self.all[first : self.next]

    def behind(self, end: int) -> Comment | None:
        """Take the one that stands behind this place on its line, with nothing behind it."""
        if self.next == len(self.all):
            return None
        comment = self.all[self.next]
        if comment.at < end or not _BETWEEN.match(self.text[end : comment.at]):
            return None
        if not _LINE_END.match(self.text, comment.end):
            return None
        self.next += 1
        return comment

    def blank_between(self, end: int, offset: int) -> bool:
        """Whether an empty line stands between two places."""
        return self.text.count("\n", end, offset) > 1

    def token_up_to(self, end: int) -> str:
        """The token that ends there, as it is written."""
        i = bisect_left(self.tokens.ends, end)
        return self.text[self.starts[i] : end]

    def is_wrapped(self, offset: int, end: int) -> bool:
        """Whether the tokens from `at` to `end` stand in parentheses of their own."""
        first, last = bisect_left(self.starts, offset), bisect_left(self.tokens.ends, end)
        kinds = self.tokens.kinds
        return first > 0 and kinds[first - 1] == "(" and kinds[last + 1] == ")"

    def string_in(self, offset: int) -> str:
        """The first string at or behind a place, as it is written."""
        i = bisect_left(self.starts, offset)
        while self.tokens.kinds[i] != "string":
            i += 1
        return self.text[self.tokens.starts[i] : self.tokens.ends[i]]

    def has_word(self, word: str, offset: int, end: int) -> bool:
        """Whether that word is one of the tokens from `at` to `end`."""
        first, last = bisect_left(self.starts, offset), bisect_left(self.starts, end)
        return word in self.tokens.values[first:last]

    def sign_behind(self, sign: str, offset: int) -> int:
        """The first such sign at or behind a place."""
        i = bisect_left(self.starts, offset)
        while self.tokens.kinds[i] != sign:
            i += 1
        return self.starts[i]

    def brace_behind(self, offset: int) -> tuple[int, int]:
        """The first `{` at or behind a place, and its `}`."""
        brace = self.sign_behind("{", offset)
        return brace, self.closing[brace]


def _pairs(lexed: Lexed) -> dict[int, int]:
    """Where each `{` finds its `}`."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for kind, start in zip(lexed.tokens.kinds, lexed.tokens.starts, strict=True):
        if kind == "{":
            opened.append(start)
        elif kind == "}" and opened:
            pairs[opened.pop()] = start
    return pairs

"""Patterns of parameters: a small subset of regular expressions, matched against a whole text in linear time.

    [a-z0-9-]+   \\d{4}-\\d{2}   (north|south)(-east)?

Literals, `.`, classes, `\\d \\w \\s` and their opposites (of ASCII), groups, `|`, `*`, `+`, `?`, `{m}`, `{m,}`,
`{m,n}`. `^` and `$` may stand at the ends and have no effect: a pattern always matches the whole text. This module
checks that a pattern keeps to the subset; `core.linear_regex` matches it.
"""

from __future__ import annotations

import re
from typing import Final

from lyra.core.linear_regex import BadPattern, RegexProgram

__all__ = ["BadPattern", "Linear"]

STATES_MAX: Final = 500
REPEAT_MAX: Final = 200
_LENGTH_MAX: Final = 500
_DEPTH_MAX: Final = 20
_READ: Final = frozenset("dwsDWSntrfv")  # letters that may stand behind a backslash
_TOKEN: Final = re.compile(
    r"(?P<class>\[\^?+\]?+(?:[^]\\]|\\.)*+\])|(?P<open>\((?:\?:)?+)|(?P<close>\))|(?P<or>\|)|(?P<count>\{[^}]*\}?)"
    r"|(?P<repeat>[*+?])|(?P<end>\$\Z)|(?P<escape>\\.)|(?P<unfinished>\[.*|\\)|(?P<misplaced>[]^$}])|(?P<char>.)",
    re.DOTALL,
)
_COUNT: Final = re.compile(r"\{([0-9]{1,3})(,?)((?<=,)[0-9]{1,3})?\}")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class Linear:
    """`Linear("[a-z]+").matches("abc")`."""

    __slots__ = ("_program", "text")

    def __init__(self, text: str) -> None:
        if len(text) > _LENGTH_MAX:
            raise BadPattern(f"a pattern has at most {_LENGTH_MAX} characters")
        self.text = text
        _check(text.removeprefix("^"))
        try:
            self._program = RegexProgram(text, size_max=STATES_MAX, flags=re.ASCII)
        except BadPattern as error:
            if str(error).startswith("bad character range"):
                raise BadPattern("a range of a class goes from a character to a later one") from None
            raise

    def matches(self, text: str) -> bool:
        return self._program.matches_whole(text)


def _check(text: str) -> None:
    """Refuse what is not in the subset."""
    depth, before = 0, "or"
    for token in _TOKEN.finditer(text):
        kind, word, start = str(token.lastgroup), token[0], token.start()
        if kind == "open":
            depth += 1
            if text.startswith("(?", start) and word == "(":
                raise BadPattern("look-around, names and flags are not read; a group is ( ) or (?: )")
            if depth > _DEPTH_MAX:
                raise BadPattern("groups are nested too deeply")
        elif kind == "close":
            depth -= 1
            if depth < 0:
                raise BadPattern(f"there is a ')' too many at position {start}")
        elif kind in ("class", "escape", "unfinished"):
            unread = next((char for char in _ESCAPE.findall(word) if char.isalnum() and char not in _READ), None)
            if unread is not None:
                raise BadPattern(f"\\{unread} is not read")
            if kind == "unfinished":
                raise BadPattern("the pattern ends too early")
        elif kind in ("repeat", "count") and before in ("repeat", "count"):
            raise BadPattern(f"a repetition of a repetition at position {start} is not read; use a group")
        elif (
            kind == "misplaced"
            or (kind in ("repeat", "count") and before in ("open", "or"))
            or (kind == "end" and depth > 0)
        ):
            place = f"{word[0]!r} at position {start} is out of place"
            raise BadPattern(f"{place}; for the character itself write \\{word[0]}")
        elif kind == "count":
            _check_count(word)
        before = kind
    if depth > 0:
        raise BadPattern("a '(' is not closed")


def _check_count(word: str) -> None:
    count = _COUNT.fullmatch(word)
    if count is None:
        raise BadPattern("a count is {m}, {m,} or {m,n}; a plain brace is \\{")
    least, most = int(count[1]), int(count[3] or count[1])
    if not least <= most <= REPEAT_MAX:
        raise BadPattern(f"a count is at most {REPEAT_MAX}, the smaller first")

"""Texts that match a regular expression, drawn from its parsed form.

`pattern_drawer("^ord_[a-z0-9]{16,}$")` draws `ord_7w0k…`. Repetitions without an end have a few more rounds than they
need, and a text has a longest length. What is drawn nearly always matches: boundaries of words and the like are not
looked at, so a caller checks each text. Patterns that Lyra's own matcher does not take are not drawn from.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random  # noqa: TID251 - the type; generators come from core.ids
from re import _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any, Final

from lyra.core.linear_regex import BadPattern, RegexProgram
from lyra.vesper.values.limits import DRAWN_TEXT_CHARS_MAX, PATTERN_INSTRUCTIONS_MAX

_MORE_ROUNDS: Final = 4  # of a repetition, beyond those it needs
_CLASS_TRIES: Final = 64  # to draw a character that a class with exceptions takes
_ANY_CHARACTERS: Final = "abcxyzABCXYZ0123456789_- .@é"
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_SPACE": " \t",
    "CATEGORY_WORD": "abcxyzABCXYZ0123456789_",
    "CATEGORY_NOT_DIGIT": "abcxyz -",
    "CATEGORY_NOT_SPACE": "abcxyz019-",
    "CATEGORY_NOT_WORD": " -.@",
}


class _TooLong(Exception):
    """The text would be longer than a drawn text may be."""


def pattern_drawer(pattern: str) -> Callable[[Random], str | None] | None:
    """Draws texts for a pattern, None where one became too long; None for a pattern that cannot be used."""
    try:
        RegexProgram(pattern, size_max=PATTERN_INSTRUCTIONS_MAX)
    except BadPattern:
        return None
    tree = parser.parse(pattern)

    def draw(rng: Random) -> str | None:
        walk = _PatternWalk(rng)
        try:
            walk.row(tree)
        except _TooLong:
            return None
        return "".join(walk.characters)

    return draw


class _PatternWalk:
    """One way through a parsed pattern, and the characters along it."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.characters: list[str] = []

    def row(self, items: Any) -> None:
        for kind, value in items:
            self._item(str(kind), value)

    def _item(self, kind: str, value: Any) -> None:
        match kind:
            case "LITERAL":
                self._add(chr(value))
            case "NOT_LITERAL":
                self._add(self._rng.choice(_ANY_CHARACTERS.replace(chr(value), "")))
            case "ANY":
                self._add(self._rng.choice(_ANY_CHARACTERS))
            case "IN":
                self._add(self._member([(str(name), part) for name, part in value]))
            case "SUBPATTERN":
                self.row(value[3])
            case "BRANCH":
                self.row(self._rng.choice(value[1]))
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, items = value
                for _ in range(self._rng.randint(least, min(int(most), least + _MORE_ROUNDS))):
                    self.row(items)

    def _add(self, character: str) -> None:
        if len(self.characters) >= DRAWN_TEXT_CHARS_MAX:
            raise _TooLong
        self.characters.append(character)

    def _member(self, parts: list[tuple[str, Any]]) -> str:
        """A character of a class such as `[a-z_]` or `[^0-9]`."""
        if parts[0][0] != "NEGATE":
            return self._character(*self._rng.choice(parts))
        for _ in range(_CLASS_TRIES):
            character = self._rng.choice(_ANY_CHARACTERS)
            if not any(_has(name, part, character) for name, part in parts[1:]):
                return character
        raise _TooLong  # no common character is left

    def _character(self, name: str, part: Any) -> str:
        if name == "LITERAL":
            return chr(part)
        if name == "RANGE":
            return chr(self._rng.randint(*part))
        return self._rng.choice(_CATEGORIES[str(part)])


def _has(name: str, part: Any, character: str) -> bool:
    if name == "LITERAL":
        return bool(ord(character) == part)
    if name == "RANGE":
        low, high = part
        return bool(low <= ord(character) <= high)
    mark = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[str(part).rpartition("_")[2]]
    is_excluded = "NOT" in str(part)
    return bool(re.fullmatch(mark, character)) is not is_excluded

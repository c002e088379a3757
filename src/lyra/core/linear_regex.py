"""Regular expressions in Python's syntax whose matching time grows with the text, never exponentially.

A pattern becomes a small program of tests, splits and jumps. `search` backtracks and never runs the same instruction at
the same place of the text twice, so its steps are bounded by program times text, and the groups are those of ordinary
backtracking. `matches_whole` follows all alternatives at once and needs memory for the program only. Matches and groups
are those of Python's `re`. Back references and look-around, which cannot be matched like this, are Unsupported, and so
are groups that switch between ASCII and Unicode, which `re` itself reads in two ways.

A repetition whose part may be empty ends after an empty round, as in `re`. Whether a round read something is part of
the state of a match: the number of nested repetitions, from the outermost, whose present round has read a character.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from re import _compiler as compiler  # type: ignore[attr-defined, unused-ignore]
from re import _parser as parser  # type: ignore[attr-defined, unused-ignore]  # known once another package imports it
from typing import Any, Final

# Instructions: (kind, x, y). CHAR x=answers of a test; SPLIT tries x, then y; JUMP x; SAVE x; AT x=test; MATCH. Of a
# repetition at level x whose part may be empty, ENTER begins a round; ROUND ends it, and leads to y if it read nothing.
_CHAR, _SPLIT, _JUMP, _SAVE, _AT, _MATCH, _ENTER, _ROUND = range(8)

Test = Callable[[str], bool]


class BadPattern(ValueError):
    """The pattern cannot be read; the message says why."""


class Unsupported(BadPattern):
    """The pattern has a construct that cannot be matched in linear time; the message is its name."""


class PatternTooLarge(BadPattern):
    """The program of the pattern has too many instructions."""


class TooManySteps(Exception):
    """A match needs more steps than allowed."""


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _is_ascii_word(char: str) -> bool:
    return char.isascii() and _is_word(char)


def _negate(test: Test) -> Test:
    return lambda char: not test(char)


_CATEGORIES: Final[dict[str, tuple[Test, Test]]] = {  # a test for Unicode and one for ASCII
    "CATEGORY_DIGIT": (str.isdecimal, frozenset("0123456789").__contains__),
    "CATEGORY_SPACE": (str.isspace, frozenset(" \t\n\r\f\v").__contains__),
    "CATEGORY_WORD": (_is_word, _is_ascii_word),
}


def _is_boundary(text: str, index: int, is_word: Test = _is_word) -> bool:
    return (index > 0 and is_word(text[index - 1])) != (index < len(text) and is_word(text[index]))


_POSITIONS: Final[dict[str, Callable[[str, int], bool]]] = {
    "AT_BEGINNING": lambda _, index: index == 0,
    "AT_BEGINNING_STRING": lambda _, index: index == 0,
    "AT_BEGINNING_LINE": lambda text, index: index == 0 or text[index - 1] == "\n",
    "AT_END": lambda text, index: index == len(text) or (index == len(text) - 1 and text[index] == "\n"),
    "AT_END_STRING": lambda text, index: index == len(text),
    "AT_END_LINE": lambda text, index: index == len(text) or text[index] == "\n",
    "AT_BOUNDARY": _is_boundary,
    # As in Python until 3.13, an empty text has no place that is no boundary; on every version, so that runs agree.
    "AT_NON_BOUNDARY": lambda text, index: text != "" and not _is_boundary(text, index),
    "AT_BOUNDARY_ASCII": lambda text, index: _is_boundary(text, index, _is_ascii_word),
    "AT_NON_BOUNDARY_ASCII": lambda text, index: text != "" and not _is_boundary(text, index, _is_ascii_word),
}


def _ignoring_case(kind: str, value: Any, flags: int) -> Test:
    """Return the test of one character that ignores case. Which characters are the same but for their case is known to
    Python's own engine: it is asked about one character at a time, which takes constant time."""
    compiled: list[re.Pattern[str]] = []

    def test(char: str) -> bool:
        if not compiled:
            state = parser.State()
            state.flags = flags if flags & re.ASCII else flags | re.UNICODE
            name = getattr(parser, kind)
            compiled.append(compiler.compile(parser.SubPattern(state, [(name, value)]), 0))
        return compiled[0].fullmatch(char) is not None

    return test


class _Answers(dict[str, bool]):
    """A cache of whether a character passes a test."""

    __slots__ = ("_test",)

    def __init__(self, test: Test) -> None:
        super().__init__()
        self._test = test

    def __missing__(self, char: str) -> bool:
        answer = self[char] = self._test(char)
        return answer


class RegexProgram:
    """A pattern that can be matched; `groups` counts its groups. With `is_end_strict`, `$` does not stand before a line
    feed at the end of the text."""

    __slots__ = ("_code", "_end", "_flags", "_level", "_levels", "_size_max", "groups")

    def __init__(self, pattern: str, *, size_max: int, flags: int = 0, is_end_strict: bool = False) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about syntax that a later Python may read differently
                tree = parser.parse(pattern, flags)
        except (re.error, OverflowError, RecursionError, ValueError) as error:
            raise BadPattern(str(error)) from None
        self.groups = tree.state.groups - 1
        self._flags = int(tree.state.flags)
        self._size_max = size_max
        self._end = "AT_END_STRING" if is_end_strict else "AT_END"
        self._code: list[list[Any]] = []
        self._level = self._levels = 0  # of nested repetitions whose part may be empty: here, and at most
        self._row(tree)
        self._add(_MATCH)

    # ------------------------------------------------------------ compiling
    def _add(self, kind: int, x: Any = None, y: Any = None) -> int:
        if len(self._code) >= self._size_max:
            raise PatternTooLarge("the pattern is too large: make its repetitions smaller")
        self._code.append([kind, x, y])
        return len(self._code) - 1

    def _row(self, items: Any) -> None:
        for kind, value in items:
            self._item(str(kind), value)

    def _item(self, kind: str, value: Any) -> None:
        if kind in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            self._add(_CHAR, _Answers(self._test(kind, value)))
        elif kind == "SUBPATTERN":
            self._group(*value)
        elif kind == "BRANCH":
            self._branch(value[1])
        elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
            self._repeat(*value, is_greedy=kind == "MAX_REPEAT")
        elif kind == "AT":
            name = str(value)
            if self._flags & re.MULTILINE and name in ("AT_BEGINNING", "AT_END"):
                name += "_LINE"
            elif self._flags & re.ASCII and name.endswith("_BOUNDARY"):
                name += "_ASCII"
            elif name == "AT_END":
                name = self._end
            self._add(_AT, _POSITIONS[name])
        else:
            raise Unsupported(kind.lower().replace("_", " "))

    def _group(self, number: int | None, added_flags: int, removed_flags: int, items: Any) -> None:
        outer_flags = self._flags
        if added_flags & (re.ASCII | re.UNICODE):
            raise Unsupported("a or u flag of a group")
        self._flags = (self._flags | added_flags) & ~removed_flags
        if number is not None:
            self._add(_SAVE, 2 * number)
        self._row(items)
        if number is not None:
            self._add(_SAVE, 2 * number + 1)
        self._flags = outer_flags

    def _branch(self, ways: Any) -> None:
        ends = []
        for way in ways[:-1]:
            split = self._add(_SPLIT)
            self._row(way)
            ends.append(self._add(_JUMP))
            self._code[split][1:] = [split + 1, len(self._code)]
        self._row(ways[-1])
        for end in ends:
            self._code[end][1] = len(self._code)

    def _repeat(self, least: int, most: Any, items: Any, *, is_greedy: bool) -> None:
        is_endless = most is parser.MAXREPEAT
        for _ in range(least):
            start = len(self._code)
            self._row(items)
            if len(self._code) == start:
                break  # the repeated part is empty
        splits, rounds = [], []
        may_be_empty = items.getwidth()[0] == 0
        self._level += may_be_empty
        self._levels = max(self._levels, self._level)
        for _ in range(1 if is_endless else int(most) - least):
            splits.append(self._add(_SPLIT))
            if may_be_empty:
                self._add(_ENTER, self._level)
            self._row(items)
            if may_be_empty:
                rounds.append(self._add(_ROUND, self._level))
        self._level -= may_be_empty
        if is_endless:
            self._add(_JUMP, splits[0])
        end = len(self._code)
        for split in splits:
            self._code[split][1:] = [split + 1, end] if is_greedy else [end, split + 1]
        for place in rounds:
            self._code[place][2] = end

    def _test(self, kind: str, value: Any) -> Test:
        if self._flags & re.IGNORECASE and kind != "ANY":
            return _ignoring_case(kind, value, self._flags & (re.IGNORECASE | re.ASCII))
        if kind == "ANY":
            is_any = bool(self._flags & re.DOTALL)
            return lambda char: is_any or char != "\n"
        if kind in ("LITERAL", "NOT_LITERAL"):
            wanted, is_positive = chr(value), kind == "LITERAL"
            return lambda char: (char == wanted) is is_positive
        parts = [(str(name), part) for name, part in value]
        is_negated = parts[0][0] == "NEGATE"
        tests = [self._member(name, part) for name, part in parts[is_negated:]]
        return lambda char: any(test(char) for test in tests) is not is_negated

    def _member(self, name: str, part: Any) -> Test:
        if name == "LITERAL":
            return lambda char: ord(char) == part
        if name == "RANGE":
            low, high = part
            return lambda char: low <= ord(char) <= high
        category = str(part)
        test = _CATEGORIES[category.replace("NOT_", "")][bool(self._flags & re.ASCII)]
        return _negate(test) if "NOT_" in category else test

    # ------------------------------------------------------------ matching
    def matches_whole(self, text: str) -> bool:
        """Return whether the whole text fits."""
        code = self._code
        places = self._find_reached([0], text, 0)
        for index, char in enumerate(text):
            after = [place + 1 for place in places if code[place][0] == _CHAR and code[place][1][char]]
            if not after:
                return False
            places = self._find_reached(after, text, index + 1)
        return len(code) - 1 in places

    def _find_reached(self, todo: list[int], text: str, index: int) -> set[int]:
        """Return the instructions that are reached from these without reading a character."""
        reached: set[int] = set()
        while todo:
            place = todo.pop()
            if place in reached:
                continue
            reached.add(place)
            kind, x, y = self._code[place]
            if kind == _SPLIT:
                todo += (x, y)
            elif kind == _JUMP:
                todo.append(x)
            elif kind in (_SAVE, _ENTER, _ROUND) or (kind == _AT and x(text, index)):
                todo.append(place + 1)  # after an empty round, too: one more changes nothing
        return reached

    def search(self, text: str, start: int, steps_max: int) -> tuple[tuple[int, ...] | None, int]:
        """Return the first match from `start` on, and the steps it took; TooManySteps after `steps_max`. A match is the
        start and end of the whole and of each group, -1 for a group that took no part."""
        visited: set[int] = set()
        match = None
        for begin in range(start, len(text) + 1):
            match = self._match_at(text, begin, visited, steps_max)
            if match is not None:
                break
        return match, len(visited)

    def _match_at(self, text: str, begin: int, visited: set[int], steps_max: int) -> tuple[int, ...] | None:
        code, size, width, levels = self._code, len(text), len(self._code), self._levels
        saved: tuple[int, ...] = (begin, -1) + (-1, -1) * self.groups
        todo: list[tuple[int, int, int, tuple[int, ...]]] = [(0, begin, levels, saved)]
        left = steps_max - len(visited)
        while todo:
            place, index, moved, saved = todo.pop()
            while True:
                mark = (index * width + place) * (levels + 1) + moved
                if mark in visited:
                    break
                visited.add(mark)
                left -= 1
                if left < 0:
                    raise TooManySteps
                kind, x, y = code[place]
                if kind == _CHAR:
                    if index >= size or not x[text[index]]:
                        break
                    place, index, moved = place + 1, index + 1, levels
                elif kind == _SPLIT:
                    todo.append((y, index, moved, saved))
                    place = x
                elif kind == _JUMP:
                    place = x
                elif kind == _SAVE:
                    saved = (*saved[:x], index, *saved[x + 1 :])
                    place += 1
                elif kind == _AT:
                    if not x(text, index):
                        break
                    place += 1
                elif kind == _ENTER:
                    moved = min(moved, x - 1)
                    place += 1
                elif kind == _ROUND:
                    place = place + 1 if moved >= x else y
                else:
                    return (begin, index, *saved[2:])
        return None

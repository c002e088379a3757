"""`regex::…`: patterns as in Python, matched in time that grows with the text, never exponentially.

A pattern becomes a small program of tests, splits and jumps. Matching is backtracking that never tries the same
instruction at the same place of the text twice: so its steps are bounded by program times text, the groups are those
that ordinary backtracking would give, and no pattern can hang a process. What cannot be done so (back references,
look-around) is refused. A bound on steps keeps even a large text short.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

from lyra.core.limits import VEGA_REGEX_PROGRAM_MAX, VEGA_REGEX_STEPS_MAX
from lyra.vega.stdlib.arguments import needed
from lyra.vega.stdlib.strings import limited
from lyra.vega.values.fuel import WORK
from lyra.vega.values.values import Fault

__all__ = ["FUNCTIONS"]

# Instructions: (kind, x, y). CHAR x=test; SPLIT tries x, then y; JUMP x; SAVE x; AT x=test of a position; MATCH.
_CHAR, _SPLIT, _JUMP, _SAVE, _AT, _MATCH = range(6)

_CATEGORIES: Final[dict[str, Callable[[str], bool]]] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_NOT_DIGIT": lambda char: not char.isdecimal(),
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_NOT_SPACE": lambda char: not char.isspace(),
    "CATEGORY_WORD": lambda char: char.isalnum() or char == "_",
    "CATEGORY_NOT_WORD": lambda char: not (char.isalnum() or char == "_"),
}


def _is_word(text: str, at: int) -> bool:
    return 0 <= at < len(text) and (text[at].isalnum() or text[at] == "_")


_POSITIONS: Final[dict[str, Callable[[str, int], bool]]] = {
    "AT_BEGINNING": lambda _, at: at == 0,
    "AT_BEGINNING_STRING": lambda _, at: at == 0,
    "AT_BEGINNING_LINE": lambda text, at: at == 0 or text[at - 1] == "\n",
    "AT_END": lambda text, at: at == len(text) or (at == len(text) - 1 and text[at] == "\n"),
    "AT_END_STRING": lambda text, at: at == len(text),
    "AT_END_LINE": lambda text, at: at == len(text) or text[at] == "\n",
    "AT_BOUNDARY": lambda text, at: _is_word(text, at - 1) != _is_word(text, at),
    "AT_NON_BOUNDARY": lambda text, at: _is_word(text, at - 1) == _is_word(text, at),
}


class Pattern:
    """A compiled pattern; `groups` counts its groups."""

    def __init__(self, source: str) -> None:
        try:
            tree = parser.parse(source)
        except (re.error, OverflowError, RecursionError) as error:
            raise Fault("ValueError", f"not a pattern: {error}") from None
        self.flags = tree.state.flags
        self.groups = tree.state.groups - 1
        self.program: list[list[Any]] = []
        self.sequence(tree)
        self.add(_MATCH)

    def add(self, kind: int, x: Any = None, y: Any = None) -> int:
        if len(self.program) >= VEGA_REGEX_PROGRAM_MAX:
            raise Fault("ValueError", "the pattern is too long when its repetitions are written out")
        self.program.append([kind, x, y])
        return len(self.program) - 1

    def sequence(self, items: Any) -> None:
        for kind, value in items:
            self.item(str(kind), value)

    def item(self, kind: str, value: Any) -> None:
        if kind in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            self.add(_CHAR, _Test(self.test(kind, value)))
        elif kind == "SUBPATTERN":
            group, _, _, items = value
            if group is not None:
                self.add(_SAVE, 2 * group)
            self.sequence(items)
            if group is not None:
                self.add(_SAVE, 2 * group + 1)
        elif kind == "BRANCH":
            self.branch(value[1])
        elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
            self.repeat(*value, is_greedy=kind == "MAX_REPEAT")
        elif kind == "AT":
            name = str(value)
            if self.flags & re.MULTILINE and name in ("AT_BEGINNING", "AT_END"):
                name += "_LINE"
            self.add(_AT, _POSITIONS[name])
        else:
            raise Fault("ValueError", f"regex patterns have no {kind.lower().replace('_', ' ')}")

    def branch(self, ways: Any) -> None:
        ends = []
        for index, way in enumerate(ways):
            is_last = index == len(ways) - 1
            split = -1 if is_last else self.add(_SPLIT)
            start = len(self.program)
            self.sequence(way)
            if not is_last:
                ends.append(self.add(_JUMP))
                self.program[split][1:] = [start, len(self.program)]
        for end in ends:
            self.program[end][1] = len(self.program)

    def repeat(self, least: int, most: Any, items: Any, *, is_greedy: bool) -> None:
        for _ in range(least):
            self.sequence(items)
        if most is parser.MAXREPEAT:
            split = self.add(_SPLIT)
            self.sequence(items)
            self.add(_JUMP, split)
            self.split(split, is_greedy)
            return
        splits = []
        for _ in range(int(most) - least):
            splits.append(self.add(_SPLIT))
            self.sequence(items)
        for split in splits:
            self.split(split, is_greedy)

    def split(self, at: int, is_greedy: bool) -> None:
        more, end = at + 1, len(self.program)
        self.program[at][1:] = [more, end] if is_greedy else [end, more]

    def test(self, kind: str, value: Any) -> Callable[[str], bool]:
        fold: Callable[[str], str] = str.lower if self.flags & re.IGNORECASE else str
        if kind == "ANY":
            dot_all = bool(self.flags & re.DOTALL)
            return lambda char: dot_all or char != "\n"
        if kind in ("LITERAL", "NOT_LITERAL"):
            wanted, is_positive = fold(chr(value)), kind == "LITERAL"
            return lambda char: (fold(char) == wanted) is is_positive
        parts = [(str(name), part) for name, part in value]
        is_negated = parts[0][0] == "NEGATE"
        tests = [self.member(name, part) for name, part in parts if name != "NEGATE"]
        if self.flags & re.IGNORECASE:
            return lambda char: any(t(char.lower()) or t(char.upper()) for t in tests) is not is_negated
        return lambda char: any(t(char) for t in tests) is not is_negated

    def member(self, name: str, part: Any) -> Callable[[str], bool]:
        if name == "LITERAL":
            return lambda char: ord(char) == part if len(char) == 1 else False
        if name == "RANGE":
            low, high = part
            return lambda char: len(char) == 1 and low <= ord(char) <= high
        return _CATEGORIES[str(part)]

    # ------------------------------------------------------------ matching

    def search(self, text: str, start: int, steps: list[int]) -> tuple[int, ...] | None:
        """The first match from `start` on: begin and end of the whole and of each group (-1 where it took no part)."""
        visited: set[int] = set()
        found = None
        for begin in range(start, len(text) + 1):
            found = self.match_at(text, begin, visited, steps)
            if found is not None:
                break
        WORK.units += len(visited)
        return found

    def match_at(self, text: str, begin: int, visited: set[int], steps: list[int]) -> tuple[int, ...] | None:
        program, size, width = self.program, len(text), len(self.program)
        saved: tuple[int, ...] = (begin, -1) + (-1, -1) * self.groups
        todo: list[tuple[int, int, tuple[int, ...]]] = [(0, begin, saved)]
        left = steps[0]
        while todo:
            pc, at, saved = todo.pop()
            while True:
                mark = at * width + pc
                if mark in visited:
                    break
                visited.add(mark)
                left -= 1
                if left < 0:
                    raise Fault("LimitExceeded", "the pattern needs too many steps on this text")
                kind, x, y = program[pc]
                if kind == _CHAR:
                    if at >= size or not x.holds(text[at]):
                        break
                    pc, at = pc + 1, at + 1
                elif kind == _SPLIT:
                    todo.append((y, at, saved))
                    pc = x
                elif kind == _JUMP:
                    pc = x
                elif kind == _SAVE:
                    saved = (*saved[:x], at, *saved[x + 1 :])
                    pc += 1
                elif kind == _AT:
                    if not x(text, at):
                        break
                    pc += 1
                else:
                    steps[0] = left
                    return (begin, at, *saved[2:])
        steps[0] = left
        return None

    def all(self, text: str) -> Iterator[tuple[int, ...]]:
        at, steps = 0, [VEGA_REGEX_STEPS_MAX]
        while at <= len(text):
            found = self.search(text, at, steps)
            if found is None:
                return
            yield found
            at = found[1] if found[1] > found[0] else found[1] + 1


class _Test:
    """A test of a character that remembers its answers."""

    __slots__ = ("known", "test")

    def __init__(self, test: Callable[[str], bool]) -> None:
        self.test = test
        self.known: dict[str, bool] = {}

    def holds(self, char: str) -> bool:
        answer = self.known.get(char)
        if answer is None:
            answer = self.known[char] = self.test(char)
        return answer


@functools.lru_cache(maxsize=64)
def _pattern(source: str) -> Pattern:
    return Pattern(source)


def _compiled(function: str, text: Any, pattern: Any) -> Pattern:
    needed(function, (text, "str"), (pattern, "str"))
    return _pattern(pattern)


def _matches(text: Any, pattern: Any) -> bool:
    return _compiled("regex::matches", text, pattern).search(text, 0, [VEGA_REGEX_STEPS_MAX]) is not None


def _find(text: Any, pattern: Any) -> list[Any] | None:
    found = _compiled("regex::find", text, pattern).search(text, 0, [VEGA_REGEX_STEPS_MAX])
    if found is None:
        return None
    return [text[found[index] : found[index + 1]] if found[index] >= 0 else None for index in range(0, len(found), 2)]


def _find_all(text: Any, pattern: Any) -> list[str]:
    return [text[found[0] : found[1]] for found in _compiled("regex::find_all", text, pattern).all(text)]


def _replace(text: Any, pattern: Any, new: Any) -> str:
    needed("regex::replace", (new, "str"))
    pieces, at, size = [], 0, 0
    for found in _compiled("regex::replace", text, pattern).all(text):
        pieces += [text[at : found[0]], new]
        size += len(pieces[-2]) + len(new)
        limited(size)
        at = found[1]
    return "".join(pieces) + str(text[at:])


def _split(text: Any, pattern: Any) -> list[str]:
    pieces, at = [], 0
    for found in _compiled("regex::split", text, pattern).all(text):
        if found[1] == found[0]:
            continue
        pieces.append(text[at : found[0]])
        at = found[1]
    return [*pieces, text[at:]]


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "regex::matches": _matches,
    "regex::find": _find,
    "regex::find_all": _find_all,
    "regex::replace": _replace,
    "regex::split": _split,
}

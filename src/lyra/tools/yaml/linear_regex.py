"""Regular expressions that cannot take for ever: a small subset, matched against a whole text in linear time.

    [a-z0-9-]+   \\d{4}-\\d{2}   (north|south)(-east)?

Literals, `.`, classes, `\\d \\w \\s` and their opposites (of ASCII), groups, `|`, `*`, `+`, `?`, `{m}`, `{m,}`,
`{m,n}`. `^` and `$` may stand at the ends and say nothing: it is always the whole text. No look-around, no back
reference, nothing that needs to try twice. A pattern becomes an automaton with a bounded number of states, all of which
are followed at once, so that the work is states times characters whatever the pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["BadPattern", "Linear"]

STATES_MAX: Final = 500
REPEAT_MAX: Final = 200
_LENGTH_MAX: Final = 500
_DEPTH_MAX: Final = 20
_SPECIAL: Final = frozenset("\\.^$|?*+()[]{}")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_DIGITS: Final = frozenset("0123456789")
_WORDS: Final = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_SPACES: Final = frozenset(" \t\n\r\f\v")
_CLASSES: Final = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}

Fits = Callable[[str], bool]


class BadPattern(ValueError):
    """What is wrong with a pattern, in a sentence."""


class _Piece(NamedTuple):
    """A part of an automaton: where it begins, and the states whose way on is still open."""

    start: int
    ends: list[tuple[int, int]]


class Linear:
    """`Linear("[a-z]+").matches("abc")`."""

    __slots__ = ("_accept", "_fits", "_start", "_ways", "text")

    def __init__(self, text: str) -> None:
        if len(text) > _LENGTH_MAX:
            raise BadPattern(f"a pattern has at most {_LENGTH_MAX} characters")
        self.text = text
        self._fits: list[Fits | None] = []  # of each state; None: it only leads on
        self._ways: list[list[int]] = []
        tree = _Reader(text.removeprefix("^")).read()
        whole = self._build(tree)
        self._accept = self._state(None)
        self._join(whole, self._accept)
        self._start = whole.start

    def matches(self, text: str) -> bool:
        states = self._closure({self._start})
        for char in text:
            after = {way for state in states if self._takes(state, char) for way in self._ways[state]}
            if not after:
                return False
            states = self._closure(after)
        return self._accept in states

    def _takes(self, state: int, char: str) -> bool:
        fits = self._fits[state]
        return fits is not None and fits(char)

    def _closure(self, states: set[int]) -> set[int]:
        found = set(states)
        todo = list(states)
        while todo:
            state = todo.pop()
            if self._fits[state] is None:
                for way in self._ways[state]:
                    if way not in found:
                        found.add(way)
                        todo.append(way)
        return found

    # ------------------------------------------------------------ building
    def _state(self, fits: Fits | None) -> int:
        if len(self._fits) >= STATES_MAX:
            raise BadPattern("the pattern is too large: make its repetitions smaller")
        self._fits.append(fits)
        self._ways.append([])
        return len(self._fits) - 1

    def _open(self, state: int) -> tuple[int, int]:
        self._ways[state].append(-1)
        return state, len(self._ways[state]) - 1

    def _join(self, piece: _Piece, to: int) -> None:
        for state, way in piece.ends:
            self._ways[state][way] = to

    def _build(self, tree: _Tree) -> _Piece:
        if isinstance(tree, _Char):
            state = self._state(tree.fits)
            return _Piece(state, [self._open(state)])
        if isinstance(tree, _Repeat):
            return self._repeat(tree)
        if isinstance(tree, _Either):
            fork = self._state(None)
            ends: list[tuple[int, int]] = []
            for each in tree.trees:
                piece = self._build(each)
                self._ways[fork].append(piece.start)
                ends += piece.ends
            return _Piece(fork, ends)
        first = self._state(None)
        whole = _Piece(first, [self._open(first)])
        for each in tree.trees:
            piece = self._build(each)
            self._join(whole, piece.start)
            whole = _Piece(first, piece.ends)
        return whole

    def _repeat(self, tree: _Repeat) -> _Piece:
        first = self._state(None)
        whole = _Piece(first, [self._open(first)])
        for _ in range(tree.least):
            piece = self._build(tree.tree)
            self._join(whole, piece.start)
            whole = _Piece(first, piece.ends)
        if tree.most is None:
            loop = self._state(None)
            self._join(whole, loop)
            piece = self._build(tree.tree)
            self._ways[loop].append(piece.start)
            self._join(piece, loop)
            return _Piece(first, [self._open(loop)])
        ends: list[tuple[int, int]] = []
        for _ in range(tree.most - tree.least):
            fork = self._state(None)
            self._join(whole, fork)
            piece = self._build(tree.tree)
            self._ways[fork].append(piece.start)
            ends.append(self._open(fork))
            whole = _Piece(first, piece.ends)
        return _Piece(first, [*ends, *whole.ends])


# ---------------------------------------------------------------- reading
class _Char(NamedTuple):
    fits: Fits


class _Row(NamedTuple):
    trees: list[_Tree]


class _Either(NamedTuple):
    trees: list[_Tree]


class _Repeat(NamedTuple):
    tree: _Tree
    least: int
    most: int | None


_Tree = _Char | _Row | _Either | _Repeat


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> _Tree:
        tree = self._either(0)
        if self._at < len(self._text):
            raise BadPattern(f"there is a ')' too many at position {self._at}")
        return tree

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise BadPattern("the pattern ends too early")
        self._at += 1
        return char

    def _either(self, depth: int) -> _Tree:
        if depth > _DEPTH_MAX:
            raise BadPattern("groups are nested too deeply")
        rows = [self._row(depth)]
        while self._peek() == "|":
            self._at += 1
            rows.append(self._row(depth))
        return rows[0] if len(rows) == 1 else _Either(rows)

    def _row(self, depth: int) -> _Tree:
        trees: list[_Tree] = []
        while self._peek() not in ("", "|", ")"):
            if self._peek() == "$" and self._at == len(self._text) - 1 and depth == 0:
                self._at += 1
                break
            trees.append(self._repeated(self._atom(depth)))
        return _Row(trees)

    def _repeated(self, tree: _Tree) -> _Tree:
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self._peek())
        if bounds is not None:
            self._at += 1
        elif self._peek() == "{":
            bounds = self._counted()
        else:
            return tree
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            raise BadPattern(f"a repetition of a repetition at position {self._at} is not read; use a group")
        return _Repeat(tree, *bounds)

    def _counted(self) -> tuple[int, int | None]:
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : end if end > 0 else len(self._text)].partition(",")
        given = [each for each in (least, most) if each]
        if end < 0 or not least or not all(each.isascii() and each.isdigit() and len(each) <= 3 for each in given):
            raise BadPattern("a count is {m}, {m,} or {m,n}; a plain brace is \\{")
        self._at = end + 1
        low = int(least)
        high = low if not comma else int(most) if most else None
        if low > REPEAT_MAX or (high is not None and not low <= high <= REPEAT_MAX):
            raise BadPattern(f"a count is at most {REPEAT_MAX}, the smaller first")
        return low, high

    def _atom(self, depth: int) -> _Tree:
        char = self._take()
        if char == "(":
            if self._text.startswith("?:", self._at):
                self._at += 2
            elif self._peek() == "?":
                raise BadPattern("look-around, names and flags are not read; a group is ( ) or (?: )")
            tree = self._either(depth + 1)
            if self._peek() != ")":
                raise BadPattern("a '(' is not closed")
            self._at += 1
            return tree
        if char == "[":
            return _Char(self._class())
        if char == ".":
            return _Char(lambda each: each != "\n")
        if char == "\\":
            return _Char(_one_of(self._escaped()))
        if char in _SPECIAL:
            raise BadPattern(
                f"{char!r} at position {self._at - 1} is out of place; for the character itself write \\{char}"
            )
        return _Char(_one_of(char))

    def _escaped(self) -> str | Fits:
        char = self._take()
        if char.lower() in _CLASSES:
            known = _CLASSES[char.lower()]
            return (lambda each: each in known) if char.islower() else (lambda each: each not in known)
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char.isalnum():
            raise BadPattern(f"\\{char} is not read")
        return char

    def _class(self) -> Fits:
        negated = self._peek() == "^"
        self._at += negated
        parts: list[Fits] = []
        first = True
        while first or self._peek() != "]":
            first = False
            low = self._member()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._member()
                if not isinstance(low, str) or not isinstance(high, str) or low > high:
                    raise BadPattern("a range of a class goes from a character to a later one")
                parts.append(_between(low, high))
            else:
                parts.append(_one_of(low))
        self._at += 1
        return lambda each: any(fits(each) for fits in parts) != negated

    def _member(self) -> str | Fits:
        char = self._take()
        return self._escaped() if char == "\\" else char


def _one_of(wanted: str | Fits) -> Fits:
    return (lambda each: each == wanted) if isinstance(wanted, str) else wanted


def _between(low: str, high: str) -> Fits:
    return lambda each: low <= each <= high

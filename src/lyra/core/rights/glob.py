"""Glob patterns that can be compared with each other: match, cover, overlap.

A pattern is compiled into a small automaton whose states are the bits of one integer, so that matching is
linear in the text whatever the pattern (text from users never becomes a regular expression). Wildcards: `?`
one character of a segment, `*` any run within a segment, `**` any run across segments; a whole segment `**`
also stands for no segment at all, so `/a/**` matches `/a` and `/a/**/b` matches `/a/b`. What a segment is
depends on the separator.

`covers(p, q)`: everything `q` matches is matched by `p`. `overlaps(p, q)`: some text may be matched by
both. Both are exact until `PATTERN_STEPS_MAX` steps; beyond that the answer is the safe one (not covered,
may overlap). Paths, hosts and commands are not known here: see `scope`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Final

from lyra.core.limits import PATTERN_STEPS_MAX

# A character that no wildcard matches: it keeps two parts of one text (a host and its port) apart.
BARRIER: Final = "\0"

# Token kinds. A state is the index of the token to match next; the state after the last token accepts.
_CHAR, _ONE, _RUN, _ANY, _ENTER = range(5)
_BELOW: Final = [(_ENTER, ""), (_ANY, "")]


class Glob:
    """One glob pattern. A pattern without wildcards is a plain text and is not compiled."""

    __slots__ = (
        "_below",
        "_chars",
        "_enter",
        "_loop_any",
        "_loop_run",
        "_one",
        "_skip",
        "_tokens",
        "accept",
        "head",
        "literal",
        "separator",
        "start",
        "text",
    )

    def __init__(self, text: str, separator: str) -> None:
        self.text = self.head = text
        self.separator = separator
        self.literal = "*" not in text and "?" not in text
        if not self.literal:
            self._compile(_tokenise(text, separator))

    def _compile(self, tokens: list[tuple[int, str]]) -> None:
        self._tokens = tokens
        self.head = _literal_head(tokens)  # what every match starts with
        self._below = tokens[len(self.head) :] == _BELOW  # `/a/**`, the commonest rule by far
        self._chars: dict[str, int] = {}  # character → the states that step over it
        masks = [0] * 5  # kind of token → the states that hold one
        for index, (kind, char) in enumerate(tokens):
            masks[kind] |= 1 << index
            if kind == _CHAR:
                self._chars[char] = self._chars.get(char, 0) | 1 << index
        self._one, self._loop_run, self._loop_any, self._enter = masks[_ONE:]
        self._skip = self._loop_run | self._loop_any
        self.accept = 1 << len(tokens)
        self.start = self.closure(1)

    def closure(self, states: int) -> int:
        """The states reachable without a character: past a run, or past an entry and its loop."""
        while True:
            wider = states | (states & self._skip) << 1 | (states & self._enter) << 2
            if wider == states:
                return states
            states = wider

    def step(self, states: int, char: str) -> int:
        """The states after one character."""
        after = (states & self._chars.get(char, 0)) << 1
        if char == BARRIER:
            return self.closure(after)
        after |= states & self._loop_any
        if char == self.separator:
            after |= (states & self._enter) << 1
        else:
            after |= (states & self._one) << 1 | states & self._loop_run
        return self.closure(after)

    def matches(self, text: str) -> bool:
        if self.literal:
            return text == self.text
        if not text.startswith(self.head):
            return False
        if self._below and BARRIER not in text:
            return len(text) == len(self.head) or text[len(self.head)] == self.separator
        states = self.start
        for char in text:
            states = self.step(states, char)
            if not states:
                return False
        return bool(states & self.accept)

    def symbols(self, state: int, alphabet: list[str]) -> Iterable[str]:
        """The characters to try in one state, out of an alphabet with one character of each sort."""
        if state == len(self._tokens):
            return ()
        kind, char = self._tokens[state]
        if kind == _CHAR:
            return (char,)
        return (self.separator,) if kind == _ENTER else alphabet

    def alphabet(self) -> set[str]:
        return {*self._chars, self.separator}


def _tokenise(text: str, separator: str) -> list[tuple[int, str]]:
    tokens: list[tuple[int, str]] = []
    index, end = 0, len(text)
    while index < end:
        char = text[index]
        if char == separator and text.startswith("**", index + 1) and _ends_segment(text, index + 3, separator):
            tokens += ((_ENTER, ""), (_ANY, ""))
            index += 3
        elif char == "*":
            after = index
            while after < end and text[after] == "*":
                after += 1
            tokens.append((_RUN if after - index == 1 else _ANY, ""))
            index = after
        else:
            tokens.append((_ONE, "") if char == "?" else (_CHAR, char))
            index += 1
    return tokens


def _literal_head(tokens: list[tuple[int, str]]) -> str:
    return "".join([char for _, char in takewhile(lambda token: token[0] == _CHAR, tokens)])


def _ends_segment(text: str, index: int, separator: str) -> bool:
    return index >= len(text) or text[index] in (separator, BARRIER)


def _alphabet(left: Glob, right: Glob) -> list[str]:
    """The characters that two patterns name, and one that neither names, which stands for all others."""
    named = left.alphabet() | right.alphabet()
    other = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in named)
    return [*sorted(named), other]


def _bits(states: int) -> list[int]:
    indexes = []
    while states:
        low = states & -states
        indexes.append(low.bit_length() - 1)
        states ^= low
    return indexes


def _have_no_common_text(left: Glob, right: Glob) -> bool:
    """Whether no text can start with both heads."""
    return not (left.head.startswith(right.head) or right.head.startswith(left.head))


def covers(wide: Glob, narrow: Glob) -> bool:
    """True only if every text that `narrow` matches is matched by `wide`."""
    if narrow.literal:
        return wide.matches(narrow.text)
    if wide.text == narrow.text:
        return True
    if wide.literal or _have_no_common_text(wide, narrow):
        return False
    for state, reached in _walk(narrow, wide):
        if state is None or (narrow.accept >> state & 1 and not reached & wide.accept):
            return False
    return True


def overlaps(left: Glob, right: Glob) -> bool:
    """False only if no text is matched by both."""
    if left.literal:
        return right.matches(left.text)
    if right.literal:
        return left.matches(right.text)
    if _have_no_common_text(left, right):
        return False
    return any(
        state is None or (left.accept >> state & 1 and reached & right.accept) for state, reached in _walk(left, right)
    )


def _walk(first: Glob, second: Glob) -> Iterator[tuple[int | None, int]]:
    """Every state of `first` with the states of `second` that some text leads to together.

    Ends with `(None, 0)` after PATTERN_STEPS_MAX steps: the caller then gives its safe answer.
    """
    alphabet = _alphabet(first, second)
    todo = [(state, second.start) for state in _bits(first.start)]
    seen = set(todo)
    steps = 0
    while todo and steps <= PATTERN_STEPS_MAX:
        state, reached = todo.pop()
        yield state, reached
        for symbol in first.symbols(state, alphabet):
            steps += 1
            reached_after = second.step(reached, symbol)
            for state_after in _bits(first.step(1 << state, symbol)):
                pair = (state_after, reached_after)
                if pair not in seen:
                    seen.add(pair)
                    todo.append(pair)
    if todo:
        yield None, 0

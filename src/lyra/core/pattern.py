"""Glob patterns that can be compared with each other: match, cover, overlap.

A pattern is compiled into a small automaton whose states are the bits of one integer, so that matching is linear in the text
whatever the pattern (text from users never becomes a regular expression). Wildcards: `?` one character of a segment, `*` any
run within a segment, `**` any run across segments; a whole segment `**` also stands for no segment at all, so `/a/**` matches
`/a` and `/a/**/b` matches `/a/b`. What a segment is depends on the separator.

`covers(p, q)`: everything `q` matches is matched by `p`. `overlaps(p, q)`: some text may be matched by both. Both are exact
until `PATTERN_STATES_MAX` steps; beyond that the answer is the safe one (not covered, may overlap). Knows nothing of
paths, hosts or commands: `capability` does.
"""

from __future__ import annotations

from typing import Final

from lyra.core.limits import PATTERN_STATES_MAX

__all__ = ["BARRIER", "Pattern", "covers", "overlaps"]

# A character that no wildcard matches: it keeps two parts of one text (a host and its port) apart.
BARRIER: Final = "\0"

# Token kinds. A state is the index of the token to match next; the state after the last token accepts.
_CHAR, _ONE, _RUN, _ANY, _ENTER = range(5)
_BELOW: Final = [(_ENTER, ""), (_ANY, "")]


class Pattern:
    """One compiled glob."""

    __slots__ = (
        "_below",
        "_chars",
        "_enter",
        "_head",
        "_loop_any",
        "_loop_run",
        "_one",
        "_skip",
        "accept",
        "literal",
        "separator",
        "start",
        "text",
    )

    def __init__(self, text: str, separator: str) -> None:
        self.text = text
        self.separator = separator
        self.literal = "*" not in text and "?" not in text
        tokens = _tokenise(text, separator)
        self._head = _literal_head(tokens)  # what every match starts with
        self._below = (
            tokens[len(self._head) :] == _BELOW
        )  # `/a/**` and nothing more: the commonest rule by far
        self.accept = 1 << len(tokens)
        self._chars: dict[str, int] = {}  # character → the states that step over it
        self._one = 0  # states that step over one character of a segment
        self._loop_run = 0  # states that stay on a character of a segment
        self._loop_any = 0  # states that stay on any character
        self._enter = 0  # states that a separator moves into the loop behind them
        self._skip = 0  # states that may be left without a character
        for index, (kind, char) in enumerate(tokens):
            bit = 1 << index
            if kind == _CHAR:
                self._chars[char] = self._chars.get(char, 0) | bit
            elif kind == _ONE:
                self._one |= bit
            elif kind == _RUN:
                self._loop_run |= bit
                self._skip |= bit
            elif kind == _ANY:
                self._loop_any |= bit
                self._skip |= bit
            else:
                self._enter |= bit
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
        if not text.startswith(self._head):
            return False
        if self._below and BARRIER not in text:
            return len(text) == len(self._head) or text[len(self._head)] == self.separator
        states = self.start
        for char in text:
            states = self.step(states, char)
            if not states:
                return False
        return bool(states & self.accept)

    def alphabet(self) -> set[str]:
        return set(self._chars)

    def successors(self, state: int, char: str) -> int:
        """`step` from one state, closure included."""
        return self.step(1 << state, char)


def _tokenise(text: str, separator: str) -> list[tuple[int, str]]:
    tokens: list[tuple[int, str]] = []
    at, end = 0, len(text)
    while at < end:
        char = text[at]
        if char == separator and text.startswith("**", at + 1) and _ends_segment(text, at + 3, separator):
            tokens += ((_ENTER, ""), (_ANY, ""))
            at += 3
        elif char == "*":
            after = at
            while after < end and text[after] == "*":
                after += 1
            tokens.append((_RUN if after - at == 1 else _ANY, ""))
            at = after
        else:
            tokens.append((_ONE, "") if char == "?" else (_CHAR, char))
            at += 1
    return tokens


def _literal_head(tokens: list[tuple[int, str]]) -> str:
    head = []
    for kind, char in tokens:
        if kind != _CHAR:
            break
        head.append(char)
    return "".join(head)


def _ends_segment(text: str, at: int, separator: str) -> bool:
    return at >= len(text) or text[at] in (separator, BARRIER)


def _symbols(left: Pattern, right: Pattern) -> list[str]:
    """One character for each way two patterns can treat a character: those they name, the separators, and one other."""
    named = left.alphabet() | right.alphabet() | {left.separator, right.separator}
    other = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in named)
    return sorted(named) + [other]


def _bits(states: int) -> list[int]:
    found = []
    while states:
        low = states & -states
        found.append(low.bit_length() - 1)
        states ^= low
    return found


def covers(wide: Pattern, narrow: Pattern) -> bool:
    """True only if every text that `narrow` matches is matched by `wide`."""
    if narrow.literal:
        return wide.matches(narrow.text)
    if wide.literal:
        return False
    symbols = _symbols(wide, narrow)
    seen: set[tuple[int, int]] = set()
    todo = [(state, wide.start) for state in _bits(narrow.start)]
    steps = 0
    while todo:
        pair = todo.pop()
        if pair in seen:
            continue
        seen.add(pair)
        state, reached = pair
        if narrow.accept >> state & 1 and not reached & wide.accept:
            return False
        for symbol in symbols:
            steps += 1
            after = narrow.successors(state, symbol)
            if after:
                reached_after = wide.step(reached, symbol)
                todo += [(next_state, reached_after) for next_state in _bits(after)]
        if steps > PATTERN_STATES_MAX:
            return False
    return True


def overlaps(left: Pattern, right: Pattern) -> bool:
    """False only if no text is matched by both."""
    if left.literal:
        return right.matches(left.text)
    if right.literal:
        return left.matches(right.text)
    symbols = _symbols(left, right)
    seen: set[tuple[int, int]] = set()
    todo = [(state, right.start) for state in _bits(left.start)]
    steps = 0
    while todo:
        pair = todo.pop()
        if pair in seen:
            continue
        seen.add(pair)
        state, reached = pair
        if left.accept >> state & 1 and reached & right.accept:
            return True
        for symbol in symbols:
            steps += 1
            after, reached_after = left.successors(state, symbol), right.step(reached, symbol)
            if after and reached_after:
                todo += [(next_state, reached_after) for next_state in _bits(after)]
        if steps > PATTERN_STATES_MAX:
            return True
    return False

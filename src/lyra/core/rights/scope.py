"""Scopes: how the part of a capability behind the colon is read, kind by kind.

    path     `/project/**`            absolute, normalised; `..` is never resolved here, only refused
    host     `*.stripe.com:443`       case does not matter; without a port, every port
    command  `pytest`, `git log *`    a program with any arguments, an exact line, or a line ending in ` *`
    dotted   `orders.created.**`      event types, tables
    plain    `stripe_api_key`, `a/*`  anything else

Owns the normal form of each kind, the reason why a scope cannot be trusted (`problem`), its pattern, and the
commands that a shell line may start. `Glob` matches patterns. Grants and rules are in `capability`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Final

from lyra.core.limits import PATTERN_STEPS_MAX

# ---------------------------------------------------------------- glob
# Glob patterns that can be compared with each other: match, cover, overlap.

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
        """Return the states reachable without a character: past a run, or past an entry and its loop."""
        while True:
            wider = states | (states & self._skip) << 1 | (states & self._enter) << 2
            if wider == states:
                return states
            states = wider

    def step(self, states: int, char: str) -> int:
        """Return the states after one character."""
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
        """Return the characters to try in one state, out of an alphabet with one character of each sort."""
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


def _bits(states: int) -> list[int]:
    indexes = []
    while states:
        low = states & -states
        indexes.append(low.bit_length() - 1)
        states ^= low
    return indexes


def _have_no_common_text(left: Glob, right: Glob) -> bool:
    """Return whether no text can start with both heads."""
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
    # The characters that two patterns name, and one that neither names, which represents all others.
    named = first.alphabet() | second.alphabet()
    other = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in named)
    alphabet = [*sorted(named), other]
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


EVERYTHING: Final = "**"

# Kinds of scope and what separates their segments.
SEPARATORS: Final = {"path": "/", "host": ".", "command": " ", "dotted": ".", "plain": "/"}

# In a requested command these may start a second command or redirect to a file, so no wildcard may match them.
SHELL: Final = frozenset(";|&$`><()\n\r")


def _normal_path(scope: str) -> str:
    if scope == EVERYTHING:
        return scope
    if scope.startswith("**/"):
        scope = "/" + scope
    parts = [part for part in scope.split("/") if part not in ("", ".")]
    return "/" + "/".join(parts) if scope.startswith("/") else scope


def _normal_host(scope: str) -> str:
    if not scope.isascii():  # lower() would turn some letters into ASCII ones; `problem` refuses the unchanged scope
        return scope
    host, port = _split_port(scope.lower())
    host = host.rstrip(".") or host
    return f"{host}:{port}" if port != "*" else host


def _normal_command(scope: str) -> str:
    if " " not in scope and "\t" not in scope:
        return scope
    return " ".join([word for word in scope.replace("\t", " ").split(" ") if word])


def _split_port(scope: str) -> tuple[str, str]:
    """Return a host and its port pattern; no port means every port. `[::1]:443` keeps its brackets with the host."""
    host_end = scope.find("]") + 1 if scope.startswith("[") else 0
    if scope.count(":", host_end) != 1 or (scope.startswith("[") and not host_end):
        return scope, "*"
    host, _, port = scope[host_end:].partition(":")
    return scope[:host_end] + host, port or "*"


_NORMAL: Final[dict[str, Callable[[str], str]]] = {
    "path": _normal_path,
    "host": _normal_host,
    "command": _normal_command,
    "dotted": str,
    "plain": str,
}


def normal(kind: str, scope: str) -> str:
    return _NORMAL[kind](scope)


def problem(kind: str, scope: str) -> str | None:
    """Return why the meaning of a scope is not certain, or None. Such a request is denied and such a rule refused."""
    if BARRIER in scope:
        return "it contains a NUL character"
    if kind == "path" and scope != EVERYTHING:
        if not scope.startswith("/"):
            return "the path is not absolute"
        if ".." in scope.split("/"):
            return "the path contains '..'"
    if kind == "host":
        if not scope.isascii():
            return "the host is not in ASCII (write its punycode form)"
        if not _HOST.issuperset(scope):
            return "it is not a host name or a host and a port"
        if scope.count(":") > 1 and not scope.startswith("["):
            return "an IPv6 address is written in brackets"
    return None


_HOST: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.:[]*?")


def pattern_of(kind: str, scope: str, *, rule: bool) -> Glob:
    """Return the scope as a pattern. Only as a rule does a program's name alone represent any arguments."""
    if kind == "host":
        host, port = _split_port(scope)
        scope = f"{host}{BARRIER}{port}"
    elif kind == "command":
        words = scope.split(" ")
        if words[-1] == "*" and len(words) > 1:
            words[-1] = EVERYTHING
        elif rule and len(words) == 1 and not SHELL.intersection(scope):
            words.append(EVERYTHING)
        scope = " ".join(words)
    return Glob(scope, SEPARATORS[kind])


# A word that a shell leaves unchanged, except for quotes: without braces, and with all quotes closed.
_WORD: Final = re.compile(r"""(?:[^\s'"\\{]|\{\}|'[^']*'|"(?:[^"\\]|\\.)*"|\\.)+""")
_QUOTING: Final = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)""", re.DOTALL)


def find_named_part(line: str) -> str | None:
    """Return the beginning of a line that a rule with a wildcard has to name: `git -C sub`, `timeout 5 make`; often "".

    None when the line is not one simple command whose words are certain: then only a rule with the same text allows it.
    """
    if SHELL.intersection(line) or line == EVERYTHING:
        return None if line != EVERYTHING else ""
    raw = line.split(" ") if not _QUOTES_OR_BRACES.intersection(line) else _WORD.findall(line)
    if " ".join(raw) != line:
        return None
    from lyra.core.commands.programs import (  # large tables; many programs run no command
        INERT,
        can_reach,
        count_named_words,
    )

    words = [_QUOTING.sub(lambda quoted: quoted[1] or quoted[2] or quoted[3] or "", word) for word in raw]
    name = words[0].rpartition("/")[2]
    for index, word in enumerate(raw[:-1] if raw[-1] in ("*", EVERYTHING) else raw):
        if word == "--" and name == "git":
            break
        known = re.split(r"[*?[]", word, maxsplit=1)[0]
        if len(known) == len(word) or name in INERT or words[index] != word:
            continue  # no file wildcard, or one in quotes, or a program without options that matter
        if known[:1] in ("", "-") or (can_reach(name) and "/" not in known):
            return None
    return " ".join(words[: count_named_words(words)])


_QUOTES_OR_BRACES: Final = frozenset("\"'\\{")


def commands_in(line: str) -> list[str]:
    """Return the commands that a shell might start: split at every operator, unquoted, with and without the program's
    folder."""
    split = "".join("\n" if char in SHELL else char for char in line)
    commands: list[str] = []
    for part in split.split("\n"):
        words = part.replace('"', "").replace("'", "").replace("\\", "").split()
        while words and "=" in words[0]:  # NAME=value before a program
            words = words[1:]
        if words:
            commands += (" ".join(words), " ".join([words[0].rpartition("/")[2], *words[1:]]))
    return list(dict.fromkeys(command for command in commands if command))

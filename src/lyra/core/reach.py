"""Options by which a program reaches beyond itself, and how they are found in a call.

An abbreviated long option counts as the worst that it can stand for, and so does a letter anywhere in a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

__all__ = ["Options", "Reach", "long_of", "reached_by", "runs_code", "words_of"]

_BEGINS: Final = frozenset("-+")
_SETTING: Final = re.compile(r"^(?:exec|[A-Za-z][A-Za-z0-9_-]*[.:][A-Za-z0-9_.:-]*)=!?")
_STARTS_PROGRAMS: Final = re.compile(
    r"system|popen|exec|spawn|subprocess|child_process|shell|\bfork\b|qx|`|!|__import__|getattr"
)


class Reach(NamedTuple):
    """`through`: a rule has to name this many words; `run`: a shell text that is run; `code`: something else is run."""

    through: int
    run: str | None = None
    code: bool = False


class Options(NamedTuple):
    """Of one program. Short options are letters, long ones words; `dashes` are words with one dash."""

    runs: str = ""  # the value is run
    wide: str = ""  # reads other settings, or writes anywhere
    valued: str = ""  # takes a value, which ends a cluster of letters
    long_runs: frozenset[str] = frozenset()
    long_wide: frozenset[str] = frozenset()
    dashes_run: frozenset[str] = frozenset()
    dashes_wide: frozenset[str] = frozenset()
    code: str = ""  # the value is code in another language
    long_code: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()  # long options that are not short for a longer one
    bundle: bool = False  # its first word may be letters without a dash
    commas: bool = False  # the words of what is run are divided by commas
    plus: bool = False  # a word with `+` is code
    leading: bool = False  # what comes after the first plain word is not the program's

    @property
    def runs_something(self) -> bool:
        return bool(self.runs or self.long_runs or self.dashes_run or self.code or self.long_code)


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


def long_of(text: str) -> frozenset[str]:
    """Long options, and everything that may be short for one."""
    return frozenset(word[:end] for word in text.split() for end in range(1, len(word) + 1))


def runs_code(text: str) -> bool:
    """Whether code of another language seems to start programs. It is a look, not a proof: such code is not read."""
    return _STARTS_PROGRAMS.search(text) is not None


def reached_by(words: Sequence[str], options: Options, at: int) -> Iterator[Reach]:
    bundle = options.bundle and len(words) > 1 and words[1][:1] != "-"  # tar's old way: letters without a dash
    while at < len(words):
        word = words[at]
        if word[:1] not in _BEGINS and not bundle:
            if options.leading:
                return
            at += 1
            continue
        following = words[at + 1] if at + 1 < len(words) else ""
        if word == "--":
            return
        if word[:2] == "--":
            yield from _long(word, following, options, at)
        elif word[:1] == "-" and len(word) > 1:
            if word.partition("=")[0] in options.dashes_run:
                yield Reach(at + 2, following.replace(",", " ") if options.commas else following)
            elif word.partition("=")[0] in options.dashes_wide:
                yield Reach(at + 1)
            else:
                yield from _short(word[1:], following, options, at)
                if options.leading and word[-1] == "m":
                    return  # python -m: the rest is the module's
        elif bundle and at == 1:
            yield from _short(word, following, options._replace(valued=""), at)
        elif options.leading:
            return
        elif options.plus and word[:1] == "+" and len(word) > 1:
            yield Reach(at + 1, code=True)
        at += 1


def _long(word: str, following: str, options: Options, at: int) -> Iterator[Reach]:
    name, equals, value = word[2:].partition("=")
    if name in options.known or not name:
        return
    through, value = (at + 1, value) if equals else (at + 2, following)
    if name in options.long_runs:
        yield Reach(through, _command_in(value))
    elif name in options.long_code:
        yield Reach(through, code=runs_code(value))
    elif name in options.long_wide:
        yield Reach(through)


def _command_in(value: str) -> str:
    """What is run by `exec=rm x`, `core.sshCommand=rm x` or just `rm x`."""
    return _SETTING.sub("", value, count=1)


def _short(letters: str, following: str, options: Options, at: int) -> Iterator[Reach]:
    for place, letter in enumerate(letters):
        rest = letters[place + 1 :]
        through, value = (at + 1, rest) if rest else (at + 2, following)
        if letter in options.runs:
            yield Reach(through, re.split(r"[= ]", value, maxsplit=1)[-1] if letter == "o" else _command_in(value))
            return
        if letter in options.code:
            yield Reach(through, code=runs_code(value))
            return
        if letter in options.wide:
            yield Reach(through)
            return
        if letter in options.valued:
            return

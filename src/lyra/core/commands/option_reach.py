"""Options by which a program reaches beyond itself, and how they are found in a call.

An abbreviated long option counts as the worst that it can stand for, and so does a letter anywhere in a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lyra.core.commands.embedded_code import starts_programs, words_of

__all__ = ["Options", "Reach", "long_of", "own_words", "reached_by", "words_of"]

_BEGINS: Final = frozenset("-+")
_SETTING: Final = re.compile(r"^(?:exec|[A-Za-z][A-Za-z0-9_-]*[.:][A-Za-z0-9_.:-]*)=!?")


class Reach(NamedTuple):
    """`through`: a rule has to name this many words; `run`: a shell text that is run; `code`: something else is run;
    `begins`: a command begins at this word or at a later one."""

    through: int
    run: str | None = None
    code: bool = False
    begins: int = 0


class Options(NamedTuple):
    """Of one program. Short options are letters, long ones words; `dashes` are words with one dash."""

    runs: str = ""  # the value is run
    wide: str = ""  # reads other settings, or writes anywhere
    valued: str = ""  # takes a value, which ends a cluster of letters
    long_runs: frozenset[str] = frozenset()
    long_wide: frozenset[str] = frozenset()
    dashes_run: frozenset[str] = frozenset()
    dashes_wide: frozenset[str] = frozenset()
    code: str = ""  # the value is code in `language`
    long_code: frozenset[str] = frozenset()
    language: str = ""
    unread: str = ""  # the value is run, in a form that is not read here
    long_unread: frozenset[str] = frozenset()
    dashes_unread: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()  # long options that are not short for a longer one
    bundle: bool = False  # its first word may be letters without a dash
    commas: bool = False  # the words of what is run are divided by commas
    plus: bool = False  # a word with `+` is code
    leading: bool = False  # what comes after the first plain word is not the program's

    @property
    def runs_something(self) -> bool:
        short = self.runs or self.code or self.unread
        return bool(short or self.long_runs or self.dashes_run or self.long_code or self.long_unread)


def long_of(text: str) -> frozenset[str]:
    """Long options, and everything that may be short for one."""
    return frozenset(word[:end] for word in text.split() for end in range(1, len(word) + 1))


def own_words(words: Sequence[str], options: Options) -> int:
    """How many words come before the first that is neither an option nor an option's value."""
    at = 1
    while at < len(words):
        word = words[at]
        if (word[:1] not in _BEGINS and word[:1] != "\0") or word in ("-", "--"):
            return at
        at += 2 if _takes_next(word, options) else 1
    return len(words)


def _takes_next(word: str, options: Options) -> bool:
    """Whether the next word may be this option's value. Of a long option nobody knows: it may."""
    if word[:2] == "--":
        return "=" not in word
    ends = options.valued + options.runs + options.code + options.unread + options.wide
    found = next((place for place, letter in enumerate(word[1:], 2) if letter in ends), 0)
    return found == len(word)


def reached_by(words: Sequence[str], options: Options, at: int) -> Iterator[Reach]:
    bundle = options.bundle and len(words) > 1 and words[1][:1] != "-"  # tar's old way: letters without a dash
    last = own_words(words, options) if options.leading else len(words)
    while at < last:
        word = words[at]
        if word[:1] not in _BEGINS and not (bundle and at == 1):
            at += 1
            continue
        following = words[at + 1] if at + 1 < len(words) else ""
        if word == "--":
            return
        if word[:2] == "--":
            yield from _long(word, following, options, at)
        elif word[:1] == "-" and len(word) > 1:
            found = _dashes(word, following, options, at)
            if found is not None:
                yield found
            else:
                yield from _short(word[1:], following, options, at)
                if options.leading and word[-1] == "m":
                    return  # python -m: the rest is the module's
        elif bundle and at == 1:
            yield from _bundled(words, options)
        elif options.plus and word[:1] == "+" and len(word) > 1:
            yield Reach(at + 1, code=True)
        at += 1


def _dashes(word: str, following: str, options: Options, at: int) -> Reach | None:
    """A long option with one dash."""
    name, equals, value = word.partition("=")
    through, value = (at + 1, value) if equals else (at + 2, following)
    if name in options.dashes_run:
        return Reach(through, value.replace(",", " ") if options.commas else value)
    if name in options.dashes_unread:
        return Reach(through, code=True)
    return Reach(at + 1) if name in options.dashes_wide else None


def _bundled(words: Sequence[str], options: Options) -> Iterator[Reach]:
    """tar's old way: the values of the letters are the words that follow, in their order."""
    at = 1
    for letter in words[1]:
        if letter in options.runs or letter in options.valued:
            at += 1
        if letter in options.runs:
            yield Reach(at + 1, words[at] if at < len(words) else None, code=at >= len(words))
        elif letter in options.wide:
            yield Reach(at + 1)


def _long(word: str, following: str, options: Options, at: int) -> Iterator[Reach]:
    name, equals, value = word[2:].partition("=")
    if name in options.known or not name:
        return
    through, value = (at + 1, value) if equals else (at + 2, following)
    if name in options.long_runs:
        yield Reach(through, _command_in(value))
    elif name in options.long_code:
        yield Reach(through, code=starts_programs(value, options.language))
    elif name in options.long_unread:
        yield Reach(through, code=True)
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
            if rest and all(each in options.code for each in rest):
                continue  # node -pe
            yield Reach(through, code=starts_programs(value, options.language))
            return
        if letter in options.unread:
            yield Reach(through, code=True)
            return
        if letter in options.wide:
            yield Reach(through)
            return
        if letter in options.valued:
            return

"""SlashArguments: what follows the name of a slash command, as text and as words split the way a shell does."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Final

from lyra.core.checking.check import did_you_mean
from lyra.errors import ConfigError

_TEXT_LENGTH_MAX: Final = 100_000


class SlashArguments:
    """`text` is as it was typed. `usage` is shown in errors: the command with its argument hint."""

    __slots__ = ("_words", "text", "usage")

    def __init__(self, text: str, usage: str) -> None:
        if len(text) > _TEXT_LENGTH_MAX:
            raise ConfigError(f"the arguments have at most {_TEXT_LENGTH_MAX} characters, not {len(text)}")
        self.text = text.strip()
        self.usage = usage
        self._words: list[str] | None = None

    @property
    def words(self) -> list[str]:
        """The words without flags."""
        return [word for word in self._split() if not word.startswith("--")]

    def flags(self, *known: str) -> set[str]:
        """The flags that are given, without their dashes; one that is not known is an error."""
        flags = {word[2:] for word in self._split() if word.startswith("--")}
        for flag in sorted(flags - set(known)):
            near = did_you_mean(flag, known)
            raise self.mistake(f"there is no flag --{flag}", f"did you mean --{near}?" if near else "")
        return flags

    def _split(self) -> list[str]:
        if self._words is None:
            try:
                self._words = shlex.split(self.text)
            except ValueError as error:
                raise self.mistake(f"the arguments cannot be split into words: {error}", "close the quote") from None
        return self._words

    # ------------------------------------------------------------ what a command expects
    def none(self) -> None:
        """No argument at all."""
        if self.text:
            raise self.mistake(f"{self.text[:40]!r} is not expected here")

    def at_most(self, count: int) -> list[str]:
        words = self.words
        if len(words) > count:
            raise self.mistake(f"{words[count][:40]!r} is not expected here")
        return words

    def single(self, what: str) -> str:
        """Exactly one word."""
        words = self.at_most(1)
        if not words:
            raise self.mistake(f"{what} is missing")
        return words[0]

    def turn(self, word: str) -> int:
        if not word.isascii() or not word.isdecimal() or not 0 < int(word) < 10**9:
            raise self.mistake(f"{word[:40]!r} is not the number of a turn")
        return int(word)

    def choice(self, word: str, choices: Iterable[str]) -> str:
        known = list(choices)
        if word in known:
            return word
        near = did_you_mean(word, known)
        raise self.mistake(f"{word[:40]!r} is none of {', '.join(known)}", f"did you mean {near}?" if near else "")

    def mistake(self, sentence: str, hint: str = "") -> ConfigError:
        return ConfigError(sentence, hint=f"{hint} " * bool(hint) + f"usage: {self.usage}", key="arguments")

"""Ranking short texts by the words they share with a question: BM25, over an index that grows and shrinks.

Pure data. Words are letters and digits of any script, case folded, a plural `s` dropped; BM25 gives words that most
texts have next to no weight. Ties go to the newer text, so the same index gives the same order.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final

_WORD: Final = re.compile(r"\w+", re.UNICODE)
_SATURATION: Final = 1.2  # how soon repetitions of a word stop to count (k1)
_LENGTH: Final = 0.75  # how much the length of a text lowers its score (b)


def words(text: str) -> list[str]:
    return [_strip_plural(word) for word in _WORD.findall(text.casefold())]


def _strip_plural(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


class TextIndex:
    """An index of texts, each added under a number."""

    __slots__ = ("_lengths", "_total", "_with")

    def __init__(self) -> None:
        self._with: dict[str, dict[int, int]] = {}  # word → number → how often
        self._lengths: dict[int, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, number: int, text: str) -> None:
        text_words = words(text)
        self._lengths[number] = len(text_words)
        self._total += len(text_words)
        for word, count in Counter(text_words).items():
            self._with.setdefault(word, {})[number] = count

    def remove(self, number: int, text: str) -> None:
        """Take out what was added under this number, with this text."""
        self._total -= self._lengths.pop(number)
        for word in set(words(text)):
            holders = self._with[word]
            del holders[number]
            if not holders:
                del self._with[word]

    def search(self, question: str, most: int) -> list[tuple[int, float]]:
        """Return the best `most` numbers with their scores, best first; only those that share a word."""
        scores: dict[int, float] = {}
        count = len(self._lengths)
        mean = self._total / count if count else 1.0
        for word in set(words(question)):
            holders = self._with.get(word)
            if holders is None:
                continue
            weight = math.log(1 + (count - len(holders) + 0.5) / (len(holders) + 0.5))
            for number, times in holders.items():
                long = 1 - _LENGTH + _LENGTH * self._lengths[number] / mean
                gain = weight * times * (_SATURATION + 1) / (times + _SATURATION * long)
                scores[number] = scores.get(number, 0.0) + gain
        return sorted(scores.items(), key=lambda pair: (-pair[1], -pair[0]))[:most]

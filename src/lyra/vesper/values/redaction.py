"""Hides sensitive values of one execution in texts and data that are kept or shown.

A `Redaction` is made from the values of sensitive inputs, as they were given and as the node reads them. It replaces
each of them, in any of the spellings that errors and requests give it (`spellings`), by `[redacted]`. A value of fewer
than four characters is replaced only where it stands as a word, so that a sensitive `1` leaves other numbers alone. In
data, numbers and times are compared as values. With a sensitive boolean, all booleans are hidden, since one that is
shown would tell the other; null is never hidden. What a step computes from a sensitive value is another value and is
not recognised; journals therefore seal such data as a whole (`effects.sealing`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from lyra.vesper.values.limits import SENSITIVE_VALUES_MAX
from lyra.vesper.values.spellings import number_of, patterns_of, texts_of, utc_of

REDACTED: Final = "[redacted]"


class Redaction:
    """See the module."""

    def __init__(self, values: Iterable[Any]) -> None:
        patterns: set[str] = set()
        self._values: set[Any] = set()
        self._hides_all = False
        self._hides_booleans = False
        try:
            for number, leaf in enumerate(_leaves(list(values))):
                self._hides_all = number >= SENSITIVE_VALUES_MAX  # too many to look for: nothing is shown
                if self._hides_all:
                    break
                self._hides_booleans |= isinstance(leaf, bool)
                self._values.add(_comparable(leaf))
                patterns.update(patterns_of(leaf))
        except RecursionError:
            self._hides_all = True  # a list that holds itself
        self._pattern = re.compile("|".join(sorted(patterns, key=len, reverse=True)), re.I) if patterns else None

    def text(self, text: str) -> str:
        """The text without sensitive values."""
        if self._hides_all:
            return REDACTED
        return text if self._pattern is None else self._pattern.sub(REDACTED, text)

    def has(self, value: Any) -> bool:
        """Whether a sensitive value stands anywhere in this value."""
        return bool(self.value(value) != value)

    def value(self, value: Any) -> Any:
        """A copy of the value without sensitive values."""
        match value:
            case None:
                return value
            case bool():
                return REDACTED if self._hides_booleans or self._hides_all else value
            case str():
                return self.text(value)
            case dict():
                return {self.value(key): self.value(item) for key, item in value.items()}
            case list():
                return [self.value(item) for item in value]
            case tuple():
                return tuple(self.value(item) for item in value)
            case set() | frozenset():
                return frozenset(self.value(item) for item in value)
        is_hidden = self._hides_all or _comparable(value) in self._values
        return REDACTED if is_hidden or any(self.text(text) != text for text in texts_of(value)) else value


def _leaves(value: Any) -> Iterator[Any]:
    """The values in a value, the keys of its maps among them."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(key)
            yield from _leaves(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        yield value


def _comparable(value: Any) -> Any:
    """By which equal values are known: a number whatever its type and scale, a time whatever its zone."""
    number = None if isinstance(value, bool) else number_of(value)
    if number is not None:
        return ("number", number)
    if isinstance(value, datetime):
        return ("time", utc_of(value))
    return (type(value).__name__, value if isinstance(value, str | bytes | int) else str(value))

"""Hides sensitive values of one execution in texts and data that are kept or shown.

A `Redaction` is made from the values of sensitive inputs. It replaces each of them, in any of the spellings that errors
and requests give it (plain, JSON, URL, base64, hexadecimal, upper or lower case), by `[redacted]`. A value of fewer
than four characters is replaced only where it stands as a word, so that a sensitive `1` leaves other numbers alone.
Truth values and null are never hidden: they tell nothing. What a step computes from a sensitive value is another value
and is not recognised; journals therefore seal such data as a whole (`effects.sealing`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote, quote_plus

from lyra.vesper.values.limits import SENSITIVE_VALUES_MAX

__all__ = ["REDACTED", "Redaction"]

REDACTED: Final = "[redacted]"
_WORD_LEAST: Final = 4  # characters; shorter values are only hidden where they stand alone


class Redaction:
    """See the module."""

    def __init__(self, values: Iterable[Any]) -> None:
        texts: set[str] = set()
        self._hides_all = False
        try:
            for number, leaf in enumerate(_leaves(list(values))):
                self._hides_all = number >= SENSITIVE_VALUES_MAX  # too many to look for: nothing is shown
                if self._hides_all:
                    break
                texts.update(_spellings(leaf))
        except RecursionError:
            self._hides_all = True  # a list that holds itself
        texts.discard("")
        self._pattern = re.compile("|".join(map(_part, sorted(texts, key=len, reverse=True))), re.I) if texts else None

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
            case None | bool():
                return value
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
        return REDACTED if any(self.text(text) != text for text in _spellings(value)) else value


def _part(text: str) -> str:
    escaped = re.escape(text)
    return escaped if len(text) >= _WORD_LEAST else rf"(?<!\w){escaped}(?!\w)"


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield value


def _spellings(value: Any) -> Iterator[str]:
    """The texts by which a value can be recognised."""
    match value:
        case str():
            yield from (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1])
            yield from (quote(value, safe=""), quote(value), quote_plus(value))
            data = value.encode(errors="surrogatepass")
            if len(data) >= _WORD_LEAST:
                yield from (base64.b64encode(data).decode(), data.hex())
        case bytes():
            yield from (base64.b64encode(value).decode(), value.hex(), repr(value)[2:-1])
            yield value.decode(errors="replace")
        case Decimal() if value.is_finite():
            yield from (str(value), format(value, "f"), format(value.normalize(), "f"))
        case datetime():
            yield from (value.isoformat(), str(value))
        case _:
            yield str(value)

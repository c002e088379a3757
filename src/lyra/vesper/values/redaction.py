"""Hides sensitive values of one execution in texts and data that are kept or shown.

A `Redaction` is made from the values of sensitive inputs, as they were given and as the node reads them. It replaces
each of them by `[redacted]`, in any spelling that errors and requests give it: as it is, in upper and lower case, and
in the forms of JSON, Python, URLs, base64 and hexadecimal; a number with any zeros, sign and exponent; a time in ISO
8601 with `Z`, an offset or neither, in UTC and in its own zone. A value of fewer than four characters is replaced only
where it stands as a word, so that a sensitive `1` leaves other numbers alone. In data, numbers and times are compared
as values. With a sensitive boolean, all booleans are hidden, since one that is shown would tell the other; null is
never hidden. What a step computes from a sensitive value is another value and is not recognised here: `names` holds the
variables and fields that are hidden whatever their value, and journals seal such data as a whole (`effects.sealing`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import quote, quote_plus

from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX, DECIMAL_EXPONENT_MAX, SENSITIVE_VALUES_MAX

REDACTED: Final = "[redacted]"


class Redaction:
    """See the module."""

    def __init__(self, values: Iterable[Any], names: Iterable[str] = ()) -> None:
        self.names = frozenset(names)  # of variables and fields that are hidden as a whole
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
        """Return the text without sensitive values."""
        if self._hides_all:
            return REDACTED
        return text if self._pattern is None else self._pattern.sub(REDACTED, text)

    def has(self, value: Any) -> bool:
        """Return whether a sensitive value stands anywhere in this value."""
        return bool(self.value(value) != value)

    def value(self, value: Any) -> Any:
        """Return a copy of the value without sensitive values."""
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
    """Yield the values in a value, the keys of its maps among them."""
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
    """Return a key that equal values share: a number whatever its type and scale, a time whatever its zone."""
    number = None if isinstance(value, bool) else number_of(value)
    if number is not None:
        return ("number", number)
    if isinstance(value, datetime):
        return ("time", utc_of(value))
    return (type(value).__name__, value if isinstance(value, str | bytes | int) else str(value))


# ---------------------------------------------------------------- spellings

_WORD_LEAST: Final = 4  # characters; shorter values are only hidden where they stand alone
_DIGITS_MAX: Final = 2 * (DECIMAL_DIGITS_MAX + DECIMAL_EXPONENT_MAX)  # of a number that is written out
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?", re.ASCII)
_START: Final = r"(?:(?<!\w)[-+]|(?<!0))"  # of a number; a row of zeros is looked at once
_BOOLEANS: Final = r"(?<!\w)(?:true|false)(?!\w)"


def patterns_of(value: Any) -> Iterator[str]:
    """Yield the regular expressions of a value; none matches the empty text."""
    if isinstance(value, bool):
        yield _BOOLEANS
        return
    texts = {text for text in texts_of(value) if text}
    for text in texts:
        yield _as_word(re.escape(text), len(text))
    number = number_of(value)
    if number is not None:
        yield _number_pattern(number)


def number_of(value: Any) -> Decimal | None:
    """Return the value as a finite number, if it is one or is the text of one."""
    match value:
        case str() if len(value) <= _DIGITS_MAX and _NUMBER.fullmatch(value.strip()):
            number = Decimal(value.strip())
        case int() if value.bit_length() <= 4 * _DIGITS_MAX:
            number = Decimal(value)
        case float():
            number = Decimal(repr(value))
        case Decimal():
            number = value
        case _:
            return None
    return number if number.is_finite() else None


def utc_of(time: datetime) -> datetime:
    """Return the time in UTC, as nodes have it; a time without a zone is one in UTC."""
    try:
        return time.replace(tzinfo=UTC) if time.utcoffset() is None else time.astimezone(UTC)
    except (OverflowError, ValueError):
        return time.replace(tzinfo=UTC)


def _as_word(pattern: str, length: int) -> str:
    return pattern if length >= _WORD_LEAST else rf"(?<!\w){pattern}(?!\w)"


def _number_pattern(number: Decimal) -> str:
    """Return any way to write the number without an exponent."""
    if abs(number.adjusted()) > _DIGITS_MAX:
        return re.escape(str(number))
    whole, _, fraction = format(abs(number), "f").partition(".")
    whole, fraction = whole.lstrip("0"), fraction.rstrip("0")
    tail = rf"\.{fraction}0*" if fraction else r"(?:\.0+(?!\d))?"
    digits = _START + (f"0*{whole}" if whole or fraction else "0+") + tail
    return _as_word(digits, max(len(whole), 1) + len(fraction) + bool(fraction))


def texts_of(value: Any) -> Iterator[str]:
    """Yield the texts of a value, some of them empty or equal."""
    match value:
        case str():
            for form in {value, value.strip(), value.upper(), value.lower(), value.casefold()}:
                yield from (form, json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1], repr(form)[1:-1])
                yield from (quote(form, safe="", errors="replace"), quote(form, errors="replace"))
                yield quote_plus(form, errors="replace")
            data = value.encode(errors="surrogatepass")
            if len(data) >= _WORD_LEAST:
                yield from (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex())
            time = _time_of(value)
            if time is not None:
                yield from _time_texts(time)
        case bytes():
            yield from (base64.b64encode(value).decode(), base64.urlsafe_b64encode(value).decode(), value.hex())
            yield from (repr(value)[2:-1], value.decode(errors="replace"))
        case datetime():
            yield from _time_texts(value)
        case Decimal():
            yield from _number_texts(value)
        case int():
            yield hex(value) if value.bit_length() > 4 * DECIMAL_DIGITS_MAX else str(Decimal(value))
        case _:
            yield str(value)


def _number_texts(number: Decimal) -> Iterator[str]:
    yield str(number)
    if number.is_finite():
        try:
            yield from (str(number.normalize()), f"{number:E}", number.to_eng_string())
        except InvalidOperation:  # more digits than the context allows
            return


def _time_of(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def _time_texts(time: datetime) -> Iterator[str]:
    utc = utc_of(time)
    for bare in {utc.replace(tzinfo=None), time.replace(tzinfo=None)}:
        for text in (bare.isoformat(), str(bare), bare.isoformat(timespec="microseconds"), f"{bare:%Y%m%dT%H%M%S}"):
            yield from (f"{text}+00:00", f"{text}Z", text, quote(f"{text}+00:00", safe=""), quote(text, safe=""))
    yield from (time.isoformat(), str(time))
    yield repr(time)

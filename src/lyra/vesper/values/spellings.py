"""The spellings by which a value can be recognised in a text, as regular expressions.

A text is looked for as it is, in upper and lower case, and in the forms of JSON, Python, URLs, base64 and hexadecimal;
a text that reads as a number or a time also in their forms. A number is looked for with any zeros before it and behind
its fraction, with any sign, and with an exponent; a time in ISO 8601 with `Z`, with an offset or with none, with a `T`
or a space, in UTC and in the zone it was given in. A spelling of fewer than four characters counts only where it stands
as a word.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import quote, quote_plus

from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX, DECIMAL_EXPONENT_MAX

_WORD_LEAST: Final = 4  # characters; shorter values are only hidden where they stand alone
_DIGITS_MAX: Final = 2 * (DECIMAL_DIGITS_MAX + DECIMAL_EXPONENT_MAX)  # of a number that is written out
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?", re.ASCII)
_START: Final = r"(?:(?<!\w)[-+]|(?<!0))"  # of a number; a row of zeros is looked at once
_BOOLEANS: Final = r"(?<!\w)(?:true|false)(?!\w)"


def patterns_of(value: Any) -> Iterator[str]:
    """The regular expressions of a value; none matches the empty text."""
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
    """The value as a finite number, if it is one or is the text of one."""
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
    """The time in UTC, as nodes have it; a time without a zone is one in UTC."""
    try:
        return time.replace(tzinfo=UTC) if time.utcoffset() is None else time.astimezone(UTC)
    except (OverflowError, ValueError):
        return time.replace(tzinfo=UTC)


def _as_word(pattern: str, length: int) -> str:
    return pattern if length >= _WORD_LEAST else rf"(?<!\w){pattern}(?!\w)"


def _number_pattern(number: Decimal) -> str:
    """Any way to write the number without an exponent."""
    if abs(number.adjusted()) > _DIGITS_MAX:
        return re.escape(str(number))
    whole, _, fraction = format(abs(number), "f").partition(".")
    whole, fraction = whole.lstrip("0"), fraction.rstrip("0")
    tail = rf"\.{fraction}0*" if fraction else r"(?:\.0+(?!\d))?"
    digits = _START + (f"0*{whole}" if whole or fraction else "0+") + tail
    return _as_word(digits, max(len(whole), 1) + len(fraction) + bool(fraction))


def texts_of(value: Any) -> Iterator[str]:
    """The texts of a value, some of them empty or equal."""
    match value:
        case str():
            yield from _text_forms(value)
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


def _text_forms(text: str) -> Iterator[str]:
    for form in {text, text.strip(), text.upper(), text.lower(), text.casefold()}:
        yield from (form, json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1], repr(form)[1:-1])
        yield from (quote(form, safe="", errors="replace"), quote(form, errors="replace"))
        yield quote_plus(form, errors="replace")
    data = text.encode(errors="surrogatepass")
    if len(data) >= _WORD_LEAST:
        yield from (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex())


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

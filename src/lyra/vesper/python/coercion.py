"""Coercion of JSON-shaped values to the types that a node declares, for inputs and for outputs.

A coercer is a function `(value, where) → value` that raises `Mismatch` with the place of the first value that does not
fit. Coercers of records, arrays, maps and sets are made once, when a generated module is imported. Nothing is converted
by way of a binary float: a float counts as the decimal that its shortest text says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from lyra.vesper.python.numbers import EXACT, kind_of
from lyra.vesper.python.operators import key_text
from lyra.vesper.values.json_values import read_base64
from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX, DECIMAL_EXPONENT_MAX, VALUE_DEPTH_MAX
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.types import INTEGER_MAX, INTEGER_MIN
from lyra.vesper.values.zones import TIMESTAMP_TEXT

Coercer = Callable[[Any, str], Any]

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_NUMBER_TEXT_MAX: Final = 2 * (DECIMAL_DIGITS_MAX + DECIMAL_EXPONENT_MAX)  # characters


class Mismatch(Exception):
    """A value is not of its declared type."""


def _mismatch(where: str, expected: str, value: Any) -> Mismatch:
    return Mismatch(f"{where} must be {expected}, not {kind_of(value)}")


def invalid_input(error: Mismatch | str) -> NodeError:
    """Return the error of an input that is not of its type."""
    return NodeError("invalid_input", str(error), phase="input")


# ------------------------------------------------------------ scalars
def to_string(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    raise _mismatch(where, "a string", value)


def to_integer(value: Any, where: str) -> int:
    if type(value) is not int:
        raise _mismatch(where, "an integer", value)
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise Mismatch(f"{where} does not fit in 64 bits")
    return value


def to_boolean(value: Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _mismatch(where, "a boolean", value)


def to_decimal(value: Any, where: str) -> Decimal:
    if type(value) is Decimal:
        pass
    elif isinstance(value, bool):
        raise _mismatch(where, "a decimal number", value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Mismatch(f"{where} must be a finite number")
        value = repr(value)
    elif isinstance(value, str) and (len(value) > _NUMBER_TEXT_MAX or not _NUMBER.fullmatch(value)):
        raise Mismatch(f"{where} must be a decimal number")
    elif not isinstance(value, int | str | Decimal):
        raise _mismatch(where, "a decimal number", value)
    try:
        number = EXACT.create_decimal(value)
        if number.is_finite():
            return EXACT.add(number, 0)  # without a positive exponent or a negative zero
    except ArithmeticError:
        raise Mismatch(f"{where} has too many digits") from None
    raise Mismatch(f"{where} must be a finite number")


def decimal_of(scale: int) -> Coercer:
    """Return a coercion to decimals with exactly `scale` digits after the point."""
    unit = Decimal((0, (1,), -scale))
    quantize = EXACT.quantize

    def to_scale(value: Any, where: str) -> Decimal:
        number = value if type(value) is Decimal else to_decimal(value, where)
        try:
            result = quantize(number, unit)
        except ArithmeticError:
            raise Mismatch(f"{where} must have at most {scale} digits after the point") from None
        if result != result:  # noqa: PLR0124 - not a number
            raise Mismatch(f"{where} must be a finite number")
        return result

    return to_scale


def to_bytes(value: Any, where: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _mismatch(where, "bytes, or their base64 text", value)
    data = read_base64(value)
    if data is None:
        raise Mismatch(f"{where} must be base64 text")
    return data


def to_timestamp(value: Any, where: str) -> datetime:
    if isinstance(value, str):
        form = TIMESTAMP_TEXT.fullmatch(value)
        try:
            value = datetime.fromisoformat(value) if form else ""
        except ValueError:
            form = None
        if form is None:
            raise Mismatch(f"{where} must be a timestamp in ISO 8601, such as 2026-03-04T05:06:07Z")
    if not isinstance(value, datetime):
        raise _mismatch(where, "a timestamp", value)
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (OverflowError, ValueError):
        raise Mismatch(f"{where} is a timestamp out of range") from None


_DURATION: Final = re.compile(r"([+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d|w)")
_UNITS: Final[dict[str, Decimal | int]] = {
    "ms": Decimal("0.001"),
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86_400,
    "w": 604_800,
}


def to_duration(value: Any, where: str) -> Decimal:
    """Return a number of seconds, also of a text such as 30d or 1.5h."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return to_decimal(value, where)
    return EXACT.multiply(to_decimal(match[1], where), _UNITS[match[2]])


def to_null(value: Any, where: str) -> None:
    if value is not None:
        raise _mismatch(where, "null", value)


def to_any(value: Any, where: str, depth: int = 0) -> Any:
    """Return a JSON-shaped value of any type, in the shape that steps work with."""
    if value is None or isinstance(value, str | bool | bytes):
        return value
    if depth > VALUE_DEPTH_MAX:
        raise Mismatch(f"{where} is nested too deeply")
    match value:
        case int():
            return to_integer(value, where)
        case float() | Decimal():
            return to_decimal(value, where)
        case datetime():
            return to_timestamp(value, where)
        case list():
            return [to_any(element, f"{where}[{index}]", depth + 1) for index, element in enumerate(value)]
        case dict():
            return {
                to_string(key, f"a key of {where}"): to_any(element, f"{where}.{key}", depth + 1)
                for key, element in value.items()
            }
        case set() | frozenset():
            return _unique([to_any(element, where, depth + 1) for element in value], where)
    raise _mismatch(where, "a value", value)


# ------------------------------------------------------------ scalars that a node computed
def exact_decimal(value: Any, where: str) -> Decimal:
    """Return a computed decimal; minus zero is zero."""
    if type(value) is not Decimal and type(value) is not int:
        raise _mismatch(where, "a decimal number", value)
    return EXACT.add(value, 0)


def exact_decimal_of(scale: int) -> Coercer:
    """Return a coercion of computed decimals to exactly `scale` digits after the point."""
    at_scale = decimal_of(scale)
    without_sign_of_zero = EXACT.plus

    def to_scale(value: Any, where: str) -> Decimal:
        if type(value) is not Decimal and type(value) is not int:
            raise _mismatch(where, "a decimal number", value)
        return without_sign_of_zero(at_scale(value, where))

    return to_scale


def exact_bytes(value: Any, where: str) -> bytes:
    if isinstance(value, bytes):
        return value
    raise _mismatch(where, "bytes", value)


def exact_timestamp(value: Any, where: str) -> datetime:
    if isinstance(value, datetime):
        return value
    raise _mismatch(where, "a timestamp", value)


def exact_any(value: Any, where: str) -> Any:
    """Return a computed value of any type; minus zero is zero, also inside."""
    match value:
        case Decimal():
            return exact_decimal(value, where)
        case list():
            return [exact_any(element, where) for element in value]
        case dict():
            return {key: exact_any(element, where) for key, element in value.items()}
        case frozenset():
            return frozenset(exact_any(element, where) for element in value)
    return value


# ------------------------------------------------------------ compounds
def nullable(coerce: Coercer) -> Coercer:
    """Return the type, or null."""
    return lambda value, where: None if value is None else coerce(value, where)


def enum_of(*texts: str) -> Coercer:
    """Return a coercer to one of these texts."""
    allowed = frozenset(texts)

    def to_enum(value: Any, where: str) -> str:
        if isinstance(value, str) and value in allowed:
            return value
        raise Mismatch(f"{where} must be one of {', '.join(texts)}")

    return to_enum


def array_of(coerce: Coercer) -> Coercer:
    def to_array(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise _mismatch(where, "an array", value)
        try:
            return [coerce(element, where) for element in value]
        except Mismatch:  # once more, to say which element it is
            return [coerce(element, f"{where}[{index}]") for index, element in enumerate(value)]

    return to_array


def set_of(coerce: Coercer) -> Coercer:
    def to_set(value: Any, where: str) -> frozenset[Any]:
        if not isinstance(value, list | set | frozenset):
            raise _mismatch(where, "a set", value)
        return _unique([coerce(element, where) for element in value], where)

    return to_set


def _unique(elements: list[Any], where: str) -> frozenset[Any]:
    if any(isinstance(element, list | dict | frozenset) for element in elements):
        raise Mismatch(f"{where} must hold single values only")
    unique = frozenset(elements)
    if len(unique) != len(elements):
        raise Mismatch(f"{where} holds a value twice")
    return unique


def map_of(key: Coercer, value: Coercer) -> Coercer:
    def to_map(entries: Any, where: str) -> dict[str, Any]:
        if not isinstance(entries, dict):
            raise _mismatch(where, "a map", entries)
        result = {
            key(name, f"a key of {where}"): value(element, f"{where}.{name}") for name, element in entries.items()
        }
        if len(result) != len(entries):
            raise Mismatch(f"{where} has a key twice")
        return result

    return to_map


def key_of(kind: str) -> Coercer:
    """Return a coercer of keys that are no texts: to the text that stands for the key."""
    coerce: Coercer = {"boolean": to_boolean, "integer": to_integer, "decimal": to_decimal, "timestamp": to_timestamp}[
        kind
    ]

    def to_key(key: Any, where: str) -> str:
        if isinstance(key, str) and kind == "boolean":
            key = {"true": True, "false": False}.get(key, key)
        elif isinstance(key, str) and kind == "integer" and _INTEGER.fullmatch(key):
            key = int(key)
        return key_text(coerce(key, where), kind)

    return to_key


_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")


# Name, coercer, whether it is required, the value where it is absent.
FieldCoercer = tuple[str, Coercer, bool, Any]


def record_of(name: str, *fields: FieldCoercer, make: type | None = None) -> Coercer:
    """Return a coercer to a record with these fields and no others: a dict, or an instance of a dataclass."""
    known = frozenset(field for field, _, _, _ in fields)

    def to_record(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _mismatch(where, f"a record {name}", value)
        if not known.issuperset(value):
            unknown = next(key for key in value if key not in known)
            raise Mismatch(f"{where} has no field {unknown!r}")
        record: dict[str, Any] = {}
        for field, coerce, is_required, default in fields:
            if field in value:
                element = value[field]
                if element is None and not is_required and default is None:
                    record[field] = None
                    continue
                try:
                    record[field] = coerce(element, where)
                except Mismatch:  # once more, to say which field it is
                    record[field] = coerce(element, f"{where}.{field}")
            elif is_required:
                raise Mismatch(f"{where} lacks the field {field!r}")
            else:
                record[field] = default
        return record

    usual = [(field, coerce) for field, coerce, is_required, _ in fields if is_required]

    def to_dataclass(value: Any, where: str) -> Any:
        assert make is not None
        if type(value) is make:
            value = {field: getattr(value, field) for field in known}
        if type(value) is dict and len(value) == len(usual) == len(fields):
            try:
                return make(*[coerce(value[field], where) for field, coerce in usual])
            except (KeyError, Mismatch):  # once more, to say which field it is
                pass
        return make(*to_record(value, where).values())

    return to_record if make is None else to_dataclass

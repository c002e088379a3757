"""Coercion on the direct path: values from outside to values of a declared type, and answers to theirs.

`reader(type)` gives a function that takes a JSON-shaped or Python value and returns the value of the type, or raises
Misfit. `writer(type)` does the same for values that the node computed: an integer becomes a decimal, a decimal gets its
declared scale, and nothing is parsed. Both are built once per type; a run only calls them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, DecimalException
from typing import Any, Final

import msgspec

from lyra.vesper.direct.frames import MISSING
from lyra.vesper.direct.numbers import EXACT, key_text, kind_of, normalize_decimal
from lyra.vesper.ir import NodeInput
from lyra.vesper.values.json_values import read_base64
from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX, DECIMAL_EXPONENT_MAX, VALUE_DEPTH_MAX
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.types import (
    INTEGER_MAX,
    INTEGER_MIN,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordField,
    RecordType,
    Scalar,
    SetType,
    ValueType,
    describe,
    key_kind,
)
from lyra.vesper.values.zones import TIMESTAMP_TEXT

Coerce = Callable[[Any], Any]
_ZERO: Final = Decimal(0)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?", re.ASCII)
_NUMBER_LENGTH_MAX: Final = 2 * (DECIMAL_DIGITS_MAX + DECIMAL_EXPONENT_MAX)
_ELEMENTS_OF_SETS: Final = (str, int, Decimal, bool, bytes, datetime, type(None))


class Misfit(Exception):
    """A value does not fit its type; the text says where and why."""


def _misfit(value: Any, expected: str) -> Misfit:
    return Misfit(f"{kind_of(value)} is not {expected}")


def _inside(where: str, coerce: Coerce, value: Any) -> Any:
    try:
        return coerce(value)
    except Misfit as misfit:
        raise Misfit(f"{where}: {misfit}") from None


# ---------------------------------------------------------------- scalars


def _string(value: Any) -> str:
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str(value)
    raise _misfit(value, "a string")


def _integer(value: Any) -> int:
    if type(value) is int:
        if INTEGER_MIN <= value <= INTEGER_MAX:
            return value
        raise Misfit("the integer needs more than 64 bits")
    raise _misfit(value, "an integer")


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise _misfit(value, "a boolean")


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        data = read_base64(value)
        if data is None:
            raise Misfit("the text is not base64")
        return data
    raise _misfit(value, "bytes")


def _timestamp(value: Any) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value) if TIMESTAMP_TEXT.fullmatch(value) else None
        except ValueError:
            value = None
        if value is None:
            raise Misfit("the text is not an ISO 8601 time")
    if not isinstance(value, datetime):
        raise _misfit(value, "a timestamp")
    if value.utcoffset() is None:
        return value.replace(tzinfo=UTC)
    try:
        return value.astimezone(UTC)
    except (OverflowError, ValueError):
        raise Misfit("the time is out of range") from None


def _decimal(value: Any) -> Decimal:
    kind = type(value)
    if kind is str:
        if len(value) > _NUMBER_LENGTH_MAX or not _NUMBER.fullmatch(value):
            raise Misfit("the text is not a number")
        number = Decimal(value)
    elif kind is Decimal:
        number = value
    elif kind is int:
        if value.bit_length() > 4 * DECIMAL_DIGITS_MAX:
            raise Misfit("the number has too many digits")
        number = Decimal(value)
    elif kind is float:
        number = Decimal(repr(value))
    else:
        raise _misfit(value, "a decimal")
    if not number.is_finite():
        raise Misfit("the number is not finite")
    try:
        return EXACT.add(number, _ZERO)
    except DecimalException:
        raise Misfit("the number has too many digits") from None


def _at_scale(scale: int, coerce: Coerce) -> Coerce:
    """Return a coercion to decimals with `scale` digits after the point. `coerce` judges only values that do not
    fit."""
    unit, zero = Decimal((0, (1,), -scale)), Decimal((0, (0,), -scale))
    quantize = EXACT.quantize

    def fit(value: Any) -> Decimal:
        number: Decimal = value if type(value) is Decimal and value.is_finite() else coerce(value)
        try:
            return quantize(number, unit) or zero
        except DecimalException:
            if number is value:
                coerce(value)
            raise Misfit(f"the number does not fit {scale} digits after the point") from None

    return fit


_SPAN: Final = re.compile(r"(?P<count>[+-]?\d{1,9}(\.\d{1,9})?) ?(?P<unit>ms|[smhdw])", re.ASCII)
_SECONDS: Final = {"s": "1", "m": "60", "h": "3600", "d": "86400", "w": "604800", "ms": "0.001"}


def _duration(value: Any) -> Decimal:
    """Return a number of seconds; a text may have a unit."""
    match = _SPAN.fullmatch(value) if type(value) is str else None
    if match is None:
        return _decimal(value)
    return EXACT.multiply(_decimal(match["count"]), Decimal(_SECONDS[match["unit"]]))


def _null(value: Any) -> None:
    if value is not None:
        raise _misfit(value, "null")


def _anything(value: Any) -> Any:
    return _any_value(value, VALUE_DEPTH_MAX)


def _any_value(value: Any, depth: int) -> Any:
    """Return a value of no declared type: JSON floats become decimals, containers are copied."""
    if depth < 0:
        raise Misfit("the value is nested too deeply")
    match value:
        case None | bool():
            return value
        case str():
            return _string(value)
        case int():
            return _integer(value)
        case Decimal() | float():
            return _decimal(value)
        case bytes():
            return value
        case datetime():
            return _timestamp(value)
        case list():
            return [_any_value(item, depth - 1) for item in value]
        case dict():
            return {_string(key): _any_value(item, depth - 1) for key, item in value.items()}
        case set() | frozenset():
            return _set_of([_any_value(item, depth - 1) for item in value])
    raise _misfit(value, "a value that a node can hold")


# ---------------------------------------------------------------- containers


def _set_of(items: list[Any]) -> frozenset[Any]:
    if not all(isinstance(item, _ELEMENTS_OF_SETS) for item in items):
        raise Misfit("a set holds scalars only")
    elements = frozenset(items)
    if len(elements) != len(items):
        raise Misfit("an element of the set is repeated")
    return elements


def _array(item: Coerce) -> Coerce:
    def fit(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _misfit(value, "an array")
        try:
            return [item(element) for element in value]
        except Misfit:
            return [_inside(f"[{index}]", item, element) for index, element in enumerate(value)]

    return fit


def _set(item: Coerce) -> Coerce:
    def fit(value: Any) -> frozenset[Any]:
        if not isinstance(value, list | set | frozenset):
            raise _misfit(value, "a set")
        return _set_of([item(element) for element in value])

    return fit


def _map(key: Coerce, item: Coerce) -> Coerce:
    def fit(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _misfit(value, "a map")
        result: dict[str, Any] = {}
        for name, element in value.items():
            text = key(name)
            if text in result:
                raise Misfit(f"the key {text} is there twice")
            try:
                result[text] = item(element)
            except Misfit as misfit:
                raise Misfit(f"{name}: {misfit}") from None
        return result

    return fit


def _key(kind: ValueType) -> Coerce:
    """Return the coercion of a map's keys: to texts, or to the texts that stand for them."""
    word = key_kind(kind)
    if word in ("string", "any"):
        return _enum(kind.values) if isinstance(kind, EnumType) else _string
    read = {"boolean": _boolean, "integer": _integer, "decimal": _decimal, "timestamp": _timestamp}[word]

    def fit(key: Any) -> str:
        if type(key) is str and word == "integer" and re.fullmatch(r"-?[0-9]{1,19}", key):
            key = int(key)
        if word == "boolean" and key in ("true", "false"):
            key = key == "true"
        return key_text(read(key), word)

    return fit


def is_optional(field: RecordField) -> bool:
    """Return whether the field reads as null when it is absent."""
    return not field.required and (field.default is msgspec.UNSET or field.default is None)


def _record(record: RecordType, build: Callable[[ValueType], Coerce]) -> Coerce:
    coercions = [
        (field.name, _or_null(build(field.type)) if is_optional(field) else build(field.type), _when_absent(field))
        for field in record.fields
    ]
    names = {field.name for field in record.fields}

    def fit(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _misfit(value, describe(record))
        if not value.keys() <= names:
            unknown = sorted(str(name) for name in value.keys() - names)
            raise Misfit(f"no field {unknown[0]!r} in {describe(record)}")
        result: dict[str, Any] = {}
        for name, coerce, absent in coercions:
            if name in value:
                try:
                    result[name] = coerce(value[name])
                except Misfit as misfit:
                    raise Misfit(f"{name}: {misfit}") from None
            elif absent is msgspec.UNSET:
                raise Misfit(f"the field {name!r} is missing")
            else:
                result[name] = absent
        return result

    return fit


def _when_absent(field: RecordField) -> Any:
    """Return the value of a field that a record lacks; UNSET where the record must have it."""
    if field.default is not msgspec.UNSET or (field.required and not isinstance(field.type, Nullable)):
        return field.default
    return None


def _or_null(coerce: Coerce) -> Coerce:
    return lambda value: None if value is None else coerce(value)


def _enum(values: tuple[str, ...]) -> Coerce:
    allowed = frozenset(values)

    def fit(value: Any) -> str:
        if isinstance(value, str) and value in allowed:
            return str(value)
        raise Misfit(f"{kind_of(value)} is not one of {', '.join(values)}")

    return fit


_READERS: Final[dict[str, Coerce]] = {
    "string": _string,
    "integer": _integer,
    "boolean": _boolean,
    "bytes": _bytes,
    "timestamp": _timestamp,
    "duration": _duration,
    "any": _anything,
    "null": _null,
}


def reader(kind: ValueType) -> Coerce:
    """Return the coercion of values that come from outside."""
    return _build(kind, _READERS, _decimal, reader)


def input_reader(declared: NodeInput) -> tuple[Coerce, Any]:
    """Return the coercion of an input, and its value when it is absent."""
    is_null = not declared.required and declared.default in (msgspec.UNSET, None)
    read = reader(Nullable(declared.type) if is_null else declared.type)
    if declared.default is not msgspec.UNSET and declared.default is not None:
        return read, read(declared.default)
    return read, MISSING if declared.required else None


def _build(
    kind: ValueType, scalars: dict[str, Coerce], decimal: Coerce, build: Callable[[ValueType], Coerce]
) -> Coerce:
    match kind:
        case Scalar():
            return scalars[kind.kind]
        case DecimalType():
            return decimal if kind.scale is None else _at_scale(kind.scale, decimal)
        case EnumType():
            return _enum(kind.values)
        case Array():
            return _array(build(kind.item))
        case SetType():
            return _set(build(kind.item))
        case MapType():
            return _map(_key(kind.key), build(kind.value))
        case RecordType():
            return _record(kind, build)
        case Nullable():
            return _or_null(build(kind.type))
    raise AssertionError(kind)


# ---------------------------------------------------------------- computed values


def _require_decimal(value: Any) -> Decimal:
    if type(value) is Decimal:
        return normalize_decimal(value)
    if type(value) is int:
        return Decimal(value)
    raise _misfit(value, "a decimal")


def _require_bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    raise _misfit(value, "bytes")


def _require_timestamp(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    raise _misfit(value, "a timestamp")


def _normalize_any(value: Any) -> Any:
    """Return a value of no declared type, its decimals without a negative zero."""
    match value:
        case Decimal():
            return normalize_decimal(value)
        case list():
            return [_normalize_any(item) for item in value]
        case dict():
            return {key: _normalize_any(item) for key, item in value.items()}
        case frozenset():
            return frozenset(_normalize_any(item) for item in value)
    return value


_WRITERS: Final[dict[str, Coerce]] = {
    "string": _string,
    "integer": _integer,
    "boolean": _boolean,
    "bytes": _require_bytes,
    "timestamp": _require_timestamp,
    "duration": _require_decimal,
    "any": _normalize_any,
    "null": _null,
}


def writer(kind: ValueType) -> Coerce:
    """Return the coercion of values that the node computed."""
    return _build(kind, _WRITERS, _require_decimal, writer)


def coerce_output(name: str, coerce: Coerce, value: Any) -> Any:
    """Return the answer's field; a type error where it does not fit."""
    try:
        return coerce(value)
    except Misfit as misfit:
        raise NodeError("type_error", f"{name}: {misfit}") from None

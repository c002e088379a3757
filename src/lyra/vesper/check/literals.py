"""Values written in a file as values of a declared type: defaults, and constants beside a type.

What fits exactly is taken; anything else is a ValueError with the reason. Paths coerce inputs with code of their
own.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final

import msgspec

from lyra.vesper.values.limits import NUMBER_DIGITS_MAX, NUMBER_EXPONENT_MAX
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    INTEGER,
    INTEGER_MAX,
    INTEGER_MIN,
    STRING,
    TIMESTAMP,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordType,
    SetType,
    ValueType,
    describe,
)

_EXACT: Final = Context(
    prec=NUMBER_DIGITS_MAX, Emax=NUMBER_DIGITS_MAX, Emin=-NUMBER_DIGITS_MAX, traps=[Inexact, InvalidOperation]
)


def literal_value(value: Any, kind: ValueType) -> Any:
    """The value of that type; ValueError where it is none."""
    if isinstance(kind, Nullable):
        return None if value is None else literal_value(value, kind.type)
    if kind == ANY:
        return value
    result = _scalar(value, kind) if not isinstance(kind, (Array, SetType, MapType, RecordType)) else _many(value, kind)
    if result is None:
        raise ValueError(f"it is no {describe(kind)}")
    return result


def _scalar(value: Any, kind: ValueType) -> Any:
    if kind == BOOLEAN:
        return value if isinstance(value, bool) else None
    if kind == STRING:
        return value if isinstance(value, str) else None
    if isinstance(kind, EnumType):
        return value if isinstance(value, str) and value in kind.values else None
    if kind == INTEGER:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        return value if is_integer and INTEGER_MIN <= value <= INTEGER_MAX else None
    if isinstance(kind, DecimalType):
        return _decimal(value, kind.scale)
    if kind == TIMESTAMP:
        return _timestamp(value)
    if kind == BYTES:
        return _bytes(value)
    return None


def _decimal(value: Any, scale: int | None) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number.adjusted()) > NUMBER_EXPONENT_MAX:
        return None
    if scale is None:
        return number
    try:
        return number.quantize(Decimal((0, (1,), -scale)), context=_EXACT)
    except (Inexact, InvalidOperation):
        raise ValueError(f"it has more than {scale} digits after the point") from None


def _timestamp(value: Any) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _bytes(value: Any) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        return None


def _many(value: Any, kind: ValueType) -> Any:
    match kind:
        case Array():
            return [literal_value(item, kind.item) for item in value] if isinstance(value, list) else None
        case SetType():
            if not isinstance(value, list):
                return None
            items = [literal_value(item, kind.item) for item in value]
            if len(set(items)) != len(items):
                raise ValueError("it has an element twice")
            return frozenset(items)
        case MapType():
            if not isinstance(value, dict):
                return None
            return {str(key): literal_value(item, kind.value) for key, item in value.items()}
        case RecordType():
            return _record(value, kind)
    return None


def _record(value: Any, kind: RecordType) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    for name in value:
        if kind.field(name) is None:
            raise ValueError(f"{describe(kind)} has no field `{name}`")
    result: dict[str, Any] = {}
    for field in kind.fields:
        if field.name in value:
            result[field.name] = literal_value(value[field.name], field.type)
        elif field.required:
            raise ValueError(f"its field `{field.name}` is missing")
        else:
            result[field.name] = None if field.default is msgspec.UNSET else field.default
    return result

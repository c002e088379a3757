"""Relations between types: which values fit where, the type that two have in common, and that of a part or a value."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    DECIMAL,
    INTEGER,
    NULL,
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
    is_numeric,
    without_null,
)


def nullable(kind: ValueType) -> ValueType:
    return kind if kind in (ANY, NULL) or isinstance(kind, Nullable) else Nullable(kind)


def is_text(kind: ValueType) -> bool:
    kind = without_null(kind)
    return kind == STRING or isinstance(kind, EnumType)


def element_of(kind: ValueType) -> ValueType | None:
    """The type of a collection's elements; None where it is no array or set."""
    kind = without_null(kind)
    if kind == ANY:
        return ANY
    return kind.item if isinstance(kind, (Array, SetType)) else None


def common(left: ValueType, right: ValueType) -> ValueType:
    """A type for values of both."""
    if left == right:
        return left
    if left == NULL or right == NULL:
        return nullable(right if left == NULL else left)
    if isinstance(left, Nullable) or isinstance(right, Nullable):
        return nullable(common(without_null(left), without_null(right)))
    if is_numeric(left) and is_numeric(right):
        return DECIMAL
    if is_text(left) and is_text(right):
        return STRING
    if isinstance(left, Array) and isinstance(right, Array):
        return Array(common(left.item, right.item))
    return ANY


def is_ordered(left: ValueType, right: ValueType) -> bool:
    """Whether values of the two can stand in an order."""
    left, right = without_null(left), without_null(right)
    if ANY in (left, right):
        other = right if left == ANY else left
        return other in (ANY, TIMESTAMP) or is_numeric(other) or is_text(other)
    if is_numeric(left) and is_numeric(right):
        return True
    return (is_text(left) and is_text(right)) or (left == right == TIMESTAMP)


def may_equal(left: ValueType, right: ValueType) -> bool:
    """Whether values of the two can be equal."""
    left, right = without_null(left), without_null(right)
    if left == right or left in (ANY, NULL) or right in (ANY, NULL):
        return True
    if is_numeric(left) or is_numeric(right):
        return is_numeric(left) and is_numeric(right)
    if isinstance(left, EnumType) and isinstance(right, EnumType):
        return not set(left.values).isdisjoint(right.values)
    if is_text(left) or is_text(right):
        return is_text(left) and is_text(right)
    if isinstance(left, (RecordType, MapType)) and isinstance(right, (RecordType, MapType)):
        return True
    if isinstance(left, (Array, SetType)) and isinstance(right, (Array, SetType)):
        return type(left) is type(right) and may_equal(left.item, right.item)
    return False


def arithmetic_type(operator: str, left: ValueType, right: ValueType) -> ValueType | None:
    """The type of `left operator right`; None where there is none."""
    left, right = without_null(left), without_null(right)
    if operator == "+" and is_text(left) and is_text(right):
        return STRING
    if ANY in (left, right):
        other = right if left == ANY else left
        fits = other == ANY or is_numeric(other) or (operator == "+" and is_text(other))
        return ANY if fits else None
    if not (is_numeric(left) and is_numeric(right)):
        return None
    if left == INTEGER and right == INTEGER:
        return DECIMAL if operator == "/" else INTEGER
    scales = [kind.scale if isinstance(kind, DecimalType) else 0 for kind in (left, right)]
    if operator == "/" or scales[0] is None or scales[1] is None:
        return DECIMAL
    return DecimalType(scales[0] + scales[1] if operator == "*" else max(scales[0], scales[1]))


def misfit(actual: ValueType, declared: ValueType) -> str:
    """Why values of a type cannot be values of another; empty where some can."""
    actual, declared = without_null(actual), without_null(declared)
    if actual in (ANY, NULL) or declared == ANY or actual == declared:
        return ""
    if is_numeric(actual) and is_numeric(declared):
        is_loss = declared == INTEGER and actual != INTEGER
        return "a decimal is no integer" if is_loss else ""
    if isinstance(actual, EnumType) and isinstance(declared, EnumType):
        return "" if not set(actual.values).isdisjoint(declared.values) else _unlike(actual, declared)
    if is_text(actual) and (is_text(declared) or declared in (TIMESTAMP, BYTES)):
        return ""
    if isinstance(actual, (Array, SetType)) and isinstance(declared, (Array, SetType)):
        return misfit(actual.item, declared.item)
    if isinstance(actual, RecordType) and isinstance(declared, RecordType):
        return _record_misfit(actual, declared)
    if isinstance(actual, (RecordType, MapType)) and isinstance(declared, (RecordType, MapType)):
        return ""
    return _unlike(actual, declared)


def _unlike(actual: ValueType, declared: ValueType) -> str:
    return f"{describe(actual)} is no {describe(declared)}"


def _record_misfit(actual: RecordType, declared: RecordType) -> str:
    for field in actual.fields:
        wanted = declared.field(field.name)
        if wanted is None:
            return f"{describe(declared)} has no field `{field.name}`"
        inner = misfit(field.type, wanted.type)
        if inner:
            return f"field `{field.name}`: {inner}"
    missing = [field.name for field in declared.fields if field.required and actual.field(field.name) is None]
    return f"field `{missing[0]}` is missing" if missing else ""


def aggregate_type(function: str, item: ValueType) -> ValueType | None:
    """The type of an aggregate over elements of a type; None where they cannot be aggregated so."""
    inner = without_null(item)
    if function == "count":
        return INTEGER
    if function in ("min", "max"):
        return nullable(inner) if inner == ANY or is_ordered(inner, inner) else None
    if inner != ANY and not is_numeric(inner):
        return None
    return inner if function == "sum" else nullable(DecimalType())


def constant_type(value: Any) -> ValueType:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return INTEGER
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        return DecimalType(max(0, -exponent) if isinstance(exponent, int) else None)
    return STRING if isinstance(value, str) else ANY


def field_type(kind: ValueType, name: str) -> ValueType | None:
    """The type of a field of a record or map; None where there is none of that name."""
    kind = without_null(kind)
    if isinstance(kind, RecordType):
        field = kind.field(name)
        return field.type if field else None
    if isinstance(kind, MapType):
        return nullable(kind.value)
    return ANY if kind == ANY else None

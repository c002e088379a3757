"""Types of a node's values, as data: what a `.vsp` file declares and what the checker infers.

Values are plain Python: `str`, `int`, `Decimal`, `bool`, `bytes`, an aware UTC `datetime`, `None`, `list` (array),
`frozenset` (set, of scalars), `dict` (map and record). A duration is a number of seconds. The keys of a map are texts;
of a map with other keys, the texts that stand for them. `any` stands for values that only a run knows: rows of a query,
answers of a server, ambient objects. Nothing here evaluates or coerces.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1


class ValueType(msgspec.Struct, frozen=True, tag=True, tag_field="is_a"):
    """Any of the types below."""


class Scalar(ValueType, frozen=True, tag="scalar"):
    """string, integer, boolean, bytes, timestamp, duration, any or null."""

    kind: str


class DecimalType(ValueType, frozen=True, tag="decimal"):
    """A decimal number. With a scale, each value has exactly so many digits after the point."""

    scale: int | None = None


class EnumType(ValueType, frozen=True, tag="enum"):
    """One of some texts."""

    values: tuple[str, ...]


class Array(ValueType, frozen=True, tag="array"):
    item: ValueType


class SetType(ValueType, frozen=True, tag="set"):
    item: ValueType


class MapType(ValueType, frozen=True, tag="map"):
    key: ValueType
    value: ValueType


class RecordField(msgspec.Struct, frozen=True):
    """A field of a record."""

    name: str
    type: ValueType
    required: bool = True
    default: Any = msgspec.UNSET  # a value of its type; UNSET: none

    def __hash__(self) -> int:
        """Return a hash without the default, which may be a list or a map."""
        return hash((self.name, self.type, self.required))


class RecordType(ValueType, frozen=True, tag="record"):
    """A custom type with fields, or the anonymous record of an aggregation."""

    name: str
    fields: tuple[RecordField, ...]

    def field(self, name: str) -> RecordField | None:
        return next((field for field in self.fields if field.name == name), None)


class Nullable(ValueType, frozen=True, tag="nullable"):
    """The type, or null."""

    type: ValueType


STRING: Final = Scalar("string")
INTEGER: Final = Scalar("integer")
BOOLEAN: Final = Scalar("boolean")
BYTES: Final = Scalar("bytes")
TIMESTAMP: Final = Scalar("timestamp")
DURATION: Final = Scalar("duration")
ANY: Final = Scalar("any")
NULL: Final = Scalar("null")
DECIMAL: Final = DecimalType()
SCALARS: Final[dict[str, ValueType]] = {
    "string": STRING,
    "integer": INTEGER,
    "decimal": DECIMAL,
    "boolean": BOOLEAN,
    "bytes": BYTES,
    "timestamp": TIMESTAMP,
    "duration": DURATION,
    "any": ANY,
}


def describe_fields(kind: ValueType) -> str:
    """Return a type as an error names it: of a record, the fields with their types, too."""
    record = without_null(kind)
    if not isinstance(record, RecordType):
        return describe(kind)
    fields = (f"{field.name}{'' if field.required else '?'}: {describe(field.type)}" for field in record.fields)
    return f"{describe(kind)} {{{', '.join(fields)}}}"


def describe(kind: ValueType) -> str:
    """Return the type as a file spells it."""
    match kind:
        case Scalar():
            return kind.kind
        case DecimalType():
            return "decimal" if kind.scale is None else f"decimal({kind.scale})"
        case EnumType():
            return f"enum[{', '.join(kind.values)}]"
        case Array():
            return f"array<{describe(kind.item)}>"
        case SetType():
            return f"set<{describe(kind.item)}>"
        case MapType():
            return f"map<{describe(kind.key)}, {describe(kind.value)}>"
        case RecordType():
            return kind.name or "record"
        case Nullable():
            return f"{describe(kind.type)} or null"
    raise AssertionError(kind)


def without_null(kind: ValueType) -> ValueType:
    return kind.type if isinstance(kind, Nullable) else kind


def is_numeric(kind: ValueType) -> bool:
    kind = without_null(kind)
    return isinstance(kind, DecimalType) or kind == INTEGER


def key_kind(kind: ValueType) -> str:
    """Return the word for the keys of a map: string, integer, decimal, boolean, timestamp, or any."""
    kind = without_null(kind)
    if isinstance(kind, DecimalType):
        return "decimal"
    return "string" if isinstance(kind, EnumType) else describe(kind)

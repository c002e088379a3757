"""Types as files spell them, as `ValueType`s, custom types by name, and relations between types.

    string   decimal(2)   array<Item>   map<string, integer>   set<string>   enum[small, large]   Money

`TypeTable` knows the custom types of one node. A text that is no type is a remark, and counts as `any` from there
on. Relations say which values fit where, the type that two have in common, and that of a part or a value.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import msgspec

from lyra.core.checking.document import Path
from lyra.vesper.check.state import CheckState
from lyra.vesper.nodes.model import FieldDeclaration, Node, TypeDeclaration
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.limits import SCALE_MAX, TYPE_DEPTH_MAX, TYPE_FIELDS_MAX
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    DECIMAL,
    DURATION,
    INTEGER,
    NULL,
    SCALARS,
    STRING,
    TIMESTAMP,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordField,
    RecordType,
    SetType,
    ValueType,
    describe,
    is_numeric,
    without_null,
)

_PART: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[<>,()\[\]]|[0-9]+|'[^']*'|\"[^\"]*\")")
_ENUM: Final = re.compile(r"\s*enum\s*\[([^\]]*)\]\s*\Z")
_OTHER_NAMES: Final = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "number": "decimal",
    "float": "decimal",
    "bool": "boolean",
    "datetime": "timestamp",
    "date": "timestamp",
    "timedelta": "duration",
    "interval": "duration",
    "list": "array",
    "object": "map",
    "dict": "map",
}


class TypeTable:
    """The types that a node can name."""

    def __init__(self, node: Node, state: CheckState) -> None:
        self.state = state
        self.declarations: dict[str, TypeDeclaration] = {}
        for declaration in node.types:
            if declaration.name in SCALARS or declaration.name in ("array", "map", "set", "enum"):
                state.error("bad_name", f"`{declaration.name}` is the name of a built-in type", declaration.path)
            self.declarations[declaration.name] = declaration
        self._known: dict[str, ValueType] = {}
        self._sizes: dict[str, int] = {}  # fields of custom types, inner ones counted
        self._open: list[str] = []  # custom types under way, outermost first
        for declaration in node.types:
            self.resolve_name(declaration.name, declaration.path)

    # ------------------------------------------------------------ fields
    def resolve_field(self, field: FieldDeclaration, *, optional_is_nullable: bool = True) -> ValueType:
        """Return the declared type; with null where the field may be absent and has no default."""
        kind = self._field_type(field)
        has_value = field.default is not None and field.default is not msgspec.UNSET
        if optional_is_nullable and not field.required and not has_value and kind != ANY:
            return Nullable(kind)
        return kind

    def _field_type(self, field: FieldDeclaration) -> ValueType:
        type_path = (*field.path, "type") if self.state.has_path((*field.path, "type")) else field.path
        if field.type.strip() == "enum":
            if not field.values:
                self.state.error("bad_type", f"enum `{field.name}` has no values", type_path, hint="values: [a, b]")
                return STRING
            return self._enum(field.values, type_path)
        kind = self.read(field.type, type_path)
        if field.scale is not None:
            if not isinstance(kind, DecimalType):
                self.state.error("bad_type", "only a decimal has a scale", (*field.path, "scale"))
            elif field.scale > SCALE_MAX:
                self.state.error("limit", f"a scale is at most {SCALE_MAX}", (*field.path, "scale"))
            else:
                kind = DecimalType(field.scale)
        return kind

    def _enum(self, values: tuple[str, ...], path: Path) -> ValueType:
        twice = {value for value in values if values.count(value) > 1}
        if twice:
            self.state.error("bad_type", f"enum value `{min(twice)}` is written twice", path)
        if any(value.strip(".…") == "" for value in values):
            message = "the values of the enum are not written yet"
            self.state.error("bad_type", message, path, hint="list them, such as enum[not_found, refused]", value=True)
        return EnumType(tuple(dict.fromkeys(values)))

    # ------------------------------------------------------------ texts
    def read(self, text: str, path: Path) -> ValueType:
        """Return the type that a text names; `any` after a remark where it names none."""
        match = _ENUM.match(text)
        if match is not None:
            values = tuple(value.strip().strip("'\"") for value in match[1].split(",") if value.strip())
            if values:
                return self._enum(values, path)
        parts = _parts(text)
        if parts is not None:
            kind, rest = self._type(parts, path, 0)
            if kind is not None and not rest:
                return kind
            if kind is None and rest == ["reported"]:
                return ANY
        hint = "name one type; `any` takes every value" if "|" in text else f"such as {', '.join(SCALARS)} or array<T>"
        if text.count("<") != text.count(">") or text.count("[") != text.count("]"):
            hint = "between braces, a type with a comma in it stands in quotes"
        self.state.error("bad_type", f"{text[:80]!r} is no type", path, hint=hint, value=True)
        return ANY

    def _type(self, parts: list[str], path: Path, depth: int) -> tuple[ValueType | None, list[str]]:
        """Return a type at the front of some parts, and the parts after it."""
        if not parts or depth > TYPE_DEPTH_MAX:
            return None, parts
        name, rest = parts[0], parts[1:]
        if name == "enum" and rest[:1] == ["["]:
            end = rest.index("]") if "]" in rest else -1
            values = tuple(part.strip("'\"") for part in rest[1:end] if part != ",")
            return (EnumType(values), rest[end + 1 :]) if end > 0 and values else (None, rest)
        if name == "decimal" and rest[:1] == ["("] and rest[2:3] == [")"] and rest[1].isdigit():
            scale = int(rest[1]) if len(rest[1]) < 6 else SCALE_MAX + 1
            return (DecimalType(scale), rest[3:]) if scale <= SCALE_MAX else (None, rest)
        if name in ("array", "set", "map"):
            return self._collection(name, rest, path, depth)
        kind = self.resolve_name(name, path)
        return (kind, rest) if kind is not None else (None, ["reported"])

    def _collection(self, name: str, rest: list[str], path: Path, depth: int) -> tuple[ValueType | None, list[str]]:
        if rest[:1] != ["<"]:
            return (MapType(STRING, ANY) if name == "map" else Array(ANY) if name == "array" else SetType(ANY)), rest
        first, rest = self._type(rest[1:], path, depth + 1)
        if first is None:
            return None, rest
        if name == "map":
            if rest[:1] != [","]:
                return None, rest
            second, rest = self._type(rest[1:], path, depth + 1)
            if second is None or rest[:1] != [">"]:
                return None, rest
            if not is_key(first):
                message = "the keys of a map are strings, integers, decimals, booleans or timestamps"
                self.state.error("bad_type", message, path)
                first = STRING
            return MapType(STRING if is_text(first) else first, second), rest[1:]
        if rest[:1] != [">"]:
            return None, rest
        if name == "set" and isinstance(first, (Array, SetType, MapType, RecordType)):
            self.state.error("bad_type", "the elements of a set are scalars", path)
        return (Array(first) if name == "array" else SetType(first)), rest[1:]

    def resolve_name(self, name: str, path: Path) -> ValueType | None:
        """Return the built-in or custom type of that name; None, after a remark, for an unknown name."""
        if name in SCALARS:
            return SCALARS[name]
        if name in self._known:
            return self._known[name]
        declaration = self.declarations.get(name)
        if declaration is None:
            words = (*SCALARS, "array", "map", "set", "enum", *self.declarations)
            near = f"did you mean `{_OTHER_NAMES[name]}`?" if name in _OTHER_NAMES else close_to(name, words)
            hint = near or f"the types are {', '.join(words)}; others are declared under `types`"
            self.state.error("unknown_type", f"there is no type `{name}`", path, hint=hint, value=True)
            return None
        if name in self._open or len(self._open) > TYPE_DEPTH_MAX:
            self.state.error("recursive_type", f"type `{name}` contains itself", declaration.path)
            return ANY
        self._open.append(name)
        kind = self._custom(declaration)
        self._open.pop()
        self._sizes[name] = size = self._size(kind)
        if size > TYPE_FIELDS_MAX:
            self.state.error("limit", f"type `{name}` has more than {TYPE_FIELDS_MAX} fields", declaration.path)
            kind = ANY
        self._known[name] = kind
        return kind

    def _size(self, kind: ValueType) -> int:
        """Return how many fields a type has, those inside it counted."""
        if isinstance(kind, Nullable):
            return self._size(kind.type)
        if isinstance(kind, (Array, SetType)):
            return self._size(kind.item)
        if isinstance(kind, MapType):
            return self._size(kind.value)
        if not isinstance(kind, RecordType):
            return 0
        if kind.name in self._sizes:
            return self._sizes[kind.name]
        return sum(1 + self._size(field.type) for field in kind.fields)

    def _custom(self, declaration: TypeDeclaration) -> ValueType:
        if declaration.base is not None:
            return self._field_type(declaration.base)
        return RecordType(
            declaration.name,
            tuple(
                RecordField(
                    name=field.name,
                    type=self.resolve_field(field),
                    required=field.required,
                    default=self.state.literal(field.default, self._field_type(field), (*field.path, "default"))
                    if field.default is not msgspec.UNSET
                    else field.default,
                )
                for field in declaration.fields
            ),
        )


def _parts(text: str) -> list[str] | None:
    """Return the words and marks of a type; None where a character fits neither."""
    parts: list[str] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _PART.match(text, position)
        if match is None or len(parts) > 1_000:
            return None
        parts.append(match[1])
        position = match.end()
    return parts


# ---------------------------------------------------------------- kinds


def nullable(kind: ValueType) -> ValueType:
    return kind if kind in (ANY, NULL) or isinstance(kind, Nullable) else Nullable(kind)


def is_text(kind: ValueType) -> bool:
    kind = without_null(kind)
    return kind == STRING or isinstance(kind, EnumType)


def is_key(kind: ValueType) -> bool:
    """Return whether a map can have keys of the type."""
    return is_text(kind) or kind in (INTEGER, BOOLEAN, TIMESTAMP) or isinstance(kind, DecimalType)


def element_of(kind: ValueType) -> ValueType | None:
    """Return the type of a collection's elements; None where it is no array or set."""
    kind = without_null(kind)
    if kind == ANY:
        return ANY
    return kind.item if isinstance(kind, (Array, SetType)) else None


def common(left: ValueType, right: ValueType) -> ValueType:
    """Return a type for values of both."""
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
    """Return whether values of the two can stand in an order."""
    left, right = without_null(left), without_null(right)
    if ANY in (left, right):
        other = right if left == ANY else left
        return other in (ANY, TIMESTAMP, DURATION) or is_numeric(other) or is_text(other)
    if is_numeric(left) and is_numeric(right):
        return True
    return (is_text(left) and is_text(right)) or (left == right and left in (TIMESTAMP, DURATION))


def may_equal(left: ValueType, right: ValueType) -> bool:
    """Return whether values of the two can be equal."""
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
    """Return the type of `left operator right`; None where the operator does not take these types."""
    left, right = without_null(left), without_null(right)
    if operator == "+" and is_text(left) and is_text(right):
        return STRING
    if ANY in (left, right):
        other = right if left == ANY else left
        is_time = operator in "+-" and other == TIMESTAMP
        fits = other in (ANY, DURATION) or is_numeric(other) or is_time or (operator == "+" and is_text(other))
        return ANY if fits else None
    if TIMESTAMP in (left, right) or DURATION in (left, right):
        sides = left, right
        if sides == (TIMESTAMP, TIMESTAMP):
            return DURATION if operator == "-" else None
        if sides == (TIMESTAMP, DURATION):
            return TIMESTAMP if operator in "+-" else None
        if sides == (DURATION, TIMESTAMP):
            return TIMESTAMP if operator == "+" else None
        if sides == (DURATION, DURATION):
            return {"+": DURATION, "-": DURATION, "%": DURATION, "/": DECIMAL}.get(operator)
        if left == DURATION and is_numeric(right):
            return DURATION if operator in "*/" else None
        return DURATION if operator == "*" and right == DURATION and is_numeric(left) else None
    if not (is_numeric(left) and is_numeric(right)):
        return None
    if left == INTEGER and right == INTEGER:
        return DECIMAL if operator == "/" else INTEGER
    scales = [kind.scale if isinstance(kind, DecimalType) else 0 for kind in (left, right)]
    if operator == "/" or scales[0] is None or scales[1] is None:
        return DECIMAL
    return DecimalType(scales[0] + scales[1] if operator == "*" else max(scales[0], scales[1]))


def misfit(actual: ValueType, declared: ValueType) -> str:
    """Return why values of a type cannot be values of another; empty where some can."""
    actual, declared = without_null(actual), without_null(declared)
    if actual in (ANY, NULL) or declared == ANY or actual == declared:
        return ""
    if is_numeric(actual) and is_numeric(declared):
        is_loss = declared == INTEGER and actual != INTEGER
        return "a decimal is no integer" if is_loss else ""
    if isinstance(actual, EnumType) and isinstance(declared, EnumType):
        return "" if not set(actual.values).isdisjoint(declared.values) else _unlike(actual, declared)
    if is_text(actual) and is_text(declared):
        return ""
    if isinstance(actual, (Array, SetType)) and isinstance(declared, (Array, SetType)):
        return misfit(actual.item, declared.item)
    if isinstance(actual, RecordType) and isinstance(declared, RecordType):
        for field in actual.fields:
            wanted = declared.field(field.name)
            if wanted is None:
                return f"{describe(declared)} has no field `{field.name}`"
            inner = misfit(field.type, wanted.type)
            if inner:
                return f"field `{field.name}`: {inner}"
        missing = [field.name for field in declared.fields if field.required and actual.field(field.name) is None]
        return f"field `{missing[0]}` is missing" if missing else ""
    if isinstance(actual, MapType) and isinstance(declared, MapType):
        return "" if may_equal(actual.key, declared.key) else _unlike(actual, declared)
    if isinstance(actual, (RecordType, MapType)) and isinstance(declared, (RecordType, MapType)):
        return ""
    return _unlike(actual, declared)


def _unlike(actual: ValueType, declared: ValueType) -> str:
    return f"{describe(actual)} is no {describe(declared)}"


def aggregate_type(function: str, item: ValueType) -> ValueType | None:
    """Return the type of an aggregate over elements of a type; None where they cannot be aggregated so."""
    inner = without_null(item)
    if function == "count":
        return INTEGER
    if function in ("min", "max"):
        return nullable(inner) if inner == ANY or is_ordered(inner, inner) else None
    if inner != ANY and inner != DURATION and not is_numeric(inner):
        return None
    return inner if function == "sum" else nullable(inner if inner == DURATION else DecimalType())


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
    """Return the type of a field of a record or map; None where there is none of that name."""
    kind = without_null(kind)
    if isinstance(kind, RecordType):
        field = kind.field(name)
        return field.type if field else None
    if isinstance(kind, MapType):
        return nullable(kind.value)
    return ANY if kind == ANY else None

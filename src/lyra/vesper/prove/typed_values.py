"""Symbolic values by their declared types: inputs, and what a node computed as an output or a field."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lyra.vesper.prove.folds import State
from lyra.vesper.prove.lists import ListWalk
from lyra.vesper.prove.texts import text_constant
from lyra.vesper.prove.values import (
    NULL,
    TIMES,
    TRUE,
    ListComprehension,
    ListItems,
    NullValue,
    NumberValue,
    OpaqueValue,
    RecordValue,
    SymbolicValue,
    TextValue,
    TimeValue,
    TruthValue,
    UnsetValue,
    ValueChoice,
    conj,
    disj,
    implies,
    microseconds,
    negate,
)
from lyra.vesper.values.types import (
    ANY,
    STRING,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordType,
    Scalar,
    SetType,
    ValueType,
)

_INDEX: Final = re.compile(r"\[[0-9]*\]")
_SHORT_MAX: Final = 6  # elements of a list that is walked as a whole, because it never has more


class TypedWalk(ListWalk):
    """Makes values of types, and coerces computed ones."""

    list_items: int | None = None  # the most elements of an input list; None: a list of any length

    # ------------------------------------------------------------ inputs

    def make_symbolic(self, kind: ValueType, name: str) -> SymbolicValue:
        """Return any value of a type."""
        numbers = self.numbers
        match kind:
            case Nullable():
                is_null = numbers.fresh_bool(f"{name}.absent")
                return ValueChoice(((is_null, NULL), (negate(is_null), self.make_symbolic(kind.type, name))))
            case Scalar(kind="integer"):
                number = numbers.fresh(name, whole=True)
                numbers.axioms.append(negate(numbers.overflow(number)))
                return number
            case DecimalType():
                number = numbers.fresh(name, whole=False, scale=kind.scale)
                numbers.note(number)
                numbers.fits(number)
                return number
            case Scalar(kind="duration"):
                return numbers.fresh(name, whole=False, scale=None)
            case Scalar(kind="boolean"):
                return TruthValue(numbers.fresh_bool(name))
            case Scalar(kind="string"):
                return TextValue(numbers.fresh_text(name))
            case EnumType():
                terms = [text_constant(value) for value in kind.values]
                if any(term is None for term in terms):
                    return OpaqueValue("a text with rare characters", "string")
                text = numbers.fresh_text(name)
                numbers.axioms.append(disj(*(text == term for term in terms)))
                return TextValue(text)
            case Scalar(kind="timestamp"):
                number = numbers.fresh(name, whole=True)
                low, high = (numbers.constant(microseconds(time)) for time in TIMES)
                numbers.axioms += [numbers.at_most(low, number), numbers.at_most(number, high)]
                return TimeValue(number)
            case RecordType():
                fields = {}
                for field in kind.fields:
                    is_optional = not field.required and field.default in (msgspec.UNSET, None)
                    declared = Nullable(field.type) if is_optional else field.type
                    fields[field.name] = self.make_symbolic(declared, f"{name}.{field.name}")
                return RecordValue(fields)
            case Array():
                return self._list_of(kind.item, name)
            case Scalar(kind="null"):
                return NULL
        word = {"SetType": "set", "MapType": "map"}.get(type(kind).__name__, "bytes" if kind == Scalar("bytes") else "")
        return OpaqueValue(f"{name}, whose type is not modelled", word)

    def longest(self, path: tuple[str, ...]) -> int | None:
        """Return how many elements a list of the inputs has at most; None of one without a bound."""
        raise NotImplementedError

    def _list_of(self, item: ValueType, name: str) -> SymbolicValue:
        if self.list_items is None:
            return self.take_all(self.new_source(lambda: self.make_symbolic(item, f"{name}[]")))
        most = self.longest(tuple(_INDEX.sub(".*", name).split(".")))
        if most is None or most > _SHORT_MAX:
            self.numbers.incomplete.add(f"lists of at most {self.list_items} elements")
            most = self.list_items
        items, before = [], TRUE
        for index in range(most):
            present = self.numbers.fresh_bool(f"{name}[{index}]")
            self.numbers.axioms.append(implies(present, before))
            items.append((present, self.make_symbolic(item, f"{name}[{index}]")))
            before = present
        return ListItems(tuple(items))

    def coerce_computed(self, kind: ValueType, value: SymbolicValue) -> SymbolicValue:
        """Return a value that the node computed as one of the type."""
        if isinstance(value, ValueChoice):
            return self.per_kind(lambda part: self.coerce_computed(kind, part), value)
        if isinstance(kind, Nullable):
            return NULL if isinstance(value, NullValue | UnsetValue) else self.coerce_computed(kind.type, value)
        if kind == ANY:
            return NULL if isinstance(value, UnsetValue) else value
        if isinstance(value, OpaqueValue):
            fits = value.kind and value.kind == _opaque_kind(kind)
            if not (fits and kind in (Scalar("string"), Scalar("bytes"))):
                self.fail("type_error", self.open_condition(value.why))
            return (
                self.make_symbolic(kind, "computed") if not isinstance(kind, Array) else OpaqueValue(value.why, "list")
            )
        match kind, value:
            case Scalar(kind="integer"), NumberValue(whole=True):
                return value
            case DecimalType(), NumberValue():
                return self._coerce_decimal(kind, value)
            case Scalar(kind="duration"), NumberValue():
                return NumberValue(value.term, False, value.scale)
            case (
                (Scalar(kind="string"), TextValue())
                | (Scalar(kind="boolean"), TruthValue())
                | (Scalar(kind="timestamp"), TimeValue())
            ):
                return value
            case Scalar(kind="null"), NullValue():
                return value
            case EnumType(), TextValue():
                terms = [text_constant(word) for word in kind.values]
                known = disj(*(value.term == term for term in terms if term is not None))
                self.fail(
                    "type_error", conj(negate(known), self.open_condition("rare characters") if None in terms else TRUE)
                )
                return value
            case Array(), ListItems() | ListComprehension():
                return self.map_elements(value, lambda part: self.coerce_computed(kind.item, part))
            case MapType(), RecordValue() if not isinstance(kind.key, EnumType) and kind.key not in (STRING, ANY):
                self.fail("type_error", self.open_condition("maps with other keys than texts"))
                return OpaqueValue("a map", "map")
            case MapType(), RecordValue():
                if isinstance(kind.key, EnumType) and not set(value.fields) <= set(kind.key.values):
                    self.fail("type_error")
                return RecordValue(
                    {name: self.coerce_computed(kind.value, part) for name, part in value.fields.items()}
                )
            case RecordType(), RecordValue():
                return self._coerce_record(kind, value)
            case SetType(), ListItems() | ListComprehension():
                self.fail("type_error", self.open_condition("sets"))
                return OpaqueValue("a set", "set")
        self.fail("type_error")
        return NULL

    def _coerce_decimal(self, kind: DecimalType, value: NumberValue) -> SymbolicValue:
        number = NumberValue(value.term, False, value.scale)
        if kind.scale is None:
            return number
        exact = self.numbers.round_quotient(number, None, kind.scale, "half_even")
        if number.scale is None or number.scale > kind.scale:
            self.fail("type_error", negate(self.numbers.equal(exact, number)))
        self.fail("type_error", self.numbers.overflow(exact))
        return exact

    def _coerce_record(self, kind: RecordType, value: RecordValue) -> SymbolicValue:
        if any(kind.field(name) is None for name in value.fields):
            self.fail("type_error")
        fields: State = {}
        for field in kind.fields:
            is_optional = not field.required and field.default in (msgspec.UNSET, None)
            declared = Nullable(field.type) if is_optional else field.type
            if field.name in value.fields:
                fields[field.name] = self.coerce_computed(declared, value.fields[field.name])
            elif field.default is not msgspec.UNSET:
                fields[field.name] = self.make_symbolic(field.type, field.name) if field.default is not None else NULL
            else:
                if not (is_optional or isinstance(field.type, Nullable)):
                    self.fail("type_error")
                fields[field.name] = NULL
        return RecordValue(fields)


def _opaque_kind(kind: ValueType) -> str:
    match kind:
        case Array():
            return "list"
        case SetType():
            return "set"
        case MapType() | RecordType():
            return "map"
        case Scalar():
            return kind.kind
    return "string" if isinstance(kind, EnumType) else ""

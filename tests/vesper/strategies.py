"""Hypothesis strategies for the types and inputs of a node.

The strategies give the same kinds of values as `lyra.vesper.evidence.inputs`, slower, and shrink by structure.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from lyra.vesper.ir import NodeProgram
from lyra.vesper.values.types import (
    ANY,
    INTEGER_MAX,
    INTEGER_MIN,
    STRING,
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
)


def _scalar(name: str) -> st.SearchStrategy[Any]:
    times = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "string": st.text(max_size=20),
        "integer": st.integers(INTEGER_MIN, INTEGER_MAX),
        "boolean": st.booleans(),
        "bytes": st.binary(max_size=8) | st.binary(max_size=8).map(lambda data: base64.b64encode(data).decode()),
        "timestamp": times | times.map(datetime.isoformat),
        "duration": _decimals(None) | st.sampled_from(["30d", "1.5h", "5 ms", "-2w"]),
        "null": st.none(),
    }
    if name in scalars:
        return scalars[name]
    leaves = st.none() | scalars["string"] | scalars["integer"] | scalars["boolean"] | _decimals(None)
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    )


def _decimals(scale: int | None) -> st.SearchStrategy[Any]:
    places = 6 if scale is None else scale
    numbers = st.decimals(-(10**12), 10**12, places=places, allow_nan=False, allow_infinity=False)
    return numbers | numbers.map(lambda number: format(number, "f")) | st.integers(-1000, 1000)


def values_of(kind: ValueType) -> st.SearchStrategy[Any]:
    """Values from outside that fit a type."""
    match kind:
        case Scalar():
            return _scalar(kind.kind)
        case DecimalType():
            return _decimals(kind.scale)
        case EnumType():
            return st.sampled_from(kind.values)
        case Array():
            return st.lists(values_of(kind.item), max_size=5)
        case SetType():
            return st.lists(values_of(kind.item), max_size=5, unique_by=repr)
        case MapType():
            keys = values_of(kind.key).map(str) if kind.key not in (STRING, ANY) else st.text(max_size=5)
            return st.dictionaries(keys, values_of(kind.value), max_size=4)
        case RecordType():
            return _record(kind.fields)
        case Nullable():
            return st.none() | values_of(kind.type)
    raise AssertionError(kind)


def _record(fields: tuple[RecordField, ...]) -> st.SearchStrategy[dict[str, Any]]:
    required = {field.name: values_of(field.type) for field in fields if field.required}
    optional = {field.name: values_of(field.type) for field in fields if not field.required}
    return st.fixed_dictionaries(required, optional=optional)


def inputs_of(program: NodeProgram) -> st.SearchStrategy[dict[str, Any]]:
    """Inputs of a program, all of their declared types."""
    required = {declared.name: values_of(declared.type) for declared in program.inputs if declared.required}
    optional = {declared.name: values_of(declared.type) for declared in program.inputs if not declared.required}
    return st.fixed_dictionaries(required, optional=optional)

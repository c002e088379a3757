"""Inputs of every type on every evaluator: what is accepted, and as which value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from lyra.vesper.ir import NodeInput
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    DECIMAL,
    INTEGER,
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
)
from tests.vesper.building import EXECUTION, give, name, node
from tests.vesper.paths import PATHS, RunPath

D = Decimal
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
POINT = RecordType(
    "Point", (RecordField("x", INTEGER), RecordField("y", INTEGER, False), RecordField("z", INTEGER, False, 9))
)

ACCEPTED: list[tuple[ValueType, Any, Any]] = [
    (STRING, "", ""),
    (INTEGER, -(2**63), -(2**63)),
    (BOOLEAN, True, True),
    (DECIMAL, 1, D("1")),
    (DECIMAL, "1.10", D("1.10")),
    (DECIMAL, "1e3", D("1000")),
    (DECIMAL, "-.5", D("-0.5")),
    (DECIMAL, 99.99, D("99.99")),
    (DECIMAL, 1e22, D("10000000000000000000000")),
    (DECIMAL, D("-0.0"), D("0.0")),
    (DECIMAL, 10**100, D(10**100)),
    (DecimalType(2), 1, D("1.00")),
    (DecimalType(2), "1.100", D("1.10")),
    (DecimalType(0), "1e2", D("100")),
    (DecimalType(0), D("1e2"), D("100")),
    (DecimalType(2), D("-0.0"), D("0.00")),
    (DecimalType(2), D("-0E+5"), D("0.00")),
    (BYTES, "aGk=", b"hi"),
    (BYTES, b"hi", b"hi"),
    (TIMESTAMP, "2026-01-02T12:00:00Z", NOON),
    (TIMESTAMP, "2026-01-02T14:00:00+02:00", NOON),
    (TIMESTAMP, "2026-01-02T12:00:00", NOON),
    (TIMESTAMP, datetime(2026, 1, 2, 13, tzinfo=timezone(timedelta(hours=1))), NOON),
    (EnumType(("a", "b")), "b", "b"),
    (Array(INTEGER), [1, 2], [1, 2]),
    (SetType(INTEGER), [2, 1], frozenset({1, 2})),
    (SetType(STRING), {"a"}, frozenset({"a"})),
    (MapType(STRING, DECIMAL), {"a": "1.0"}, {"a": D("1.0")}),
    (POINT, {"x": 1}, {"x": 1, "y": None, "z": 9}),
    (POINT, {"x": 1, "y": None, "z": 2}, {"x": 1, "y": None, "z": 2}),
    (Nullable(INTEGER), None, None),
    (ANY, {"a": [1.5, None, True]}, {"a": [D("1.5"), None, True]}),
]
REFUSED: list[tuple[ValueType, Any]] = [
    (STRING, 1),
    (STRING, None),
    (STRING, b"x"),
    (INTEGER, 1.0),
    (INTEGER, D("1")),
    (INTEGER, "1"),
    (INTEGER, True),
    (INTEGER, 2**63),
    (BOOLEAN, 1),
    (BOOLEAN, "true"),
    (DECIMAL, True),
    (DECIMAL, "NaN"),
    (DECIMAL, "Infinity"),
    (DECIMAL, float("nan")),
    (DECIMAL, float("inf")),
    (DECIMAL, D("NaN")),
    (DECIMAL, "1_000"),
    (DECIMAL, " 1"),
    (DECIMAL, ""),
    (DECIMAL, "."),
    (DECIMAL, "１"),
    (DECIMAL, "1e10001"),
    (DECIMAL, "1e-99999999999"),
    (DecimalType(2), "0.001"),
    (DecimalType(2), 0.125),
    (DecimalType(2), D("0.001")),
    (DecimalType(2), D("NaN")),
    (DecimalType(2), D("-Infinity")),
    (DecimalType(2), D("1e10001")),
    (BYTES, "a"),
    (BYTES, "a b="),
    (TIMESTAMP, "yesterday"),
    (TIMESTAMP, 0),
    (TIMESTAMP, "0001-01-01T00:00:00+01:00"),
    (EnumType(("a", "b")), "c"),
    (EnumType(("a", "b")), None),
    (Array(INTEGER), (1,)),
    (Array(INTEGER), [1, "2"]),
    (SetType(INTEGER), [1, 1]),
    (SetType(DECIMAL), ["1.0", "1.00"]),
    (MapType(STRING, INTEGER), {1: 1}),
    (MapType(EnumType(("a",)), INTEGER), {"b": 1}),
    (POINT, {}),
    (POINT, {"x": 1, "w": 1}),
    (POINT, {"x": None}),
    (POINT, [1]),
    (ANY, 2**63),
    (ANY, float("nan")),
    (ANY, {1: 1}),
    (ANY, object()),
]


def echo(path: RunPath, kind: ValueType, value: Any) -> Any:
    outcome = path(node(give(result=name("v")), inputs=(NodeInput("v", kind),)), {"v": value}, EXECUTION)
    return outcome.outputs["result"] if outcome.error is None else outcome.error.code


@pytest.mark.parametrize("path", PATHS)
def test_values_that_fit_their_type(path: RunPath) -> None:
    wrong = []
    for kind, value, expected in ACCEPTED:
        got = echo(path, kind, value)
        if repr(got) != repr(expected) and got != expected:
            wrong.append((kind, value, got))
        if isinstance(expected, Decimal):
            assert str(got) == str(expected), (kind, value)
    assert wrong == []


@pytest.mark.parametrize("path", PATHS)
def test_values_that_do_not_fit_their_type(path: RunPath) -> None:
    accepted = [(kind, value) for kind, value in REFUSED if echo(path, kind, value) != "invalid_input"]
    assert accepted == []


@pytest.mark.parametrize("path", PATHS)
def test_a_value_may_be_nested_only_so_deeply(path: RunPath) -> None:
    value: Any = 1
    for _ in range(100):
        value = [value]
    assert echo(path, ANY, value) == "invalid_input"

"""`json_shape` shows any value that a node may be given, also those that it refuses."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType

import pytest

from lyra.vesper.evidence import inputs
from lyra.vesper.values.json_values import json_shape

EAST = timezone(timedelta(hours=3))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.99, 0.99),
        (-0.0, -0.0),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (Decimal("1.50"), "1.50"),
        (Decimal("NaN"), "NaN"),
        (2**64, 2**64),
        (datetime(2024, 1, 1, 3, tzinfo=EAST), "2024-01-01T00:00:00Z"),
        (datetime(1, 1, 1, tzinfo=EAST), "0001-01-01T00:00:00+03:00"),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T00:00:00Z"),
        (frozenset({10, 9}), [9, 10]),
        (frozenset({(1, "a"), (1, 2)}), [[1, "a"], [1, 2]]),
        (MappingProxyType({1: 0.5}), {"1": 0.5}),
        (1j, "1j"),
        ([{"price": 0.99}], [{"price": 0.99}]),
    ],
)
def test_a_value_is_shown_as_plain_json(value, shown):
    assert json_shape(value) == shown
    json.dumps(json_shape(value), allow_nan=False)


def test_every_odd_value_of_the_search_is_shown():
    for value in inputs._ODD_VALUES:
        json.dumps(json_shape({"value": [value]}), allow_nan=False)


def test_an_integer_with_more_digits_than_python_writes_is_shown():
    assert json_shape([2**20_000]) == [hex(2**20_000)]

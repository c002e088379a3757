"""Two outcomes agree exactly, or the comparison says where and how they differ."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from lyra.vesper.evidence.compare import DIFFERENCES_MAX, compare
from lyra.vesper.values.outcome import NodeFailure, Outcome

D = Decimal
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def success(value: Any) -> Outcome:
    return Outcome("success", {"v": value})


def failure(code: str, message: str = "", phase: str = "flow", **fields: Any) -> Outcome:
    return Outcome("error", {}, NodeFailure(code, message, phase, fields))


def rows(first: Outcome, second: Outcome) -> list[tuple[str, str]]:
    return [(row["path"], row["kind"]) for row in compare(first, second)]


@pytest.mark.parametrize(
    "value", [None, 1, True, "x", b"x", D("1.10"), NOON, [1, [2]], {"a": {"b": None}}, frozenset({1, "a"}), frozenset()]
)
def test_equal_values_do_not_differ(value: Any) -> None:
    assert rows(success(value), success(value)) == []


@pytest.mark.parametrize(
    ("python", "direct", "path", "kind"),
    [
        (1, None, "root.v", "null_mismatch"),
        (1, True, "root.v", "type_mismatch"),
        (1, D(1), "root.v", "type_mismatch"),
        ("1", 1, "root.v", "type_mismatch"),
        ([], frozenset(), "root.v", "type_mismatch"),
        (1, 2, "root.v", "numeric_mismatch"),
        (D("1.1"), D("1.10"), "root.v", "numeric_mismatch"),
        (D("0"), D("-0"), "root.v", "numeric_mismatch"),
        ("a", "b", "root.v", "value_mismatch"),
        (True, False, "root.v", "value_mismatch"),
        (b"a", b"b", "root.v", "value_mismatch"),
        (frozenset({1}), frozenset({True}), "root.v", "value_mismatch"),
        (frozenset({D("1.0")}), frozenset({D("1.00")}), "root.v", "value_mismatch"),
        (NOON, NOON + timedelta(microseconds=1), "root.v", "timestamp_mismatch"),
        (NOON, NOON.astimezone(timezone(timedelta(hours=1))), "root.v", "timestamp_mismatch"),
        ([1], [1, 2], "root.v", "length_mismatch"),
        ({"a": [0, {"b": 1}]}, {"a": [0, {"b": 2}]}, "root.v.a[1].b", "numeric_mismatch"),
        ({"a": 1}, {}, "root.v.a", "missing_in_direct"),
        ({}, {"a": 1}, "root.v.a", "missing_in_python"),
    ],
)
def test_a_difference_has_a_path_and_a_kind(python: Any, direct: Any, path: str, kind: str) -> None:
    assert rows(success(python), success(direct)) == [(path, kind)]


def test_the_order_of_keys_does_not_count() -> None:
    assert rows(success({"a": 1, "b": 2}), success({"b": 2, "a": 1})) == []


def test_success_and_error_differ() -> None:
    assert compare(success(1), failure("overflow")) == [
        {"path": "root.status", "kind": "error_mismatch", "python": "success", "direct": "error overflow"}
    ]


def test_code_phase_and_fields_of_an_error_count() -> None:
    assert rows(failure("a"), failure("b")) == [("root.error.code", "error_mismatch")]
    assert rows(failure("a"), failure("a", phase="input")) == [("root.error.phase", "error_mismatch")]
    assert rows(failure("a", x=1), failure("a", x=2)) == [("root.error.x", "numeric_mismatch")]
    assert rows(failure("a", x=1), failure("a", x=1)) == []


def test_only_messages_of_declared_errors_count() -> None:
    assert rows(failure("declared", "x"), failure("declared", "y")) == [("root.error.message", "error_mismatch")]
    assert rows(failure("overflow", "x"), failure("overflow", "y")) == []


def test_contracts_that_could_not_be_judged_count() -> None:
    first, second = Outcome("success", unverifiable=("a", "b")), Outcome("success", unverifiable=("b", "a"))
    assert rows(first, second) == []
    assert rows(first, Outcome("success")) == [("root.unverifiable", "value_mismatch")]


def test_the_number_of_differences_is_limited() -> None:
    assert len(compare(success(list(range(1000))), success(list(range(1, 1001))))) == DIFFERENCES_MAX

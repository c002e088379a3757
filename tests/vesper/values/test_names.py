"""Names of nodes, versions and durations."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lyra.vesper.values.names import bare_id, highest, is_identifier, is_node_id, version_of
from lyra.vesper.values.triggers import seconds_of


@pytest.mark.parametrize("node_id", ["a_v1", "payment_handler_v23", "x2_y_v1.2", "n_v1.2.3", "a_v0"])
def test_an_id_is_lower_case_words_and_a_version(node_id: str) -> None:
    assert is_node_id(node_id)


@pytest.mark.parametrize(
    "node_id",
    ["", "a", "A_v1", "1_v1", "a_v", "a_v1.", "a_v1.2.3.4", "a-b_v1", "a_v1\n", "ä_v1", "a_v१", "a" * 200 + "_v1"],
)
def test_anything_else_is_no_id(node_id: str) -> None:
    assert not is_node_id(node_id)


def test_a_version_has_three_numbers() -> None:
    assert version_of("a_v2") == (2, 0, 0)
    assert version_of("a_v2.10") == (2, 10, 0)
    assert version_of("a_v2.10.3") == (2, 10, 3)
    assert version_of("a") == (0, 0, 0)
    assert bare_id("pay_out_v2.1") == "pay_out"
    assert bare_id("pay_v1_v2") == "pay_v1"


def test_a_bare_id_stands_for_the_highest_version() -> None:
    known = ["pay_v1", "pay_v2.9", "pay_v2.10", "other_v7", "payment_v9"]
    assert highest("pay", known) == "pay_v2.10"
    assert highest("pay_v1", known) == "pay_v1"
    assert highest("pay_v3", known) is None
    assert highest("unknown", known) is None


def test_identifiers() -> None:
    assert is_identifier("amount_2")
    assert not any(map(is_identifier, ["", "2a", "a-b", "a b", "é", "a\n", "a" * 129]))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("1.5s", 1.5),
        ("2 s", 2.0),
        (3, 3.0),
        (Decimal("0.5"), 0.5),
    ],
)
def test_durations(value: Any, seconds: float) -> None:
    assert seconds_of(value) == seconds


@pytest.mark.parametrize("value", ["", "s", "30", "30 days", "-1s", "0s", 0, -1, True, None, [], "1e3s", 10**10])
def test_what_is_no_duration(value: Any) -> None:
    assert seconds_of(value) is None

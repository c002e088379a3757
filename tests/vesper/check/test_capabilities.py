"""Which declared capability covers one that a step needs."""

from __future__ import annotations

import pytest

from lyra.vesper.check.effects import covering, matches, overlap


@pytest.mark.parametrize(
    ("pattern", "capability"),
    [
        ("database.write.users", "database.write.users"),
        ("database.write.*", "database.write.users"),
        ("database.*", "database.write.users"),
        ("*", "database.write.users"),
        ("database.*.users", "database.write.users"),
        ("events.publish.order", "events.publish.order.paid"),
    ],
)
def test_a_pattern_covers(pattern: str, capability: str) -> None:
    assert matches(pattern, capability)


@pytest.mark.parametrize(
    ("pattern", "capability"),
    [
        ("database.write.users", "database.write.user"),
        ("database.write.users", "database.write"),
        ("database.write.*", "database.write"),
        ("database.read.*", "database.write.users"),
        ("", "a"),
        ("database.read.users", "database.read.users.secrets"),
    ],
)
def test_a_pattern_does_not_cover(pattern: str, capability: str) -> None:
    assert not matches(pattern, capability)


def test_the_right_to_write_covers_reading() -> None:
    assert covering("database.read.users", ["database.write.users"]) == "database.read.users"
    assert covering("database.write.users", ["database.read.users"]) is None


def test_a_provider_is_covered_by_its_host() -> None:
    declared = ["network.http_client.api.stripe.com"]
    assert covering("network.http_client.stripe", declared) == declared[0]
    assert covering("network.http_client.strip", declared) is None
    assert covering("network.http_client.stripe", ["network.http_client.*"]) == "network.http_client.stripe"


def test_required_and_denied_overlap() -> None:
    assert overlap("network.x", "network.*")
    assert overlap("network.*", "network.x")
    assert not overlap("network.x", "database.x")

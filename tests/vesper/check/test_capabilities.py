"""Which declared capability covers one that a step needs."""

from __future__ import annotations

import pytest

from lyra.vesper.check.capabilities import covering, matches, overlap
from lyra.vesper.check.sql import tables_of


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


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("SELECT * FROM a JOIN b ON 1", (["a", "b"], [])),
        ("select x from main.a -- FROM c", (["main.a"], [])),
        ("INSERT INTO a SELECT * FROM b", (["b"], ["a"])),
        ("DELETE FROM a WHERE x IN (SELECT y FROM b)", (["b"], ["a"])),
        ("UPDATE a SET x = 1", ([], ["a"])),
        ("INSERT OR IGNORE INTO a VALUES (1)", ([], ["a"])),
        ("DROP TABLE IF EXISTS a", ([], ["a"])),
        ('SELECT * FROM "a"', (["a"], [])),
        ("SELECT 1 /* FROM x */", ([], [])),
    ],
)
def test_tables_of_a_query(query: str, tables: tuple[list[str], list[str]]) -> None:
    assert tables_of(query) == tables

"""A wrong contract that only fails near a change of clocks is found, in whatever way the node comes by its zone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lyra import vesper
from lyra.vesper.evidence import differential, inputs
from lyra.vesper.evidence.clock_changes import NOW, list_changes, local_texts
from lyra.vesper.evidence.properties import check_properties
from tests.cases import ALL

SEEDS = range(3 if ALL else 1)

HEAD = """\
node_id: day_v1
type: function
intent: count the hours of a day
inputs:
  at: {type: timestamp, constraints: ["value >= timestamp('2020-01-01')", "value < timestamp('2031-01-01')"]}
"""
DAY = """\
outputs: {hours: decimal, rest: decimal}
contracts:
  postconditions: ["{contract}"]
flow:
  - {step: begin, operation: arithmetic, expression: "start_of(at, 'day', {zone})", output: begin}
  - {step: count, operation: arithmetic, expression: "(add_days(begin, 1, {zone}) - begin) / hours(1)", output: hours}
  - {step: left, operation: arithmetic, expression: "hour(at, {zone}) - (at - begin) / hours(1)", output: rest}
testing:
  property_tests: [{property: same_length, invariant: "{contract}"}]
"""
CASE = """\
  test_cases:
    - name: usual
      inputs: {at: "2024-06-01T12:00:00Z", zone: America/Sao_Paulo}
      expected: {success: true}
"""
ZONE = '  zone: {type: string, constraints: ["is_zone(value)"]}\n'
NODES = {
    "named": HEAD + DAY.replace("{zone}", "'Australia/Lord_Howe'"),
    "input": HEAD + ZONE + DAY.replace("{zone}", "zone"),
    "enum": HEAD + "  zone: {type: enum, values: [Asia/Tokyo, America/Chicago]}\n" + DAY.replace("{zone}", "zone"),
}
# A day of an hour more or less, only of an hour more, only of an hour less, and the hours after the change itself.
CONTRACTS = ("hours == 24", "hours <= 24", "hours >= 24", "rest <= 0")
READING = """\
node_id: local_v1
type: function
intent: read a local time
inputs:
  text: {type: string, constraints: [{max_length: 16}]}
outputs: {shown: string}
contracts:
  preconditions: ["parse_timestamp(text, '%d.%m.%Y %H:%M', 'Europe/Berlin') IS NOT NULL"]
  postconditions: ["shown == text"]
flow:
  - step: read
    operation: arithmetic
    expression: "parse_timestamp(text, '%d.%m.%Y %H:%M', 'Europe/Berlin')"
    output: at
  - step: write
    operation: arithmetic
    expression: "format_timestamp(at, '%d.%m.%Y %H:%M', 'Europe/Berlin')"
    output: shown
"""


def is_found(text: str, seed: int, count: int = 150) -> bool:
    """Return whether so many inputs show that a node breaks its contract."""
    report = differential.test_node(vesper.load(text), count, seed)
    return any(violation.kind == "postcondition_failed" for violation in report.violations)


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("name", NODES)
def test_a_wrong_length_of_a_day_is_found(name: str, contract: str) -> None:
    """By few inputs of any seed, with the zone in the text, in the values of an input, or given with the timestamp."""
    assert all(is_found(NODES[name].replace("{contract}", contract), seed) for seed in SEEDS)


def test_the_zone_of_a_test_case_is_looked_at() -> None:
    """Nothing but the case names the zone, whose clocks changed for the last time years before."""
    node = (HEAD + ZONE + DAY.replace("{zone}", "zone")).replace("2020-01-01", "2018-01-01")
    text = node.replace("{contract}", "hours <= 24").replace(
        "is_zone(value)", "is_zone(value) AND ends_with(value, 'Paulo')"
    )
    assert all(is_found(text + CASE, seed, 600) for seed in SEEDS)
    assert not is_found(text, 0, 600)


def test_the_property_tests_look_there_too() -> None:
    """`vesper test` tries fewer inputs, and finds it."""
    node = vesper.load(NODES["named"].replace("{contract}", "hours >= 24"))
    (result,) = check_properties(node, 200)
    assert result.problems


def test_local_times_in_a_gap_are_read() -> None:
    """A local time that a zone skips is another one when it is written again."""
    assert all(is_found(READING, seed, 300) for seed in SEEDS)


def test_without_these_inputs_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above find, they find by them."""
    monkeypatch.setattr(inputs, "zones_in", lambda _: [])
    nodes = [NODES["named"].replace("{contract}", contract) for contract in CONTRACTS]
    found = [is_found(text, seed) for text in (*nodes, READING) for seed in SEEDS]
    assert found.count(True) <= len(found) // 3


def test_changes_are_found_by_the_second() -> None:
    """The last two and the next two of a zone; the last ones of one that changes no more; none where there are none."""

    def at(text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    assert list_changes("America/New_York", NOW) == tuple(
        map(at, ("2025-03-09T07:00:00", "2025-11-02T06:00:00", "2026-03-08T07:00:00", "2026-11-01T06:00:00"))
    )
    assert list_changes("Europe/Moscow", NOW) == (at("2011-03-26T23:00:00"), at("2014-10-25T22:00:00"))
    assert list_changes("Asia/Kolkata", NOW) == list_changes("no zone", NOW) == ()
    gap = [*local_texts("Europe/Berlin", (at("2026-03-29T01:00:00"),), "%H:%M:%S")]
    assert gap == ["01:59:59", "02:00:00", "02:29:59", "03:00:00", "02:59:59"]


ENDS = """\
node_id: ends_v1
type: function
intent: compare moments at the ends of all moments
inputs:
  at: {type: timestamp, constraints: ["{constraint}"]}
  other: timestamp
  zone: {type: string, constraints: ["is_zone(value)"]}
outputs: {same: boolean}
flow:
  - {step: compare, operation: arithmetic, expression: "at == other", output: same}
testing:
  test_cases:
    - name: first
      inputs: {at: "0001-01-01T00:00:00Z", other: "0001-01-01T00:00:00Z", zone: Europe/Berlin}
      expected: {success: true}
    - name: last
      inputs: {at: "9999-12-31T23:59:59.999999Z", other: "9999-12-31T23:59:59.999999Z", zone: Asia/Tokyo}
      expected: {success: true}
"""


@pytest.mark.parametrize(
    "constraint",
    [
        "value <= timestamp('0001-01-01T00:00:00Z') OR value >= timestamp('9999-12-31T23:59:59.999999Z')",
        "value <= timestamp('0001-01-01T12:00:00Z')",
        "value >= timestamp('9999-12-31T12:00:00Z')",
    ],
)
def test_inputs_lie_beside_the_first_and_the_last_moment(constraint: str) -> None:
    report = differential.test_node(vesper.load(ENDS.replace("{constraint}", constraint)), 1_000)
    assert report.counts.accepted > 50

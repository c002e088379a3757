"""Functions in proofs: what is known of texts, times and lists, and that no walk excludes what a call gives."""

from __future__ import annotations

import pytest

from tests.vesper.prove.soundness import check_random_calls
from tests.vesper.prove.test_prove import verdicts

TEXTS = """
inputs:
  name: {type: string, constraints: [{max_length: 8}]}
  number: {type: string, constraints: [{pattern: "^[0-9]{16}$"}]}
outputs: {short: string, low: string, bare: string, plain: string, last: string, shown: string, first: boolean}
contracts:
  postconditions:
    - len(last) == 4
    - ends_with(shown, last)
    - len(low) <= 16 AND NOT contains(low, 'A')
    - NOT ends_with(bare, ' ') AND len(bare) <= len(name)
    - len(bare) == len(name)
    - NOT contains(plain, '-') AND len(plain) <= len(name)
    - first => name < 'b'
    - first => name < 'a'
flow:
  - {step: cut, operation: arithmetic, expression: "slice(name, 0, 5)", output: short}
  - {step: lower, operation: arithmetic, expression: "lower(name)", output: low}
  - {step: trim, operation: arithmetic, expression: "trim(name)", output: bare}
  - {step: clean, operation: arithmetic, expression: "replace(name, '-', '')", output: plain}
  - {step: end, operation: arithmetic, expression: "slice(number, -4)", output: last}
  - {step: show, operation: arithmetic, expression: "'card ' + last", output: shown}
  - {step: sort, operation: arithmetic, expression: "name < 'aa'", output: first}
"""
TIMES = """
inputs:
  at: {type: timestamp, constraints: ["year(value) >= 2000 AND year(value) < 2100"]}
  n: {type: integer, min: 0, max: 24}
  zone: {type: string, constraints: ["is_zone(value)"]}
outputs: {later: timestamp, month: timestamp, hour: integer, there: integer, day: integer, next: timestamp}
contracts:
  postconditions:
    - later >= at
    - later <= at + days(31 * n)
    - day(later) <= day(at)
    - day(later) == day(at)
    - day(month) == 1 AND hour(month) == 0
    - hour >= 0 AND hour <= 23
    - there >= 0 AND there <= 23
    - there == hour
    - weekday(month) != 1
    - year(next) == year(at) + 1
flow:
  - {step: later, operation: arithmetic, expression: "add_months(at, n)", output: later}
  - {step: month, operation: arithmetic, expression: "start_of(at, 'month')", output: month}
  - {step: hour, operation: arithmetic, expression: "hour(at)", output: hour}
  - {step: there, operation: arithmetic, expression: "hour(at, zone)", output: there}
  - {step: day, operation: arithmetic, expression: "day(at)", output: day}
  - {step: next, operation: arithmetic, expression: "add_years(at, 1)", output: next}
"""
LISTS = """
inputs:
  items: {type: "array<integer>", constraints: ["len(value) <= 100", "FORALL item IN value: item >= 0 AND item < 50"]}
outputs: {top: "array<integer>", more: "array<integer>", back: "array<integer>", first: "array<integer>"}
contracts:
  postconditions:
    - "len(top) <= 3 AND (FORALL item IN top: item < 50)"
    - len(more) == len(items) + 1
    - "FORALL item IN more: item <= 50"
    - len(back) == len(items)
    - len(first) <= len(items)
    - len(first) == len(items)
flow:
  - {step: take, operation: arithmetic, expression: "take(items, 3)", output: top}
  - {step: add, operation: arithmetic, expression: "append(items, 50)", output: more}
  - {step: turn, operation: arithmetic, expression: "reverse(sort(items))", output: back}
  - {step: once, operation: arithmetic, expression: "distinct(items)", output: first}
"""
LONG_TEXTS = {
    "len(short) <= 5 AND starts_with(name, short)": "proved",
    "len(low) <= 20": "unknown",  # one letter becomes two: İ
}
EXPECTED = {
    TEXTS: {
        "len(last) == 4": "proved",
        "ends_with(shown, last)": "proved",
        "len(low) <= 16 AND NOT contains(low, 'A')": "proved",
        "NOT ends_with(bare, ' ') AND len(bare) <= len(name)": "proved",
        "len(bare) == len(name)": "refuted",
        "NOT contains(plain, '-') AND len(plain) <= len(name)": "proved",
        "first => name < 'b'": "proved",
        "first => name < 'a'": "refuted",
    },
    TIMES: {
        "later >= at": "proved",
        "later <= at + days(31 * n)": "proved",
        "day(later) <= day(at)": "proved",
        "day(later) == day(at)": "refuted",
        "day(month) == 1 AND hour(month) == 0": "proved",
        "hour >= 0 AND hour <= 23": "proved",
        "there >= 0 AND there <= 23": "proved",
        "there == hour": "refuted",
        "weekday(month) != 1": "refuted",
        "year(next) == year(at) + 1": "proved",
    },
    LISTS: {
        "len(top) <= 3 AND (FORALL item IN top: item < 50)": "proved",
        "len(more) == len(items) + 1": "proved",
        "FORALL item IN more: item <= 50": "proved",
        "len(back) == len(items)": "proved",
        "len(first) <= len(items)": "proved",
        "len(first) == len(items)": "refuted",
    },
}


@pytest.mark.parametrize("body", EXPECTED, ids=["texts", "times", "lists"])
def test_functions_are_modelled(body: str) -> None:
    """What follows from them is proved, and what does not is refuted by an input, or unknown."""
    results = verdicts(body)
    expected = EXPECTED[body]
    assert {text: results["postcondition", text].verdict for text in expected} == expected


@pytest.mark.long
def test_slow_questions_about_texts_have_the_same_answer() -> None:
    """Those that take a solver seconds each."""
    claims = "".join(f"    - {text}\n" for text in LONG_TEXTS)
    body = TEXTS.replace("max_length: 8", "max_length: 20")
    results = verdicts(body.replace("  postconditions:\n", f"  postconditions:\n{claims}"))
    assert {text: results["postcondition", text].verdict for text in LONG_TEXTS} == LONG_TEXTS


def test_no_walk_excludes_what_a_call_gives() -> None:
    """Random calls of all functions: the outcome on the reference evaluator is possible in each walk."""
    looked_for, wrong = check_random_calls(seed=1, programs=8, inputs=2)
    assert not wrong
    assert looked_for["success"] > looked_for["type_error"] > 0


def test_the_search_for_excluded_outcomes_finds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk that takes every outcome as impossible is found out."""
    monkeypatch.setattr("tests.vesper.prove.soundness.ask", lambda *_, **__: ("unsat", None))
    assert check_random_calls(seed=1, programs=3, inputs=2)[1]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_no_walk_excludes_what_many_calls_give(seed: int) -> None:
    """The same for more programs."""
    _, wrong = check_random_calls(seed=seed, programs=80, inputs=2)
    assert not wrong


def test_the_least_of_several_kinds_of_number_is_no_type_error() -> None:
    """`max` of decimals and an integer gives the value of the greatest, in whatever place it stands."""
    results = verdicts("""
inputs: {d: {type: decimal, scale: 2}}
outputs: {o: decimal}
contracts: {postconditions: ["o >= -1", "o != -1"]}
flow: [{step: a, operation: arithmetic, expression: "max(d, -1, d)", output: o}]
""")
    assert [results["postcondition", text].verdict for text in ("o >= -1", "o != -1")] == ["proved", "refuted"]


def test_a_list_that_is_never_longer_is_looked_at_as_a_whole() -> None:
    """Up to six elements: what the bounded walk finds impossible is proved then."""
    results = verdicts("""
inputs:
  items: {type: "array<integer>", constraints: [{max_length: 4}, "FORALL item IN value: item >= 0 AND item < 9"]}
outputs: {total: integer}
contracts: {postconditions: ["FORALL item IN items: item <= total"]}
flow: [{step: add, operation: arithmetic, expression: "SUM(items)", output: total}]
""")
    assert results["postcondition", "FORALL item IN items: item <= total"].verdict == "proved"


def test_a_reason_names_what_decides_the_contract() -> None:
    """And nothing that other steps use."""
    results = verdicts("""
inputs: {name: string, rows: "map<string, integer>"}
outputs: {low: string, size: integer}
contracts: {postconditions: ["low != 'x'", "size != 2"]}
flow:
  - {step: lower, operation: arithmetic, expression: "replace(name, 'b', 'ac')", output: low}
  - {step: count, operation: arithmetic, expression: "len(rows)", output: size}
""")
    reasons = [results["postcondition", text] for text in ("low != 'x'", "size != 2")]
    assert reasons[0].verdict == "refuted" or "the function replace" in reasons[0].reason
    assert "rows" not in reasons[0].reason
    assert "replace" not in reasons[1].reason


def test_a_local_time_that_there_is_not_is_an_overflow() -> None:
    results = verdicts("""
inputs: {at: timestamp, zone: {type: string, constraints: ["is_zone(value)"]}}
outputs: {utc: integer, hour: integer}
flow:
  - {step: utc, operation: arithmetic, expression: "hour(at)"}
  - {step: hour, operation: arithmetic, expression: "hour(at, zone)"}
testing:
  test_cases:
    - name: last
      inputs: {at: "9999-12-31T23:00:00Z", zone: Asia/Tokyo}
      expected_output: {success: false, error_code: overflow}
""")
    assert ("overflow", "hour(at)") not in results
    assert results["overflow", "hour(at, zone)"].verdict == "refuted"


def test_no_time_outside_the_calendar_is_taken_for_impossible() -> None:
    """A step that fails for a late time is not proved to be right because of what a later step asks of that time."""
    results = verdicts("""
inputs: {at: timestamp}
outputs: {year: integer, begin: timestamp}
flow:
  - {step: move, operation: arithmetic, expression: "at + days(400)", output: later}
  - {step: year, operation: arithmetic, expression: "year(later)", output: year}
  - {step: begin, operation: arithmetic, expression: "start_of(at - days(40), 'month')", output: begin}
""")
    failing = {key: result.verdict for key, result in results.items() if key[0] == "overflow"}
    assert "proved" not in failing.values()

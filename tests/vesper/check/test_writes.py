"""A warning that an output may be missing is right: there is none where the conditions leave no case out."""

from __future__ import annotations

import pytest

from lyra.vesper.check.judge import check_text

HEAD = """\
node_id: price_v1
type: function
intent: find a price in a list of prices
inputs: {kind: {type: enum, values: [a, b, c]}, n: integer, is_new: boolean, extra: {type: integer, required: false}}
outputs:
  success: {price: {type: decimal, scale: 2}}
  error: {error_code: {type: enum, values: [no_price]}}
flow:
"""
ELSE_IF = """\
  - step: first
    operation: conditional
    condition: kind == 'a'
    then: [{step: x, operation: arithmetic, expression: "1.50", output: price}]
    else:
      - step: second
        operation: conditional
        condition: kind IN ['b'] AND is_new
        then: [{step: y, operation: arithmetic, expression: "2.50", output: price}]
        else:
          - step: third
            operation: conditional
            condition: LAST
            then: [{step: z, operation: arithmetic, expression: "3.50", output: price}]
"""
GUARDS = """\
  - {step: x, operation: arithmetic, expression: "1.50", output: price, guards: ["FIRST"]}
  - {step: y, operation: arithmetic, expression: "2.50", output: price, guards: ["SECOND"]}
"""
REFUSED = """\
  - step: refuse
    operation: conditional
    condition: kind == 'c'
    then: [{step: none, operation: return, return_error: {error_code: no_price}}]
"""


def is_warned(flow: str) -> bool:
    issues = check_text(HEAD + flow, "price.vsp")
    assert not [issue for issue in issues if issue.severity == "error"], issues
    return any(issue.code == "maybe_missing" for issue in issues)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("kind == 'c' OR NOT is_new", False),
        ("kind == 'c'", True),
        ("kind != 'a' AND NOT (kind == 'b' AND is_new)", False),
    ],
)
def test_a_chain_that_leaves_no_value_out_always_writes(last: str, expected: bool) -> None:
    """Each value of the enum, and both of the boolean, come to a step that writes the price, or not."""
    assert is_warned(ELSE_IF.replace("LAST", last)) is expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("kind == 'a'", "kind != 'a'", False),
        ("kind == 'a'", "kind == 'b'", True),
        ("n > 5", "n <= 5", False),
        ("n > 5", "n < 5", True),
        ("n > 5", "n <= 6", True),
        ("is_new", "NOT is_new", False),
        ("extra > 5", "extra <= 5", True),  # null is neither
        ("extra > 5", "NOT (extra > 5)", True),
        ("current_year() > 5", "NOT (current_year() > 5)", True),
    ],
)
def test_guards_that_exclude_each_other_always_write(first: str, second: str, expected: bool) -> None:
    """One of them holds for every input; what may be null, or is asked of something else, is not looked at."""
    assert is_warned(GUARDS.replace("FIRST", first).replace("SECOND", second)) is expected


def test_what_ends_with_an_error_need_not_write() -> None:
    """A case that is refused before has no price."""
    guards = GUARDS.replace("FIRST", "kind == 'a'").replace("SECOND", "kind == 'b'")
    assert not is_warned(REFUSED + guards)
    assert is_warned(guards + REFUSED.replace("kind == 'c'", "kind == 'b'"))


def test_a_variable_that_changes_decides_nothing() -> None:
    """A guard over a variable that steps assign may come out either way."""
    flow = '  - {step: s, operation: arithmetic, expression: "n + 1", output: m}\n' + GUARDS
    assert is_warned(flow.replace("FIRST", "m > 5").replace("SECOND", "m <= 5"))


def test_a_value_that_may_be_null_is_warned_of() -> None:
    """It is written, and may be null: an element of a list by its number."""
    assert is_warned('  - {step: x, operation: arithmetic, expression: "[1.50, 2.50][n]", output: price}\n')

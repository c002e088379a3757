"""What a new version of a node may change."""

from __future__ import annotations

import pytest

from lyra.vesper.nodes import load
from lyra.vesper.repository.versions import changes, compatible

BASE = """\
node_id: pay_v1
type: function
intent: a node with versions
inputs:
  amount: {type: decimal, constraints: [positive]}
  kind: enum[a, b]
  note: {type: string, required: false}
outputs:
  success: {total: decimal, remark: {type: string, required: false}}
  error: {error_code: "enum[low, high]", message: string}
contracts:
  preconditions: ["amount > 0"]
  postconditions: ["total > 0", "total == amount"]
flow:
  - {step: go, operation: return, return_success: {total: "{amount}"}}
"""

BREAKING = [
    ("removed_input", "  note: {type: string, required: false}\n", ""),
    ("retyped_input", "amount: {type: decimal", "amount: {type: integer"),
    ("removed_value", "enum[a, b]", "enum[a]"),
    ("added_input", "  kind:", "  more: string\n  kind:"),
    ("required_input", "note: {type: string, required: false}", "note: string"),
    ("stricter_input", "[positive]", "[positive, {max: 5}]"),
    ("removed_output", ", remark: {type: string, required: false}", ""),
    ("retyped_output", "success: {total: decimal", "success: {total: string"),
    ("optional_output", "message: string}", "message: {type: string, required: false}}"),
    ("removed_error", "enum[low, high]", "enum[low]"),
    ("stricter_precondition", '["amount > 0"]', '["amount > 0", "amount < 5"]'),
    ("weaker_postcondition", '["total > 0", "total == amount"]', '["total > 0"]'),
]
ADDITIONS = [
    ("added_input", "  kind:", "  more: {type: string, required: false}\n  kind:"),
    ("optional_input", "kind: enum[a, b]", "kind: {type: 'enum[a, b]', default: a}"),
    ("added_value", "enum[a, b]", "enum[a, b, c]"),
    ("added_output", "success: {", "success: {more: {type: string, required: false}, "),
    ("added_error", "enum[low, high]", "enum[low, high, other]"),
    ("weaker_precondition", '["amount > 0"]', "[]"),
    ("stronger_postcondition", '["total > 0", ', '["total > 0", "total < 9", '),
    ("added_capability", "flow:", "security: {capabilities_required: [a.b]}\nflow:"),
]


def changed(before: str, after: str, version: str) -> str:
    assert before in BASE
    return BASE.replace(before, after).replace("pay_v1", f"pay_v{version}")


def severities(old: str, new: str) -> dict[str, str]:
    return {issue.code: issue.severity for issue in compatible(load(old), load(new))}


@pytest.mark.parametrize(("code", "before", "after"), BREAKING)
def test_a_breaking_change_needs_a_major_version(code: str, before: str, after: str) -> None:
    assert severities(BASE, changed(before, after, "1.1"))[code] == "error"
    assert severities(BASE, changed(before, after, "2"))[code] == "info"


@pytest.mark.parametrize(("code", "before", "after"), ADDITIONS)
def test_an_addition_needs_a_minor_version(code: str, before: str, after: str) -> None:
    assert severities(BASE, changed(before, after, "1.0.1"))[code] == "warning"
    assert severities(BASE, changed(before, after, "1.1"))[code] == "info"
    assert "error" not in severities(BASE, changed(before, after, "1.1")).values()


def test_an_equal_node_has_no_changes() -> None:
    assert changes(load(BASE), load(changed("amount > 0", " amount  >  0", "1.0.1"))) == []
    assert severities(BASE, BASE.replace("pay_v1", "pay_v1.0.1")) == {}


def test_versions_go_up_and_belong_together() -> None:
    assert severities(BASE, BASE) == {"version_order": "error"}
    assert severities(BASE.replace("pay_v1", "pay_v2"), BASE) == {"version_order": "error"}
    assert severities(BASE, BASE.replace("pay_v1", "other_v2")) == {"other_node": "error"}


def test_a_change_has_its_place_in_the_new_file() -> None:
    (issue,) = [
        issue
        for issue in compatible(load(BASE), load(changed("  kind:", "  more: string\n  kind:", "1.1")))
        if issue.code == "added_input"
    ]
    assert (issue.line, issue.column, issue.path) == (6, 3, "inputs.more")

"""The skeleton of a node, as pages about Vesper show it: valid once filled in, and every blank that is left is told."""

from __future__ import annotations

import pytest

from lyra.vesper.check import check_text
from lyra.vesper.loading import Issue

# What stands for something else, and what may be written in its place.
BLANKS = {
    "capability_type": "http_handler",
    "high_level_purpose": "process_payment",
    "created: timestamp": "created: 2025-01-08T14:23:15Z",
    "[node_ids]": "[other_node_v1]",
    "type: string | integer | decimal | boolean | custom_type": "type: decimal",
    "[validation_rules]": "[amount > 0]",
    "required: boolean": "required: true",
    "default: value": "default: 1",
    "field_name: type": "field_name: decimal",
    "enum[...]": "enum[too_much]",
    "[logical_expressions]": "CONTRACTS",
    "[never_violated_properties]": "INVARIANTS",
    "operation: operation_type": "operation: arithmetic",
    "parameters: {...}": "parameters: {expression: amount + 1, output: field_name}",
    "[conditional_checks]": "[amount > 0]",
    "    error_handling: {...}\n": "",
    "expected_latency_ms: integer": "expected_latency_ms: 200",
    "memory_limit_mb: integer": "memory_limit_mb: 64",
    "timeout_seconds: integer": "timeout_seconds: 30",
    "[capability_list]": "[database.write.transactions, network.http_client.stripe.com]",
    "sensitive_data: boolean": "sensitive_data: false",
    "none | basic | detailed": "detailed",
    "param_name": "amount",
}
SKELETON = """\
node_id: unique_identifier_v1        # Versioned identifier
type: capability_type                # http_handler, data_transform, etc.
intent: high_level_purpose           # Human-readable purpose

metadata:
  author: string
  created: timestamp
  dependencies: [node_ids]
  tags: [searchable, keywords]

types:
  User:
    fields:
      id: string
      email: string
      balance: decimal
    constraints:
      - balance >= 0

inputs:
  param_name:
    type: string | integer | decimal | boolean | custom_type
    constraints: [validation_rules]
    required: boolean
    default: value

outputs:
  success:
    field_name: type
  error:
    error_code: enum[...]
    message: string

contracts:
  preconditions: [logical_expressions]
  postconditions: [logical_expressions]
  invariants: [never_violated_properties]

flow:
  - step: step_name
    operation: operation_type
    parameters: {...}
    guards: [conditional_checks]
    error_handling: {...}

performance:
  expected_latency_ms: integer
  memory_limit_mb: integer
  timeout_seconds: integer

security:
  capabilities_required: [capability_list]
  sensitive_data: boolean
  audit_level: none | basic | detailed
"""
PRECONDITIONS = """
    - "amount > 0"
    - "user.authenticated"
    - "order.status == 'pending'\""""
POSTCONDITIONS = """
    - "transaction.recorded OR error.logged"
    - "order.status IN ['paid', 'payment_failed']"
    - "user.balance == old(user.balance) - amount OR error.occurred\""""
INVARIANTS = """
    - "SUM(all_user_balances) == total_system_balance"
    - "all(user.balance >= 0)\""""


def filled(*, but: str = "") -> str:
    """Return the skeleton with every blank filled in, or with all but one."""
    text = SKELETON
    for blank, word in BLANKS.items():
        if blank != but:
            text = text.replace(blank, word)
    text = text.replace("preconditions: CONTRACTS", f"preconditions:{PRECONDITIONS}")
    return text.replace("CONTRACTS", POSTCONDITIONS).replace("INVARIANTS", INVARIANTS)


def errors(text: str) -> list[Issue]:
    return [issue for issue in check_text(text) if issue.severity == "error"]


def test_the_skeleton_is_valid_once_it_is_filled_in() -> None:
    """Contracts about what only the embedding program knows are warnings: they are unverifiable."""
    issues = check_text(filled())
    assert errors(filled()) == []
    assert {issue.code for issue in issues if issue.severity == "warning"} <= {"unverifiable", "maybe_missing"}
    assert sum(issue.code == "unverifiable" for issue in issues) == 2


@pytest.mark.parametrize(
    ("blank", "told"),
    [
        ("type: string | integer | decimal | boolean | custom_type", "name one type"),
        ("[validation_rules]", "one of non_empty, positive"),
        ("required: boolean", "must be true or false"),
        ("field_name: type", "the types are string, integer"),
        ("enum[...]", "list them, such as enum["),
        ("operation: operation_type", "the operations are validation"),
        ("expected_latency_ms: integer", "must be a number"),
        ("memory_limit_mb: integer", "must be a whole number"),
        ("none | basic | detailed", "one of basic, none, detailed"),
        ("    error_handling: {...}\n", "remove it"),
    ],
)
def test_a_blank_that_is_left_is_told_with_what_to_write(blank: str, told: str) -> None:
    """At its own line."""
    text = filled(but=blank)
    words = blank.replace("param_name", "amount").strip().strip("[]")
    line = next(number for number, line in enumerate(text.splitlines(), 1) if words in line)
    assert [issue for issue in errors(text) if told in f"{issue.message} {issue.hint}" and issue.line == line]


def test_an_id_without_a_version_is_told() -> None:
    (issue,) = errors(filled().replace("unique_identifier_v1", "payment_handler"))
    assert (issue.code, issue.line) == ("bad_node_id", 1)
    assert "payment_handler_v1" in issue.hint

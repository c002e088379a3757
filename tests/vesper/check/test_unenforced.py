"""Keys that nothing follows from are remarked on, and what they may hold is checked."""

from __future__ import annotations

import pytest

from lyra.vesper.check import check_text
from lyra.vesper.lsp.schema import json_schema

HEAD = """\
node_id: subject_v1
type: function
intent: something with a key that does nothing
inputs: {n: integer}
outputs: {success: {m: integer}}
"""
FLOW = """\
flow:
  - {step: work, operation: arithmetic, expression: "n", output: m}
"""
WRITING = """\
flow:
  - {step: keep, operation: database_write, table: t, data: {n: "{n}"}, consistency: WORD}
  - {step: work, operation: arithmetic, expression: "n", output: m}
security: {capabilities_required: [database.write.t]}
"""
RETRIED = """\
flow:
  - step: keep
    operation: database_write
    table: t
    data: {n: "{n}"}
    on_error: [{error_type: timeout, action: retry, max_retries: 1, KEY: ops}]
  - {step: work, operation: arithmetic, expression: "n", output: m}
security: {capabilities_required: [database.write.t]}
"""


def remarks_on(text):
    issues = check_text(HEAD + text)
    return {(issue.severity, issue.code, issue.path) for issue in issues}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (
            FLOW + "testing: {property_tests: [{property: idempotency, strategy: quickcheck}]}\n",
            "testing.property_tests[0].strategy",
        ),
        (FLOW + "testing: {test_cases: [{name: a, inputs: {n: 1}, steps: [work]}]}\n", "testing.test_cases[0].steps"),
        (FLOW + "performance: {cpu_limit_cores: 2}\n", "performance.cpu_limit_cores"),
        (WRITING.replace("WORD", "eventual"), "flow[0].consistency"),
        (RETRIED.replace("KEY", "notify"), "flow[0].on_error[0].notify"),
        (RETRIED.replace("KEY", "log_level"), "flow[0].on_error[0].log_level"),
    ],
)
def test_a_key_that_changes_nothing_is_remarked_on(text, path):
    remarks = remarks_on(text)
    assert ("info", "no_effect", path) in remarks
    assert not any(severity == "error" for severity, *_ in remarks)


def test_a_write_is_strong_without_a_remark():
    assert not any(code == "no_effect" for _, code, _ in remarks_on(WRITING.replace("WORD", "strong")))


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        (WRITING.replace("WORD", "weak"), ("error", "unknown_word", "flow[0].consistency")),
        (
            FLOW + "testing: {property_tests: [{property: idempotency, strategy: luck}]}\n",
            ("error", "unknown_word", "testing.property_tests[0].strategy"),
        ),
        *(
            (
                FLOW + f"testing: {{differential_tests: {{sample_size: {size}}}}}\n",
                ("error", "limit", "testing.differential_tests.sample_size"),
            )
            for size in (0, 10_000_001)
        ),
        (
            FLOW + "testing: {differential_tests: {size: 10}}\n",
            ("warning", "unknown_key", "testing.differential_tests.size"),
        ),
        (
            FLOW + "security: {denied_capabilities: ['no right!']}\n",
            ("warning", "bad_capability", "security.denied_capabilities[0]"),
        ),
    ],
)
def test_what_such_keys_hold_is_checked(text, remark):
    assert remark in remarks_on(text)


def test_the_schema_says_which_keys_are_for_people():
    sections = json_schema()["properties"]
    assert sections["security"]["properties"]["compliance"]["description"] == "for people, not interpreted"
    case = sections["testing"]["properties"]["test_cases"]["items"]["properties"]
    assert case["steps"]["description"] == "for people, not interpreted"

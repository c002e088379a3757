"""Each rule of the checker, with a wrong file and the exact place of the remark: see `wrong_nodes.txt`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lyra.vesper.check import has_errors
from lyra.vesper.loading import Issue
from tests.vesper.marked import remarks, remarks_at_mark

_CASE = re.compile(r"^=== (error|warning) (\w+)\n(.*?)(?=^===|\Z)", re.MULTILINE | re.DOTALL)
_CASES = [
    (case[1], case[2], case[3].rstrip("\n") + "\n")
    for case in _CASE.finditer(Path(__file__).with_name("wrong_nodes.txt").read_text())
]


def _shown(issues: list[Issue]) -> str:
    return "\n".join(f"{issue.line}:{issue.column} {issue.severity} {issue.code} {issue.message}" for issue in issues)


@pytest.mark.parametrize(
    ("severity", "code", "text"), _CASES, ids=[f"{code}-{number}" for number, (_, code, _) in enumerate(_CASES)]
)
def test_a_remark_stands_at_its_place(severity: str, code: str, text: str) -> None:
    """A warning comes without errors, and is an error with strict."""
    issues, place = remarks_at_mark(text)
    expected = (severity, code, place)
    assert expected in [(issue.severity, issue.code, (issue.line, issue.column)) for issue in issues], _shown(issues)
    if severity == "warning":
        assert not has_errors(issues), _shown(issues)
        strict = remarks(text.replace("«", ""), strict=True)
        assert ("error", code, place) in [(issue.severity, issue.code, (issue.line, issue.column)) for issue in strict]


def test_there_are_cases_for_many_rules() -> None:
    assert len(_CASES) > 190
    assert len({code for _, code, _ in _CASES}) > 50


_FLOW = """\
$inputs
types: {row: {fields: {amount: integer, name: string}}}
outputs: {success: {r: any}, error: {error_code: "enum[a]", message: string}}
contracts: {postconditions: ["CONTRACT"]}
flow:
  - {step: rows, operation: arithmetic, expression: "[{amount: n, name: s}]"}
  - step: r
    operation: arithmetic
    expression: EXPRESSION
  - {step: later, operation: arithmetic, expression: r}
"""


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ('"slice(s, 1).upper()"', "write upper(slice(s, 1))"),
        ('"s.slice(-4, 2)"', "write slice(s, -4, 2)"),
        ('"Math.max(0, n)"', "write max(0, n)"),
        ('"s.lenght"', "did you mean `length`?"),
        ('"rows.amout"', "did you mean `amount`?"),
        ("\"'*' * n\"", "a text is repeated by pad_left('', n, 'x')"),
        ("\"repeat('*', n)\"", "write pad_left('', n, 'x')"),
        ('"last(rows)"', "write list[len(list) - 1]"),
        ('"n += 1"', "write the new value; `output` of the step names the variable"),
        ('"round(d, 1, half_up)"', "a text stands in quotes: 'half_up'"),
        ('"sort(rows, amount)"', "a text stands in quotes: 'amount'"),
        ("\"sort(rows, 'amout')\"", "did you mean `amount`?"),
        ('"later + 1"', "`later` is written after this, or on another path only"),
        ("{n} pieces", "a text that begins with { or [, or has a comma or a bracket in it, stands in quotes"),
        ("total: n", "a text with a colon and a blank in it stands in quotes"),
        ("n\n\tx: 1", "a tab does not indent in YAML: write blanks"),
    ],
)
def test_a_hint_says_what_to_write(expression: str, hint: str) -> None:
    issues = remarks(_FLOW.replace("EXPRESSION", expression).replace("CONTRACT", "success => n > 0"))
    assert hint in [issue.hint for issue in issues if issue.severity == "error"], _shown(issues)


@pytest.mark.parametrize(
    ("contract", "hint"),
    [
        ("success -> n > 0", "what follows from a condition is written =>"),
        ("error => n > 0", "write NOT success, or error.occurred"),
        ("success => n > amont", ""),
        ("success => rr > 0", "did you mean `r`?"),
        (
            "success => later > 0",
            "a variable is seen by invariants only: make it an output, or write what it stands for",
        ),
    ],
)
def test_a_hint_says_what_a_contract_may_name(contract: str, hint: str) -> None:
    issues = remarks(_FLOW.replace("EXPRESSION", "rows").replace("CONTRACT", contract))
    assert [issue.hint for issue in issues if issue.path.startswith("contracts")] == [hint], _shown(issues)


@pytest.mark.parametrize(
    ("right", "wrong", "hint"),
    [
        ("flow:\n", "steps:\n", "write `flow`"),
        ("contracts: {postconditions: [x]}\n", "postconditions: [x]\n", "write `contracts: {postconditions: …}`"),
        ("r: any", "r: map<integer, any>", "between braces, a type with a comma in it stands in quotes"),
        ("expression: rows", "expression: 'x'\n    template: 'say {\"a\": 1}'", "doubled: {{ and }}"),
    ],
)
def test_a_hint_says_where_a_key_or_a_text_belongs(right: str, wrong: str, hint: str) -> None:
    text = _FLOW.replace("CONTRACT", "x").replace('["x"]', "[x]").replace("EXPRESSION", "rows").replace(right, wrong)
    if "template" in wrong:
        text = text.replace("operation: arithmetic\n    expression: 'x'", "operation: string_template")
    issues = remarks(text)
    assert any(hint in issue.hint for issue in issues), _shown(issues)


def test_a_flow_of_names_is_no_step() -> None:
    (issue,) = [
        row
        for row in remarks("outputs: {}\nflow:\n  r: {operation: arithmetic, expression: '1'}\n")
        if row.severity == "error"
    ]
    assert issue.message == "`flow` must be a list of steps, each of which begins with `- step: NAME`, not a mapping"

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

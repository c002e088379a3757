"""Files that are written to exhaust the checker end with a remark, soon."""

from __future__ import annotations

import pytest

from lyra.vesper.check import check_text, infer
from lyra.vesper.values.limits import TERMS_MAX

HEAD = "node_id: a_v1\ntype: function\nintent: a hostile node\ninputs: {n: integer}\noutputs: {r: any}\n"


def codes(text: str) -> set[str]:
    return {issue.code for issue in check_text(text) if issue.severity == "error"}


@pytest.mark.parametrize("depth", [pytest.param(12, marks=pytest.mark.slow), 40])
def test_types_inside_types_do_not_multiply(depth: int) -> None:
    """Neither in the program nor in the time that the check takes."""
    types = "".join(
        f"  T{i}: {{fields: {{a: T{i + 1}, b: T{i + 1}, c: 'array<T{i + 1}>'}}, constraints: ['true']}}\n"
        for i in range(depth)
    )
    text = HEAD.replace("n: integer", "n: T0") + f"types:\n{types}  T{depth}: {{fields: {{x: integer}}}}\n"
    assert "limit" in codes(text)


def test_parameters_inside_expressions_do_not_deepen_them_without_end() -> None:
    chain = " + ".join(["n"] * 140)
    step = f"expression: '{chain.replace('n', 'x')}', parameters: {{x: '{{{chain}}}'}}"
    assert "limit" in codes(HEAD + f"flow:\n  - {{step: r, operation: arithmetic, {step}}}\n")


def test_loops_inside_loops_are_walked_a_bounded_number_of_times() -> None:
    nest = "{operation: arithmetic, expression: 'n + 1.5', output: n}"
    for number in range(14):
        more = f"{{operation: arithmetic, expression: 'n + 1.{number}', output: n}}"
        nest = f"{{operation: loop, condition: 'n < 3', max_iterations: 2, steps: [{nest}, {more}]}}"
    assert codes(HEAD + f"flow:\n  - {nest}\n") == {"missing_output"}


@pytest.mark.slow
def test_the_parts_of_all_expressions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all steps; with a tenth of what a node may have."""
    monkeypatch.setattr(infer, "TERMS_MAX", TERMS_MAX // 10)
    chain = " + ".join(["n"] * 150)
    steps = [f"  - {{step: s{i}, operation: arithmetic, expression: '{chain}'}}\n" for i in range(18)]
    assert "limit" in codes(HEAD + "flow:\n" + "".join(steps))
    assert "limit" not in codes(HEAD + "flow:\n" + "".join(steps[:15]))


def test_a_query_has_a_largest_size() -> None:
    query = "SELECT " + "/*" * 9_000
    assert "limit" in codes(HEAD + f"flow:\n  - {{step: r, operation: database_query, query: '{query}'}}\n")

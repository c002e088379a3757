"""Limits of an execution: one table of charges, and three evaluators that end at the same step."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest

from lyra import vesper
from lyra.vesper import ir
from lyra.vesper.charges import CHARGES
from lyra.vesper.check.judge import program_of
from lyra.vesper.direct.frames import parts_of
from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX, ELEMENT_BYTES, VALUE_DEPTH_MAX
from lyra.vesper.values.outcome import Execution

PATHS = ("python", "direct", "reference")
HEAD = "node_id: charged_v1\ntype: function\nintent: reach a limit\n"
TWO = [[1, 2, 3], [4, 5, 6]]  # lists of three

# By row of the table: expressions or steps, and the steps that they take. `l` is an element of `ls`: a list of three.
IN_LOOPS = {
    ir.Quantifier: ("FORALL x IN l: x > 0", 2 * 3),
    ir.Aggregate: ("SUM(l)", 2 * 3),
    ir.FunctionCall: ("concat(reverse(l), l)", 2 * (3 + 6)),
    ir.MapOver: ("{operation: data_transform, transform: map, input: l, as: x, function: 'x + 1'}", 2 * 3),
    ir.Filter: ("{operation: data_transform, transform: filter, input: l, as: x, condition: 'x > 1'}", 2 * 3),
    ir.Reduce: (
        "{operation: data_transform, transform: reduce, input: l, as: x, accumulator: t, initial: 0, function: t + x}",
        2 * 3,
    ),
    ir.GroupBy: (
        (
            "{operation: data_transform, transform: group_by, input: l, as: x, group_by: x,"
            " aggregations: {n: COUNT(*), s: SUM(x)}}"
        ),
        2 * 3,
    ),
    ir.MatrixProduct: ("{operation: matrix.multiply, left: ls, right: '[[1], [2], [3]]'}", 2 * (2 * 1 * 3)),
    ir.ForEachStep: ("{operation: for_each, input: l, as: x, steps: [{operation: arithmetic, expression: x}]}", 2 * 3),
    ir.LoopStep: (
        (
            "{operation: loop, condition: 'i < 3', max_iterations: 9, steps:"
            " [{operation: arithmetic, expression: 'i + 1', output: i}]}"
        ),
        3,
    ),
}


def steps(inner):
    inner = inner if inner.startswith("{") else f'{{operation: arithmetic, expression: "{inner}"}}'
    return f"""\
inputs: {{ls: array<array<integer>>}}
outputs: {{success: {{r: integer}}}}
flow:
  - {{operation: arithmetic, expression: "0", output: i}}
  - operation: for_each
    input: ls
    as: l
    steps:
      - {inner.replace("{operation", "{step: inner, operation", 1)}
  - {{operation: arithmetic, expression: "1", output: r}}
"""


def ends(text, inputs, limits, **changes):
    """How the three evaluators end with some limits."""
    program = program_of(vesper.load(HEAD + text))
    program = msgspec.structs.replace(program, limits=msgspec.structs.replace(program.limits, **limits), **changes)
    execution = Execution(now=datetime(2026, 1, 1, tzinfo=UTC), trace_id="t")
    found = []
    for path in PATHS:
        outcome = importlib.import_module(f"lyra.vesper.{path}.run").run(program, inputs, execution)
        found.append(outcome.status if outcome.error is None else outcome.error.code)
    return found


def test_each_row_of_the_table_is_tried():
    assert set(IN_LOOPS) == set(CHARGES)


@pytest.mark.parametrize("kind", list(IN_LOOPS), ids=lambda kind: kind.__name__)
def test_the_paths_end_at_the_same_step(kind):
    """Each row of the table at the limit less one, at the limit and above it; the loop around takes two steps more."""
    inner, count = IN_LOOPS[kind]
    text = steps(inner)
    assert any(isinstance(part, kind) for part in parts_of(program_of(vesper.load(HEAD + text))))
    needed = count + len(TWO)
    assert ends(text, {"ls": TWO}, {"steps": needed - 1}) == ["resource_limit"] * 3
    assert ends(text, {"ls": TWO}, {"steps": needed}) == ["success"] * 3
    assert ends(text, {"ls": TWO}, {"steps": needed + 1}) == ["success"] * 3


@pytest.mark.parametrize("kind", [kind for kind, charge in CHARGES.items() if not charge.is_always])
def test_what_is_charged_in_loops_alone_is_free_outside(kind):
    inner = IN_LOOPS[kind][0]
    inner = inner if inner.startswith("{") else f'{{operation: arithmetic, expression: "{inner}"}}'
    text = f"""\
inputs: {{l: array<integer>}}
outputs: {{success: {{r: integer}}}}
flow:
  - {inner}
  - {{operation: arithmetic, expression: "1", output: r}}
"""
    assert ends(text, {"l": [1, 2, 3]}, {"steps": 0}) == ["success"] * 3


@pytest.mark.parametrize(
    ("text", "inputs", "needed"),
    [
        (
            (
                "inputs: {l: array<integer>}\noutputs: {success: {r: array<integer>}}\nflow:\n"
                "  - {operation: data_transform, transform: map, input: l, as: x, function: 'SUM(l) + x', output: r}\n"
            ),
            {"l": [1] * 70},
            70 * 70,
        ),
        (
            (
                "inputs: {l: array<integer>}\noutputs: {success: {r: boolean}}\nflow:\n"
                "  - {operation: arithmetic, expression: 'FORALL x IN l: FORALL y IN l: x == y', output: r}\n"
            ),
            {"l": [1] * 70},
            70 * 70,
        ),
        (
            (
                "inputs: {l: array<integer>}\noutputs: {success: {r: integer}}\n"
                "contracts: {postconditions: ['FORALL x IN l: SUM(l) >= x']}\nflow:\n"
                "  - {operation: arithmetic, expression: '1', output: r}\n"
            ),
            {"l": [1] * 70},
            70 * 70,
        ),
    ],
    ids=["map of sums", "nested quantifiers", "a contract"],
)
def test_nested_loops_end_at_the_same_step(text, inputs, needed):
    """A contract that takes too many steps does not hold."""
    ended = "postcondition_failed" if "contracts" in text else "resource_limit"
    assert ends(text, inputs, {"steps": needed - 1}) == [ended] * 3
    assert ends(text, inputs, {"steps": needed}) == ["success"] * 3


@pytest.mark.parametrize("elements", ["integer", "string"])
def test_the_memory_of_an_array_ends_at_the_same_element(elements):
    """Counted element by element: an error of an earlier element comes first on every evaluator."""
    count = 1024 * 1024 // ELEMENT_BYTES
    body = "100 / x" if elements == "integer" else "x.length"
    text = (
        f"inputs: {{l: array<{elements}>}}\noutputs: {{success: {{r: integer}}}}\nflow:\n"
        f"  - {{operation: data_transform, transform: map, input: l, as: x, function: '{body}', output: mapped}}\n"
        "  - {operation: arithmetic, expression: '1', output: r}\n"
    )
    one: object = 1 if elements == "integer" else "a"
    for length, ended in ((count - 1, "success"), (count, "success"), (count + 1, "resource_limit")):
        assert ends(text, {"l": [one] * length}, {"memory_mb": 1}) == [ended] * 3
    if elements == "integer":
        for place, ended in ((0, "division_by_zero"), (count, "division_by_zero"), (count + 1, "resource_limit")):
            values = [1] * (count + 5)
            values[place] = 0
            assert ends(text, {"l": values}, {"memory_mb": 1}) == [ended] * 3


def nested(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


ANY = "inputs: {a: any}\noutputs: {success: {r: any}}\nflow:\n  - {operation: arithmetic, expression: a, output: r}\n"


@pytest.mark.parametrize(
    ("depth", "ended"),
    [(VALUE_DEPTH_MAX - 1, "success"), (VALUE_DEPTH_MAX, "success"), (VALUE_DEPTH_MAX + 1, "invalid_input")],
)
def test_the_nesting_of_an_input_ends_at_the_same_depth(depth, ended):
    assert ends(ANY, {"a": nested(depth)}, {}) == [ended] * 3


@pytest.mark.parametrize("kind", ["decimal", "{type: decimal, scale: 2}", "any"])
@pytest.mark.parametrize("change", [-3, -2, -1, 0, 1])
def test_the_digits_of_an_input_end_at_the_same_number(kind, change):
    """With a scale of two, two digits fewer stand before the point."""
    digits = DECIMAL_DIGITS_MAX + change
    accepted = digits + (2 if "scale" in kind else 0) <= DECIMAL_DIGITS_MAX
    text = ANY.replace("a: any}", f"a: {kind}}}")
    for value in (Decimal("9" * digits), Decimal("-" + "9" * digits)):
        assert ends(text, {"a": value}, {}) == ["success" if accepted else "invalid_input"] * 3


@pytest.mark.parametrize("change", [-1, 0, 1])
@pytest.mark.parametrize("expression", ["a * a", "round(a * a, 2)", "a * a + 1.00", "-a * a", "SUM([a * a, a])"])
def test_the_digits_of_a_result_end_at_the_same_number(expression, change):
    text = ANY.replace("any}", "decimal}").replace("expression: a", f"expression: '{expression}'")
    a = Decimal("9" * (DECIMAL_DIGITS_MAX // 2 + change))
    assert ends(text, {"a": a}, {}) == ["success" if change <= 0 else "overflow"] * 3

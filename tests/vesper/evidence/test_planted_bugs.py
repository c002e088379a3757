"""Bugs planted in the direct path are found by the differential test, and shown with small inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, NamedTuple

import msgspec
import pytest

from lyra.vesper import ir
from lyra.vesper.direct import coercion, expressions, functions, numbers, steps
from lyra.vesper.direct import run as direct_program
from lyra.vesper.direct.run import DirectProgram
from lyra.vesper.evidence import differential
from lyra.vesper.ir import AssignStep, LoopStep, NodeInput, NodeOutput, NodeProgram
from lyra.vesper.python.run import run as python
from lyra.vesper.values.outcome import Outcome
from lyra.vesper.values.types import ANY, BOOLEAN, DECIMAL, INTEGER, STRING, Array, DecimalType, Nullable
from tests.vesper.building import arith, call, check, comp, contract, give, lit, logic, name, node

Plant = Callable[[pytest.MonkeyPatch], None]
COUNT = 6000
a, b, items, text = name("a"), name("b"), name("items"), name("text")
A, B, TEXT = NodeInput("a", INTEGER), NodeInput("b", INTEGER), NodeInput("text", STRING)
X, Y = NodeInput("a", DECIMAL), NodeInput("b", DECIMAL)
INTEGERS = NodeInput("items", Array(Nullable(INTEGER)))
ANYTHING = NodeInput("items", Array(ANY))


class Bug(NamedTuple):
    plant: Plant
    program: NodeProgram
    size_max: int  # characters of the shrunk inputs, written out


def pure(result: Any, *inputs: NodeInput, **more: Any) -> NodeProgram:
    return node(give(result=result), inputs=inputs, **more)


def replaces(target: Any, attribute: str, value: Any) -> Plant:
    return lambda patch: patch.setattr(target, attribute, value)


def replaces_entry(table: dict[Any, Any], key: Any, value: Any) -> Plant:
    return lambda patch: patch.setitem(table, key, value)


def operation(symbol: str, function: Callable[[Any, Any], Any]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        right = numbers.OPERATIONS[symbol]

        def wrong(left: Any, other: Any) -> Any:
            right(left, other)  # its errors stay
            return function(left, other)

        patch.setitem(numbers.OPERATIONS, symbol, wrong)

    return plant


def rounded(scale: int, operand: ir.TypedExpression) -> ir.TypedExpression:
    return ir.Rounded(type=DECIMAL, operand=operand, scale=scale, rounding="half_even")


def half_up_always(left: Any, right: Any, scale: int, rounding: str) -> Decimal:
    return numbers.round_quotient(left, right, scale, "half_up")


def rounds_twice(left: Any, right: Any, scale: int, rounding: str) -> Decimal:
    return numbers.round_number(numbers.divide(left, right), scale, rounding)


def sum_checked_at_the_end(values: Any) -> Any:
    total = sum(value for value in values if value is not None)
    return numbers.add(total, 0)


def average_of_all(values: list[Any]) -> Any:
    return numbers.divide(steps.AGGREGATES["sum"](values), len(values)) if values else None


def negative_indexes(expression: ir.ItemOf, scope: Any) -> Any:
    target = expressions.compile_expression(expression.target, scope)
    index = expressions.compile_expression(expression.index, scope)

    def item(frame: Any) -> Any:
        values, key = target(frame), index(frame)
        return values[key] if -len(values) <= key < len(values) else None

    return item


def implies_as_and(expression: ir.Logic, scope: Any) -> Any:
    left, right = (expressions.compile_expression(part, scope) for part in (expression.left, expression.right))
    return lambda frame: bool(left(frame) and right(frame))


def rounds_to_scale(scale: int, coerce: Any) -> Any:
    return lambda value: numbers.round_number(coerce(value), scale, "half_even")


def one_round_more(step: LoopStep, program: NodeProgram, scope: Any) -> Any:
    return steps._loop(msgspec.structs.replace(step, max_iterations=step.max_iterations + 1), program, scope)


def no_contracts(*_: Any, **__: Any) -> Any:
    return lambda frame, unverifiable: None


COUNTING = node(
    AssignStep(name="zero", target="n", value=lit(0)),
    LoopStep(
        name="loop",
        condition=comp(name("n"), "<", a),
        max_iterations=20,
        steps=(AssignStep(name="next", target="n", value=arith(name("n"), "+", 1)),),
    ),
    give(result=name("n")),
    inputs=(A,),
)
GUARDED = node(
    AssignStep(name="n", target="n", value=lit(1)),
    AssignStep(name="m", target="n", value=lit(2), guards=(check(comp(a, ">", 41)),)),
    give(result=name("n")),
    inputs=(A,),
)
GROUPED = ir.GroupBy(
    type=ANY, collection=items, name="r", keys=(("k", name("r")),), aggregations=(ir.Aggregation("n", "count"),)
)

BUGS: dict[str, Bug] = {
    "the largest integer is one too large": Bug(
        replaces(expressions, "INTEGER_MAX", 2**63), pure(arith(a, "+", b), A, B), 60
    ),
    "the rest of a division has the sign of the divisor": Bug(
        operation("%", operator.mod), pure(arith(a, "%", b), A, B), 24
    ),
    "a product that does not fit wraps around": Bug(
        replaces_entry(numbers.OPERATIONS, "*", lambda x, y: (x * y + 2**63) % 2**64 - 2**63),
        pure(arith(a, "*", b), A, B),
        50,
    ),
    "an exact quotient of integers is a decimal": Bug(
        operation("/", lambda x, y: Decimal(x) / Decimal(y) if x % y == 0 else numbers.divide(x, y)),
        pure(arith(a, "/", b), A, B),
        20,
    ),
    "a quotient has 27 digits": Bug(replaces(numbers, "_QUOTIENT", Context(prec=27)), pure(arith(a, "/", b), A, B), 20),
    "halves are rounded up": Bug(
        replaces(numbers, "_round_ratio", lambda n, d, _: (2 * n + d) // (2 * d)), pure(rounded(0, a), X), 26
    ),
    "halves of a quotient are rounded up": Bug(
        replaces(expressions, "round_quotient", half_up_always), pure(rounded(1, arith(a, "/", b)), A, B), 24
    ),
    "a quotient is rounded twice": Bug(
        replaces(expressions, "round_quotient", rounds_twice), pure(rounded(0, arith(a, "/", b)), X, Y), 110
    ),
    "less or equal means less": Bug(replaces_entry(numbers.ORDERS, "<=", operator.lt), pure(comp(a, "<=", 17), A), 12),
    "true equals 1": Bug(replaces(expressions, "equal", operator.eq), pure(comp(a, "==", 1), NodeInput("a", ANY)), 14),
    "an order with null is not looked at": Bug(
        replaces(expressions, "are_comparable", lambda x, y: True),
        pure(comp(a, "<", 5), NodeInput("a", Nullable(INTEGER))),
        12,
    ),
    "implication is conjunction": Bug(
        replaces_entry(expressions.COMPILERS, ir.Logic, implies_as_and),
        pure(logic(comp(a, ">", 3), "implies", comp(b, ">", 3)), A, B),
        20,
    ),
    "only the last partial sum is checked": Bug(
        replaces_entry(steps.AGGREGATES, "sum", sum_checked_at_the_end),
        pure(ir.Aggregate(type=INTEGER, function="sum", collection=items), NodeInput("items", Array(INTEGER))),
        80,
    ),
    "an average counts nulls": Bug(
        replaces_entry(steps.AGGREGATES, "avg", average_of_all),
        pure(ir.Aggregate(type=ANY, function="avg", collection=items), INTEGERS),
        24,
    ),
    "the last of equal values is the least": Bug(
        replaces_entry(steps.AGGREGATES, "min", lambda values: numbers.least(values, operator.le)),
        pure(ir.Aggregate(type=ANY, function="min", collection=items), NodeInput("items", Array(DECIMAL))),
        60,
    ),
    "1 and 1.0 are two groups": Bug(
        replaces(steps, "group_key", repr), pure(GROUPED, NodeInput("items", Array(DECIMAL))), 60
    ),
    "true and 1 are one group": Bug(
        replaces(steps, "group_key", tuple), pure(GROUPED, NodeInput("items", Array(ANY))), 40
    ),
    "length counts bytes": Bug(
        replaces(expressions, "length_of", lambda value: len(value.encode())),
        pure(ir.Length(type=INTEGER, target=text), TEXT),
        16,
    ),
    "lower folds": Bug(
        replaces_entry(functions.FUNCTIONS_OF_VALUES, "lower", str.casefold), pure(call("lower", text), TEXT), 16
    ),
    "negative numbers count from the end": Bug(
        replaces_entry(expressions.COMPILERS, ir.ItemOf, negative_indexes),
        pure(ir.ItemOf(type=ANY, target=items, index=a), NodeInput("items", Array(INTEGER)), A),
        30,
    ),
    "an inexact input is rounded": Bug(
        replaces(coercion, "_at_scale", rounds_to_scale), pure(a, NodeInput("a", DecimalType(2))), 30
    ),
    "true is an integer": Bug(replaces_entry(coercion._READERS, "integer", int), pure(a, A), 16),
    "a loop makes one round more": Bug(replaces_entry(steps._COMPILERS, LoopStep, one_round_more), COUNTING, 12),
    "guards are not looked at": Bug(replaces(steps, "all_hold", lambda checks, scope: lambda frame: True), GUARDED, 12),
    "zero keeps its sign in texts": Bug(
        replaces(expressions, "number_text", lambda value: format(value, "f")),
        pure(ir.TemplateText(type=STRING, parts=(arith(a, "*", b),)), X, Y),
        50,
    ),
    "postconditions are not judged": Bug(
        replaces(direct_program, "compile_contracts", no_contracts),
        pure(a, A, postconditions=(contract(comp(name("result"), "!=", 99)),)),
        12,
    ),
    "an output loses its scale": Bug(
        replaces(steps, "coerce_output", lambda field, write, value: write(value).normalize()),
        pure(a, X, success=(NodeOutput("result", DECIMAL),)),
        30,
    ),
    "an error in a contract is passed over": Bug(
        replaces(steps, "NodeError", KeyError),
        pure(1, A, preconditions=(contract(comp(arith(a, "+", 1), ">", -(2**63))),)),
        30,
    ),
    "null is true": Bug(
        replaces(expressions, "condition", lambda evaluate: lambda frame: evaluate(frame) is not False),
        pure(1, NodeInput("a", Nullable(BOOLEAN)), preconditions=(contract(a),)),
        14,
    ),
}


def fresh_direct(program: NodeProgram) -> differential.RunPath:
    """The direct path, compiled while the bug is there."""
    compiled = DirectProgram(program)

    def run(_: NodeProgram, inputs: Any, execution: Any, effects: Any = None) -> Outcome:
        return compiled.execute(inputs, execution)

    return run


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_planted_bug_is_found_and_shown_with_small_inputs(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    path = fresh_direct(bug.program)
    report = differential.test(bug.program, COUNT, seed=1, first=python, second=path, stop_after=1)
    assert report.divergences == 1, "not found"
    (divergence,) = report.kept
    assert divergence.differences
    assert len(repr(divergence.shrunk)) <= bug.size_max, divergence.shrunk


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_without_the_bug_the_paths_agree(bug: Bug) -> None:
    report = differential.test(bug.program, 600, seed=1, first=python, second=fresh_direct(bug.program))
    assert report.kept == ()


def test_there_are_at_least_twenty_bugs() -> None:
    assert len(BUGS) >= 20

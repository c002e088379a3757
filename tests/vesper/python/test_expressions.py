"""Expressions on the Python path: each kind, with results worked out by hand, for known types and for `any`."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.vesper import ir
from lyra.vesper.python.numbers import round_quotient
from lyra.vesper.python.run import run
from lyra.vesper.values.outcome import Execution, Outcome
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    DECIMAL,
    INTEGER,
    STRING,
    TIMESTAMP,
    Array,
    RecordField,
    RecordType,
    SetType,
    ValueType,
)
from tests.vesper.python.programs import (
    arith,
    assign,
    call,
    cmp,
    const,
    field,
    inputs,
    listed,
    logic,
    mapped,
    outputs,
    program,
    succeed,
    text,
    var,
)

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
D = Decimal
MAX, MIN = 2**63 - 1, -(2**63)


def outcome(expression: ir.TypedExpression, kinds: dict[str, ValueType], values: dict[str, Any]) -> Outcome:
    """The outcome of a node that computes the expression in a step, and again inside a list."""
    tree = program(
        assign("out", expression),
        succeed(out=var("out"), again=listed(expression)),
        inputs=inputs(**kinds),
        success=outputs(out=ANY, again=ANY),
    )
    return run(tree, values, Execution(now=NOW))


def evaluated(expression: ir.TypedExpression, kinds: dict[str, ValueType], values: dict[str, Any]) -> Any:
    """The value, or the error's code."""
    result = outcome(expression, kinds, values)
    if result.error is not None:
        return result.error.code
    assert same(result.outputs["again"], [result.outputs["out"]])
    return result.outputs["out"]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and str(left) == str(right)


def rounded(operand: ir.TypedExpression, scale: int, rounding: str) -> ir.Rounded:
    return ir.Rounded(type=DECIMAL, operand=operand, scale=scale, rounding=rounding)


a, b = var("a"), var("b")
SUM_OF_A = ir.Reduce(
    type=ANY, collection=a, name="x", accumulator="t", initial=const(0), body=arith("+", var("t"), var("x"))
)

# Expression, types of a and b, their values, and the result or the error's code.
BINARY: list[tuple[ir.TypedExpression, ValueType, ValueType, Any, Any, Any]] = [
    (arith("+", a, b), INTEGER, INTEGER, 2, 3, 5),
    (arith("+", a, b), INTEGER, INTEGER, MAX, 1, "overflow"),
    (arith("-", a, b), INTEGER, INTEGER, MIN, 1, "overflow"),
    (arith("-", arith("+", a, b), b), INTEGER, INTEGER, MAX, 1, "overflow"),
    (arith("*", a, b), INTEGER, INTEGER, 2**32, 2**31, "overflow"),
    (arith("*", a, b), INTEGER, INTEGER, -(2**32), 2**31, MIN),
    (arith("+", a, b), INTEGER, DECIMAL, 1, "0.50", D("1.50")),
    (arith("*", a, b), DECIMAL, DECIMAL, "1.10", "2.0", D("2.200")),
    (arith("-", a, b), DECIMAL, DECIMAL, "1.10", "1.1", D("0.00")),
    (arith("*", a, b), DECIMAL, DECIMAL, "1e6000", "1e6000", "overflow"),
    (arith("/", a, b), INTEGER, INTEGER, 6, 3, 2),
    (arith("/", a, b), INTEGER, INTEGER, 1, 4, D("0.25")),
    (arith("/", a, b), INTEGER, INTEGER, 1, 3, D("0.3333333333333333333333333333")),
    (arith("/", a, b), INTEGER, INTEGER, 1, 0, "division_by_zero"),
    (arith("/", a, b), INTEGER, INTEGER, MIN, -1, "overflow"),
    (arith("/", a, b), DECIMAL, INTEGER, "1.0", 0, "division_by_zero"),
    (arith("+", arith("/", a, b), 1), INTEGER, INTEGER, 6, 3, 3),
    (arith("%", a, b), INTEGER, INTEGER, -7, 3, -1),
    (arith("%", a, b), INTEGER, INTEGER, 7, -3, 1),
    (arith("%", a, b), INTEGER, INTEGER, 7, 0, "division_by_zero"),
    (arith("%", a, b), DECIMAL, DECIMAL, "-7.5", "2", D("-1.5")),
    (arith("%", a, b), DECIMAL, DECIMAL, "1e5000", "1e-5000", D("0E-5000")),
    (arith("+", a, b), STRING, STRING, "x", "y", "xy"),
    (arith("-", a, b), STRING, STRING, "x", "y", "type_error"),
    (arith("+", a, b), STRING, INTEGER, "x", 1, "type_error"),
    (arith("+", a, b), BOOLEAN, INTEGER, True, 1, "type_error"),
    (cmp("==", a, b), INTEGER, DECIMAL, 1, "1.00", True),
    (cmp("==", a, b), BOOLEAN, INTEGER, True, 1, False),
    (cmp("!=", a, b), STRING, INTEGER, "1", 1, True),
    (cmp("==", a, b), Array(BOOLEAN), Array(INTEGER), [True], [1], False),
    (cmp("==", a, b), Array(DECIMAL), Array(INTEGER), ["1.0", 2], [1, 2], True),
    (cmp("==", a, b), ANY, ANY, {"x": 1, "y": [None]}, {"y": [None], "x": D("1.0")}, True),
    (cmp("==", a, b), SetType(INTEGER), SetType(INTEGER), [1, 2], [2, 1], True),
    (cmp("<", a, b), INTEGER, DECIMAL, 1, "1.5", True),
    (cmp(">=", a, b), STRING, STRING, "b", "a", True),
    (cmp("<", a, b), STRING, STRING, "Z", "a", True),
    (cmp("<", a, b), TIMESTAMP, TIMESTAMP, NOW, "2026-03-04T05:06:08Z", True),
    (cmp("<", a, b), STRING, INTEGER, "1", 2, "type_error"),
    (cmp("<", a, b), BOOLEAN, BOOLEAN, False, True, "type_error"),
    (cmp("<=", a, b), ANY, INTEGER, None, 2, False),
    (cmp(">", a, b), ANY, ANY, None, None, False),
    (cmp("==", a, b), ANY, ANY, None, None, True),
    (arith("+", a, b), ANY, INTEGER, None, 2, "type_error"),
    (logic("and", a, b), BOOLEAN, BOOLEAN, True, False, False),
    (logic("or", a, b), BOOLEAN, BOOLEAN, False, True, True),
    (logic("implies", a, b), BOOLEAN, BOOLEAN, True, False, False),
    (logic("implies", a, b), BOOLEAN, BOOLEAN, False, False, True),
    (logic("and", a, b), ANY, INTEGER, None, 1, False),
    (logic("or", a, b), ANY, INTEGER, None, 1, "type_error"),
    (logic("and", a, cmp(">", arith("/", 1, b), 0)), BOOLEAN, INTEGER, False, 0, False),
    (logic("and", a, cmp(">", arith("/", 1, b), 0)), BOOLEAN, INTEGER, True, 0, "division_by_zero"),
    (logic("or", a, cmp(">", arith("+", b, 1), 0)), BOOLEAN, INTEGER, True, MAX, True),
    (logic("or", a, cmp(">", arith("+", b, 1), 0)), BOOLEAN, INTEGER, False, MAX, "overflow"),
    (ir.Membership(type=BOOLEAN, item=a, collection=b), INTEGER, Array(DECIMAL), 1, ["1.0"], True),
    (ir.Membership(type=BOOLEAN, item=a, collection=b), BOOLEAN, Array(INTEGER), True, [1], False),
    (ir.Membership(type=BOOLEAN, item=a, collection=b), STRING, STRING, "b", "abc", True),
    (ir.Membership(type=BOOLEAN, item=a, collection=b), STRING, ANY, "k", {"k": 1}, True),
    (ir.Membership(type=BOOLEAN, item=a, collection=b), STRING, ANY, "k", None, False),
    (ir.Membership(type=BOOLEAN, item=a, collection=b), STRING, INTEGER, "k", 1, "type_error"),
    (ir.Membership(type=BOOLEAN, item=a, collection=listed("x", "y")), STRING, INTEGER, "y", 0, True),
    (ir.ItemOf(type=ANY, target=a, index=b), Array(INTEGER), INTEGER, [5, 6], 1, 6),
    (ir.ItemOf(type=ANY, target=a, index=b), Array(INTEGER), INTEGER, [5, 6], 2, None),
    (ir.ItemOf(type=ANY, target=a, index=b), Array(INTEGER), INTEGER, [5, 6], -1, None),
    (ir.ItemOf(type=ANY, target=a, index=b), ANY, STRING, {"k": 5}, "k", 5),
    (ir.ItemOf(type=ANY, target=a, index=b), ANY, STRING, None, "k", None),
    (rounded(arith("/", a, b), 2, "half_even"), INTEGER, INTEGER, 1, 8, D("0.12")),
    (rounded(arith("/", a, b), 2, "half_up"), INTEGER, INTEGER, 1, 8, D("0.13")),
    (rounded(arith("/", a, b), 0, "down"), INTEGER, INTEGER, -7, 2, D("-3")),
    (rounded(arith("/", a, b), 2, "half_even"), INTEGER, INTEGER, 1, 0,
     "division_by_zero"),
    (rounded(arith("*", a, b), 1, "half_even"), DECIMAL, INTEGER, "0.05", 1,
     D("0.0")),
    (call("round", a, b), DECIMAL, INTEGER, "2.675", 2, D("2.68")),
    (call("round", a, b), DECIMAL, INTEGER, "2.5", 0, D("2")),
    (call("round", a, b), DECIMAL, INTEGER, "2.5", -1, "type_error"),
    (call("starts_with", a, b), STRING, STRING, "abc", "ab", True),
    (call("ends_with", a, b), STRING, STRING, "abc", "ab", False),
    (call("starts_with", a, b), STRING, INTEGER, "abc", 1, "type_error"),
    (call("matches", a, b), STRING, STRING, "x12y", "[0-9]+", True),
    (call("matches", a, b), STRING, STRING, "a" * 5000 + "b", "(a+)+c", False),
    (call("matches", a, b), STRING, STRING, "x", "(", "type_error"),
    (text("a=", a, ", b=", b), DECIMAL, BOOLEAN, "1e3", True, "a=1000, b=true"),
    (text("", a, "|", b), INTEGER, STRING, -5, "{x}", "-5|{x}"),
    (text(a, b), TIMESTAMP, ANY, "2026-01-02T03:04:05.060000+01:00", None, "2026-01-02T02:04:05.060000Z"),
    (text(a, b), Array(INTEGER), STRING, [1], "x", "type_error"),
]  # fmt: skip


def _means_the_same(kind: ValueType, value: Any) -> bool:
    """Whether a JSON-shaped value is the same value where its type is not known."""
    if isinstance(value, str):
        return kind in (STRING, ANY)
    return not isinstance(kind, SetType) and kind != Array(DECIMAL)


@pytest.mark.parametrize("case", BINARY, ids=range(len(BINARY)))
def test_two_operands(case: tuple[ir.TypedExpression, ValueType, ValueType, Any, Any, Any]) -> None:
    """The result is the same whether the types of the operands are known or not."""
    expression, left, right, first, second, expected = case
    values = {"a": first, "b": second}
    assert same(evaluated(expression, {"a": left, "b": right}, values), expected)
    if all(not isinstance(value, str) or kind in (STRING, ANY) for value, kind in ((first, left), (second, right))):
        if isinstance(left, SetType) or any(
            isinstance(value, list) and isinstance(value[0], str) for value in values.values()
        ):
            return
        assert same(evaluated(expression, {"a": ANY, "b": ANY}, values), expected)


_PAIR = RecordType("Pair", (RecordField("x", INTEGER), RecordField("y", DECIMAL, required=False)))

UNARY: list[tuple[ir.TypedExpression, ValueType, Any, Any]] = [
    (ir.Negate(type=ANY, operand=a), INTEGER, MIN, "overflow"),
    (ir.Negate(type=ANY, operand=a), INTEGER, 5, -5),
    (ir.Negate(type=ANY, operand=a), DECIMAL, "0.0", D("0.0")),
    (ir.Negate(type=ANY, operand=a), STRING, "x", "type_error"),
    (ir.Not(type=BOOLEAN, operand=a), BOOLEAN, True, False),
    (ir.Not(type=BOOLEAN, operand=a), ANY, None, True),
    (ir.Not(type=BOOLEAN, operand=a), INTEGER, 1, "type_error"),
    (ir.IsNull(type=BOOLEAN, operand=a), ANY, None, True),
    (ir.IsNull(type=BOOLEAN, operand=a), INTEGER, 0, False),
    (field(a, "x"), _PAIR, {"x": 1}, 1),
    (field(a, "y"), _PAIR, {"x": 1}, None),
    (field(a, "y"), _PAIR, {"x": 1, "y": "1.5"}, D("1.5")),
    (field(field(a, "z"), "z"), ANY, {"x": 1}, None),
    (field(a, "x"), ANY, [{"x": 1}, None, {}], [1, None, None]),
    (field(a, "x"), INTEGER, 3, "type_error"),
    (ir.Projection(type=ANY, target=a, name="x"), Array(_PAIR), [{"x": 1}, {"x": 2}], [1, 2]),
    (ir.Projection(type=ANY, target=a, name="x"), ANY, None, None),
    (ir.Length(type=INTEGER, target=a), STRING, "häß", 3),
    (ir.Length(type=INTEGER, target=a), BYTES, "AAE=", 2),
    (ir.Length(type=INTEGER, target=a), ANY, None, None),
    (ir.Length(type=INTEGER, target=a), INTEGER, 3, "type_error"),
    (call("len", a), Array(INTEGER), [1, 2], 2),
    (call("abs", a), INTEGER, -3, 3),
    (call("abs", a), INTEGER, MIN, "overflow"),
    (call("abs", a), DECIMAL, "-1.50", D("1.50")),
    (call("lower", a), STRING, "ÄB", "äb"),
    (call("upper", a), ANY, "ab", "AB"),
    (call("trim", a), STRING, " x ", "x"),
    (call("trim", a), ANY, None, "type_error"),
    (call("current_year"), INTEGER, 0, 2026),
    (call("current_timestamp"), INTEGER, 0, NOW),
    (ir.Aggregate(type=ANY, function="sum", collection=a), Array(INTEGER), [1, 2], 3),
    (ir.Aggregate(type=ANY, function="sum", collection=a), Array(INTEGER), [MAX, 1, -1], "overflow"),
    (ir.Aggregate(type=ANY, function="sum", collection=a), Array(DECIMAL), [], 0),
    (ir.Aggregate(type=ANY, function="sum", collection=a), Array(DECIMAL), ["1.5", 2], D("3.5")),
    (ir.Aggregate(type=ANY, function="sum", collection=a), ANY, [1, None, D("0.5")], D("1.5")),
    (ir.Aggregate(type=ANY, function="sum", collection=a), ANY, ["x"], "type_error"),
    (ir.Aggregate(type=ANY, function="sum", collection=a), ANY, None, "type_error"),
    (ir.Aggregate(type=ANY, function="count", collection=a), ANY, [None, 1], 2),
    (ir.Aggregate(type=ANY, function="avg", collection=a), ANY, [1, None, 2], D("1.5")),
    (ir.Aggregate(type=ANY, function="avg", collection=a), Array(INTEGER), [1, 3], 2),
    (ir.Aggregate(type=ANY, function="avg", collection=a), ANY, [None], None),
    (ir.Aggregate(type=ANY, function="min", collection=a), ANY, [3, None, D("1.5")], D("1.5")),
    (ir.Aggregate(type=ANY, function="max", collection=a), Array(STRING), ["b", "a"], "b"),
    (ir.Aggregate(type=ANY, function="max", collection=a), Array(STRING), [], None),
    (ir.Aggregate(type=ANY, function="max", collection=a), ANY, [1, "a"], "type_error"),
    (ir.Quantifier(type=BOOLEAN, kind="forall", name="x", collection=a, body=cmp(">", var("x"), 0)), Array(INTEGER),
     [1, 2], True),
    (ir.Quantifier(type=BOOLEAN, kind="forall", name="x", collection=a, body=cmp(">", var("x"), 0)), Array(INTEGER),
     [], True),
    (ir.Quantifier(type=BOOLEAN, kind="exists", name="x", collection=a, body=cmp(">", var("x"), 1)), Array(INTEGER),
     [1, 2], True),
    (ir.Quantifier(type=BOOLEAN, kind="exists", name="x", collection=a, body=var("x")), ANY, [None, 1], "type_error"),
    (ir.Quantifier(type=BOOLEAN, kind="exists", name="x", collection=a, body=var("x")), ANY, [True, 1], True),
    (ir.Quantifier(type=BOOLEAN, kind="forall", name="x", collection=a, body=var("x")), ANY, None, "type_error"),
    (ir.MapOver(type=ANY, collection=a, name="x", body=arith("*", var("x"), 2)), Array(INTEGER), [1, 2], [2, 4]),
    (ir.MapOver(type=ANY, collection=a, name="x", body=arith("*", var("x"), 2)), Array(INTEGER), [MAX], "overflow"),
    (ir.MapOver(type=ANY, collection=a, name="x", body=var("x")), SetType(INTEGER), [3, 1, 2], [1, 2, 3]),
    (ir.Filter(type=ANY, collection=a, name="x", body=cmp(">", var("x"), 1)), Array(INTEGER), [1, 2, 3], [2, 3]),
    (ir.Filter(type=ANY, collection=a, name="x", body=cmp(">", var("x"), 1)), ANY, [None, 5], [5]),
    (SUM_OF_A,
     Array(INTEGER), [1, 2, 3], 6),
    (SUM_OF_A,
     Array(DECIMAL), ["0.5", 1], D("1.5")),
    (SUM_OF_A,
     Array(INTEGER), [MAX, 1], "overflow"),
    (ir.GroupBy(type=ANY, collection=a, name="r", keys=(("k", field(var("r"), "k")),)), ANY,
     [{"k": 1}, {"k": True}, {"k": D("1.0")}],
     [{"k": 1, "items": [{"k": 1}, {"k": D("1.0")}]}, {"k": True, "items": [{"k": True}]}]),
    (ir.GroupBy(type=ANY, collection=a, name="r", keys=(), aggregations=(ir.Aggregation("n", "count"),)), ANY, [],
     {"n": 0}),
    (ir.GroupBy(type=ANY, collection=a, name="r", keys=(("k", field(var("r"), "k")),),
                aggregations=(ir.Aggregation("s", "sum", field(var("r"), "v")), ir.Aggregation("n", "count"))), ANY,
     [{"k": "x", "v": 1}, {"k": "y", "v": 5}, {"k": "x", "v": 2}],
     [{"k": "x", "s": 3, "n": 2}, {"k": "y", "s": 5, "n": 1}]),
    (ir.MatrixProduct(type=ANY, left=a, right=a), Array(Array(INTEGER)), [[1, 2], [3, 4]], [[7, 10], [15, 22]]),
    (ir.MatrixProduct(type=ANY, left=a, right=a), Array(Array(INTEGER)), [[1, 2]], "type_error"),
    (ir.MatrixProduct(type=ANY, left=a, right=a), Array(Array(INTEGER)), [[1, 2], [3]], "type_error"),
    (listed(a, 1), INTEGER, 5, [5, 1]),
    (mapped(x=a, y=None), INTEGER, 5, {"x": 5, "y": None}),
    (text(a), DECIMAL, "-0.00", "0.00"),
    (arith("+", arith("*", a, 1), call("len", text("a", a))), ANY, "x", "type_error"),
]  # fmt: skip


@pytest.mark.parametrize("case", UNARY, ids=range(len(UNARY)))
def test_one_operand(case: tuple[ir.TypedExpression, ValueType, Any, Any]) -> None:
    """The result is the same whether the type of the operand is known or not."""
    expression, kind, value, expected = case
    assert same(evaluated(expression, {"a": kind}, {"a": value}), expected)
    if _means_the_same(kind, value) and kind != _PAIR:
        assert same(evaluated(expression, {"a": ANY}, {"a": value}), expected)


def test_the_first_error_in_written_order_counts() -> None:
    """A check that stands before the expression does not overtake an operand on its left."""
    expression = arith("+", arith("/", 1, a), arith("+", b, 1))
    kinds: dict[str, ValueType] = {"a": INTEGER, "b": INTEGER}
    assert evaluated(expression, kinds, {"a": 0, "b": MAX}) == "division_by_zero"
    assert evaluated(arith("+", arith("+", b, 1), arith("/", 1, a)), kinds, {"a": 0, "b": MAX}) == "overflow"


def test_inner_names_hide_outer_ones() -> None:
    """An element of a transform hides a variable of the same name, inside the transform only."""
    doubled = ir.MapOver(type=ANY, collection=b, name="a", body=arith("*", a, 2))
    assert evaluated(listed(doubled, a), {"a": INTEGER, "b": Array(INTEGER)}, {"a": 7, "b": [1]}) == [[2], 7]


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12),
    st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**6), max_value=10**6).filter(bool),
    st.integers(0, 12),
    st.sampled_from(["half_even", "half_up", "down"]),
)
def test_quotients_are_rounded_once(left: Decimal, right: Decimal, scale: int, rounding: str) -> None:
    """The rounded quotient is the one that exact fractions give."""
    exact = abs(Fraction(left) / Fraction(right)) * 10**scale
    whole, rest = divmod(exact, 1)
    is_up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and (rounding == "half_up" or whole % 2 == 1))
    number = int(whole) + (is_up and rounding != "down")
    is_negative = (left < 0) != (right < 0)
    result = round_quotient(left, right, scale, rounding)
    assert Fraction(result) == Fraction(-number if is_negative else number, 10**scale)
    assert result.as_tuple().exponent == -scale

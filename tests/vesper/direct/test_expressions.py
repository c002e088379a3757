"""Every kind of expression on every evaluator, with results worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from lyra.vesper import ir
from lyra.vesper.ir import NodeInput
from lyra.vesper.values.outcome import Execution
from lyra.vesper.values.types import ANY, BOOLEAN, DECIMAL, INTEGER_MAX, INTEGER_MIN, STRING, SetType
from tests.vesper.building import EXECUTION, NOW, arith, call, comp, dec, give, lit, logic, name, node
from tests.vesper.paths import PATHS, RunPath

D = Decimal
LINES = [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}, {"sku": "a", "n": 5}, None]


def rounded(operand: Any, scale: int, rounding: str = "half_even") -> ir.TypedExpression:
    return ir.Rounded(type=DECIMAL, operand=lit(operand), scale=scale, rounding=rounding)


def member(item: Any, collection: Any) -> ir.TypedExpression:
    return ir.Membership(type=BOOLEAN, item=lit(item), collection=lit(collection))


def quantifier(kind: str, collection: Any, body: ir.TypedExpression) -> ir.TypedExpression:
    return ir.Quantifier(type=BOOLEAN, kind=kind, name="x", collection=lit(collection), body=body)


def aggregate(function: str, values: Any) -> ir.TypedExpression:
    return ir.Aggregate(type=ANY, function=function, collection=lit(values))


def group(keys: dict[str, ir.TypedExpression], *columns: ir.Aggregation, over: Any = None) -> ir.TypedExpression:
    return ir.GroupBy(
        type=ANY,
        collection=lit(LINES[:3] if over is None else over),
        name="r",
        keys=tuple(keys.items()),
        aggregations=columns,
    )


def field(target: Any, field_name: str) -> ir.TypedExpression:
    return ir.FieldOf(type=ANY, target=lit(target), name=field_name)


def item(target: Any, index: Any) -> ir.TypedExpression:
    return ir.ItemOf(type=ANY, target=lit(target), index=lit(index))


def text(*parts: Any) -> ir.TypedExpression:
    return ir.TemplateText(type=STRING, parts=tuple(part if isinstance(part, str) else lit(part) for part in parts))


x, r, total = name("x"), name("r"), name("total")
OVERFLOW, ZERO, TYPE = "overflow", "division_by_zero", "type_error"

CASES: list[tuple[ir.TypedExpression, Any]] = [
    # arithmetic of integers
    (arith(2, "+", 3), 5),
    (arith(2, "-", 3), -1),
    (arith(-4, "*", 3), -12),
    (arith(INTEGER_MAX, "+", 0), INTEGER_MAX),
    (arith(6, "/", 3), 2),
    (arith(7, "/", 2), D("3.5")),
    (arith(-7, "/", 7), -1),
    (arith(1, "/", 3), D("0.3333333333333333333333333333")),
    (arith(2, "/", 3), D("0.6666666666666666666666666667")),
    (arith(7, "%", 3), 1),
    (arith(-7, "%", 3), -1),
    (arith(7, "%", -3), 1),
    (ir.Negate(type=ANY, operand=lit(5)), -5),
    # arithmetic of decimals
    (arith(dec("1.10"), "+", dec("2.2")), D("3.30")),
    (arith(dec("0.1"), "+", dec("0.2")), D("0.3")),
    (arith(dec("1.10"), "*", dec("2.0")), D("2.200")),
    (arith(dec("1.00"), "-", 1), D("0.00")),
    (arith(dec("1.00"), "/", dec("2")), D("0.50")),
    (arith(dec("1"), "/", dec("0.1")), D("10")),
    (arith(dec("10"), "/", dec("4")), D("2.5")),
    (arith(dec("5.5"), "%", dec("2")), D("1.5")),
    (arith(dec("-5.5"), "%", dec("2")), D("-1.5")),
    (arith(dec("1e-20"), "+", dec("1e20")), D("100000000000000000000.00000000000000000001")),
    (ir.Negate(type=ANY, operand=dec("0.00")), D("0.00")),
    # rounding
    (rounded(dec("2.5"), 0), D("2")),
    (rounded(dec("3.5"), 0), D("4")),
    (rounded(dec("2.5"), 0, "half_up"), D("3")),
    (rounded(dec("-2.5"), 0, "half_up"), D("-3")),
    (rounded(dec("2.59"), 1, "down"), D("2.5")),
    (rounded(dec("-2.59"), 1, "down"), D("-2.5")),
    (rounded(3, 2), D("3.00")),
    (rounded(arith(1, "/", 3), 2), D("0.33")),
    # 28 digits first would give 0.5 exactly, and then 0.
    (rounded(arith(dec("50000000000000000000000000001"), "/", dec("1e29")), 0), D("1")),
    (rounded(arith(1, "/", 8), 2), D("0.12")),
    (rounded(arith(1, "/", 8), 2, "half_up"), D("0.13")),
    (call("round", dec("1.005"), 2), D("1.00")),
    (call("round", dec("1.015"), 2), D("1.02")),
    (call("round", 7, 1), D("7.0")),
    # errors of numbers
    (arith(INTEGER_MAX, "+", 1), OVERFLOW),
    (arith(INTEGER_MIN, "-", 1), OVERFLOW),
    (arith(2**62, "*", 2), OVERFLOW),
    (arith(INTEGER_MIN, "/", -1), OVERFLOW),
    (ir.Negate(type=ANY, operand=lit(INTEGER_MIN)), OVERFLOW),
    (call("abs", INTEGER_MIN), OVERFLOW),
    (arith(1, "/", 0), ZERO),
    (arith(1, "%", 0), ZERO),
    (arith(dec("1"), "/", dec("0.00")), ZERO),
    (rounded(arith(1, "/", 0), 2), ZERO),
    (arith(1, "+", None), TYPE),
    (arith(1, "+", True), TYPE),
    (arith(1, "+", "1"), TYPE),
    (arith("a", "-", "a"), TYPE),
    (rounded(None, 2), TYPE),
    (call("abs", "x"), TYPE),
    # texts
    (arith("ab", "+", "c"), "abc"),
    (text("a ", 1, " ", dec("1.50"), " ", True, " ", None, "."), "a 1 1.50 true ."),
    (text(dec("1e3")), "1000"),
    (text(arith(dec("-1"), "*", dec("0.0"))), "0.0"),
    (text(call("current_timestamp")), "2026-03-04T05:06:07.000089Z"),
    (text([1]), TYPE),
    (call("lower", "ÀB"), "àb"),
    (call("upper", "ß"), "SS"),
    (call("trim", " a b\n"), "a b"),
    (call("starts_with", "abc", "ab"), True),
    (call("ends_with", "abc", "ab"), False),
    (call("ends_with", "abc", ""), True),
    (call("matches", "xay", "a"), True),
    (call("matches", "xay", "^a"), False),
    (call("matches", "x", "("), TYPE),
    (call("lower", None), TYPE),
    (call("len", "häß"), 3),
    (call("current_timestamp"), NOW),
    (call("current_year"), 2026),
    (call("abs", dec("-1.50")), D("1.50")),
    # equality
    (comp(1, "==", dec("1.00")), True),
    (comp(1, "==", True), False),
    (comp(1, "!=", True), True),
    (comp([1, True], "==", [dec("1.0"), 1]), False),
    (comp([1, None], "==", [dec("1.0"), None]), True),
    (comp({"a": 1, "b": 2}, "==", {"b": 2, "a": dec("1.0")}), True),
    (comp({"a": 1}, "==", {"a": 1, "b": None}), False),
    (comp(None, "==", None), True),
    (comp("1", "==", 1), False),
    # order
    (comp(1, "<", dec("1.5")), True),
    (comp("Z", "<", "a"), True),
    (comp(2, ">=", 2), True),
    (comp(None, "<", 1), False),
    (comp([], "<=", None), False),
    (comp(1, "<", "2"), TYPE),
    (comp(True, "<", False), TYPE),
    (comp([1], "<", [2]), TYPE),
    # logic
    (logic(True, "and", None), False),
    (logic(False, "and", 1), False),
    (logic(True, "or", 1), True),
    (logic(None, "or", True), True),
    (logic(False, "implies", 1), True),
    (logic(True, "implies", False), False),
    (logic(True, "and", 1), TYPE),
    (ir.Not(type=BOOLEAN, operand=lit(None)), True),
    (ir.Not(type=BOOLEAN, operand=lit("x")), TYPE),
    (ir.IsNull(type=BOOLEAN, operand=lit(None)), True),
    (ir.IsNull(type=BOOLEAN, operand=lit(0)), False),
    # membership
    (member(1, [2, dec("1.0")]), True),
    (member(True, [1]), False),
    (member(None, [None]), True),
    (member("b", "abc"), True),
    (member("a", {"a": 1}), True),
    (member(1, {"a": 1}), False),
    (member(1, None), False),
    (member(1, "1"), TYPE),
    (member(1, 1), TYPE),
    # fields and elements
    (field({"a": 1}, "a"), 1),
    (field({"a": 1}, "b"), None),
    (field(None, "a"), None),
    (field([{"a": 1}, None, {}], "a"), [1, None, None]),
    (field(1, "a"), TYPE),
    (ir.Projection(type=ANY, target=lit(LINES), name="n"), [1, 2, 5, None]),
    (ir.Projection(type=ANY, target=lit(None), name="n"), None),
    (ir.Projection(type=ANY, target=lit({"n": 1}), name="n"), TYPE),
    (item([1, 2], 1), 2),
    (item([1, 2], 2), None),
    (item([1, 2], -1), None),
    (item({"a": 1}, "a"), 1),
    (item(None, 0), None),
    (item([1], True), TYPE),
    (ir.Length(type=ANY, target=lit({"a": 1})), 1),
    (ir.Length(type=ANY, target=lit(None)), None),
    (ir.Length(type=ANY, target=lit(1)), TYPE),
    (lit([1, [2], {"a": None}]), [1, [2], {"a": None}]),
    # quantifiers
    (quantifier("forall", [1, 2], comp(x, ">", 0)), True),
    (quantifier("forall", [1, -2], comp(x, ">", 0)), False),
    (quantifier("forall", [], comp(x, ">", 0)), True),
    (quantifier("exists", [], comp(x, ">", 0)), False),
    (quantifier("exists", [-1, 2, "x"], comp(x, ">", 0)), True),
    (quantifier("forall", None, comp(x, ">", 0)), TYPE),
    # aggregates
    (aggregate("sum", [1, None, 2]), 3),
    (aggregate("sum", [1, dec("0.50")]), D("1.50")),
    (aggregate("sum", []), 0),
    (aggregate("sum", [INTEGER_MAX, 1, -1]), OVERFLOW),
    (aggregate("sum", ["a"]), TYPE),
    (aggregate("sum", None), TYPE),
    (aggregate("count", [1, None]), 2),
    (aggregate("avg", [1, None, 2]), D("1.5")),
    (aggregate("avg", [2, 4]), 3),
    (aggregate("avg", [None]), None),
    (aggregate("min", [3, dec("1.5"), None]), D("1.5")),
    (aggregate("max", ["a", "b"]), "b"),
    (aggregate("max", []), None),
    (aggregate("min", [1, dec("1.0")]), 1),
    (aggregate("max", [1, dec("1.0")]), 1),
    (aggregate("max", [1, "a"]), TYPE),
    (aggregate("max", [True]), TYPE),
    # transforms
    (ir.MapOver(type=ANY, collection=lit([1, 2]), name="x", body=arith(x, "*", 2)), [2, 4]),
    (ir.Filter(type=ANY, collection=lit([1, None, 3]), name="x", body=comp(x, ">", 1)), [3]),
    (ir.Filter(type=ANY, collection=lit([1]), name="x", body=x), TYPE),
    (
        ir.Reduce(
            type=ANY, collection=lit([1, 2]), name="x", accumulator="total", initial=lit(9), body=arith(total, "-", x)
        ),
        6,
    ),
    (
        group({"sku": field(r, "sku")}, ir.Aggregation("n", "sum", field(r, "n")), ir.Aggregation("rows", "count")),
        [{"sku": "a", "n": 6, "rows": 2}, {"sku": "b", "n": 2, "rows": 1}],
    ),
    (group({}, ir.Aggregation("n", "max", field(r, "n"))), {"n": 5}),
    (group({}, ir.Aggregation("n", "avg", field(r, "n")), over=[]), {"n": None}),
    (group({"k": r}, over=[1, True, dec("1.0"), None]), [
        {"k": 1, "items": [1, D("1.0")]}, {"k": True, "items": [True]}, {"k": None, "items": [None]},
    ]),
    # matrices
    (ir.MatrixProduct(type=ANY, left=lit([[1, 2], [3, 4]]), right=lit([[5], [6]])), [[17], [39]]),
    (ir.MatrixProduct(type=ANY, left=lit([]), right=lit([[1]])), []),
    (ir.MatrixProduct(type=ANY, left=lit([[1]]), right=lit([[1], [2]])), TYPE),
    (ir.MatrixProduct(type=ANY, left=lit([[1, 2], [3]]), right=lit([[1], [2]])), TYPE),
    (ir.MatrixProduct(type=ANY, left=lit([[2**62]]), right=lit([[2]])), OVERFLOW),
    (ir.MatrixProduct(type=ANY, left=lit(1), right=lit([[2]])), TYPE),
    # names that no scope has
    (name("nowhere"), TYPE),
    (ir.HostCall(type=BOOLEAN, name="unknown", arguments=()), TYPE),
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_expressions_have_the_values_worked_out_by_hand(path: RunPath) -> None:
    """A text among the expected values that is an error's code stands for that error."""
    wrong = []
    for number, (expression, expected) in enumerate(CASES):
        outcome = path(node(give(result=expression)), {}, EXECUTION)
        value: Any = outcome.error.code if outcome.error is not None else outcome.outputs["result"]
        if repr(value) != repr(expected):
            wrong.append((number, expression, expected, value, outcome.error and outcome.error.message))
    assert wrong == []


@pytest.mark.parametrize("path", PATHS)
def test_a_set_is_walked_in_the_order_of_its_elements(path: RunPath) -> None:
    program = node(
        give(result=ir.MapOver(type=ANY, collection=name("s"), name="x", body=x)),
        inputs=(NodeInput("s", SetType(STRING)),),
    )
    assert path(program, {"s": ["b", "a", "C"]}, EXECUTION).outputs == {"result": ["C", "a", "b"]}


@pytest.mark.parametrize("path", PATHS)
def test_a_predicate_of_the_host_is_asked_with_its_arguments(path: RunPath) -> None:
    asked: list[Any] = []

    def allows(*values: Any) -> bool:
        asked.append(values)
        return True

    execution = Execution(now=datetime(2026, 1, 1, tzinfo=UTC), predicates={"allows": allows})
    program = node(give(result=ir.HostCall(type=BOOLEAN, name="allows", arguments=(lit("x"), lit(1)))))
    assert path(program, {}, execution).outputs == {"result": True}
    assert asked == [("x", 1)]


@pytest.mark.parametrize("path", PATHS)
def test_a_predicate_that_raises_is_a_type_error(path: RunPath) -> None:
    execution = Execution(now=datetime(2026, 1, 1, tzinfo=UTC), predicates={"breaks": lambda: 1 // 0})
    program = node(give(result=ir.HostCall(type=BOOLEAN, name="breaks", arguments=())))
    assert path(program, {}, execution).error.code == "type_error"


@pytest.mark.parametrize("path", PATHS)
def test_a_short_circuited_operand_is_never_evaluated(path: RunPath) -> None:
    boom = comp(arith(1, "/", 0), "==", 1)
    program = node(give(result=logic(logic(False, "and", boom), "or", logic(True, "or", boom))))
    assert path(program, {}, EXECUTION).outputs == {"result": True}

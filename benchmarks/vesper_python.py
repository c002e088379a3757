"""What generated Python costs: nodes beside functions written by hand with the same checks.

The goal is 1.7 times the hand-written function. Generating and compiling are not measured. What contracts alone add to
a call is measured by `vesper_contracts`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

from benchmarks.measure import Figure, Row, Size, Stopwatch, Timing, interleave, ratio_at_most
from lyra.vesper import ir
from lyra.vesper.ir import (
    AssignStep,
    Condition,
    Contract,
    ErrorAnswer,
    NodeInput,
    NodeOutput,
    NodeProgram,
    ReturnStep,
    ValidateStep,
)
from lyra.vesper.python.run import compile_program
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    DECIMAL,
    INTEGER,
    INTEGER_MAX,
    INTEGER_MIN,
    STRING,
    Array,
    DecimalType,
    RecordField,
    RecordType,
    ValueType,
)

__all__ = ["run"]


# ------------------------------------------------------------ nodes
def _name(name: str) -> ir.NodeVariable:
    return ir.NodeVariable(type=ANY, name=name)


def _arithmetic(operator: str, left: ir.TypedExpression, right: ir.TypedExpression) -> ir.Arithmetic:
    return ir.Arithmetic(type=ANY, operator=operator, left=left, right=right)


def _compare(operator: str, left: ir.TypedExpression, right: ir.TypedExpression) -> ir.Compare:
    return ir.Compare(type=BOOLEAN, operator=operator, left=left, right=right)


def _number(value: int) -> ir.Constant:
    return ir.Constant(type=INTEGER, value=value)


def _program(
    name: str, inputs: dict[str, ValueType], outputs: dict[str, ValueType], *steps: Any, **more: Any
) -> NodeProgram:
    return NodeProgram(
        node_id=name,
        kind="function",
        intent="A node of the benchmark",
        digest=f"benchmark-{name}",
        inputs=tuple(NodeInput(key, kind) for key, kind in inputs.items()),
        success=tuple(NodeOutput(key, kind) for key, kind in outputs.items()),
        error=(NodeOutput("error_code", STRING), NodeOutput("message", STRING)),
        steps=steps,
        **more,
    )


def _add(*, contracts: bool) -> NodeProgram:
    total = _arithmetic("+", _name("a"), _name("b"))
    before = Contract("a >= 0", _compare(">=", _name("a"), _number(0)))
    after = Contract("result >= a", _compare(">=", _name("result"), _name("a")))
    return _program(
        f"add_{'checked' if contracts else 'plain'}_v1",
        {"a": INTEGER, "b": INTEGER},
        {"result": INTEGER},
        AssignStep(name="add", target="result", value=total),
        preconditions=(before,) if contracts else (),
        postconditions=(after,) if contracts else (),
    )


_ITEM = RecordType(
    "Item", (RecordField("sku", STRING), RecordField("price", DecimalType(2)), RecordField("quantity", INTEGER))
)


def _invoice() -> NodeProgram:
    item = _name("item")
    price, quantity = (ir.FieldOf(type=ANY, target=item, name=name) for name in ("price", "quantity"))
    lines = ir.MapOver(type=ANY, collection=_name("items"), name="item", body=_arithmetic("*", price, quantity))
    tax = _arithmetic("*", _name("net"), _name("rate"))
    some = _compare(">", ir.Length(type=INTEGER, target=_name("items")), _number(0))
    empty = ErrorAnswer(ir.Constant(type=STRING, value="empty"))
    return _program(
        "invoice_v1",
        {"items": Array(_ITEM), "rate": DECIMAL},
        {"net": DecimalType(2), "tax": DecimalType(2), "total": DecimalType(2)},
        ValidateStep(name="validate", checks=(Condition("items.length > 0", some),), failure=empty),
        AssignStep(name="net", target="net", value=ir.Aggregate(type=ANY, function="sum", collection=lines)),
        AssignStep(name="tax", target="tax", value=ir.Rounded(type=DECIMAL, operand=tax, scale=2, rounding="half_up")),
        ReturnStep(
            name="answer",
            success=(
                ("net", _name("net")),
                ("tax", _name("tax")),
                ("total", _arithmetic("+", _name("net"), _name("tax"))),
            ),
        ),
        preconditions=(Contract("rate < 1", _compare("<", _name("rate"), _number(1))),),
        postconditions=(Contract("total >= net", _compare(">=", _name("total"), _name("net"))),),
    )


# ------------------------------------------------------------ the same by hand
_EXACT = Context(prec=10_000, Emin=-10_000, Emax=10_000, traps=[Inexact, Overflow, InvalidOperation])
_ROUNDING = Context(prec=60)
_CENT = Decimal("0.01")


def _refuse(code: str) -> NodeError:
    return NodeError(code)


def add_by_hand(*, a: int, b: int) -> dict[str, Any]:
    if type(a) is not int or not INTEGER_MIN <= a <= INTEGER_MAX:
        raise _refuse("invalid_input")
    if type(b) is not int or not INTEGER_MIN <= b <= INTEGER_MAX:
        raise _refuse("invalid_input")
    if a < 0:
        raise _refuse("precondition_failed")
    result = a + b
    if not INTEGER_MIN <= result <= INTEGER_MAX:
        raise _refuse("overflow")
    if result < a:
        raise _refuse("postcondition_failed")
    return {"result": result}


def _cents(value: Any) -> Decimal:
    if isinstance(value, int | str) and not isinstance(value, bool):
        value = Decimal(value)
    elif not isinstance(value, Decimal):
        raise _refuse("invalid_input")
    if not value.is_finite():
        raise _refuse("invalid_input")
    return _EXACT.quantize(value, _CENT)


def _item_by_hand(item: Any) -> dict[str, Any]:
    if not isinstance(item, dict) or not item.keys() <= {"sku", "price", "quantity"}:
        raise _refuse("invalid_input")
    sku, quantity = item["sku"], item["quantity"]
    if not isinstance(sku, str):
        raise _refuse("invalid_input")
    if type(quantity) is not int or not INTEGER_MIN <= quantity <= INTEGER_MAX:
        raise _refuse("invalid_input")
    return {"sku": sku, "price": _cents(item["price"]), "quantity": quantity}


def invoice_by_hand(*, items: list[dict[str, Any]], rate: Decimal) -> dict[str, Any]:
    if not isinstance(items, list):
        raise _refuse("invalid_input")
    items = [_item_by_hand(item) for item in items]
    if type(rate) is not Decimal or not rate.is_finite():
        raise _refuse("invalid_input")
    if rate >= 1:
        raise _refuse("precondition_failed")
    if not items:
        raise _refuse("empty")
    net = Decimal(0)
    for item in items:
        net = _EXACT.add(net, _EXACT.multiply(item["price"], item["quantity"]))
    tax = _EXACT.multiply(net, rate).quantize(_CENT, rounding=ROUND_HALF_UP, context=_ROUNDING)
    total = _EXACT.quantize(_EXACT.add(net, tax), _CENT)
    net = _EXACT.quantize(net, _CENT)
    if total < net:
        raise _refuse("postcondition_failed")
    return {"net": net, "tax": tax, "total": total}


# ------------------------------------------------------------ measuring
def _timed(function: Callable[..., Any], words: dict[str, Any], count: int) -> Timing:
    with Stopwatch(count) as watch:
        for _ in range(count):
            function(**words)
    return watch.timing


def _best(size: Size, count: int, words: dict[str, Any], functions: dict[str, Callable[..., Any]]) -> dict[str, Figure]:
    contenders = {
        name: lambda function=function: _timed(function, words, count) for name, function in functions.items()
    }
    return interleave(contenders, size.repeats)


def run(size: Size) -> list[Row]:
    rows = []
    numbers = {"a": 3, "b": 4}
    items = [{"sku": f"item-{number}", "price": Decimal("1.10"), "quantity": number} for number in range(1, 9)]
    order = {"items": items, "rate": Decimal("0.19")}
    add, invoice = compile_program(_add(contracts=True)).function, compile_program(_invoice()).function
    assert add(**numbers) == add_by_hand(**numbers)
    assert invoice(**order) == invoice_by_hand(**order)  # type: ignore[arg-type]
    for what, words, ours, theirs, count in (
        ("an addition with two contracts", numbers, add, add_by_hand, size.of(100_000, 10)),
        ("an invoice of 8 items", order, invoice, invoice_by_hand, size.of(3_000, 5)),
    ):
        best = _best(size, count, dict(words), {"generated": ours, "by hand": theirs})
        rows.append(Row(what, best["generated"], "by hand", best["by hand"], goals=(ratio_at_most(1.7),)))
    return rows

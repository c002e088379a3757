"""What generated code need not test: conditions about the answer, and what checks before have shown."""

from __future__ import annotations

import operator
import random
from decimal import Decimal

from lyra.vesper import ir
from lyra.vesper.python.draft import KnownFacts, fold_answer, is_true
from lyra.vesper.values.types import BOOLEAN, INTEGER
from tests.vesper.python.programs import cmp, field, host, logic, var
from tests.vesper.python.test_generated_files import read_source

OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def _number(value: int | Decimal) -> ir.Constant:
    return ir.Constant(type=INTEGER, value=value)


def test_a_condition_that_follows_holds_for_every_value_of_those_before() -> None:
    """Random limits of one number, on either side: what is left out is true wherever the learned conditions are."""
    numbers = random.Random(1)
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
    left_out = 0
    for _ in range(3_000):
        facts = KnownFacts({"x"})
        pairs = [(numbers.choice(list(OPERATORS)), numbers.randint(-3, 3)) for _ in range(3)]
        *learned, asked = [
            cmp(word, var("x"), _number(limit))
            if numbers.random() < 0.5
            else cmp(mirrored[word], _number(limit), var("x"))
            for word, limit in pairs
        ]
        for condition in learned:
            facts.learn(condition)
        values = [Decimal(step) / 2 for step in range(-9, 10)]
        kept = [value for value in values if all(OPERATORS[word](value, limit) for word, limit in pairs[:-1])]
        word, limit = pairs[-1]
        if facts.imply(asked):
            left_out += 1
            assert all(OPERATORS[word](value, limit) for value in kept), (pairs, kept)
    assert left_out > 300


def test_a_length_is_a_whole_number() -> None:
    """`length > 0` and `length >= 1` are the same condition; of other numbers they are not."""
    facts = KnownFacts({"x"})
    facts.learn(cmp(">=", ir.Length(type=INTEGER, target=var("x")), _number(1)))
    facts.learn(cmp(">=", var("x"), _number(1)))
    assert facts.imply(cmp(">", ir.Length(type=INTEGER, target=var("x")), _number(0)))
    assert not facts.imply(cmp(">", var("x"), _number(1)))


def test_only_inputs_that_keep_their_value_are_known() -> None:
    """A variable, and what the host program says, may be another the next time."""
    facts = KnownFacts({"x"})
    for condition in (cmp(">", var("y"), _number(0)), cmp("==", var("x"), host("now"))):
        facts.learn(condition)
        assert not facts.imply(condition)


def test_an_operand_that_may_raise_is_kept() -> None:
    """`a > b OR error.occurred` is true of an error only where a and b can be compared."""
    occurred = field(var("error"), "occurred")
    assert is_true(fold_answer(logic("or", var("success"), occurred), set(), is_success=False))
    assert is_true(fold_answer(logic("or", cmp("==", var("a"), var("b")), occurred), {"a", "b"}, is_success=False))
    for left in (cmp(">", var("a"), var("b")), cmp("==", var("a"), var("elsewhere"))):
        assert not is_true(fold_answer(logic("or", left, occurred), {"a", "b"}, is_success=False))
    implied = logic("implies", var("success"), cmp(">", var("a"), var("b")))
    assert is_true(fold_answer(implied, set(), is_success=False))
    assert isinstance(fold_answer(implied, set(), is_success=True), ir.Compare)
    assert fold_answer(ir.Not(type=BOOLEAN, operand=var("success")), set(), is_success=True).type == BOOLEAN


def test_generated_files_test_nothing_twice() -> None:
    """A precondition that a constraint implies, and a validation that constraints imply, are not tested again."""
    shipping = read_source("examples/nodes/shipping_quote.vsp")
    assert shipping.count("weight <= 0") == 1
    assert "_validate_first" not in shipping  # the validation stands before the checks of the entry
    order = read_source("examples/nodes/order_total.vsp")
    assert order.count("if not lines:") == 1
    assert order.count("for element in lines:") == 1
    payment = read_source("tests/vesper/files/payment_handler.vsp")
    assert payment.count("# validate_request") == 1

"""What `vesper verify` certifies: inputs that come past the entry, reach every part, and show planted bugs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from lyra.vesper.check.judge import program_of
from lyra.vesper.direct.run import run as direct
from lyra.vesper.evidence import differential
from lyra.vesper.ir import NodeProgram
from lyra.vesper.nodes import Node, load
from lyra.vesper.values.outcome import Outcome

ROOT = Path(__file__).parents[3]
NODES = {
    path.stem: path for path in (*(ROOT / "examples/nodes").glob("*.vsp"), *(ROOT / "tests/vesper/files").glob("*"))
}
SUCCEEDING = 0.15  # the least share of inputs
TRIED_MAX = 20_000  # inputs by which a planted bug is found
SHOP = """\
node_id: shop_v1
type: function
intent: ask another node for the tax
inputs: {price: {type: decimal, scale: 2, constraints: [positive, {max: 500}]}}
outputs: {success: {total: {type: decimal, scale: 2}}, error: {error_code: "enum[too_dear]", message: string}}
flow:
  - {step: ask, operation: call_node, node_id: tax_v1, parameters: {price: "{price}"}, output: answer}
  - {step: answer, operation: return, return_success: {total: "{answer.total}"}}
"""
TAX = """\
node_id: tax_v1
type: function
intent: add tax
inputs: {price: {type: decimal, scale: 2}}
outputs: {success: {total: {type: decimal, scale: 2}}, error: {error_code: "enum[too_dear]", message: string}}
flow:
  - step: check
    operation: validation
    guards: [price <= 400]
    on_failure: {return_error: {error_code: too_dear, message: too dear}}
  - {step: add, operation: arithmetic, expression: price * 1.19, scale: 2, rounding: half_up, output: total}
"""


class Bug(NamedTuple):
    """A text of a node's file, and what the path that has the bug reads in its place; `number` counts from 0."""

    node: str
    old: str
    new: str
    number: int = 0


PAYMENT, SHIPPING, ORDER, LOYALTY = "payment_handler", "shipping_quote", "order_total", "loyalty_points"
BUGS = [
    Bug(PAYMENT, "amount <= 50000.00", "amount < 50000.00"),
    Bug(PAYMENT, "idempotency_key.length >= 8", "idempotency_key.length > 8"),
    Bug(PAYMENT, "status: completed", "status: replayed"),
    Bug(PAYMENT, "was charged before", "was already charged"),
    Bug(PAYMENT, "is paid", "was paid"),
    Bug(PAYMENT, "retry_after_seconds: 60", "retry_after_seconds: 61"),
    Bug(PAYMENT, "map_to: provider_unavailable", "map_to: rate_limited"),
    Bug(PAYMENT, "error_type: card_declined", "error_type: card_refused"),
    Bug(PAYMENT, "to: paid", "to: payment_failed", 1),
    Bug(PAYMENT, "balance - {amount}", "balance + {amount}"),
    Bug(SHIPPING, "weight <= 30", "weight < 30"),
    Bug(SHIPPING, 'country == "DE"', 'country == "FR"'),
    Bug(SHIPPING, '"4.90"', '"4.91"'),
    Bug(SHIPPING, "price * 2", "price * 2 + 0.01"),
    Bug(SHIPPING, "half_up", "half_even"),
    Bug(SHIPPING, 'expression: "1"', 'expression: "2"'),
    Bug(ORDER, "COUNT(lines) > 0", "COUNT(lines) > 1"),
    Bug(ORDER, "half_up", "half_even"),
    Bug(ORDER, "half_up", "half_even", 1),
    Bug(ORDER, "(subtotal - discount)", "(subtotal + discount)"),
    Bug(ORDER, 'default: "19"', 'default: "20"'),
    Bug(ORDER, "line.quantity * line.price", "line.price"),
    Bug(LOYALTY, "amount >= 10", "amount > 10"),
    Bug(LOYALTY, 'tier == "gold"', 'tier == "silver"'),
    Bug(LOYALTY, "points + 3", "points + 2"),
    Bug(LOYALTY, '"gold" AND', '"gold" OR'),
    Bug(LOYALTY, "SUM(amount)", "MAX(amount)"),
    Bug("tax", "half_up", "half_even"),
    Bug("tax", "price <= 400", "price < 400"),
    Bug("shop", "{answer.total}", "{price}"),
]
QUICK = [BUGS[number] for number in (0, 9, 14, 22, 27, 28)]


def read(name: str) -> str:
    return {"shop": SHOP, "tax": TAX}.get(name) or NODES[name].read_text(encoding="utf-8")


def plant(bug: Bug) -> Node:
    """Return the node with the bug in it."""
    text = read(bug.node)
    places = [match.start() for match in re.finditer(re.escape(bug.old), text)]
    place = places[bug.number]
    return load(text[:place] + bug.new + text[place + len(bug.old) :])


def find_bug(bug: Bug, count: int) -> differential.ComparisonReport:
    """Compare the Python path with a direct path that has the bug."""
    wrong = program_of(plant(bug))

    def run(program: NodeProgram, *arguments: Any) -> Outcome:
        return direct(wrong if program.node_id == wrong.node_id else program, *arguments)

    node = load(read("shop" if bug.node == "tax" else bug.node))
    return differential.test_node(node, count, find={"tax_v1": load(TAX)}.get, second=run, stop_after=1)


@pytest.mark.parametrize("bug", QUICK, ids=lambda bug: f"{bug.node}-{bug.new}")
def test_a_planted_bug_is_found(bug: Bug) -> None:
    assert find_bug(bug, TRIED_MAX).divergences == 1


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.node}-{bug.new}")
def test_every_planted_bug_is_found(bug: Bug) -> None:
    assert find_bug(bug, TRIED_MAX).divergences == 1


def test_there_are_thirty_planted_bugs() -> None:
    right = {name: program_of(load(read(name))) for name in {bug.node for bug in BUGS}}
    for bug in BUGS:
        assert program_of(plant(bug)) != right[bug.node]
    assert len(BUGS) == 30


def certify(node: Node, count: int) -> None:
    report = differential.test_node(node, count, find={"tax_v1": load(TAX)}.get)
    assert report.divergences == 0
    assert report.counts.successes >= SUCCEEDING * report.compared
    assert report.unreached == ()


@pytest.mark.parametrize("name", [SHIPPING, "shop"])
def test_inputs_succeed_and_reach_every_part(name: str) -> None:
    """The payment node, which takes more inputs, is compared in tests/verify/test_vesper_nodes.py."""
    certify(load(read(name)), 500)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(NODES))
def test_inputs_of_every_node_succeed_and_reach_every_part(name: str) -> None:
    certify(load(read(name)), 6_000)


def test_a_path_that_is_wrong_on_every_success_is_found_at_once() -> None:
    """Of the payment node, which no random input gets to succeed."""

    def run(*arguments: Any) -> Outcome:
        outcome = direct(*arguments)
        if outcome.error is not None:
            return outcome
        return msgspec.structs.replace(outcome, outputs={**outcome.outputs, "amount_charged": -1})

    report = differential.test_node(load(read(PAYMENT)), 400, second=run, stop_after=3)
    assert (report.divergences, report.compared < 100) == (3, True)


def test_refusals_alone_certify_nothing() -> None:
    never = load(SHOP.replace("flow:", 'contracts: {preconditions: ["price * price < 0"]}\nflow:'))
    report = differential.test_node(never, 300)
    assert (report.compared, report.counts.accepted, report.confidence) == (300, 0, 0.0)


DEAR = """\
  - step: dear
    operation: conditional
    condition: price > 500
    then: [{step: never, operation: arithmetic, expression: price, output: more}]
"""


def test_a_step_that_cannot_be_reached_is_named_with_the_reason() -> None:
    report = differential.test_node(load(SHOP.replace("  - {step: answer", f"{DEAR}  - {{step: answer")), 300)
    assert report.unreachable.keys() == {"never", "dear: then"}
    assert not {"never", "dear: then"} & set(report.unreached)


MASK = """\
node_id: mask_card_v1
type: function
intent: show only the last four digits of a card number
inputs: {{card: string}}
outputs: {{success: {{masked: string}}, error: {{error_code: "enum[not_a_card]", message: string}}}}
contracts: {{postconditions: ["len(masked) == len(card)"]}}
flow:
  - {{step: plain, operation: arithmetic, expression: '{plain}'}}
  - step: check
    operation: validation
    guards: {guards}
    on_failure: {{return_error: {{error_code: not_a_card, message: "no card number"}}}}
  - {{step: masked, operation: arithmetic, expression: 'pad_left(slice(plain, -4), len(plain), "*")'}}
  - {{operation: return, return_success: {{masked: "{{masked}}"}}}}
testing:
  test_cases: [{{name: plain, inputs: {{card: "4111111111111111"}}, expected_output: {{masked: "************1111"}}}}]
"""


@pytest.mark.parametrize(
    ("plain", "guards"),
    [
        ('replace(card, "-", "")', """['len(plain) >= 13', 'len(plain) <= 19', 'slice(card, 0, 1) != "-"']"""),
        ('join(split(card, "-"), "")', """['matches(plain, "^[45][0-9]{15}$")', 'matches(card, "^[45]")']"""),
        ('replace(card, "::", "")', """['matches(plain, "^[0-9]{16}$")']"""),
    ],
    ids=["lengths", "pattern", "two characters"],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_breach_behind_a_separator_is_found(plain, guards, seed):
    """Texts get the separators, prefixes and lengths that the steps name, so that enough inputs succeed and those with
    a separator are among them."""
    node = load(MASK.format(plain=plain, guards=guards))
    report = differential.test_node(node, 400, seed)
    assert [violation.kind for violation in report.violations] == ["postcondition_failed"]
    assert report.counts.successes >= differential.SUCCEEDING_SHARE * len(report.counts)
    assert not list(differential.weak_evidence(report))


def test_a_report_says_that_few_inputs_succeeded():
    guards = """['matches(card, "^[0-9]+$") AND len(card) == 999']"""
    node = load(MASK.format(plain='replace(card, "-", "")', guards=guards))
    report = differential.test_node(node, 120)
    assert report.counts.successes < 18
    (warning,) = differential.weak_evidence(report)
    assert warning.startswith(f"only {report.counts.successes} of {len(report.counts)} inputs succeeded")
    assert "add test cases" in warning


TAKE = """\
node_id: take_v1
type: function
intent: take from the stock what is ordered
inputs: {item: string, wanted: {type: integer, constraints: [positive]}}
outputs:
  success: {left: integer}
  error: {error_code: "enum[out_of_stock, busy, effect_failed]", message: string}
security: {capabilities_required: [database.read.stock, database.write.stock]}
flow:
  - step: take
    operation: transaction
    on_error: [{error_type: conflict, return_error: busy}]
    steps:
      - {step: look, operation: database_query, query: "SELECT quantity FROM stock WHERE item = {item}"}
      - {step: enough, operation: validation, guards: ["look.length == 1", "query_result.quantity >= wanted"], on_failure: {return_error: out_of_stock}}
      - {step: left, operation: arithmetic, expression: "query_result.quantity - wanted"}
      - {step: keep, operation: database_update, table: stock, where: {item: "{item}"}, set: {quantity: "{left}"}}
"""  # noqa: E501
CALLER = """\
node_id: caller_v1
type: function
intent: ask another node, which may be slow
inputs: {price: {type: decimal, scale: 2, constraints: [positive, {max: 500}]}}
outputs: {success: {total: {type: decimal, scale: 2}}, error: {error_code: "enum[later, failed]", message: string}}
flow:
  - step: ask
    operation: call_node
    node_id: tax_v1
    inputs: {price: "{price}"}
    on_error: [{error_type: timeout, return_error: later}, {error_type: any, return_error: failed}]
  - {step: answer, operation: return, return_success: {total: "{ask.total}"}}
"""


@pytest.mark.parametrize("text", [TAKE, CALLER], ids=["conflict of a transaction", "time-out of a call"])
def test_failures_that_only_a_rule_names_are_reached(text: str) -> None:
    """Else the node could never be promoted, however much is compared."""
    report = differential.test_node(load(text), 300, find={"tax_v1": load(TAX)}.get)
    assert (report.unreached, report.divergences) == ((), 0)
    assert not report.complete  # what the rules name does not follow from the inputs

"""Property tests of nodes find what is wrong: a bug is planted for each, in the node or in a path."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from lyra import vesper
from lyra.vesper.direct.run import run as direct
from lyra.vesper.evidence.properties import check_properties
from lyra.vesper.nodes.model import PropertyTest
from lyra.vesper.python.run import run as python
from tests.vesper.runtime.payments import NODE as PAYMENT

HEAD = """\
node_id: subject_v1
type: function
intent: something that can go wrong
"""
MOVING = (
    HEAD
    + """\
inputs:
  order: string
  wanted: {type: enum, values: [open, paid, sent]}
outputs: {success: {state: string}}
state_machines:
  orders:
    initial: open
    states: [open, paid, sent]
    transitions: [{from: open, to: paid}, {from: paid, to: sent}]
flow:
  - step: move
    operation: state_machine_transition
    state_machine: orders
    entity: "{order}"
    from: open
    to: "{wanted}"
    output: state
testing:
  property_tests: [{property: state_machine_correctness}]
"""
)
TOTAL = (
    HEAD
    + """\
inputs: {amount: integer}
outputs: {success: {fee: integer}}
flow:
  - {step: work, operation: arithmetic, expression: "amount * 1", output: fee}
testing:
  property_tests: [{property: never_negative, invariant: "success => fee >= 0"}]
"""
)
WRITING = (
    HEAD
    + """\
inputs: {{name: string{key}}}
outputs: {{success: {{done: boolean}}}}
flow:
  - step: keep
    operation: database_write
    table: names
    data: {{name: "{{name}}"}}
  - {{step: end, operation: return, return_success: {{done: true}}}}
security: {{capabilities_required: [database.write.names]}}
testing:
  property_tests: [{{property: idempotency}}]
"""
)


def result(text, number=200, **paths):
    (only,) = check_properties(vesper.load(text), number, **paths)
    return only


def wrong_moves(program, inputs, execution, effects=None):
    """A direct path that lets every transition pass."""
    states = program.machines[0].states
    moves = tuple((start, end, None) for start in states for end in states)
    machine = msgspec.structs.replace(program.machines[0], moves=moves)
    return direct(msgspec.structs.replace(program, machines=(machine,), digest="wrong"), inputs, execution, effects)


def test_a_node_without_a_key_that_writes_is_not_idempotent():
    broken = result(WRITING.format(key=""))
    assert broken.problems.count("the second time keep (db.write) is performed again") == 1
    assert not any(problem.startswith(("python: ", "direct: ")) for problem in broken.problems)
    assert broken.inputs == ({"name": ""},)


def test_a_node_with_a_key_is_idempotent():
    assert result(WRITING.format(key=", idempotency_key: string")).problems == ()


def test_an_answer_that_depends_on_the_hour_is_not_idempotent():
    text = """\
outputs: {success: {at: timestamp}}
flow:
  - {step: look, operation: arithmetic, expression: "current_timestamp()", output: at}
testing: {property_tests: [{property: idempotency}]}
"""
    broken = result(HEAD + text)
    assert "the second time root.at differs: timestamp_mismatch" in broken.problems


def test_another_request_under_the_same_key_is_found():
    text = WRITING.format(key=", idempotency_key: string")
    broken = result(text.replace('data: {name: "{name}"}', 'data: {name: "{current_timestamp()}"}'))
    assert "keep asks for something else under the key of an earlier request" in broken.problems


def test_the_payment_node_is_idempotent_by_its_key():
    """With a key of another name, which the runtime does not know, the second request finds the order moved."""
    text = PAYMENT.read_text(encoding="utf-8").replace("amount: 100000.00", "amount: 10.00")
    assert result(text).problems == ()
    broken = result(text.replace("idempotency_key", "request_key"))
    assert "the second time root.error.code differs: error_mismatch" in broken.problems


def test_declared_transitions_pass():
    assert result(MOVING).problems == ()
    assert result(MOVING).accepted > 0


def test_an_undeclared_transition_is_found_and_shrunk():
    broken = result(MOVING, direct=wrong_moves)
    assert any("direct: move: orders declares no transition from 'open'" in problem for problem in broken.problems)
    assert not any(problem.startswith("python: ") for problem in broken.problems)
    assert broken.inputs[-1]["order"] == ""


def test_a_broken_invariant_is_found_and_shrunk():
    broken = result(TOTAL)
    assert broken.problems == ("does not hold: success => fee >= 0",)
    assert broken.inputs == ({"amount": -1},)


def test_an_invariant_that_holds_passes():
    kept = result(TOTAL.replace("fee >= 0", "fee == amount"))
    assert (kept.problems, kept.checked) == ((), 200)
    assert kept.accepted > 100


INVARIANT = (
    HEAD
    + """\
inputs: {balance: integer, amount: integer}
outputs: {success: {balance: integer}}
contracts: {invariants: ["balance >= 0"]}
flow:
  - {step: pay, operation: arithmetic, expression: "balance - amount", output: balance}
testing: {property_tests: [{property: invariants}]}
"""
)


def test_an_invariant_of_the_contracts_is_found():
    """Inputs that break it from the start are refused, not a finding."""
    broken = result(INVARIANT)
    assert "does not hold: balance >= 0" in broken.problems
    assert broken.inputs == ({"balance": 0, "amount": 1},)
    assert result(INVARIANT.replace("balance - amount", "balance * 2")).problems == ()


def test_an_invariant_of_the_contracts_that_cannot_be_judged_is_no_pass():
    told = result(INVARIANT.replace('"balance >= 0"', '"total >= 0"'))
    assert "cannot be judged: total >= 0" in told.problems


def test_paths_that_differ_fail_every_property():
    def wrong(program, inputs, execution, effects=None):
        outcome = direct(program, inputs, execution, effects)
        return msgspec.structs.replace(outcome, outputs={"fee": 7}) if outcome.error is None else outcome

    broken = result(TOTAL.replace("fee >= 0", "1 == 1"), direct=wrong)
    assert any(problem.startswith("the paths differ") for problem in broken.problems)


def test_a_path_that_breaks_fails_every_property():
    def breaks(*_):
        raise ZeroDivisionError("planted")

    broken = result(TOTAL.replace("fee >= 0", "1 == 1"), python=breaks, direct=python)
    assert "a path broke: ZeroDivisionError: planted" in broken.problems


def test_what_cannot_be_judged_is_no_pass():
    broken = result(TOTAL.replace("fee >= 0", "(FORALL part: part > 0)"))
    assert any("cannot be judged" in problem for problem in broken.problems)


@pytest.mark.parametrize("name", ["idempotence", "fast"])
def test_an_unknown_property_is_told(name):
    told = result(
        TOTAL.replace("property: never_negative", f"property: {name}").replace(', invariant: "success => fee >= 0"', "")
    )
    assert bool(told.problems) is (name == "fast")


FILES = [*(Path(__file__).parents[3] / "examples/nodes").glob("*.vsp"), *PAYMENT.parent.glob("*.vsp")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("with_cases", [True, False])
def test_some_inputs_of_every_example_are_accepted(file, with_cases):
    """Also without the inputs of their test cases."""
    node = vesper.load(file)
    cases = node.testing.test_cases if with_cases else ()
    testing = msgspec.structs.replace(
        node.testing, property_tests=(PropertyTest(property="idempotency"),), test_cases=cases
    )
    for seed in range(2):
        (only,) = check_properties(msgspec.structs.replace(node, testing=testing), 200, seed)
        assert only.problems == ()
        assert only.is_shown
        assert only.accepted >= 10


def test_a_bug_that_only_accepted_payments_have_is_found():
    """The card is charged by a path that answers with another amount: refused requests do not show it."""

    def wrong(program, inputs, execution, effects=None):
        outcome = direct(program, inputs, execution, effects)
        if outcome.error is not None or outcome.outputs["status"] != "completed":
            return outcome
        return msgspec.structs.replace(outcome, outputs={**outcome.outputs, "amount_charged": Decimal("0.01")})

    broken = result(PAYMENT.read_text(encoding="utf-8"), direct=wrong)
    assert any("amount_charged" in problem for problem in broken.problems)


CODE = (
    HEAD
    + """\
inputs:
  code: {type: string, constraints: [{pattern: "^(AB|CD)-[0-9]{4}[^0-9]$"}]}
  amount: {type: integer, constraints: [{min: 90001}, {max: 90009}]}
outputs: {success: {kept: string}}
flow:
  - {step: keep, operation: string_template, template: "{code}", output: kept}
testing:
  test_cases: [{name: usual, inputs: {code: AB-1234x, amount: 90005}}]
  property_tests: [{property: kept, invariant: "success => kept == code"}]
"""
)


def wrong_for_one_beginning(program, inputs, execution, effects=None):
    outcome = direct(program, inputs, execution, effects)
    if outcome.error is None and outcome.outputs["kept"].startswith("CD"):
        return msgspec.structs.replace(outcome, outputs={"kept": "x"})
    return outcome


@pytest.mark.parametrize("cases", ["kept", "left out"])
def test_texts_that_match_a_pattern_are_tried(cases):
    """Neither chance nor the test case gives a text with the other beginning."""
    text = CODE if cases == "kept" else CODE.replace("  test_cases: [{name: usual, inputs", "  # [{name: usual, inputs")
    assert result(text).problems == ()
    assert result(text).accepted > 100
    assert any("the paths differ" in problem for problem in result(text, direct=wrong_for_one_beginning).problems)


def test_the_inputs_of_test_cases_are_changed_one_at_a_time():
    """The two inputs fit together, which only the test case knows."""
    text = """\
inputs: {first: string, second: string, size: integer}
outputs: {success: {length: integer}}
contracts: {preconditions: ["starts_with(second, first + '/' + first + '/9f8a')"]}
flow:
  - {step: count, operation: arithmetic, expression: "len(second) + size", output: length}
testing:
  test_cases: [{name: usual, inputs: {first: Zurich, second: Zurich/Zurich/9f8a, size: 5}}]
  property_tests: [{property: limited, invariant: "success => length < 1000"}]
"""
    broken = result(HEAD + text)
    assert "does not hold: success => length < 1000" in broken.problems
    assert broken.inputs[0]["first"] == "Zurich"
    without = result(HEAD + text.replace("  test_cases: [{name", "  # [{name"))
    assert (without.problems, without.is_shown) == ((), False)

"""Verdicts about nodes: proved for all inputs, refuted by an input that fails, unknown with a reason."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lyra import vesper
from lyra.errors import ConfigError
from lyra.vesper.check.judge import program_of
from lyra.vesper.prove import prover
from lyra.vesper.prove.prover import ProofResult
from tests.vesper.prove.soundness import check_program, check_random_programs
from tests.vesper.random_programs import random_program

ROOT = Path(__file__).parents[3]
NODES = sorted([*(ROOT / "examples/nodes").glob("*.vsp"), *(ROOT / "tests/vesper/files").glob("*.vsp")])
QUICKEST = [path for path in NODES if path.stem in ("hello_world", "loyalty_points", "shipping_quote", "calculator")]
DECIDED_MIN = 0.9
DISCOUNT = """
inputs:
  price: {type: decimal, scale: 2, constraints: [positive, max: 1000000]}
  percent: {type: integer, min: 0, max: 90}
outputs:
  total: {type: decimal, scale: 2}
  saved: {type: decimal, scale: 2}
contracts:
  postconditions: [total + saved == price, total > 0, saved <= price]
flow:
  - {step: save, operation: arithmetic, expression: price * percent / 100, scale: 2, output: saved}
  - {step: pay, operation: arithmetic, expression: price - saved, output: total}
"""
SUM = """
inputs:
  numbers: array<integer>
outputs: {total: integer}
contracts:
  preconditions: ["FORALL number IN numbers: number >= 0 AND number <= 1000"]
  postconditions: [total >= 0, total <= 1000 * COUNT(numbers), total == SUM(numbers), COUNT(numbers) <= 3]
flow:
  - {step: start, operation: arithmetic, expression: "0", output: total}
  - step: add_all
    operation: for_each
    input: numbers
    as: number
    steps:
      - {step: add, operation: arithmetic, expression: total + number, output: total}
"""


def load(body: str) -> Any:
    return vesper.load("node_id: proof_v1\ntype: function\nintent: be proved\n" + body)


def verdicts(body: str) -> dict[tuple[str, str], ProofResult]:
    return {(result.kind, result.expression): result for result in prover.prove(load(body))}


@cache
def proof_of(path: Path) -> tuple[vesper.Node, list[ProofResult]]:
    """Return the node of a file with what is proved of it."""
    node = vesper.load(path)
    return node, prover.prove(node)


def test_a_refuted_contract_has_an_input_that_breaks_it_when_it_is_run() -> None:
    """The smallest price leaves nothing at 90 percent; both paths fail for the input that the proof prints."""
    results = verdicts(DISCOUNT)
    refuted = results["postcondition", "total > 0"]
    assert refuted.verdict == "refuted"
    for path in ("python", "direct", "reference"):
        failure = vesper.execute(load(DISCOUNT), json.loads(json.dumps(refuted.input)), path=path).error
        assert failure is not None
        assert failure.code == "postcondition_failed"
        assert failure.message.endswith("total > 0")


def test_what_holds_for_all_inputs_is_proved_with_its_rounding() -> None:
    """Roundings are within their bounds, and never pass a number that has as few digits."""
    results = verdicts(DISCOUNT)
    assert results["postcondition", "total + saved == price"].verdict == "proved"
    assert results["postcondition", "saved <= price"].verdict == "proved"
    assert results["overflow", "price - saved"].verdict == "proved"
    assert results["division", "price * percent / 100"].verdict == "proved"


def test_a_fold_is_proved_for_lists_of_any_length() -> None:
    """One induction step bounds the sum, excludes its overflow, and shows that the loop adds up what SUM does."""
    results = verdicts(SUM)
    for contract in ("total >= 0", "total <= 1000 * COUNT(numbers)", "total == SUM(numbers)"):
        assert results["postcondition", contract].verdict == "proved", contract
    assert results["overflow", "total + number"].verdict == "proved"


def test_a_loop_whose_bound_is_an_input_is_proved_for_all_rounds() -> None:
    """It ends at the bound, unless it began behind it."""
    results = verdicts("""
inputs: {first: {type: integer, min: 0, max: 50}, last: {type: integer, min: 0, max: 50}}
outputs: {at: integer}
contracts: {postconditions: ["first <= last => at == last", "at == last"]}
flow:
  - {step: start, operation: arithmetic, expression: first, output: at}
  - step: go
    operation: loop
    condition: at < last
    max_iterations: 100
    steps: [{step: more, operation: arithmetic, expression: at + 1, output: at}]
""")
    texts = ("first <= last => at == last", "at == last")
    assert [results["postcondition", text].verdict for text in texts] == ["proved", "refuted"]


def test_what_holds_for_short_lists_only_is_not_proved() -> None:
    """Neither is a contract that fails for a list of four elements proved by looking at three."""
    assert verdicts(SUM)["postcondition", "COUNT(numbers) <= 3"].verdict != "proved"


def test_a_bound_is_named_where_a_result_has_one() -> None:
    """Where only short lists were looked at, the reason says so, and the verdict is unknown."""
    body = SUM.replace("COUNT(numbers) <= 3]", '"FORALL n IN numbers: n <= total"]')
    result = verdicts(body)["postcondition", "FORALL n IN numbers: n <= total"]
    assert (result.verdict, "bounded: it holds for lists of at most 3 elements" in result.reason) == ("unknown", True)


def test_overflow_and_division_by_zero_are_refuted_with_an_input() -> None:
    """An operation that fails for some input is shown with it, at the step where it fails."""
    results = verdicts("""
inputs: {left: integer, right: integer}
outputs: {product: integer, rest: integer}
flow:
  - {step: multiply, operation: arithmetic, expression: left * right, output: product}
  - {step: divide, operation: arithmetic, expression: left % right, output: rest}
""")
    assert results["overflow", "left * right"].verdict == "refuted"
    division = results["division", "left % right"]
    assert division.verdict == "refuted"
    assert division.input is not None
    assert division.input["right"] == 0
    assert division.step == "divide"
    assert results["type_error", "left % right"].verdict == "proved"


def test_a_missing_output_and_an_unreachable_step_are_found() -> None:
    """An output that some inputs leave unset is refuted; a step that no accepted input reaches is named."""
    body = """
inputs:
  amount: {type: integer, min: 10, max: 20}
outputs: {kind: string, note: string}
flow:
  - step: choose
    operation: conditional
    condition: amount > 15
    then:
      - {step: large, operation: string_template, template: large, output: kind}
  - step: never
    operation: conditional
    condition: amount * 2 > 40
    then:
      - {step: huge, operation: string_template, template: huge, output: note}
    else:
      - {step: usual, operation: string_template, template: usual, output: note}
"""
    results = verdicts(body)
    assert results["missing_output", "kind"].verdict == "refuted"
    assert results["missing_output", "note"].verdict == "proved"
    assert results["unreachable_step", "huge"].verdict == "proved"
    assert list(prover.unreachable_steps(program_of(load(body)))) == ["never: then", "huge"]


def test_vacuous_and_redundant_contracts_are_said_to_be() -> None:
    """A contract whose left side is never true, and a precondition that the constraints imply, carry the word."""
    results = verdicts("""
inputs:
  amount: {type: integer, min: 1, max: 9}
outputs: {double: integer}
contracts:
  preconditions: [amount * 3 > 0]
  postconditions: [amount > 10 => double == 5, amount > 5 => double > 10]
flow:
  - {step: double, operation: arithmetic, expression: amount * 2, output: double}
""")
    assert "vacuous" in results["postcondition", "amount > 10 => double == 5"].reason
    assert not results["postcondition", "amount > 5 => double > 10"].reason
    assert "redundant" in results["precondition", "amount * 3 > 0"].reason


def test_the_constraint_of_an_output_and_an_invariant_are_proved_or_refuted() -> None:
    """Constraints of outputs are contracts of the kind `output`; an invariant is judged at the end, too."""
    results = verdicts("""
inputs:
  amount: {type: integer, min: 0, max: 100}
outputs:
  left: {type: integer, min: 0}
  more: {type: integer, max: 120}
contracts:
  invariants: [amount + left <= 100]
flow:
  - {step: take, operation: arithmetic, expression: 50 - amount, output: left}
  - {step: give, operation: arithmetic, expression: amount + 20, output: more}
""")
    assert results["output", "left: min: 0"].verdict == "refuted"
    assert results["output", "more: max: 120"].verdict == "proved"
    assert results["invariant", "amount + left <= 100"].verdict == "proved"


@pytest.mark.parametrize(
    ("mode", "proved", "refuted"),
    [
        ("floor", "rounded <= x", "rounded >= x"),
        ("ceiling", "rounded >= x", "rounded <= x"),
        ("up", "abs(rounded) >= abs(x)", "rounded >= x"),
        ("down", "abs(rounded) <= abs(x)", "rounded <= x"),
        ("half_up", "abs(rounded - x) <= 0.5", "abs(rounded - x) < 0.5"),
        ("half_down", "abs(rounded - x) <= 0.5", "abs(rounded) >= abs(x)"),
        ("half_even", "abs(rounded - x) <= 0.5", "rounded != 2"),
    ],
)
def test_each_mode_of_rounding_has_its_bounds(mode: str, proved: str, refuted: str) -> None:
    """What a mode promises is proved, what it does not promise is refuted."""
    results = verdicts(f"""
inputs:
  x: {{type: decimal, scale: 2, min: -3, max: 3}}
outputs: {{rounded: decimal}}
contracts:
  postconditions: ["{proved}", "{refuted}"]
flow:
  - {{step: round, operation: arithmetic, expression: "round(x, 0, '{mode}')", output: rounded}}
""")
    assert results["postcondition", proved].verdict == "proved"
    assert results["postcondition", refuted].verdict == "refuted"


def test_times_conditions_and_functions_of_numbers_are_modelled() -> None:
    """Times move by seconds, `if` and `coalesce` choose, `min`, `max`, `clamp`, `floor`, `ceil` and `div` are exact."""
    results = verdicts("""
inputs:
  start: timestamp
  count: {type: integer, min: 0, max: 1000}
  extra: {type: integer, required: false}
outputs: {end: timestamp, size: integer, more: integer, half: integer}
contracts:
  postconditions: [end >= start, size >= 5 AND size <= 20, more <= 10, half * 2 <= count, half * 2 == count]
flow:
  - {step: move, operation: arithmetic, expression: start + hours(count), output: end}
  - {step: bound, operation: arithmetic, expression: "clamp(count, 5, 20)", output: size}
  - {step: choose, operation: arithmetic, expression: "min(coalesce(extra, 3), 10)", output: more}
  - {step: halve, operation: arithmetic, expression: "if(count > 0, div(count, 2), 0)", output: half}
""")
    for contract in ("end >= start", "size >= 5 AND size <= 20", "more <= 10", "half * 2 <= count"):
        assert results["postcondition", contract].verdict == "proved", contract
    assert results["postcondition", "half * 2 == count"].verdict == "refuted"
    assert results["division", "if(count > 0, div(count, 2), 0)"].verdict == "proved"


def test_calendar_times_and_padded_texts_are_modelled_in_utc() -> None:
    """Days, and starts of hours, days and weeks, are exact; a start of a month, a written time and a padded text have
    bounds. In another zone a call gives any value."""
    results = verdicts("""
inputs:
  at: {type: timestamp, constraints: ["year(value) < 9000"]}
  n: {type: integer, min: 0, max: 10}
  text: {type: string, constraints: [{max_length: 5}]}
outputs: {later: timestamp, day: timestamp, month: timestamp, far: timestamp, shown: string, wide: string}
contracts:
  postconditions:
    - later - at == days(n)
    - day <= at AND at - day < hours(24)
    - at - day < hours(23)
    - month <= at AND at - month < days(31)
    - shown.length == 7
    - wide.length == 8 AND ends_with(wide, text)
    - wide.length == 5
    - far >= at
flow:
  - {step: later, operation: arithmetic, expression: "add_days(at, n)", output: later}
  - {step: day, operation: arithmetic, expression: "start_of(at, 'day', 'UTC')", output: day}
  - {step: month, operation: arithmetic, expression: "start_of(at, 'month')", output: month}
  - {step: far, operation: arithmetic, expression: "add_days(at, n, 'Europe/Berlin')", output: far}
  - {step: shown, operation: arithmetic, expression: "format_timestamp(at, '%Y-%m')", output: shown}
  - {step: wide, operation: arithmetic, expression: "pad_left(text, 8, '0')", output: wide}
""")
    expected = {
        "later - at == days(n)": "proved",
        "day <= at AND at - day < hours(24)": "proved",
        "at - day < hours(23)": "refuted",
        "month <= at AND at - month < days(31)": "proved",
        "shown.length == 7": "proved",
        "wide.length == 8 AND ends_with(wide, text)": "proved",
        "wide.length == 5": "refuted",
        "far >= at": "unknown",
    }
    assert {text: results["postcondition", text].verdict for text in expected} == expected


def test_a_step_that_goes_past_the_last_year_is_refuted() -> None:
    results = verdicts("""
inputs: {at: timestamp}
outputs: {later: timestamp}
flow:
  - {step: later, operation: arithmetic, expression: "add_days(at, 1)", output: later}
""")
    assert results["overflow", "add_days(at, 1)"].verdict == "refuted"


def test_texts_are_modelled_with_their_patterns_and_lengths() -> None:
    """Joining, lengths, parts of texts and patterns without `$` are exact; what is not modelled is unknown."""
    results = verdicts("""
inputs:
  name: {type: string, constraints: [non_empty, max_length: 20]}
outputs: {greeting: string, shout: string}
contracts:
  postconditions:
    - greeting CONTAINS name
    - greeting.length <= 27
    - greeting.length <= 26
    - shout.length == name.length
flow:
  - {step: greet, operation: string_template, template: "Hello, {name}", output: greeting}
  - {step: shout, operation: arithmetic, expression: upper(name), output: shout}
""")
    assert results["postcondition", "greeting CONTAINS name"].verdict == "proved"
    assert results["postcondition", "greeting.length <= 27"].verdict == "proved"
    assert results["postcondition", "greeting.length <= 26"].verdict == "refuted"
    shout = results["postcondition", "shout.length == name.length"]  # "ß" becomes "SS"
    assert shout.verdict == "refuted" or "upper" in shout.reason


def test_what_acts_answer_is_open() -> None:
    """A contract about what an act answers is unknown; one that holds for every answer is proved."""
    results = verdicts("""
inputs: {amount: integer}
outputs:
  success: {charged: integer, state: any}
  error: {error_code: "enum[declined]", message: string}
contracts:
  postconditions: [success => charged == amount, success OR error.occurred, "success => state == 'done'"]
security: {capabilities_required: [network.http_client.api.example.com]}
flow:
  - step: charge
    operation: external_api_call
    provider: example
    endpoint: /charges
    parameters: {amount: "{amount}"}
    on_success: {extract: {state: response.state}}
  - {step: answer, operation: return, return_success: {charged: "{amount}", state: "{state}"}}
""")
    assert results["postcondition", "success => charged == amount"].verdict == "proved"
    assert results["postcondition", "success OR error.occurred"].verdict == "proved"
    state = results["postcondition", "success => state == 'done'"]
    assert (state.verdict, state.input) == ("unknown", None)


def test_kept_verdicts_are_used_again_and_a_changed_node_is_proved_anew(tmp_path: Path) -> None:
    """Verdicts lie in the folder by the content of the node; a counterexample that does not fail is not believed."""
    first = prover.prove(load(DISCOUNT), folder=tmp_path)
    (file,) = tmp_path.glob("*.json")
    rows = json.loads(file.read_text())
    assert prover.prove(load(DISCOUNT), folder=tmp_path) == first
    rows[0]["reason"] = "kept"
    file.write_text(json.dumps(rows))
    assert prover.prove(load(DISCOUNT), folder=tmp_path)[0].reason == "kept"
    rows[1]["input"] = {"price": "5.00", "percent": 10}
    file.write_text(json.dumps(rows))
    assert prover.prove(load(DISCOUNT), folder=tmp_path) == first
    prover.prove(load(DISCOUNT.replace("max: 90", "max: 80")), folder=tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_boundary_inputs_stand_at_both_sides_of_each_comparison() -> None:
    """Inputs for `verify`: equal to what a step compares with, and a unit to either side."""
    program = program_of(
        load("""
inputs:
  amount: {type: decimal, scale: 2, min: 0, max: 5000}
outputs: {fee: integer}
flow:
  - step: choose
    operation: conditional
    condition: amount * 2 > 2000.04
    then: [{step: dear, operation: arithmetic, expression: "2", output: fee}]
    else: [{step: cheap, operation: arithmetic, expression: "1", output: fee}]
""")
    )
    amounts = {inputs["amount"] for inputs in prover.boundary_inputs(program)}
    assert {"1000.02", "0.00"} <= amounts
    assert amounts & {"1000.01", "1000.03"} or len(amounts) > 2


def test_without_z3_there_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra is missing, the error says which and how to install it."""
    monkeypatch.setitem(sys.modules, "z3", None)
    with pytest.raises(ConfigError, match="needs the prove extra") as raised:
        prover.prove(load(DISCOUNT))
    assert "pip install 'lyra-agents[prove]'" in raised.value.render()


def test_no_random_program_is_proved_wrongly() -> None:
    """What is proved of random programs holds for random inputs, and each counterexample fails."""
    total, wrong = check_random_programs(seed=1, programs=5, count=40)
    assert not wrong
    assert total["proved"] > total["unknown"]


def test_the_search_for_wrong_proofs_finds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prover that takes every question as impossible is found out."""
    monkeypatch.setattr("lyra.vesper.prove.solve.ask", lambda *_, **__: ("unsat", None))
    monkeypatch.setattr(prover._Proof, "_search", lambda *_: None)
    assert any(check_program(random_program(Random(f"1/{n}")), n, 40)[1] for n in range(6))


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path in QUICKEST else [pytest.mark.long])
        for path in sorted((ROOT / "examples/nodes").glob("*.vsp"))
    ],
)
def test_no_example_breaks_its_own_contract(path: Path) -> None:
    """Nor overflows, divides by zero or leaves an output out, with an input that it accepts."""
    _, results = proof_of(path)
    assert {result.verdict for result in results} == {"proved"}


@pytest.mark.parametrize("nodes", [QUICKEST, pytest.param(NODES, marks=pytest.mark.long)], ids=["quickest", "all"])
def test_nine_in_ten_contracts_of_the_example_nodes_are_decided(nodes: list[Path]) -> None:
    """Of all results about the nodes of examples and tests at most one in ten is unknown; refuted ones fail."""
    results = []
    for path in nodes:
        node, proved = proof_of(path)
        for result in proved:
            results.append(result)
            if result.input is not None:
                assert vesper.execute(node, result.input).error is not None
    decided = sum(result.verdict != "unknown" for result in results)
    assert decided >= DECIDED_MIN * len(results)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 100, 20))
@pytest.mark.parametrize("seed", range(2, 6))
def test_no_random_program_is_proved_wrongly_at_length(seed: int, first: int) -> None:
    """The same for more programs and inputs, a few at a time: some take a solver seconds for each question."""
    _, wrong = check_random_programs(seed=seed, programs=20, count=300, first=first)
    assert not wrong

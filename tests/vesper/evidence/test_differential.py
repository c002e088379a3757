"""Differential tests draw inputs by a seed, shrink what differs, and keep it for the next time."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from lyra.core.ids import make_random
from lyra.vesper.check.judge import program_of
from lyra.vesper.confidence import lower_bound
from lyra.vesper.direct.run import run as direct
from lyra.vesper.evidence import differential
from lyra.vesper.evidence.compare import compare
from lyra.vesper.evidence.differential import Corpus
from lyra.vesper.evidence.inputs import Boundaries, InputGenerator
from lyra.vesper.evidence.likely_inputs import fitting_drawer
from lyra.vesper.evidence.rooms import finite_inputs
from lyra.vesper.evidence.search import SearchCase, shrink
from lyra.vesper.evidence.seen import InputTexts
from lyra.vesper.ir import LoopStep, NodeInput, NodeProgram
from lyra.vesper.nodes import load
from lyra.vesper.reference.run import run as reference
from lyra.vesper.values.json_values import from_json, to_json
from lyra.vesper.values.outcome import Outcome
from lyra.vesper.values.types import ANY, DECIMAL, INTEGER, STRING, Array, DecimalType, Nullable
from tests.vesper.building import EXECUTION, arith, comp, give, lit, name, node
from tests.vesper.random_programs import INPUT_TYPES
from tests.vesper.strategies import inputs_of

ADD = node(give(result=arith(name("a"), "+", name("b"))), inputs=(NodeInput("a", INTEGER), NodeInput("b", INTEGER)))


def wrong_at(limit: int) -> differential.RunPath:
    """The direct path, with a wrong answer where `a` is at least the limit."""

    def run(program: NodeProgram, inputs: Any, execution: Any, effects: Any = None) -> Outcome:
        outcome = direct(program, inputs, execution)
        a = inputs.get("a")
        return Outcome("success", {"result": 0}) if outcome.error is None and a >= limit else outcome

    return run


def test_paths_that_agree_have_no_divergences() -> None:
    report = differential.test(ADD, 2000, seed=1, first=reference, second=direct)
    assert (report.compared, report.divergences, report.kept) == (2000, 0, ())
    assert report.counts.accepted < len(report.counts) == 2000  # some inputs were refused
    assert report.confidence == lower_bound(report.counts.accepted, 0)
    assert report.seconds > 0


def test_divergences_are_counted_and_the_first_are_shrunk() -> None:
    report = differential.test(ADD, 2000, seed=1, first=direct, second=wrong_at(700))
    assert report.divergences > 10
    assert len(report.kept) == differential.KEPT_MAX
    assert {divergence.shrunk["a"] for divergence in report.kept} == {700}
    assert {divergence.shrunk["b"] for divergence in report.kept} == {0}
    assert report.kept[0].differences[0]["kind"] == "numeric_mismatch"


def test_a_path_that_is_wrong_in_one_context_differs_there() -> None:
    second = msgspec.structs.replace(EXECUTION, trace_id="second")

    def wrong(program: NodeProgram, inputs: Any, execution: Any, effects: Any = None) -> Outcome:
        return Outcome("success") if execution is second else direct(program, inputs, execution)

    pair = differential.PathPair(ADD, direct, wrong)
    runs = [pair.run(SearchCase({"a": 1, "b": 2}), execution) for execution in (EXECUTION, second)]
    assert [bool(run.differences) for run in runs] == [False, True]


def test_a_path_that_raises_differs() -> None:
    def breaks(*_: Any) -> Outcome:
        raise KeyError("x")

    report = differential.test(ADD, 10, first=direct, second=breaks)
    assert report.divergences == 10
    (row,) = report.kept[0].differences
    assert (row["kind"], row["direct"]) == ("crash", "KeyError: 'x'")


def test_two_paths_that_raise_alike_do_not_agree() -> None:
    def breaks(*_: Any) -> Outcome:
        raise KeyError("x")

    assert differential.test(ADD, 10, first=breaks, second=breaks).divergences == 10


def test_a_test_can_stop_at_the_first_divergence() -> None:
    report = differential.test(ADD, 5000, seed=1, first=direct, second=wrong_at(0), stop_after=1)
    assert report.divergences == 1
    assert report.compared < 100


def test_old_failures_run_first(tmp_path: Path) -> None:
    found = differential.test(ADD, 2000, seed=1, first=direct, second=wrong_at(700), corpus=tmp_path)
    assert found.kept
    again = differential.test(ADD, 0, seed=9, first=direct, second=wrong_at(700), corpus=tmp_path)
    assert (again.compared, again.divergences) == (2, 1)  # the other one overflows: it breaks the contract
    mended = differential.test(ADD, 0, seed=9, first=direct, second=direct, corpus=tmp_path)
    assert (mended.compared, mended.divergences) == (2, 0)


def test_a_corpus_keeps_values_of_all_kinds(tmp_path: Path) -> None:
    inputs = {
        "a": [Decimal("1.10"), b"x", 2**70, -0.5, None, True],
        "b": {"$set": 1, "t": datetime(2026, 1, 1, tzinfo=UTC)},
        "c": frozenset({1, 2}),
        "d": (1,),
    }
    assert from_json(to_json(inputs)) == inputs
    corpus = Corpus(tmp_path)
    assert corpus.add("n_v1", inputs) == corpus.add("n_v1", inputs)
    assert corpus.read_inputs("n_v1") == [inputs]
    assert corpus.read_inputs("other_v1") == []


@pytest.mark.parametrize(
    ("value", "fails", "shrunk"),
    [
        (987_654, lambda v: v > 1000, 1001),
        (-987_654, lambda v: v < -1000, -1001),
        (Decimal("123.456"), lambda v: v > 1, Decimal(2)),
        ("hello world", lambda v: "w" in v, "w"),
        ([5, 3, 99, 1], lambda v: any(item > 50 for item in v), [51]),
        ({"a": 1, "b": [7]}, lambda v: bool(v.get("b")), {"b": [0]}),
        (True, lambda v: v is not None, False),
    ],
)
def test_shrinking_ends_at_the_smallest_value_that_fails(value: Any, fails: Any, shrunk: Any) -> None:
    def still_fails(inputs: dict[str, Any]) -> bool:
        return "v" in inputs and fails(inputs["v"])

    assert shrink({"v": value, "w": 1}, still_fails) == {"v": shrunk}


def test_shrinking_makes_a_limited_number_of_attempts() -> None:
    attempts = 0

    def still_fails(_: dict[str, Any]) -> bool:
        nonlocal attempts
        attempts += 1
        return False

    shrink({"v": "x" * 60}, still_fails, attempts_max=25)
    assert attempts == 25


def test_the_same_seed_gives_the_same_inputs() -> None:
    program = node(give(result=1), inputs=tuple(NodeInput(f"i{n}", kind) for n, kind in enumerate(INPUT_TYPES)))
    first, second = (repr(InputGenerator(program, 5).batch(50)) for _ in range(2))
    assert first == second
    assert first != repr(InputGenerator(program, 6).batch(50))


def test_most_inputs_fit_their_types() -> None:
    program = node(give(result=1), inputs=tuple(NodeInput(f"i{n}", kind) for n, kind in enumerate(INPUT_TYPES)))
    outcomes = [direct(program, inputs, EXECUTION).status for inputs in InputGenerator(program, 1).batch(1000)]
    assert 500 < outcomes.count("success") < 1000


def test_constants_and_their_neighbours_are_boundaries() -> None:
    program = node(
        LoopStep(name="l", condition=comp(name("a"), "==", "needle"), max_iterations=44, steps=()),
        give(result=arith(name("x"), "*", lit(Decimal("9.75")))),
    )
    boundaries = Boundaries(program)
    assert {43, 44, 45} <= set(boundaries.integers)
    assert {"9.74", "9.75", "9.76"} <= set(boundaries.decimals)
    assert "needle" in boundaries.texts


EVERYTHING = node(
    give(result=name("a")),
    inputs=(
        NodeInput("a", Array(DecimalType(2))),
        NodeInput("b", Nullable(STRING), required=False),
        NodeInput("c", ANY),
        NodeInput("d", DECIMAL),
    ),
)


@settings(max_examples=60, deadline=None)
@given(inputs_of(EVERYTHING))
def test_hypothesis_strategies_give_inputs_on_which_the_paths_agree(inputs: dict[str, Any]) -> None:
    first, second = reference(EVERYTHING, inputs, EXECUTION), direct(EVERYTHING, inputs, EXECUTION)
    assert first.status == "success"
    assert compare(first, second) == []


@pytest.mark.parametrize(
    "declared",
    [
        "array<boolean>",
        "array<array<boolean>>",
        "{type: string, constraints: [{max_length: 2}]}",
        "{type: string, constraints: [{pattern: '^a*$'}]}",
    ],
)
def test_an_input_of_few_common_values_gives_as_many_as_are_asked_for(declared: str) -> None:
    """Where the values that are likely to be drawn are all tried, lists and texts grow; only a node with few possible
    inputs ends early, and that is complete."""
    text = f"""\
node_id: few_v1
type: function
intent: give what is taken
inputs: {{x: {declared}}}
outputs: {{y: any}}
flow:
  - {{step: give, operation: arithmetic, expression: x, output: y}}
"""
    report = differential.test_node(load(text), 2_500)
    assert (report.compared, len(report.counts), report.complete) == (2_500, 2_500, False)
    assert report.divergences == 0
    few = differential.test_node(load(text.replace(f"x: {declared}", "x: boolean")), 2_500)
    assert few.complete
    assert few.compared < 100


_GIVE = """\
node_id: give_v1
type: function
intent: give what is taken
inputs: {x: %s, y: {type: string, default: "-"}}
outputs: {z: any}
flow:
  - {step: give, operation: arithmetic, expression: x, output: z}
"""


def test_a_set_of_few_elements_has_few_values() -> None:
    program = program_of(load(_GIVE.replace(', y: {type: string, default: "-"}', "") % "'set<enum[a, b]>'"))
    assert finite_inputs(program) == [{"x": []}, {"x": ["a"]}, {"x": ["b"]}, {"x": ["a", "b"]}]


@pytest.mark.parametrize(
    ("kind", "spellings", "others"),
    [
        ("timestamp", ["2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00Z"], ["2026-01-01T00:00:01Z"]),
        ("decimal", ["1.50", Decimal("1.50"), "15.0e-1"], ["1.5", "1.51"]),
        ("duration", ["60s", 60, "1m"], ["61s"]),
        ("'set<string>'", [["a", "b", "c"], ["c", "a", "b"]], [["a", "b"]]),
        ("{type: integer, required: false}", [None], [0, "no number", "none at all"]),
    ],
)
def test_another_spelling_of_an_input_counts_once(kind: str, spellings: list[Any], others: list[Any]) -> None:
    """As does a default that is given. What is refused is read by nobody, and differs by its spelling."""
    texts = InputTexts(program_of(load(_GIVE % kind)))
    assert len({texts.key({"x": value, **more}) for value in spellings for more in ({}, {"y": "-"})}) == 1
    assert len({texts.key({"x": value}) for value in (spellings[0], *others)}) == 1 + len(others)
    assert texts.key({"x": spellings[0], "unknown": 1}) != texts.key({"x": spellings[0]})


_TAKE = """
node_id: take_v1
type: function
intent: take units of an article
inputs: {sku: string, wanted: {type: integer, constraints: [{min: 1}, {max: 1000}]}}
outputs:
  success: {had: integer, left: integer}
  error: {error_code: "enum[none_left, no_stock]", message: string}
contracts: {postconditions: ["success => left == had - wanted"]}
security: {capabilities_required: [database.read.stock]}
flow:
  - step: look
    operation: database_query
    query: "SELECT quantity FROM stock WHERE sku = {sku}"
    on_error: [{error_type: any, return_error: no_stock}]
  - {step: remember, operation: arithmetic, expression: query_result.quantity, output: had}
  - {step: enough, operation: validation, guards: ["had >= wanted"], on_failure: {return_error: none_left}}
  - {step: subtract, operation: arithmetic, expression: had - wanted, output: left}
"""


def test_a_contract_about_an_answer_that_the_node_alone_decides_is_judged() -> None:
    """An equation of values that come from one answer holds whatever the answer is; the answer is shown."""
    assert differential.test_node(load(_TAKE), 300).violations == ()
    (broken,) = differential.test_node(load(_TAKE.replace("had - wanted, out", "had - 1, out")), 300).violations
    assert (broken.kind, broken.expression) == ("postcondition_failed", "success => left == had - wanted")
    assert list(broken.answers) == ["look"]


def test_a_contract_that_says_something_about_the_world_is_doubted_only() -> None:
    """No type declares that a stock is even, so a made-up answer that is odd does not make the node wrong."""
    report = differential.test_node(load(_TAKE.replace("left == had - wanted", "had % 2 == 0")), 300)
    assert report.violations == ()
    (doubt,) = report.doubts
    assert doubt.expression == "success => had % 2 == 0"
    assert any("were made up" in warning for warning in differential.weak_evidence(report))


_ASK = """
node_id: ask_v1
type: function
intent: ask how urgent a complaint is
types: {verdict: {fields: {urgency: {type: integer, constraints: [{min: 1}, {max: 5}]}}}}
inputs: {complaint: string}
outputs:
  success: {urgency: integer}
  error: {error_code: "enum[no_verdict]", message: string}
contracts: {postconditions: ["success => urgency <= 5"]}
security: {capabilities_required: [agents.call.sorter]}
flow:
  - step: ask
    operation: agent_call
    agent: sorter
    prompt: "{complaint}"
    output_type: verdict
    output: verdict
    on_error: [{error_type: any, return_error: no_verdict}]
  - {step: answer, operation: return, return_success: {urgency: "{verdict.urgency}"}}
"""


def test_the_names_of_a_record_are_tried_where_it_is_looked_into() -> None:
    """No random text is one of them."""
    text = (
        _DOUBLE.replace("number: integer", "country: string")
        .replace(
            "operation: arithmetic, expression: number * 2",
            ('operation: arithmetic, expression: "coalesce(get({DE: 19, FRANCE: 20}, country), 0)"'),
        )
        .replace("flow: [", "contracts: {postconditions: ['success => doubled != 20']}\nflow: [")
    )
    (broken,) = differential.test_node(load(text), 600).violations
    assert broken.input == {"country": "FRANCE"}


_UP = "{step: up, operation: arithmetic, expression: number + 5, output: number}"


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("operation: arithmetic, expression: 10 / (number - 5)", "division_by_zero"),
        (f"operation: loop, condition: number < 60, max_iterations: 9, steps: [{_UP}]", "loop_limit"),
    ],
)
def test_what_ends_a_node_by_mistake_breaks_its_contract(step: str, kind: str) -> None:
    """As an overflow does, unless the node declares it among its errors."""
    text = _DOUBLE.replace("number: integer", "number: {type: integer, constraints: [{min: 0}, {max: 100}]}")
    text = text.replace("flow: [", f"flow: [{{step: go, {step}}}, ")
    (broken,) = differential.test_node(load(text), 300).violations
    assert broken.kind == kind
    own = text.replace(
        "{doubled: integer}", f'{{success: {{doubled: integer}}, error: {{error_code: "enum[{kind}]"}}}}'
    )
    assert differential.test_node(load(own), 300).violations == ()


def test_a_contract_about_an_answer_of_a_declared_type_is_judged() -> None:
    assert differential.test_node(load(_ASK), 300).violations == ()
    (broken,) = differential.test_node(load(_ASK.replace(", {max: 5}", "")), 300).violations
    assert broken.expression == "success => urgency <= 5"


_CALLER = """
node_id: caller_v1
type: function
intent: call another node once
inputs: {number: {type: integer, constraints: [{min: 0}, {max: 100}]}}
outputs: {success: {doubled: integer}, error: {error_code: "enum[failed]", message: string}}
flow:
  - {step: ask, operation: call_node, node_id: double_v1, inputs: {number: "{number}"}, output: got, on_error: [{error_type: any, return_error: failed}]}
  - {step: answer, operation: return, return_success: {doubled: "{got.doubled}"}}
"""  # noqa: E501
_DOUBLE = """
node_id: double_v1
type: function
intent: double a number
inputs: {number: integer}
outputs: {doubled: integer}
flow: [{step: double, operation: arithmetic, expression: number * 2, output: doubled}]
"""


def test_short_lists_of_few_elements_are_few_inputs() -> None:
    """A list with a longest length, of enums or booleans, is tried in all ways; without one it has no end."""
    text = """\
node_id: marks_v1
type: function
intent: count marks
inputs: {marks: {type: "array<enum[a, b, c]>", BOUND}}
outputs: {count: integer}
flow: [{step: count, operation: arithmetic, expression: COUNT(marks), output: count}]
"""
    bounded = differential.test_node(load(text.replace("BOUND", "constraints: [{min_length: 1}, {max_length: 3}]")), 5)
    assert (bounded.complete, bounded.counts.successes) == (True, 3 + 9 + 27)
    assert not differential.test_node(load(text.replace("BOUND", "constraints: [{min_length: 1}]")), 50).complete


@pytest.mark.parametrize(("expression", "is_complete"), [("number * 2", True), ("year(current_timestamp())", False)])
def test_a_caller_with_few_inputs_is_complete_where_its_callees_depend_on_inputs_alone(
    expression: str, *, is_complete: bool
) -> None:
    callee = load(_DOUBLE.replace("number * 2", expression))
    report = differential.test_node(load(_CALLER), 50, find={"double_v1": callee}.get)
    assert (report.complete, report.confidence == 1.0) == (is_complete, is_complete)
    assert report.counts.successes == 101 if is_complete else report.compared == 50
    assert not differential.test_node(load(_CALLER), 50).complete  # the callee is not known


_FEE = """
node_id: fee_v1
type: function
intent: the fee of a payment
inputs: {amount: integer}
outputs: {success: {fee: integer}, error: {error_code: "enum[too_small, too_large]", message: string}}
flow:
  - {step: small, operation: validation, guards: [amount >= 1], on_failure: {return_error: too_small}}
  - {step: large, operation: validation, guards: [amount <= 100], on_failure: {return_error: too_large}}
  - {step: fee, operation: arithmetic, expression: "2", output: fee}
"""
_PAY = """
node_id: pay_v1
type: function
intent: what is to be paid
inputs: {amount: {type: integer, min: -1000, max: 1000}}
outputs: {success: {total: integer}, error: {error_code: "enum[cash_only, unavailable]", message: string}}
contracts: {postconditions: ["error.code == 'cash_only' => amount < 1"]}
flow:
  - step: fee
    operation: call_node
    node_id: fee_v1
    inputs: {amount: "{amount}"}
    on_error:
      - {error_type: too_small, return_error: {error_code: cash_only, message: "{error.message}"}}
      - {error_type: too_large, return_error: {error_code: CODE, message: "{error.message}"}}
      - {error_type: any, return_error: unavailable}
  - {step: total, operation: arithmetic, expression: amount + fee.fee}
"""


@pytest.mark.parametrize(("code", "broken"), [("unavailable", []), ("cash_only", [{"amount": 101}])])
def test_a_contract_about_a_mapped_error_of_a_called_node_is_judged(code: str, broken: list[dict[str, int]]) -> None:
    """Rules that read `error` do not hide what contracts say about it."""
    report = differential.test_node(load(_PAY.replace("CODE", code)), 1000, find={"fee_v1": load(_FEE)}.get)
    assert [violation.input for violation in report.violations] == broken


_ORDER = """
node_id: order_v1
type: function
intent: write the lines of an order again
inputs: {text: string}
outputs:
  success: {count: integer, normal: string}
  error: {error_code: "enum[bad_line]", message: string}
contracts: {postconditions: ["success => len(split(normal, '; ')) == count"]}
flow:
  - {step: pieces, operation: arithmetic, expression: "split(text, '; ')", output: pieces}
  - step: each
    operation: for_each
    input: pieces
    as: piece
    steps:
      - {step: look, operation: validation, guards: ["matches(piece, '^[A-Z]{2}-[0-9]{3,9}$')"], on_failure: {return_error: bad_line}}
  - {step: count, operation: arithmetic, expression: len(pieces), output: count}
  - {step: write, operation: arithmetic, expression: "join(pieces, '; ')", output: normal}
testing: {test_cases: [{name: two, inputs: {text: AB-100; CD-200}, expected_output: {count: 2}}]}
"""  # noqa: E501


def test_parts_of_texts_are_repeated() -> None:
    """Two lines that are the same are lost where the node keeps the distinct ones."""
    assert differential.test_node(load(_ORDER), 2000).violations == ()
    (broken,) = differential.test_node(load(_ORDER.replace("join(pieces", "join(distinct(pieces)")), 2000).violations
    parts = broken.input["text"].split("; ")
    assert len(set(parts)) < len(parts)


def test_elements_of_lists_are_repeated() -> None:
    draw = fitting_drawer(Array(DECIMAL), ("items",), {}, Boundaries(ADD))
    lists = [draw(make_random(seed)) for seed in range(400)]
    assert sum(len(items) > 1 and items[-1] in items[:-1] for items in lists) > 30

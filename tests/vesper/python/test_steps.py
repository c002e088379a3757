"""StepWriter, contracts and the order of an execution on the Python path."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from lyra.errors import ContractViolation
from lyra.vesper import ir
from lyra.vesper.check.judge import program_of
from lyra.vesper.ir import ErrorRule, NodeInput, NodeLimits, NodeOutput, NodeProgram, ParallelStep
from lyra.vesper.nodes import load
from lyra.vesper.python.generate import generate
from lyra.vesper.python.run import compile_program, run
from lyra.vesper.values.outcome import Execution, NodeError
from lyra.vesper.values.types import ANY, BOOLEAN, DECIMAL, INTEGER, STRING, Array, DecimalType, EnumType, SetType
from tests.vesper.paths import PATHS, RunPath
from tests.vesper.python.examples import EXAMPLES
from tests.vesper.python.programs import (
    arith,
    assign,
    branch,
    check,
    cmp,
    contract,
    fail,
    failure,
    field,
    for_each,
    host,
    inputs,
    listed,
    logic,
    loop,
    outputs,
    program,
    succeed,
    text,
    validate,
    var,
)

EXECUTION = Execution(now=datetime(2026, 1, 1, tzinfo=UTC), trace_id="t")
BY_ID = {example.node_id: example for example in EXAMPLES}
ERRORS = outputs(error_code=STRING, message=STRING)


def answer(tree: NodeProgram, execution: Execution = EXECUTION, **values: Any) -> Any:
    """The outputs, or the error's code and phase."""
    outcome = run(tree, values, execution)
    assert outcome.path == "python"
    if outcome.error is None:
        return outcome.outputs
    return outcome.error.code, outcome.error.phase


# ------------------------------------------------------------ inputs
@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (INTEGER, 5, 5),
        (INTEGER, True, None),
        (INTEGER, 5.0, None),
        (INTEGER, Decimal(5), None),
        (INTEGER, 2**63, None),
        (INTEGER, None, None),
        (DECIMAL, 99.99, Decimal("99.99")),
        (DECIMAL, "1e3", Decimal("1000")),
        (DECIMAL, "1_0", None),
        (DECIMAL, " 1", None),
        (DECIMAL, "NaN", None),
        (DECIMAL, float("inf"), None),
        (DECIMAL, Decimal("sNaN"), None),
        (DECIMAL, True, None),
        (DECIMAL, "1e10001", None),
        (DecimalType(2), 1, Decimal("1.00")),
        (DecimalType(2), "1.500", Decimal("1.50")),
        (DecimalType(2), "1.005", None),
        (STRING, 5, None),
        (BOOLEAN, 1, None),
        (EnumType(("a", "b")), "a", "a"),
        (EnumType(("a", "b")), "c", None),
        (SetType(INTEGER), [2, 1], frozenset({1, 2})),
        (SetType(INTEGER), [1, 1], None),
        (Array(INTEGER), [1, True], None),
        (ANY, 1.5, Decimal("1.5")),
        (ANY, float("nan"), None),
        (ANY, object(), None),
    ],
)
def test_inputs_are_coerced_exactly(kind: Any, value: Any, expected: Any) -> None:
    """A value that is not of its type is an invalid input; decimals never pass through a binary float."""
    tree = program(succeed(out=var("a")), inputs=inputs(a=kind), success=outputs(out=kind))
    result = answer(tree, a=value)
    if expected is None:
        assert result == ("invalid_input", "input")
    else:
        assert result == {"out": expected}
        assert str(result["out"]) == str(expected)
        assert type(result["out"]) is type(expected)


def test_missing_unknown_and_default_inputs() -> None:
    """Unknown and missing inputs are refused; an absent optional input is null, or its default."""
    tree = program(
        succeed(out=listed(var("a"), var("b"), var("c"))),
        inputs=(
            NodeInput("a", INTEGER),
            NodeInput("b", STRING, required=False),
            NodeInput("c", Array(INTEGER), required=False, default=[1]),
        ),
        success=outputs(out=ANY),
    )
    assert answer(tree, a=1) == {"out": [1, None, [1]]}
    assert answer(tree, a=1, b=None, c=[]) == {"out": [1, None, []]}
    assert answer(tree, a=1, c=None) == ("invalid_input", "input")
    assert answer(tree) == ("invalid_input", "input")
    assert answer(tree, a=1, d=1) == ("invalid_input", "input")
    assert run(tree, "no map", EXECUTION).error.code == "invalid_input"  # type: ignore[arg-type]
    assert run(tree, {1: 2}, EXECUTION).error.code == "invalid_input"  # type: ignore[dict-item]


# ------------------------------------------------------------ the order of an execution
def _checked() -> NodeProgram:
    return program(
        validate(cmp("<", var("a"), 10), error=failure("too_large", message=text("a is ", var("a")))),
        validate(cmp("!=", var("a"), 3)),
        succeed(out=var("a")),
        inputs=(NodeInput("a", INTEGER, constraints=(check(cmp("<", var("value"), 20), "< 20"),)),),
        success=outputs(out=INTEGER),
        error=ERRORS,
        preconditions=(
            contract("a > 0", cmp(">", var("a"), 0)),
            contract("10 / a > 1", cmp(">", arith("/", 10, var("a")), 1)),
        ),
    )


def test_leading_validations_answer_before_constraints_and_preconditions() -> None:
    """If an input breaks a constraint, the flow's own error is the answer where a leading validation fails too."""
    tree = _checked()
    assert answer(tree, a=5) == {"out": 5}
    assert answer(tree, a=25) == ("too_large", "flow")
    assert answer(tree, a=12) == ("too_large", "flow")
    assert answer(tree, a=-1) == ("precondition_failed", "precondition")
    assert answer(tree, a=0) == ("precondition_failed", "precondition")
    assert answer(tree, a=3) == ("validation_failed", "flow")
    error = run(tree, {"a": 25}, EXECUTION).error
    assert error is not None
    assert error.message == "a is 25"
    assert error.fields == {"error_code": "too_large", "message": "a is 25"}


def test_an_error_inside_a_precondition_is_its_failure() -> None:
    """Dividing by zero inside a precondition means that it does not hold."""
    tree = program(
        succeed(out=1),
        inputs=inputs(a=INTEGER),
        success=outputs(out=INTEGER),
        preconditions=(contract("1 / a == 1", cmp("==", arith("/", 1, var("a")), 1)),),
    )
    assert answer(tree, a=1) == {"out": 1}
    assert answer(tree, a=0) == ("precondition_failed", "precondition")


def test_a_null_input_meets_its_constraints() -> None:
    """Constraints are about values that are there."""
    limit = check(cmp(">", var("value"), 0))
    tree = program(
        succeed(out=1),
        inputs=(NodeInput("a", INTEGER, required=False, constraints=(limit,)),),
        success=outputs(out=INTEGER),
    )
    assert answer(tree) == {"out": 1}
    assert answer(tree, a=0) == ("invalid_input", "input")


def test_the_function_itself_raises_contract_violations() -> None:
    """Called as a function, generated code returns a dict or raises."""
    function = compile_program(_checked()).function
    assert function(a=5) == {"out": 5}
    with pytest.raises(ContractViolation, match="a > 0"):
        function(a=-1)
    with pytest.raises(NodeError) as caught:
        function(a=15)
    assert caught.value.code == "too_large"


# ------------------------------------------------------------ variables and answers
def test_guards_skip_steps_and_unset_variables_are_null() -> None:
    """A step whose guard is false is skipped; its variable is null, and no output."""
    tree = program(
        assign("x", 1, guards=(check(var("a")),)),
        assign("y", cmp("==", var("x"), None)),
        inputs=inputs(a=BOOLEAN),
        success=(NodeOutput("y", BOOLEAN), NodeOutput("x", INTEGER, required=False)),
    )
    assert answer(tree, a=True) == {"x": 1, "y": False}
    assert answer(tree, a=False) == {"y": True}


def test_a_required_output_without_a_value_is_incomplete() -> None:
    """A flow without a return answers with its variables; a missing one is an error of its own."""
    tree = program(branch(var("a"), (assign("x", 1),)), inputs=inputs(a=BOOLEAN), success=outputs(x=INTEGER))
    assert answer(tree, a=True) == {"x": 1}
    assert answer(tree, a=False) == ("incomplete_output", "flow")
    null = program(
        branch(var("a"), (assign("x", var("n")),)), inputs=inputs(a=BOOLEAN, n=ANY), success=outputs(x=INTEGER)
    )
    assert answer(null, a=True, n=None) == ("type_error", "flow")
    assert answer(null, a=False, n=None) == ("incomplete_output", "flow")
    assert answer(program(success=outputs(x=INTEGER))) == ("incomplete_output", "flow")
    assert answer(program(succeed(), success=outputs(x=INTEGER))) == ("incomplete_output", "flow")


def test_outputs_are_coerced() -> None:
    """Outputs get their declared type; nothing is parsed, and what does not fit is a type error."""
    tree = program(
        succeed(out=var("a"), text="t"), inputs=inputs(a=ANY), success=outputs(out=DecimalType(2), text=STRING)
    )
    assert str(answer(tree, a=1)["out"]) == "1.00"
    assert answer(tree, a="1") == ("type_error", "flow")
    assert answer(tree, a=Decimal("1.005")) == ("type_error", "flow")
    assert str(answer(tree, a=Decimal("-0.00"))["out"]) == "0.00"


def test_a_variable_named_like_an_input_leaves_the_input_to_contracts() -> None:
    """Postconditions see the input as it was given."""
    tree = program(
        assign("a", arith("+", var("a"), 1)),
        succeed(out=var("a")),
        inputs=inputs(a=INTEGER),
        success=outputs(out=INTEGER),
        postconditions=(contract("out == a + 1", cmp("==", var("out"), arith("+", var("a"), 1))),),
    )
    assert answer(tree, a=1) == {"out": 2}


def test_loops() -> None:
    """Loops keep the last values of their variables, and end at their limits."""
    tree = BY_ID["loops_v1"]
    assert answer(tree, numbers=[1, 5, 2], rounds=3) == {"total": 8, "largest": 5, "words": "xxx"}
    assert answer(tree, numbers=[], rounds=100)["words"] == "x" * 100
    assert answer(tree, numbers=[], rounds=101) == ("loop_limit", "flow")
    assert answer(tree, numbers=[2**63 - 1, 1], rounds=0) == ("overflow", "flow")


def test_limits_of_steps_and_time() -> None:
    """A loop that takes too many steps, or too long, is stopped."""
    endless = loop(cmp(">", 1, 0), 10_000_000, assign("x", 1))
    few = program(endless, success=outputs(x=INTEGER), limits=NodeLimits(steps=50))
    assert answer(few) == ("resource_limit", "flow")
    times = iter(range(1000))
    slow = Execution(now=EXECUTION.now, monotonic=lambda: float(next(times)))
    short = program(endless, success=outputs(x=INTEGER), limits=NodeLimits(time_s=3.0))
    assert answer(short, slow) == ("timeout", "flow")
    nested = for_each(var("xs"), "x", for_each(var("xs"), "y", assign("z", var("y"))))
    square = program(nested, succeed(out=1), inputs=inputs(xs=Array(INTEGER)), success=outputs(out=INTEGER),
                     limits=NodeLimits(steps=100))  # fmt: skip
    assert answer(square, xs=list(range(5))) == {"out": 1}
    assert answer(square, xs=list(range(20))) == ("resource_limit", "flow")


def test_pure_steps_in_parallel_run_in_order() -> None:
    """Steps of a Parallel that do not act outside run one after another."""
    both = ParallelStep(name="both", steps=(assign("x", 1), assign("y", arith("/", 1, var("a")))))
    tree = program(both, inputs=inputs(a=INTEGER), success=outputs(x=INTEGER, y=DECIMAL))
    assert answer(tree, a=4) == {"x": 1, "y": Decimal("0.25")}
    assert answer(tree, a=0) == ("division_by_zero", "flow")


# ------------------------------------------------------------ contracts about the answer
def _ensuring(*conditions: ir.TypedExpression) -> NodeProgram:
    return program(
        branch(cmp("<", var("a"), 0), (fail("negative", message="below zero"),)),
        succeed(out=arith("*", var("a"), var("a"))),
        inputs=inputs(a=INTEGER),
        success=outputs(out=INTEGER),
        error=ERRORS,
        postconditions=tuple(contract("a postcondition", condition) for condition in conditions),
    )


def test_postconditions_about_success_say_nothing_about_errors() -> None:
    """A postcondition that names a success field holds for an error answer, unless it names success or error too."""
    above = cmp(">", var("out"), 0)
    assert answer(_ensuring(above), a=2) == {"out": 4}
    assert answer(_ensuring(above), a=0) == ("postcondition_failed", "postcondition")
    assert answer(_ensuring(above), a=-1) == ("negative", "flow")
    named = logic("or", var("success"), cmp("==", var("out"), 1))
    assert answer(_ensuring(named), a=-1) == ("postcondition_failed", "postcondition")
    assert answer(_ensuring(named), a=2) == {"out": 4}


def test_postconditions_see_the_error() -> None:
    """On an error, `error` and the declared error fields have values; on success they are null."""
    code = cmp("==", field(var("error"), "code"), "negative")
    seen = logic("implies", field(var("error"), "occurred"), code)
    assert answer(_ensuring(seen, cmp("!=", var("error_code"), "other")), a=-1) == ("negative", "flow")
    assert answer(_ensuring(seen), a=2) == {"out": 4}
    message = logic("implies", ir.Not(type=BOOLEAN, operand=var("success")), cmp("==", var("message"), "below zero"))
    assert answer(_ensuring(message), a=-1) == ("negative", "flow")
    assert answer(_ensuring(message), a=1) == {"out": 1}
    wrong = cmp("==", var("error_code"), "x")
    assert answer(_ensuring(logic("or", var("success"), wrong)), a=-1) == ("postcondition_failed", "postcondition")


def test_old_values_are_those_before_the_first_step() -> None:
    """`old` is evaluated before the steps; an error in it is an error of the contracts that use it."""
    quotient = arith("/", 10, var("a"))
    tree = program(
        assign("a", 7),
        succeed(out=var("a")),
        inputs=inputs(a=INTEGER),
        success=outputs(out=INTEGER),
        olds=(quotient,),
        postconditions=(contract("old(10 / a) == 5", cmp("==", ir.Old(type=ANY, slot=0, operand=quotient), 5)),),
    )
    assert answer(tree, a=2) == {"out": 7}
    assert answer(tree, a=3) == ("postcondition_failed", "postcondition")
    assert answer(tree, a=0) == ("postcondition_failed", "postcondition")


def test_invariants() -> None:
    """An invariant is checked before the flow and at its end."""
    tree = program(
        succeed(out=arith("-", var("a"), 5)),
        inputs=inputs(a=INTEGER),
        success=outputs(out=INTEGER),
        invariants=(contract("a >= 0", cmp(">=", var("a"), 0)), contract("out >= 0", cmp(">=", var("out"), 0))),
    )
    assert answer(tree, a=5) == {"out": 0}
    assert answer(tree, a=-1) == ("invariant_failed", "invariant")
    assert answer(tree, a=4) == ("invariant_failed", "invariant")


def test_contracts_that_cannot_be_judged_are_reported() -> None:
    """A missing predicate, a missing ambient object and prose make a contract unverifiable, never false or true."""
    tree = program(
        succeed(out=1),
        success=outputs(out=INTEGER),
        preconditions=(
            contract("may_pay()", host("may_pay")),
            contract("user.active", field(var("user"), "active")),
            contract("all is well", None, "prose"),
            contract("false AND may_pay()", logic("or", cmp("==", 1, 1), host("may_pay"))),
        ),
        ambient=("user",),
    )
    outcome = run(tree, {}, EXECUTION)
    assert outcome.outputs == {"out": 1}
    assert outcome.unverifiable == ("may_pay()", "user.active", "all is well")
    told = Execution(now=EXECUTION.now, predicates={"may_pay": lambda: True}, ambient={"user": {"active": True}})
    assert run(tree, {}, told).unverifiable == ("all is well",)
    refused = Execution(now=EXECUTION.now, predicates={"may_pay": lambda: False}, ambient={})
    assert answer(tree, refused) == ("precondition_failed", "precondition")
    in_flow = program(assign("out", host("may_pay")), success=outputs(out=ANY))
    assert answer(in_flow) == ("type_error", "flow")


def test_rules_of_the_node() -> None:
    """An error of the flow is mapped by the node's first matching rule; an error that the node answers with is not."""
    tree = program(
        branch(cmp("==", var("a"), 9), (fail("overflow", message="own"),)),
        assign("out", arith("/", 10, var("a"))),
        inputs=inputs(a=INTEGER),
        success=outputs(out=INTEGER),
        error=ERRORS,
        rules=(
            ErrorRule("division_by_zero", "map_to", failure("bad", message=text("was ", field(var("error"), "code")))),
            ErrorRule("overflow", "map_to", failure("mapped", message="")),
            ErrorRule("*", "retry"),
        ),
    )
    assert answer(tree, a=2) == {"out": 5}
    outcome = run(tree, {"a": 0}, EXECUTION)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.message) == ("bad", "was division_by_zero")
    assert answer(tree, a=9) == ("overflow", "flow")
    assert answer(tree, a=3) == ("type_error", "flow")


# ------------------------------------------------------------ examples, and hostile names
def test_examples() -> None:
    """The answers of the example nodes, worked out by hand."""
    assert answer(BY_ID["add_numbers_v1"], a=1, b=2) == {"result": 3}
    assert answer(BY_ID["add_numbers_v1"], a=2**63 - 1, b=1) == ("overflow", "flow")
    assert answer(BY_ID["bounded_v1.2.0"], a=1000, b=1000) == {"result": 1000001, "rest": 1000001 % 7}
    assert answer(BY_ID["grade_v1"], points=95) == {"grade": "excellent"}
    assert answer(BY_ID["grade_v1"], points=10) == ("failed", "flow")
    rows = [{"region": "n", "amount": 5}, {"region": "s", "amount": 20}, {"region": "n", "amount": 11}]
    result = answer(BY_ID["transforms_v1"], rows=rows, factors=[2, 3], matrix=[[1, 1], [0, 1]])
    assert result["big"] == rows[1:]
    assert result["groups"] == [{"region": "n", "total": 16, "number": 2}, {"region": "s", "total": 20, "number": 1}]
    assert (result["product"], result["square"], result["amounts"]) == (6, [[1, 2], [0, 1]], [5, 20, 11])
    assert answer(BY_ID["texts_v1"], name="ann") == ("bad_name", "flow")
    greeting = answer(BY_ID["texts_v1"], name="Ann")["greeting"]
    assert greeting == "Hello, Ann! {braces} \"quotes\" 'and' \\ \nANN"


def test_hostile_names_and_texts_stay_data() -> None:
    """Names of Python, of the runtime and of helpers are values; quotes and braces in texts run nothing."""
    tree = BY_ID["hostile_v1"]
    values = {declared.name: number for number, declared in enumerate(tree.inputs, 1)}
    result = run(tree, values, EXECUTION).outputs
    assert result["def"] == sum(values.values())
    assert result["import"] == '"""1{print}\'; import os; os.abort() #'


NASTY = [
    '"""',
    "'''",
    "{",
    "}",
    "{0}",
    "{x!r}",
    "\\",
    "\\N{DASH}",
    "\n",
    "\r\n",
    "\0",
    "\u2028",
    "é",
    "\ud800",
    "#",
    "'\"",
]
NASTY += ["__import__('os')", "'\\\""]


@pytest.mark.parametrize("nasty", NASTY, ids=range(len(NASTY)))
def test_any_text_can_stand_anywhere(nasty: str) -> None:
    """A text of the node comes out as it is: as constant, template, key, step name, intent, contract, default."""
    step = assign("x", text(nasty, var("a"), nasty))
    tree = program(
        step,
        succeed(out=var("x"), keyed=ir.MapOf(type=ANY, entries=((nasty, var("a")),)), plain=nasty),
        node_id="nasty_v1",
        intent=f"{nasty} intent {nasty}",
        inputs=(NodeInput("a", STRING, required=False, default=nasty, description=nasty),),
        success=outputs(out=STRING, keyed=ANY, plain=STRING),
        preconditions=(contract(nasty, cmp("!=", var("a"), "no")),),
    )
    for part in ast.walk(generate(tree).tree):  # Python 3.13 compiles no docstring with half a character in it
        if isinstance(part, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
            (ast.get_docstring(part, clean=False) or "").encode()
    assert answer(tree) == {"out": nasty * 3, "keyed": {nasty: nasty}, "plain": nasty}
    broken = run(tree, {"a": "no"}, EXECUTION).error
    assert broken is not None
    assert nasty in broken.message


@pytest.mark.parametrize("nasty", [item for item in NASTY if item != "\ud800"])
def test_any_text_can_stand_in_a_file(nasty: str) -> None:
    """The generated text is read back by Python with the same strings in it."""
    from lyra.vesper.python.generate import source

    tree = program(
        succeed(out=text(nasty, var("a"), nasty)),
        intent=f"{nasty} intent {nasty}",
        inputs=(NodeInput("a", STRING, description=nasty),),
        success=outputs(out=STRING),
        preconditions=(contract(nasty, cmp("!=", var("a"), nasty)),),
    )
    module = ast.parse(source(tree))
    strings = [node.value for node in ast.walk(module) if isinstance(node, ast.Constant)]
    assert strings.count(nasty) >= 3
    names = {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}
    assert "__import__" not in names


_DEFAULTS = """
node_id: add_tag_v1
type: function
intent: add a tag to those of a customer
types:
  customer:
    fields:
      tags: {type: array<string>, default: []}
      settings: {type: "map<string, string>", default: {}}
inputs: {customer: customer, tag: string}
outputs:
  success: {tags: array<string>, settings: "map<string, string>", count: integer, customer: customer}
flow:
  - {step: begin, operation: arithmetic, expression: "customer.tags", output: tags}
  - {step: add, operation: arithmetic, expression: "append(tags, tag)", output: tags}
  - {step: set, operation: arithmetic, expression: "put(customer.settings, tag, tag)", output: settings}
  - {step: count, operation: arithmetic, expression: "len(customer.tags)", output: count}
"""


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("path", PATHS)
def test_a_field_may_have_a_list_or_a_map_as_its_default(path: RunPath, *, leaves: bool) -> None:
    """Also where the record leaves as a whole and is no dataclass; no execution changes the default for the next."""
    text = _DEFAULTS if leaves else _DEFAULTS.replace(", customer: customer}\nflow", "}\nflow")
    tree = program_of(load(text))
    whole = {"customer": {"tags": [], "settings": {}}} if leaves else {}
    for tag in ("vip", "new"):
        outcome = path(tree, {"customer": {}, "tag": tag}, EXECUTION)
        assert outcome.outputs == {"tags": [tag], "settings": {tag: tag}, "count": 0, **whole}

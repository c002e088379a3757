"""What contracts see at the end of an answer, on every evaluator: variables as they stand, fields, errors."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.vesper import ir
from lyra.vesper.ir import (
    AssignStep,
    BranchStep,
    ErrorRule,
    ForEachStep,
    NodeInput,
    NodeOutput,
    NodeProgram,
    ReturnStep,
    Step,
    ValidateStep,
)
from lyra.vesper.values.outcome import Outcome
from lyra.vesper.values.types import ANY, INTEGER, STRING
from tests.vesper.building import EXECUTION, arith, check, comp, contract, fails, give, lit, logic, name, node
from tests.vesper.effects.test_steps_with_effects import Answers, act, acting
from tests.vesper.paths import PATHS, RunPath

pytestmark = pytest.mark.parametrize("path", PATHS)
ERRORS = (NodeOutput("code", STRING), NodeOutput("message", STRING))
POSITIVE = (contract(comp(name("x"), ">=", 0)),)


def put(target: str, value: Any) -> AssignStep:
    return AssignStep(name=f"put_{target}", target=target, value=lit(value))


def refuse(**fields: Any) -> ReturnStep:
    return ReturnStep(name="refuse", error=fails("refused", **fields))


def flow(*steps: Step, **more: Any) -> NodeProgram:
    settings: dict[str, Any] = {"inputs": (NodeInput("x", INTEGER),), "error": ERRORS, "invariants": POSITIVE}
    return node(*steps, **(settings | more))


def ending(outcome: Outcome) -> str:
    return outcome.status if outcome.error is None else outcome.error.code


BOTH_WAYS = BranchStep(name="b", condition=comp(name("x"), "<", 0), then=(give(result=1),), otherwise=(give(result=2),))
FLOWS = {
    "one return": flow(put("x", -1), give(result=1)),
    "several returns": flow(put("x", -1), BOTH_WAYS),
    "no return": flow(put("x", -1), put("result", 1)),
    "declared error": flow(put("x", -1), refuse()),
    "error of a step": flow(put("x", -1), put("y", arith(1, "/", 0))),
    "error that a rule maps": flow(
        put("x", -1), put("y", arith(1, "/", 0)), rules=(ErrorRule("*", "map_to", fails("mapped")),)
    ),
    "variable": flow(put("v", -1), BOTH_WAYS, invariants=(contract(comp(name("v"), ">=", 0)),)),
    "variable at an error": flow(put("v", -1), refuse(), invariants=(contract(comp(name("v"), ">=", 0)),)),
    "about the answer": flow(refuse(), invariants=(contract(name("success")),)),
}


@pytest.mark.parametrize("way", FLOWS)
def test_invariants_are_judged_by_current_variables_at_the_end_of_every_answer(path: RunPath, way: str) -> None:
    assert ending(path(FLOWS[way], {"x": 1}, EXECUTION)) == "invariant_failed"


QUIET = {
    "a variable without a value": flow(
        BranchStep(name="b", condition=lit(False), then=(put("v", -1),)),
        BOTH_WAYS,
        invariants=(contract(comp(name("v"), ">=", 0)),),
    ),
    "a success field, at an error": flow(
        put("result", -1), refuse(), invariants=(contract(comp(name("result"), ">=", 0)),)
    ),
    "an element of a loop": flow(
        ForEachStep(name="f", collection=lit([-1]), variable="x", steps=(refuse(),)), give(result=1)
    ),
}


@pytest.mark.parametrize("way", QUIET)
def test_an_invariant_says_nothing_about(path: RunPath, way: str) -> None:
    assert ending(path(QUIET[way], {"x": 1}, EXECUTION)) in ("success", "refused")


def test_an_element_of_a_loop_is_no_variable_of_an_invariant_after_an_act(path: RunPath) -> None:
    loop = ForEachStep(name="f", collection=lit([-1]), variable="x", steps=(act("tell"),))
    program = acting(loop, give(result=1), inputs=(NodeInput("x", INTEGER),), invariants=POSITIVE)
    assert ending(path(program, {"x": 1}, EXECUTION, Answers())) == "success"


def test_postconditions_see_inputs_as_they_were_given(path: RunPath) -> None:
    program = flow(put("x", 5), BOTH_WAYS, invariants=(), postconditions=(contract(comp(name("x"), "==", 1)),))
    assert ending(path(program, {"x": 1}, EXECUTION)) == "success"


def test_a_field_of_the_answer_hides_the_input_of_its_name(path: RunPath) -> None:
    invariant = contract(comp(name("result"), ">=", 0))
    inputs = (NodeInput("result", INTEGER),)
    assert ending(path(node(give(result=-1), inputs=inputs, invariants=(invariant,)), {"result": 1}, EXECUTION)) == (
        "invariant_failed"
    )
    program = node(put("result", -2), give(result=1), inputs=inputs, invariants=(invariant,))
    assert ending(path(program, {"result": 1}, EXECUTION)) == "success"
    lacking = node(put("result", -2), refuse(), inputs=inputs, error=ERRORS, invariants=(invariant,))
    assert ending(path(lacking, {"result": 1}, EXECUTION)) == "invariant_failed"


MESSAGES = (name("message"), ir.FieldOf(type=ANY, target=name("error"), name="message"))
FAILURES: dict[str, tuple[Step, str]] = {
    "overflow": (put("y", arith(2**63 - 1, "+", 1)), ""),
    "validation": (ValidateStep(name="v", guards=(), checks=(check(False),)), ""),
    "declared": (refuse(message="because"), "because"),
    "declared without": (refuse(), ""),
}


@pytest.mark.parametrize("message", MESSAGES, ids=["message", "error.message"])
@pytest.mark.parametrize("failure", FAILURES)
def test_the_wording_of_an_error_of_lyra_decides_no_contract(
    path: RunPath, failure: str, message: ir.TypedExpression
) -> None:
    step, text = FAILURES[failure]
    program = node(put("z", 1), step, error=ERRORS, postconditions=(contract(comp(message, "==", text)),))
    assert ending(path(program, {}, EXECUTION)) != "postcondition_failed"


def test_the_wording_of_an_error_of_lyra_decides_no_rule(path: RunPath) -> None:
    text = ir.TemplateText(type=STRING, parts=("<", MESSAGES[1], ">"))
    program = node(
        put("y", arith(1, "/", 0)), error=ERRORS, rules=(ErrorRule("*", "map_to", fails("m", message=text)),)
    )
    failed = path(program, {}, EXECUTION).error
    assert failed is not None
    assert failed.message == "<>"


def test_rules_of_a_pure_node_may_assign_what_their_answer_names(path: RunPath) -> None:
    text = ir.TemplateText(type=STRING, parts=(name("y"),))
    rule = ErrorRule("*", "compensate", fails("m", message=text), (put("y", 9), put("z", arith(1, "/", 0))))
    failed = path(node(put("y", 1), put("z", arith(1, "/", 0)), error=ERRORS, rules=(rule,)), {}, EXECUTION).error
    assert failed is not None
    assert failed.message == "9"


def test_an_input_that_a_branch_assigns_keeps_its_range(path: RunPath) -> None:
    """The result of the sum is checked, whatever the value in the branch is."""
    branch = BranchStep(name="b", condition=lit(False), then=(put("x", 5),))
    program = flow(branch, give(result=arith(name("x", INTEGER), "+", 1)), invariants=())
    assert ending(path(program, {"x": 2**63 - 1}, EXECUTION)) == "overflow"


def test_a_shared_field_that_the_error_lacks_decides_nothing(path: RunPath) -> None:
    success = (NodeOutput("result", ANY), NodeOutput("note", ANY))
    errors = (*ERRORS, NodeOutput("note", ANY))
    about = contract(comp(name("note"), "==", "x"))
    assert ending(path(node(refuse(), success=success, error=errors, postconditions=(about,)), {}, EXECUTION)) == (
        "refused"
    )
    either = contract(logic(name("success"), "or", comp(name("note"), "==", "x")))
    assert ending(path(node(refuse(), success=success, error=errors, invariants=(either,)), {}, EXECUTION)) == "refused"


def test_a_rule_may_assign_an_input_that_nothing_else_names(path: RunPath) -> None:
    rule = ErrorRule("*", "compensate", fails("sorry"), (put("x", 9),))
    program = flow(put("y", arith(1, "/", 0)), rules=(rule,), invariants=())
    assert ending(path(program, {"x": 1}, EXECUTION)) == "sorry"

"""Every kind of step and the order of an execution, on every evaluator, with answers worked out by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lyra.vesper import ir
from lyra.vesper.ir import (
    AssignStep,
    BranchStep,
    Contract,
    ErrorRule,
    ForEachStep,
    LoopStep,
    NodeInput,
    NodeLimits,
    NodeOutput,
    NodeProgram,
    ParallelStep,
    ReturnStep,
    ValidateStep,
)
from lyra.vesper.values.outcome import Execution
from lyra.vesper.values.types import ANY, BOOLEAN, DECIMAL, INTEGER, STRING, Array, DecimalType, Nullable
from tests.vesper.building import (
    EXECUTION,
    NOW,
    arith,
    check,
    comp,
    contract,
    fails,
    give,
    lit,
    logic,
    name,
    node,
)
from tests.vesper.paths import PATHS, RunPath

ERRORS = (NodeOutput("error_code", STRING), NodeOutput("message", STRING))
A = NodeInput("a", INTEGER)
a, n, i = name("a", INTEGER), name("n", INTEGER), name("i", INTEGER)

pytestmark = pytest.mark.parametrize("path", PATHS)


def let(target: str, value: Any, **more: Any) -> AssignStep:
    return AssignStep(name=f"let_{target}", target=target, value=lit(value), **more)


def code(path: RunPath, program: NodeProgram, inputs: dict[str, Any], execution: Execution = EXECUTION) -> str:
    outcome = path(program, inputs, execution)
    return "" if outcome.error is None else f"{outcome.error.phase}:{outcome.error.code}"


def result(path: RunPath, program: NodeProgram, inputs: dict[str, Any] | None = None) -> Any:
    outcome = path(program, inputs or {}, EXECUTION)
    assert outcome.error is None, outcome
    return outcome.outputs


def test_a_flow_without_return_answers_with_variables(path: RunPath) -> None:
    assert result(path, node(let("result", arith(a, "+", 1)), inputs=(A,)), {"a": 2}) == {"result": 3}


def test_a_required_field_that_is_never_written_is_incomplete_output(path: RunPath) -> None:
    program = node(let("result", 1, guards=(check(comp(a, ">", 0)),)), inputs=(A,))
    assert result(path, program, {"a": 1}) == {"result": 1}
    assert code(path, program, {"a": 0}) == "flow:incomplete_output"


def test_an_optional_field_that_is_not_written_is_left_out(path: RunPath) -> None:
    program = node(
        let("result", 1), success=(NodeOutput("result", INTEGER), NodeOutput("note", STRING, required=False))
    )
    assert result(path, program) == {"result": 1}


def test_a_validation_fails_with_its_declared_error(path: RunPath) -> None:
    failure = fails("too_small", message=ir.TemplateText(type=STRING, parts=("got ", a)))
    program = node(
        ValidateStep(name="v", checks=(check(comp(a, ">", 0)),), failure=failure),
        give(result=a),
        inputs=(A,),
        error=ERRORS,
    )
    outcome = path(program, {"a": -1}, EXECUTION)
    assert outcome.status == "error"
    assert outcome.outputs == {}
    assert (outcome.error.code, outcome.error.message) == ("too_small", "got -1")
    assert outcome.error.fields == {"error_code": "too_small", "message": "got -1"}


def test_a_validation_without_a_declared_error_is_validation_failed(path: RunPath) -> None:
    program = node(ValidateStep(name="v", checks=(check(comp(a, ">", 0)),)), give(result=a), inputs=(A,))
    assert code(path, program, {"a": 0}) == "flow:validation_failed"


def test_guards_of_a_validation_are_checks(path: RunPath) -> None:
    program = node(ValidateStep(name="v", guards=(check(False),), checks=()), give(result=1))
    assert code(path, program, {}) == "flow:validation_failed"


def test_a_branch_takes_one_side_and_shares_its_variables(path: RunPath) -> None:
    program = node(
        BranchStep(name="b", condition=comp(a, ">", 0), then=(let("n", 1),), otherwise=(let("n", 2),)),
        give(result=n),
        inputs=(A,),
    )
    assert result(path, program, {"a": 1}) == {"result": 1}
    assert result(path, program, {"a": 0}) == {"result": 2}


def test_a_return_inside_a_branch_ends_the_node(path: RunPath) -> None:
    program = node(BranchStep(name="b", condition=lit(True), then=(give(result=1),)), give(result=2))
    assert result(path, program) == {"result": 1}


def test_for_each_keeps_the_last_value_of_variables(path: RunPath) -> None:
    body = (let("n", arith(n, "+", i)),)
    program = node(
        let("n", 0),
        ForEachStep(name="f", collection=name("list"), variable="i", steps=body),
        give(result=n),
        inputs=(NodeInput("list", Array(INTEGER)),),
    )
    assert result(path, program, {"list": [1, 2, 3]}) == {"result": 6}


def test_for_each_over_null_is_a_type_error(path: RunPath) -> None:
    program = node(ForEachStep(name="f", collection=lit(None), variable="i", steps=()), give(result=1))
    assert code(path, program, {}) == "flow:type_error"


def test_a_loop_ends_when_its_condition_is_false(path: RunPath) -> None:
    loop = LoopStep(name="l", condition=comp(n, "<", a), max_iterations=3, steps=(let("n", arith(n, "+", 1)),))
    program = node(let("n", 0), loop, give(result=n), inputs=(A,))
    assert result(path, program, {"a": 3}) == {"result": 3}
    assert code(path, program, {"a": 4}) == "flow:loop_limit"


def test_parallel_steps_all_count_and_the_first_error_in_written_order_wins(path: RunPath) -> None:
    both = ParallelStep(name="p", steps=(let("n", 1), let("m", 2)))
    assert result(path, node(both, give(result=arith(n, "+", name("m"))))) == {"result": 3}
    broken = ParallelStep(name="p", steps=(let("n", arith(1, "/", 0)), let("m", arith("x", "-", 1))))
    assert code(path, node(broken, give(result=1)), {}) == "flow:division_by_zero"


def test_a_step_whose_guard_is_false_is_skipped(path: RunPath) -> None:
    program = node(let("n", 1), let("n", 2, guards=(check(None),)), give(result=n))
    assert result(path, program) == {"result": 1}


def test_a_guard_that_is_no_boolean_is_a_type_error(path: RunPath) -> None:
    assert code(path, node(let("n", 2, guards=(check(1),)), give(result=1)), {}) == "flow:type_error"


def test_outputs_are_coerced_to_their_types(path: RunPath) -> None:
    program = node(give(result=a), inputs=(NodeInput("a", ANY),), success=(NodeOutput("result", DecimalType(2)),))
    assert str(result(path, program, {"a": 1})["result"]) == "1.00"
    assert str(result(path, program, {"a": Decimal("-0.0")})["result"]) == "0.00"
    assert code(path, program, {"a": Decimal("0.001")}) == "flow:type_error"
    assert code(path, program, {"a": "1"}) == "flow:type_error"
    assert code(path, program, {"a": None}) == "flow:type_error"


def test_an_integer_output_takes_no_decimal(path: RunPath) -> None:
    program = node(give(result=Decimal("1.0")), success=(NodeOutput("result", INTEGER),))
    assert code(path, program, {}) == "flow:type_error"


def test_return_without_a_required_field_is_incomplete_output(path: RunPath) -> None:
    program = node(give(other=1), success=(NodeOutput("result", INTEGER), NodeOutput("other", INTEGER)))
    assert code(path, program, {}) == "flow:incomplete_output"


# ---------------------------------------------------------------- the entry


def test_unknown_missing_and_mistyped_inputs_are_invalid(path: RunPath) -> None:
    program = node(give(result=a), inputs=(A,))
    for inputs in ({}, {"a": "1"}, {"a": True}, {"a": 1, "b": 2}, {"a": 2**63}, {"a": 1.0}, {"a": None}):
        assert code(path, program, inputs) == "input:invalid_input", inputs


def test_defaults_and_absent_optional_inputs(path: RunPath) -> None:
    inputs = (
        NodeInput("a", INTEGER, False, 7),
        NodeInput("b", Nullable(INTEGER), False),
        NodeInput("c", INTEGER, False, None),
    )
    program = node(give(result=ir.ListOf(type=ANY, items=(a, name("b"), name("c")))), inputs=inputs)
    assert result(path, program) == {"result": [7, None, None]}
    assert result(path, program, {"a": 1, "b": 2, "c": 3}) == {"result": [1, 2, 3]}


def test_a_broken_constraint_is_invalid_input(path: RunPath) -> None:
    item = NodeInput("a", INTEGER, constraints=(check(comp(name("value"), ">", 0)),))
    program = node(give(result=a), inputs=(item,))
    assert code(path, program, {"a": 0}) == "input:invalid_input"
    assert result(path, program, {"a": 1}) == {"result": 1}


def test_constraints_do_not_speak_about_an_absent_input(path: RunPath) -> None:
    item = NodeInput("a", Nullable(INTEGER), False, constraints=(check(comp(name("value"), ">", 0)),))
    assert result(path, node(give(result=a), inputs=(item,))) == {"result": None}


def test_a_failed_precondition_blocks_the_flow(path: RunPath) -> None:
    program = node(give(result=arith(1, "/", a)), inputs=(A,), preconditions=(contract(comp(a, ">", 0)),))
    assert code(path, program, {"a": 0}) == "precondition:precondition_failed"


def test_an_error_inside_a_precondition_is_its_failure(path: RunPath) -> None:
    program = node(give(result=1), inputs=(A,), preconditions=(contract(comp(arith(1, "/", a), ">", 0)),))
    assert code(path, program, {"a": 0}) == "precondition:precondition_failed"


def test_leading_validations_answer_before_an_entry_failure(path: RunPath) -> None:
    validation = ValidateStep(name="v", checks=(check(comp(a, ">", 10)),), failure=fails("small"))
    program = node(validation, give(result=a), inputs=(A,), preconditions=(contract(comp(a, "<", 5)),))
    assert code(path, program, {"a": 7}) == "flow:small"
    assert code(path, program, {"a": 11}) == "precondition:precondition_failed"


def test_a_validation_after_another_step_does_not(path: RunPath) -> None:
    late = ValidateStep(name="v", checks=(check(False),), failure=fails("late"))
    program = node(let("n", 1), late, give(result=1), preconditions=(contract(False),))
    assert code(path, program, {}) == "precondition:precondition_failed"


def test_contracts_that_cannot_be_judged_are_collected(path: RunPath) -> None:
    unknown = ir.HostCall(type=BOOLEAN, name="user_may", arguments=())
    program = node(
        give(result=1),
        preconditions=(Contract("prose", None, "prose"), contract(unknown, "host")),
        postconditions=(contract(ir.FieldOf(type=ANY, target=name("user"), name="ok"), "ambient"),),
        ambient=("user",),
    )
    outcome = path(program, {}, EXECUTION)
    assert outcome.status == "success"
    assert outcome.unverifiable == ("prose", "host", "ambient")


def test_ambient_objects_are_read(path: RunPath) -> None:
    execution = Execution(now=NOW, ambient={"user": {"age": 20, "rate": 1.5}})
    user = name("user")
    program = node(
        give(result=ir.FieldOf(type=ANY, target=user, name="rate")),
        preconditions=(contract(comp(ir.FieldOf(type=ANY, target=user, name="age"), ">=", 18)),),
        ambient=("user",),
    )
    assert path(program, {}, execution).outputs == {"result": Decimal("1.5")}
    assert code(path, program, {}) == "flow:type_error"


# ---------------------------------------------------------------- the end


def test_a_postcondition_sees_inputs_the_answer_and_old(path: RunPath) -> None:
    old = ir.Old(type=INTEGER, slot=0, operand=a)
    holds = comp(name("result"), "==", arith(old, "+", 1))
    program = node(
        let("a", 100), give(result=arith(name("n"), "+", 1)), inputs=(A, NodeInput("n", INTEGER)),
        postconditions=(contract(holds),), olds=(a,),
    )  # fmt: skip
    assert result(path, program, {"a": 1, "n": 1}) == {"result": 2}
    assert code(path, program, {"a": 1, "n": 5}) == "postcondition:postcondition_failed"


def test_a_postcondition_about_success_says_nothing_about_an_error(path: RunPath) -> None:
    refuse = ReturnStep(name="r", error=fails("refused"))
    about = comp(name("result"), ">", 0)
    assert code(path, node(refuse, postconditions=(contract(about),)), {}) == "flow:refused"
    either = logic(name("success"), "or", about)
    assert code(path, node(refuse, postconditions=(contract(either),)), {}) == "postcondition:postcondition_failed"


def test_a_postcondition_sees_the_error(path: RunPath) -> None:
    error = ir.FieldOf(type=ANY, target=name("error"), name="code")
    refuse = ReturnStep(name="r", error=fails("refused", message="no"))
    program = node(refuse, error=ERRORS, postconditions=(contract(comp(error, "==", "refused")),))
    assert code(path, program, {}) == "flow:refused"
    program = node(refuse, error=ERRORS, postconditions=(contract(comp(name("error_code"), "==", "x")),))
    assert code(path, program, {}) == "postcondition:postcondition_failed"


def test_invariants_hold_at_entry_and_at_the_end(path: RunPath) -> None:
    program = node(give(result=a), inputs=(A,), invariants=(contract(comp(a, ">", 0)),))
    assert code(path, program, {"a": 0}) == "invariant:invariant_failed"
    about_answer = node(give(result=a), inputs=(A,), invariants=(contract(comp(name("result"), ">", 0)),))
    assert code(path, about_answer, {"a": 0}) == "invariant:invariant_failed"
    assert result(path, about_answer, {"a": 1}) == {"result": 1}


def test_rules_of_the_node_answer_errors_of_the_flow(path: RunPath) -> None:
    message = ir.FieldOf(type=STRING, target=name("error"), name="code")
    rules = (
        ErrorRule("overflow", "retry"),
        ErrorRule("overflow", "map_to", fails("too_big", message=message)),
        ErrorRule("*", "return_error", fails("other")),
    )
    program = node(
        give(result=arith(arith(a, "*", 2), "/", name("b"))), inputs=(A, NodeInput("b", INTEGER)), rules=rules
    )
    outcome = path(program, {"a": 2**62, "b": 1}, EXECUTION)
    assert (outcome.error.code, outcome.error.message) == ("too_big", "overflow")
    assert code(path, program, {"a": 1, "b": 0}) == "flow:other"


def test_a_declared_error_meets_no_rule(path: RunPath) -> None:
    rules = (ErrorRule("*", "map_to", fails("mapped")),)
    assert code(path, node(ReturnStep(name="r", error=fails("refused")), rules=rules), {}) == "flow:refused"


# ---------------------------------------------------------------- limits


def endless(limits: NodeLimits) -> NodeProgram:
    loop = LoopStep(name="l", condition=lit(True), max_iterations=10**9, steps=(let("n", 1),))
    return node(loop, give(result=1), limits=limits)


def test_too_many_rounds_are_a_resource_limit(path: RunPath) -> None:
    assert code(path, endless(NodeLimits(steps=1000)), {}) == "flow:resource_limit"


def test_too_much_time_is_a_timeout(path: RunPath) -> None:
    ticks = iter(range(10**9))
    execution = Execution(now=NOW, monotonic=lambda: float(next(ticks)))
    assert code(path, endless(NodeLimits(time_s=5.0)), {}, execution) == "flow:timeout"


def test_a_text_that_grows_too_long_is_a_resource_limit(path: RunPath) -> None:
    text = name("n", STRING)
    loop = LoopStep(name="l", condition=lit(True), max_iterations=100, steps=(let("n", arith(text, "+", text)),))
    program = node(let("n", "x" * 1024), loop, give(result=1), success=(NodeOutput("result", DECIMAL),))
    assert code(path, program, {}) == "flow:resource_limit"

"""What compensations see and when they run, and how often requests are repeated, on every evaluator."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.vesper import ir
from lyra.vesper.effects.request import EffectError
from lyra.vesper.ir import (
    AssignStep,
    ErrorRule,
    ForEachStep,
    Machine,
    NodeOutput,
    NodeProgram,
    ParallelStep,
    Step,
    StepRetry,
    TransitionStep,
    ValidateStep,
)
from lyra.vesper.values.types import STRING
from tests.vesper.building import EXECUTION, check, comp, contract, fails, give, lit, name
from tests.vesper.effects.test_steps_with_effects import Answers, act, acting
from tests.vesper.paths import PATHS, RunPath

pytestmark = pytest.mark.parametrize("path", PATHS)
NOT_NEGATIVE = (contract(comp(name("n"), ">=", 0)),)
LAST = act("last", rules=(ErrorRule("*", "compensate"),))  # fails, and takes everything back


def put(target: str, value: Any) -> AssignStep:
    return AssignStep(name=f"put_{target}", target=target, value=lit(value))


def undo(*steps: Step) -> ErrorRule:
    return ErrorRule("*", "compensate", None, steps)


def requests(path: RunPath, program: NodeProgram, **answers: Any) -> list[tuple[str, Any]]:
    effects = Answers(**{"last": EffectError("declined", "why"), **answers})
    path(program, {}, EXECUTION, effects)
    return [(request.step, request.payload) for request in effects.requests]


def test_each_round_of_a_loop_is_taken_back_with_its_own_values(path: RunPath) -> None:
    refund = act("refund", lit([name("i"), name("paid")]))
    pay = act("pay", name("i"), output="paid", rules=(undo(refund),))
    loop = ForEachStep(name="f", collection=lit([1, 2]), variable="i", steps=(pay, put("paid", name("i"))))
    done = requests(path, acting(put("paid", 0), loop, LAST, give(result=1)), pay=7)
    assert done[-2:] == [("refund", [2, 7]), ("refund", [1, 7])]


def test_what_a_registered_compensation_assigns_is_its_own(path: RunPath) -> None:
    first = act("first", rules=(undo(act("undo_first", name("y"))),))
    second = act("second", rules=(undo(put("y", 9)),))
    assert requests(path, acting(put("y", 0), first, second, LAST, give(result=1)))[-1] == ("undo_first", 0)


def test_the_steps_of_a_rule_share_the_variables_of_the_flow(path: RunPath) -> None:
    answer = fails("sorry", message=ir.TemplateText(type=STRING, parts=("<", name("y"), ">")))
    rule = ErrorRule("*", "compensate", answer, (act("undo", name("y")), put("y", 9)))
    errors = (NodeOutput("code", STRING), NodeOutput("message", STRING))
    program = acting(put("y", 3), act("last", rules=(rule,)), give(result=1), error=errors)
    effects = Answers(last=EffectError("declined"))
    failed = path(program, {}, EXECUTION, effects).error
    assert failed is not None
    assert failed.message == "<9>"
    assert effects.requests[-1].payload == 3


def test_rules_of_a_step_are_taken_back_in_written_order(path: RunPath) -> None:
    first = act("first", rules=(undo(act("undo_1")), undo(act("undo_2"))))
    assert [step for step, _ in requests(path, acting(first, LAST, give(result=1)))][2:] == ["undo_1", "undo_2"]


def test_the_error_is_that_of_the_own_step_only(path: RunPath) -> None:
    first = act("first", rules=(undo(act("undo_first", name("error"))),))
    last = act("last", rules=(undo(act("undo_last", name("error"))),))
    done = dict(requests(path, acting(first, last, give(result=1))))
    assert done["undo_last"] == {"occurred": True, "code": "declined", "message": "why", "logged": True}
    assert done["undo_first"] is None


def test_a_broken_invariant_takes_acts_back_before_the_rules_of_the_node(path: RunPath) -> None:
    first = act("first", output="n", rules=(undo(act("undo_first")),))
    program = acting(first, give(result=1), invariants=NOT_NEGATIVE, rules=(undo(act("undo_node")),))
    assert [step for step, _ in requests(path, program, first=-1)] == ["first", "undo_first", "undo_node"]


def test_acts_at_once_are_taken_back_when_all_have_ended(path: RunPath) -> None:
    first = act("first", output="n", rules=(undo(act("undo_first")),))
    program = acting(ParallelStep(name="p", steps=(first, act("second"))), give(result=1), invariants=NOT_NEGATIVE)
    assert [step for step, _ in requests(path, program, first=-1)] == ["first", "second", "undo_first"]


@pytest.mark.parametrize("end", [give(result=1), LAST], ids=["success", "error"])
def test_an_invariant_that_fails_at_the_end_takes_acts_back(path: RunPath, end: Step) -> None:
    first = act("first", rules=(undo(act("undo_first")),))
    program = acting(first, put("n", -1), end, invariants=NOT_NEGATIVE)
    effects = Answers(last=EffectError("declined"))
    failed = path(program, {}, EXECUTION, effects).error
    assert failed is not None
    assert failed.code == "invariant_failed"
    assert effects.steps[-1] == "undo_first"


ORDER = Machine("order", "new", ("new", "paid"), (("new", "paid", None),))
MOVE = TransitionStep(name="move", machine="order", entity=lit("o1"), source=lit("new"), target=lit("paid"))


@pytest.mark.parametrize(
    ("rules", "retry"),
    [
        ((ErrorRule("*", "retry", retry=StepRetry(5)),), StepRetry(5)),
        ((ErrorRule("timeout", "backoff", retry=StepRetry(4, "linear")),), StepRetry(4, "linear")),
        ((ErrorRule("*", "retry"),), StepRetry()),
        ((ErrorRule("*", "map_to", fails("m")),), None),
        ((), None),
    ],
)
def test_a_node_that_repeats_says_so_in_requests(
    path: RunPath, rules: tuple[ErrorRule, ...], retry: StepRetry | None
) -> None:
    program = acting(act("own", retry=StepRetry(2)), act("plain"), MOVE, give(result=1), rules=rules, machines=(ORDER,))
    effects = Answers(move="paid")
    assert path(program, {}, EXECUTION, effects).status == "success"
    assert [request.retry for request in effects.requests] == [StepRetry(2), retry, retry]


def test_nothing_is_taken_back_where_the_entry_fails(path: RunPath) -> None:
    leading = ValidateStep(name="v", checks=(check(comp(1, "<", "a")),))
    program = acting(
        leading,
        give(result=1),
        preconditions=(contract(False),),
        rules=(ErrorRule("*", "compensate", fails("sorry"), (act("undo"),)),),
    )
    effects = Answers()
    failed = path(program, {}, EXECUTION, effects).error
    assert failed is not None
    assert (failed.code, effects.steps) == ("sorry", [])

"""A completed act is taken back once when an invariant fails after it."""

from __future__ import annotations

import pytest

from lyra.vesper.ir import AssignStep, ErrorRule
from tests.vesper.building import EXECUTION, comp, contract, fails, give, lit, name
from tests.vesper.effects.test_steps_with_effects import Answers, act, acting
from tests.vesper.paths import PATHS, RunPath


@pytest.mark.parametrize("path", PATHS)
def test_the_rules_of_a_completed_act_do_not_apply_to_a_broken_invariant(path: RunPath) -> None:
    answers = Answers(charge=-1)
    refund = ErrorRule("*", "compensate", None, (act("refund"),))
    program = acting(
        act("charge", rules=(refund,), output="n"), give(result=1), invariants=(contract(comp(name("n"), ">=", 0)),)
    )
    assert path(program, {}, EXECUTION, answers).error.code == "invariant_failed"
    assert answers.steps == ["charge", "refund"]


@pytest.mark.parametrize("path", PATHS)
def test_a_broken_invariant_does_not_stop_the_compensation(path: RunPath) -> None:
    """`refund` runs while the invariant is broken; the steps behind it run too."""
    answers = Answers(charge=-1)
    steps = (act("refund"), AssignStep(name="reset", target="n", value=lit(0)), act("tell", name("n")))
    program = acting(
        act("charge", output="n"),
        give(result=1),
        invariants=(contract(comp(name("n"), ">=", 0)),),
        rules=(ErrorRule("invariant_failed", "compensate", fails("taken_back"), steps),),
    )
    assert path(program, {}, EXECUTION, answers).error.code == "taken_back"
    assert answers.steps == ["charge", "refund", "tell"]
    assert answers.requests[-1].payload == 0


@pytest.mark.parametrize("path", PATHS)
def test_a_broken_invariant_does_not_stop_a_registered_compensation(path: RunPath) -> None:
    answers = Answers(charge=-1)
    refund = ErrorRule("*", "compensate", None, (act("refund"), act("tell")))
    program = acting(
        act("charge", rules=(refund,), output="n"), give(result=1), invariants=(contract(comp(name("n"), ">=", 0)),)
    )
    assert path(program, {}, EXECUTION, answers).error.code == "invariant_failed"
    assert answers.steps == ["charge", "refund", "tell"]

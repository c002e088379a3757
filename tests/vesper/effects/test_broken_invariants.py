"""A completed act is taken back once when an invariant fails after it."""

from __future__ import annotations

import pytest

from lyra.vesper.ir.program import ErrorRule
from tests.vesper.building import EXECUTION, comp, contract, give, name
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

"""Calls ahead of their turn against the line-by-line run, on random programs in virtual time."""

from __future__ import annotations

import os

import pytest

from lyra.testing.vega_parallel import compare
from lyra.vega.rules import OFF, RULES

COUNT = int(os.environ.get("VEGA_PARALLEL_PROGRAMS", "300"))
SEED = int(os.environ.get("VEGA_SEED", "1"))
_PART = 25

# For each rule, programs that show it: without the rule one of them differs from its line-by-line run.
SHOWN = {
    "ordered": (5,),
    "barrier": (90,),
    "branch": (2,),
    "delivery": (18,),
    "copies": (12,),
    "same": (3,),
    "first": (0,),
    "cancelled": (0,),
    "crash": (50,),
    "spend": (0,),
    "reserve": (22,),
    "window": (0,),
}


@pytest.mark.parametrize("part", range(-(-COUNT // _PART)))
def test_overlap_changes_nothing_but_the_time(part):
    """Prints, values, histories of ordered agents, spend and the error raised are those of the line-by-line run."""
    first = SEED + part * _PART
    for seed in range(first, min(first + _PART, SEED + COUNT)):
        found = compare(seed)
        assert not found.problems, f"python -m lyra.testing vega-parallel --seed {seed} --n 1\n{found.problems}"


def test_every_rule_has_programs_that_show_it():
    assert SHOWN.keys() == RULES.keys()


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_a_program_differs(rule, monkeypatch):
    """The comparison can fail: each rule switched off is noticed, and by the same programs it is kept with it on."""
    seeds = SHOWN[rule]
    assert not [seed for seed in seeds if compare(seed).problems]
    OFF.add(rule)
    try:
        assert any(compare(seed).problems for seed in seeds)
    finally:
        OFF.discard(rule)

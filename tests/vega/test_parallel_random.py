"""Calls ahead of their turn against the line-by-line run, on random programs in virtual time."""

from __future__ import annotations

import os

import pytest

from lyra import vega
from lyra.testing.vega_parallel import compare
from lyra.testing.vega_programs import AGENTS, program
from lyra.vega import bytecode
from lyra.vega.rules import OFF, RULES

COUNT = int(os.environ.get("VEGA_PARALLEL_PROGRAMS", "300"))
SEED = int(os.environ.get("VEGA_SEED", "1"))
_PART = 25

# For each rule the seed of a program, or a program of its own (with the seed that says how often the model fails), that
# shows it: without the rule it differs from its line-by-line run. To the model `m29` is bad for A (late), `m85` for S.
SHOWN: dict[str, int | tuple[int, str]] = {
    "ordered": (
        0,
        'try { let x = a <- "m29"; let y = m <- "hi"; } catch Error(r) { print("caught " + r); } print(m <- "last");',
    ),
    "barrier": 225,
    "branch": 49,
    "delivery": 30,
    "aliases": 9,
    "copies": 28,
    "same": 9,
    "first": 36,
    "cancelled": 7,
    "crash": (
        0,
        'try { let x = a <- "m29"; let y = s <- "m85"; } catch Error(r) { print("caught " + r); } print(s <- "m1");',
    ),
    "spend": 1,
    "reserve": (
        1,
        """session budget $0.006 {
            let all = "";
            for x in ["1", "2", "3", "4", "5", "6", "7"] { all = all + (a <- x); }
            print(all);
        }""",
    ),
    "once": (
        1,
        """fn g(x) { let r = ""; for i in list::range(0, 14) { r = a <- x; } return r; }
        try { session budget $0.0091 { let x = g("1"); let y = a <- "2"; print(x + y); } }
        catch BudgetExceeded(r) { print("caught " + r); }""",
    ),
    "held": (1, 'let x = a <- "1"; let q = spawn D; let y = q <- "2"; print(q);'),
    "settings": (1, 'let x = a <- "1"; shared = "new"; let v = spawn V; let y = v <- "2"; print(x + y);'),
    "spawn": (
        0,
        'try { let x = a <- "m29"; let q = spawn D; let y = q <- "2"; } catch Error(r) { print("caught " + r); }',
    ),
    "window": 3,
}
# An early answer that is not the one wanted only turns up when lists that change are read ahead.
WITH = {"same": {"same", "aliases"}}


@pytest.mark.parametrize("part", range(-(-COUNT // _PART)))
def test_overlap_changes_nothing_but_the_time(part):
    """Prints, values, histories of ordered agents, spend and the error raised are those of the line-by-line run."""
    first = SEED + part * _PART
    for seed in range(first, min(first + _PART, SEED + COUNT)):
        found = compare(seed)
        assert not found.problems, f"python -m lyra.testing vega-parallel --seed {seed} --n 1\n{found.problems}"


def test_a_program_is_compiled_to_the_same_code_every_time():
    """Saved processes name their code by its hash."""
    for seed in range(30):
        text = program(seed)
        assert bytecode.dump(vega.compile(text)) == bytecode.dump(vega.compile(text)), seed


def test_every_rule_has_programs_that_show_it():
    assert SHOWN.keys() == RULES.keys()


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_a_program_differs(rule):
    """The comparison can fail: each rule switched off is noticed by a program that is right with it."""
    shown = SHOWN[rule]
    seed, source = (shown, None) if isinstance(shown, int) else (shown[0], AGENTS + shown[1])
    assert not compare(seed, source).problems
    OFF.update(WITH.get(rule, {rule}))
    try:
        assert compare(seed, source).problems
    finally:
        OFF.clear()

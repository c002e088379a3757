"""Seeded worlds by the dozen: faults, crashes, take-overs, and nothing that must not happen."""

from __future__ import annotations

import pytest

from lyra.core.faultpoint import POINTS
from tests.cases import cases
from verify.simulation.invariants import INVARIANTS, PROMISES
from verify.simulation.provider import FAULTS
from verify.simulation.scenes import POINTS_OF_SHARDS
from verify.simulation.sim import run_many, run_seed, same_twice
from verify.simulation.workload import Generator
from verify.simulation.world import ENDINGS

SEEDS = range(1, cases(200) + 1)


@pytest.fixture(scope="module")
def reports():
    return list(run_many(SEEDS, twice_every=20))


@pytest.mark.slow
def test_no_invariant_is_broken_in_any_world(reports):
    """The twelve invariants and the promises hold after every step of every world."""
    broken = [f"seed {report.seed}: {name}: {detail}" for report in reports for name, detail in report.violations]
    assert not broken, "\n".join(broken[:20])
    assert len(reports) == len(SEEDS)


@pytest.mark.slow
def test_the_worlds_pass_every_named_point_and_live_more_than_once(reports):
    """A simulation that never came to a place says nothing about it."""
    for name in set(POINTS) - set(POINTS_OF_SHARDS):
        assert sum(report.points[name] for report in reports) > 0, name
    assert sum(report.lives for report in reports) > 2 * len(SEEDS)
    assert sum(report.rows for report in reports) > 40 * len(SEEDS)


def test_same_seed_same_journal_down_to_the_times():
    """A run is a function of its seed."""
    for seed in (3, 14, 159):
        assert same_twice(seed).violations == ()


def test_another_seed_is_another_run():
    assert run_seed(1).hash != run_seed(2).hash


def test_the_simulation_has_twelve_invariants_with_a_sentence_each():
    assert len(INVARIANTS) == 12
    assert all(len(sentence) > 20 for sentence in (INVARIANTS | PROMISES).values())


def test_every_fault_of_the_simulation_is_drawn():
    """429, 500, hang, half stream and tool crash come from the provider; the rest from the world around it."""
    assert {"429", "500", "hang", "half_stream", "tool_crash"} <= set(FAULTS)
    assert set(ENDINGS) == {"point", "moment", "close", "paused"}


def test_generated_programs_are_plain_data_and_follow_from_the_seed():
    from lyra.core import codec
    from lyra.core.ids import make_random

    first, second = Generator(make_random(7)).root(), Generator(make_random(7)).root()
    assert first == second
    assert codec.decode(codec.encode(first[0])) == first[0]

"""Worlds of several hosts by the dozen: partitions, pauses, crashes, take-overs, and nothing that must not happen."""

from __future__ import annotations

import pytest

from tests.cases import cases
from verify.simulation.cluster.books import PROMISES
from verify.simulation.cluster.sim import run_many, run_seed, same_twice
from verify.simulation.cluster.world import POINTS, TROUBLE

SEEDS = range(1, cases(220) + 1)


@pytest.fixture(scope="module")
def reports():
    return list(run_many(SEEDS, twice_every=0))


def test_no_promise_is_broken_in_any_world(reports):
    """The promises of a cluster hold in every world, whatever befalls its hosts and its network."""
    broken = [f"seed {report.seed}: {name}: {detail}" for report in reports for name, detail in report.violations]
    assert not broken, "\n".join(broken[:20])
    assert len(reports) == len(SEEDS)


def test_the_worlds_have_all_kinds_of_trouble(reports):
    """A simulation in which nothing happens says nothing."""
    for word in TROUBLE:
        assert sum(report.troubles.get(word, 0) for report in reports) > 0, word
    for name in ("remote.taken", "remote.delivered", "door.performed", "recovery.done", "lease.acquired"):
        assert name in POINTS
        assert sum(report.points[name] for report in reports) > len(SEEDS), name
    assert sum(report.hosts for report in reports) > 3 * len(SEEDS)
    assert sum(report.posts for report in reports) > 10 * len(SEEDS)
    assert sum(report.lost for report in reports) > 10
    assert sum(report.repeated for report in reports) > 10


def test_the_worlds_use_what_shards_share(reports):
    """Limits, services, groups, trees and questions are in many worlds; whether all of a limit could be used is
    measured in some."""
    used = {word: sum(report.shared[word] for report in reports) for word in reports[0].shared}
    assert used.pop("measured limit") > len(SEEDS) // 20, used
    assert min(used.values()) > len(SEEDS) // 2, used


def test_same_seed_same_journals_down_to_the_times():
    """A run is a function of its seed."""
    for seed in (3, 14):
        assert same_twice(seed).violations == ()


def test_another_seed_is_another_run():
    assert run_seed(1).hash != run_seed(2).hash


def test_every_promise_has_a_sentence():
    assert all(len(sentence) > 20 for sentence in PROMISES.values())

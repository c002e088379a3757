"""Pipelines that wait for an answer, under real SIGKILL; the long version is part of `make crash`."""

from __future__ import annotations

import asyncio
import os

import pytest

from lyra.core.faultpoint import POINTS
from tests.cases import cases
from verify.crash import pipeline as crash_pipeline
from verify.simulation.scenes import POINTS_OF_PARTS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]


def test_pipelines_that_wait_survive_kills_and_come_to_the_same_end():
    """Many kills: the questions wait, each is asked once, no finished stage is run again, the results are equal."""
    count = cases(60)
    result = crash_pipeline.run(count, seed=1)
    assert result.failures == []
    assert result.kills == count
    assert result.acts > 2 * count


def test_a_kill_at_every_named_point_of_supervisors_and_subsystems():
    """The points that the other workload does not pass, first, middle and last."""
    assert set(POINTS_OF_PARTS) < set(POINTS)
    result = crash_pipeline.point_kills()
    assert result.failures == []
    assert result.kills >= 2 * len(POINTS_OF_PARTS)


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory):
    """Pipelines that ran in peace: their store, their world's file, their results."""
    folder = tmp_path_factory.mktemp("flows")
    store, world = folder / "run.db", folder / "world.txt"
    results = asyncio.run(crash_pipeline.live(store, world, answers=True))
    return store, world, results


def test_the_verdict_on_undisturbed_pipelines_is_clean(left_behind):
    store, world, results = left_behind
    problems, acts = crash_pipeline.verify(store, world, results, results)
    assert problems == []
    assert acts == results["review"][2] + results["survey"][2]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("act review#1 draft", "performed 2 times"),
        ("act survey#2 left", "after its report had been seen"),
        ("ack answer int_absent", "is lost"),
        ("seen survey#99 sum", "is lost"),
        ("open 9.5", "an opening took"),
        ("act money.6 buy", "money has bought 7 times"),
        ("act rest.4 buy", "shop has bought 11 times"),
    ],
)
def test_the_verdict_sees_each_kind_of_harm(left_behind, line, word):
    store, world, results = left_behind
    changed = world.with_name("changed.txt")
    changed.write_text(world.read_text() + line + "\n")
    assert word in "\n".join(crash_pipeline.verify(store, changed, results, results)[0])


def test_the_verdict_sees_other_results(left_behind):
    store, world, results = left_behind
    other = {**results, "review": ["failed"]}
    assert "results differ" in "\n".join(crash_pipeline.verify(store, world, other, results)[0])

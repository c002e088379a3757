"""Every benchmark still works, at tiny sizes. Nothing here judges a time but start-up's, and that generously."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from pathlib import Path

import pytest
from benchmarks.__main__ import RESULTS, SUBJECTS, page, tables
from benchmarks.measure import Figure, Row, Size, Timing, at_most, interleave, markdown, ratio_at_most

import lyra
from tests import warm
from tests.limits import within

ROOT = Path(__file__).parent.parent
SLACK = float(os.environ.get("LYRA_STARTUP_SLACK", "2"))


def bench(*args: str) -> subprocess.CompletedProcess[str]:
    assert lyra.__file__ is not None
    env = {**os.environ, "PYTHONPATH": str(Path(lyra.__file__).parent.parent)}
    return warm.run("benchmarks.__main__:main", args, cwd=ROOT, env=env, timeout_s=300)


@pytest.mark.parametrize("name", SUBJECTS)
def test_each_subject_runs(name):
    """`--quick --json` gives one document with at least one measured row.

    A delay that is added is a difference of two times: with few tries on a busy machine it can be below zero.
    """
    done = bench(name, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["subjects"][name]
    assert rows
    assert all(math.isfinite(row["ours"]["value"]) for row in rows)
    assert all(row["ours"]["value"] >= 0 for row in rows if not re.search(r"\badd(s|ed)\b", row["what"]))


@pytest.mark.timed
def test_startup_is_within_its_goals():
    """`import lyra` and `lyra --help` keep their promises, with slack for a busy machine."""
    done = bench("startup", "--quick", "--json")
    rows = {row["what"]: row["ours"]["value"] for row in json.loads(done.stdout)["subjects"]["startup"]}
    within(rows["import lyra"], 60 * SLACK)
    within(rows["lyra --help"], 150 * SLACK)


def test_an_unknown_name_is_a_usage_error():
    done = bench("dor")
    assert done.returncode == 2
    assert "no benchmark 'dor'" in done.stderr


def test_contenders_take_turns_and_the_best_counts():
    order = []
    times = {"a": iter([3.0, 1.0, 2.0]), "b": iter([5.0, 6.0, 4.0])}

    def contender(name):
        def work():
            order.append(name)
            return Timing(next(times[name]), 9.0, 1_000_000)

        return work

    best = interleave({"a": contender("a"), "b": contender("b")}, 3)
    assert order == ["a", "b"] * 3
    assert (best["a"].value, best["b"].value) == (1.0, 4.0)


def test_a_goal_is_met_missed_or_open():
    ours, theirs = Figure(30.0), Figure(20.0)
    assert Row("x", ours, "y", theirs, (ratio_at_most(1.5), at_most(30, "µs"))).ok is True
    assert Row("x", ours, "y", theirs, (ratio_at_most(1.4), at_most(30, "µs"))).ok is False
    assert Row("x", ours, "y", None, (ratio_at_most(1.5),)).ok is None
    assert Row("x", ours, "y", theirs).ok is None
    assert "| NO |" in markdown([Row("x", ours, "y", theirs, (ratio_at_most(1),))])


def test_a_kept_page_is_read_as_it_was_written():
    """`--write` of one subject leaves the tables of the others as they are."""
    text = RESULTS.read_text()
    assert page(tables(text), Size(quick=False)) == text

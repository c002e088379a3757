"""A `timed` test is tried again where a limit on a time was missed, and for nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import LimitMissed, best_within

ROOT = Path(__file__).parents[1]
PLANTED = """
import pytest
from tests.limits import within
tries = {name: [] for name in "abcde"}

def attempt(name):
    tries[name].append(1)
    print("try", name)
    return len(tries[name])

@pytest.mark.timed
def test_a():
    within(2.0 if attempt("a") < 3 else 0.5, 1.0)

@pytest.mark.timed
def test_b():
    attempt("b")
    within(2.0, 1.0, "always")

@pytest.mark.timed
def test_c():
    assert attempt("c") > 1, "right the second time"

@pytest.mark.timed
def test_d():
    assert attempt("d") > 1, "LimitMissed: in the words alone"

@pytest.mark.timed
def test_e():
    attempt("e")
    raise TimeoutError
"""


def test_only_a_missed_limit_is_measured_again(tmp_path: Path):
    file = tmp_path / "test_planted.py"
    file.write_text(PLANTED)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-s", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert [done.stdout.count(f"try {name}") for name in "abcde"] == [3, 3, 1, 1, 1], done.stdout
    failed = [line.partition("::test_")[2][:1] for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert failed == ["b", "c", "d", "e"]


def test_measuring_ends_with_the_first_time_within_the_limit():
    times = iter([3.0, 0.9, 0.1])
    best_within(lambda: next(times), 1.0, tries=3)
    assert next(times) == 0.1
    with pytest.raises(LimitMissed, match="2 is beyond 1: seconds"):
        best_within(iter([3.0, 2.0, 4.0]).__next__, 1.0, tries=3, told="seconds")

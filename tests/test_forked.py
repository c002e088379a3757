"""Forked workers run every test once and tell how it ended; one that dies fails its test, and the others go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import Plan

ROOT = Path(__file__).parents[1]
PLANTED = """
import os
import pytest

@pytest.fixture
def broken():
    raise ValueError("planted")

@pytest.fixture
def untidy():
    yield
    raise ValueError("planted")

def test_passes(tmp_path): ...

def test_fails():
    raise ValueError("planted")

def test_is_not_set_up(broken): ...

def test_is_not_tidied_up(untidy): ...

def test_ends_its_worker():
    os.kill(os.getpid(), 9)

@pytest.mark.parametrize("number", range(20))
def test_comes_later(number): ...
"""
TOLD = """
told = []

def pytest_runtest_logreport(report):
    told.append(f"{report.when} {report.outcome} {report.nodeid.partition('::')[2]}")

def pytest_unconfigure(config):
    print("told:", *sorted(told), sep="\\n")
"""
ENDINGS = [
    "call failed test_ends_its_worker",
    "call failed test_fails",
    *sorted(f"call passed test_comes_later[{number}]" for number in range(20)),
    "call passed test_is_not_tidied_up",
    "call passed test_passes",
    "setup failed test_is_not_set_up",
    "teardown failed test_is_not_tidied_up",
]


def _run(folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    (folder / "test_planted.py").write_text(PLANTED)
    (folder / "conftest.py").write_text(TOLD)
    command = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", *options, str(folder)]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    return done, done.stdout.partition("told:\n")[2].splitlines()


def test_endings_and_failures_are_told(tmp_path: Path) -> None:
    done, told = _run(tmp_path, "--forks", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert told == ENDINGS
    assert "the process of the worker ended during this test" in done.stdout


@pytest.mark.long
def test_all_is_told_where_durations_are_asked_for(tmp_path: Path) -> None:
    _, told = _run(tmp_path, "--forks", "2", "--durations=1")
    assert sum(line.startswith("setup passed") for line in told) == 24
    assert sum(line.startswith("teardown passed") for line in told) == 23


@pytest.mark.long
def test_the_first_failure_ends_a_run_that_asks_for_it(tmp_path: Path) -> None:
    done, told = _run(tmp_path, "--forks", "1", "-x")
    assert done.returncode == 1
    assert told == ["call failed test_fails", "call passed test_passes"]


def test_each_test_is_taken_once() -> None:
    """Those that take the longest come first; a worker without work takes over whole files where it can."""
    plan = Plan([*"xxyaaaabbbbccccdddd"], firsts=3, workers=4)
    assert [plan.take(worker) for worker in (0, 1, 0)] == [0, 2, 1]
    assert [plan.take(worker) for worker in (0, 1, 2, 3)] == [3, 7, 11, 15]
    assert [plan.take(0) for _ in range(5)] == [4, 5, 6, 9, 10]  # the half of the part of worker 1
    rest = [plan.take(worker) for worker in (0, 1, 2, 3) * 4]
    assert sorted(number for number in rest if number is not None) == [8, 12, 13, 14, 16, 17, 18]
    plan.close()


def test_a_part_is_divided_between_two_files() -> None:
    plan = Plan([*"aaabbcccc", *"d"], firsts=0, workers=2)
    assert plan.take(1) == 5
    for _ in range(4):
        plan.take(1)
    assert plan.take(1) == 3  # of file b, and not the third of file a
    plan.close()


def test_a_stopped_plan_gives_out_nothing() -> None:
    plan = Plan([*"aaab"], firsts=1, workers=1)
    assert plan.take(0) == 0
    plan.stop()
    assert plan.take(0) is None
    plan.close()

"""What workers tell: how each test ended and what failed around it; all of it where durations are asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLANTED = """
import pytest

@pytest.fixture
def broken():
    raise ValueError("planted")

@pytest.fixture
def untidy():
    yield
    raise ValueError("planted")

def test_passes(): ...

def test_fails():
    raise ValueError("planted")

def test_is_not_set_up(broken): ...

def test_is_not_tidied_up(untidy): ...
"""
TOLD = """
told = []

def pytest_runtest_logreport(report):
    told.append(f"{report.when} {report.outcome}")

def pytest_runtest_logstart(nodeid):
    told.append("start")

def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        print("told:", *sorted(told), sep="\\n")
"""
ENDINGS = ["call failed", "call passed", "call passed", "setup failed", "teardown failed"]
OTHERS = [*["setup passed"] * 3, *["start"] * 4, *["teardown passed"] * 3]


@pytest.mark.parametrize(("options", "told"), [((), ENDINGS), (("--durations=1",), sorted([*ENDINGS, *OTHERS]))])
def test_workers_tell_endings_and_failures(tmp_path: Path, options: tuple[str, ...], told: list[str]) -> None:
    (tmp_path / "test_planted.py").write_text(PLANTED)
    (tmp_path / "conftest.py").write_text(TOLD)
    command = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "1", *options, str(tmp_path)]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.partition("told:\n")[2].splitlines() == told

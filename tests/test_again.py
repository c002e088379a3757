"""A test that fails beside others and passes alone is named; one that fails alone fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import TRIED_MAX, main

BUSY = """
from pathlib import Path

def test_busy():
    seen = Path("seen")
    is_first = not seen.exists()
    seen.touch()
    assert not is_first
"""


def first_run(folder: Path, text: str) -> int:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_planted.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder)],
        cwd=folder,
        check=False,
        stdout=subprocess.DEVNULL,
    ).returncode


@pytest.mark.slow
def test_one_that_passes_alone_is_named(tmp_path: Path, capfd) -> None:
    status = first_run(tmp_path, BUSY)
    assert status == 1
    assert main(status, tmp_path) == 0
    assert "passed alone: test_planted.py::test_busy" in capfd.readouterr().out


@pytest.mark.slow
def test_one_that_fails_alone_fails_the_run(tmp_path: Path) -> None:
    assert main(first_run(tmp_path, "def test_wrong():\n    assert False\n"), tmp_path) == 1


@pytest.mark.slow
def test_many_failures_are_not_tried_again(tmp_path: Path, capfd) -> None:
    many = "".join(f"def test_{number}():\n    assert False\n" for number in range(TRIED_MAX + 1))
    assert main(first_run(tmp_path, many), tmp_path) == 1
    assert "once more" not in capfd.readouterr().out


def test_an_interrupted_run_stays_one(tmp_path: Path) -> None:
    for status in (0, 2, 3, 4, 5):
        assert main(status, tmp_path) == status
    assert main(1, tmp_path) == 1

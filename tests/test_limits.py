"""A `timed` test is tried again where a limit on a time was missed, and for nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLANTED = """
import pytest
from tests.limits import within
tries = []

@pytest.mark.timed
def test_planted():
    tries.append(1)
    print("try", len(tries))
    {}
"""


@pytest.mark.parametrize(
    ("line", "tries", "passes"),
    [
        ("within(2.0 if len(tries) < 3 else 0.5, 1.0)", 3, True),
        ("within(2.0, 1.0, 'always')", 3, False),
        ("assert len(tries) > 1, 'right the second time'", 1, False),
        ("assert len(tries) > 1, 'LimitMissed: in the words alone'", 1, False),
        ("raise TimeoutError", 1, False),
    ],
)
def test_only_a_missed_limit_is_measured_again(tmp_path: Path, line: str, tries: int, passes: bool):
    file = tmp_path / "test_planted.py"
    file.write_text(PLANTED.format(line))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-s", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout.count("try "), done.returncode == 0) == (tries, passes), done.stdout

"""A short soak: the long one is `make soak`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timed
def test_a_thousand_processes_for_twenty_seconds():
    """Supervised processes crash and come back; memory, loop and table stay as they were."""
    # In a process of its own: what other tests have left in this one's memory is not counted.
    code = "from verify.load import soak; r = soak.run(1_000, 20.0, seed=1); print(r.failures, r.crashes, r.effects)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    failures, crashes, effects = done.stdout.strip().rsplit(" ", 2)
    assert failures == "[]"
    assert int(crashes) >= 3
    assert int(effects) > 500

"""A short soak: the long one is `make soak`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SOAK = "from verify.load import soak; r = soak.run(1_000, 20.0, seed=1); print(r.failures, r.crashes, r.effects)"

# A bare loop beside it: its own p99 lag in milliseconds, which is the machine's.
CONTROL = """
import asyncio, time
async def main():
    lags, end = [], time.monotonic() + 15
    while time.monotonic() < end:
        due = time.monotonic() + 0.02
        await asyncio.sleep(0.02)
        lags.append(time.monotonic() - due)
    print(sorted(lags)[int(len(lags) * 0.99)] * 1000)
asyncio.run(main())
"""
CONTROL_LAG_MS_MAX = 25.0


@pytest.mark.slow
@pytest.mark.timed
def test_a_thousand_processes_for_twenty_seconds():
    """Supervised processes crash and come back; memory, loop and table stay as they were.

    The lag of the loop says something only on a machine that does not stall by itself.
    """
    # In a process of its own: what other tests have left in this one's memory is not counted.
    with subprocess.Popen([sys.executable, "-c", CONTROL], stdout=subprocess.PIPE, text=True) as control:
        done = subprocess.run(
            [sys.executable, "-c", SOAK], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
        )
        control_lag_ms = float(control.communicate(timeout=60)[0])
    text, crashes, effects = done.stdout.strip().rsplit(" ", 2)
    failures = ast.literal_eval(text)
    if control_lag_ms > CONTROL_LAG_MS_MAX:
        failures = [failure for failure in failures if not failure.startswith("lag_p99_ms")]
    assert failures == []
    assert int(crashes) >= 3
    assert int(effects) > 500

"""Taps on the surface: a use is told, and an entry that is switched off does nothing. Each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

USES = """
import json, sys
from verify.surface.taps import record
uses = set()
record(uses.add)
{program}
print(json.dumps(sorted(uses)))
"""
OFF = """
import json, sys
from verify.surface.taps import switch_off_named
switch_off_named({entry!r})
{program}
print(json.dumps(result))
"""

BACKOFF = "from lyra import Backoff\nresult = Backoff(initial_s=2.0, factor=3.0).delay(2, lambda: 0.5)"
RETRY = "from lyra import Retry\nresult = Retry(max_attempts=5).max_attempts"
BUDGET = "from lyra import Budget\nresult = Budget(usd=2).limits_money"
ASYNC = """
import asyncio
from lyra import Kernel
from lyra.errors import LyraError
async def main():
    async with Kernel() as kernel:
        async def one(ctx):
            return 1
        events = []
        kernel.on_event(lambda event: events.append(event.kind))
        handle = await kernel.spawn(one, pid="one")
        await handle.wait()
        return handle.pid, "process.terminated" in events
result = asyncio.run(main())
"""
ERROR = "from lyra.errors import ConfigError\nresult = ConfigError('x').code"

# pytest counts what a method takes, and calls it with the test where that is more than `self`.
SETUP = """
from lyra.testing import StoreConformance
assert StoreConformance.setup_method.__code__.co_argcount == 1
StoreConformance().setup_method()
"""


def run(program: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("program", "entries"),
    [
        (BACKOFF, ["name:lyra.Backoff.delay", "parameter:lyra.Backoff(initial_s)", "parameter:lyra.Backoff(factor)"]),
        (RETRY, ["parameter:lyra.Retry(max_attempts)"]),
        (ASYNC, ["name:lyra.Kernel.spawn", "parameter:lyra.Kernel.spawn(pid)", "event:process.terminated"]),
        (ERROR, ["error:config"]),
        (SETUP, ["name:lyra.testing.StoreConformance.setup_method"]),
    ],
)
def test_uses_are_told(program, entries):
    uses = run(USES.format(program=program))
    assert set(entries) <= set(uses)
    assert "name:lyra.Retry.should_retry" not in uses


@pytest.fixture(scope="module")
def beside() -> dict[str, Any]:
    """What the programs come to where an entry is off that none of them uses."""
    programs = (BACKOFF, RETRY, BUDGET, ASYNC, ERROR)
    program = "results = []\n" + "\n".join(f"{text}\nresults.append(result)" for text in programs)
    return dict(
        zip(programs, run(OFF.format(entry="error:denied", program=program + "\nresult = results")), strict=True)
    )


@pytest.mark.parametrize(
    ("program", "entry", "on", "off"),
    [
        (BACKOFF, "name:lyra.Backoff.delay", 6.0, None),
        (RETRY, "parameter:lyra.Retry(max_attempts)", 5, 3),
        (BUDGET, "parameter:lyra.Budget(usd)", True, False),
        (ASYNC, "parameter:lyra.Kernel.spawn(pid)", ["one", True], ["p1", True]),
        (ASYNC, "event:process.terminated", ["one", True], ["one", False]),
        (ERROR, "error:config", "config", "switched_off"),
    ],
)
def test_what_is_off_does_nothing(program, entry, on, off, beside):
    """Where another entry is off, nothing changes."""
    assert beside[program] == on
    assert run(OFF.format(entry=entry, program=program)) == off

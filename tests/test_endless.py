"""A test that waits without end fails instead of holding up the run."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests import endless


def test_the_alarm_ends_a_wait_in_a_loop() -> None:
    """The alarm that is set around each test is heard inside a running loop."""
    assert signal.getsignal(signal.SIGALRM) is endless._end
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(TimeoutError, match="did not end"):
        asyncio.run(asyncio.sleep(60))

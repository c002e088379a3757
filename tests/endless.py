"""Ends a test that waits without end: a plugin of pytest (see `conftest`). Such a test fails, and the others go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from typing import Any, Final

import pytest

__all__ = ["PATIENCE_S"]

PATIENCE_S: Final = 300  # no test takes so long, also on a busy machine


def _end(_number: int, _frame: Any) -> None:
    raise TimeoutError(f"the test did not end within {PATIENCE_S} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Set an alarm around the test; one with no main thread to interrupt, or that sets alarms itself, has none."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        return (yield)
    earlier = signal.signal(signal.SIGALRM, _end)
    signal.alarm(PATIENCE_S)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)

"""A test that configures the log leaves no handler behind: it would write to a stream that is closed by then."""

from __future__ import annotations

import logging
import sys

import pytest


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown() -> None:
    logs = sys.modules.get("lyra.observe.logs")
    if logs is None or not logs._configured:
        return
    logger = logging.getLogger("lyra")
    for handler in logs._configured:
        logger.removeHandler(handler)
        handler.close()
    logs._configured.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True

"""Workers tell how each test ended, and not that it began, was set up and was tidied up: nothing of that is shown.

Five messages for each of many thousand tests take more time than most of the tests. Where durations, every test by its
name or a file of all reports are asked for, and where a set-up or a tear-down fails or is skipped, all is told.
"""

from __future__ import annotations

from typing import Any

import pytest

_WORKER = "WorkerInteractor"  # the part of pytest-xdist that tells


def pytest_sessionstart(session: pytest.Session) -> None:
    options = session.config.option
    is_all_wanted = options.verbose > 0 or options.durations is not None or getattr(options, "xmlpath", None)
    if hasattr(session.config, "workerinput") and not is_all_wanted:
        hook: Any = session.config.hook
        _replace(hook.pytest_runtest_logstart, lambda _: _nothing)
        _replace(hook.pytest_runtest_logfinish, lambda _: _nothing)
        _replace(hook.pytest_runtest_logreport, _ending)


def _replace(hook: Any, around: Any) -> None:
    for implementation in hook.get_hookimpls():
        if type(implementation.plugin).__name__ == _WORKER:
            implementation.function = around(implementation.function)


def _nothing(nodeid: str, location: tuple[str, int | None, str]) -> None:
    pass


def _ending(tell: Any) -> Any:
    def told(report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            tell(report)

    return told
